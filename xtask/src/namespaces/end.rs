//! The two ends of a run: programs, where they run, and on which devices.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::pair::{self, CommandPair};

use super::network::{Namespace, NamespacePair};

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EndDevice {
    /// Ours, at the address of its end, with these options, each behind a comma.
    Roce(String),
    /// The kernel's, of this name.
    Kernel(&'static str),
}

impl EndDevice {
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, EndDevice::Roce(_))
    }
}

/// One of the two ends.
pub(super) struct NamespaceEnd<'n> {
    pub(super) namespace: &'n Namespace,
    /// Address of its device, if that is ours; our command meets there as well.
    pub(super) address: IpAddr,
    /// Address at which programs of others meet, not all of which listen at addresses of IPv6.
    pub(super) host: IpAddr,
    pub(super) device: EndDevice,
    /// The processor that its programs are pinned to.
    pub(super) processor: Option<&'static str>,
}

/// Both ends of a network, with our device at each.
pub(super) fn both(
    network: &NamespacePair,
    address: impl Fn(usize) -> IpAddr,
    options: impl Fn(usize) -> String,
) -> [NamespaceEnd<'_>; 2] {
    [0, 1].map(|end| NamespaceEnd::at(network, end, address(end), EndDevice::Roce(options(end))))
}

/// The folder with the command, and the library for programs of others.
pub(super) struct BuiltPrograms(pub(super) PathBuf);

/// The lines of both ends, with `{…}` for what depends on where they run: see
/// [`NamespaceEnd::words`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLines {
    pub(super) listener: String,
    pub(super) connector: String,
}

/// Addresses of the listening end.
#[derive(Debug, Clone, Copy)]
struct ListenAddresses {
    socket: SocketAddr,
    host: IpAddr,
}

/// The multicast group of the programs at these ends: of the family of the device's address.
pub(super) fn group_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::new(239, 1, 2, 3).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// The GID of an address, as perftest takes one.
fn gid_of(address: IpAddr) -> String {
    let bytes = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    bytes.map(|byte| byte.to_string()).join(":")
}

/// Our command.
pub(super) const COMMAND: &str = "rdma-conn";
/// The index of the GID that stands for an IPv4 address, of a device of the kernel's.
const KERNELS_GID: &str = "1";

impl CommandLines {
    /// The same arguments of our command at both ends, and more of the connecting one.
    pub(super) fn ours(arguments: &str, more: &str) -> CommandLines {
        let line = format!("{COMMAND} {arguments} --device {{device}}");
        CommandLines {
            listener: format!("{line} --listen {{socket}}"),
            connector: format!("{line} --connect {{socket}} {more}").trim_end().to_owned(),
        }
    }

    /// A program of rdma-core's or perftest's.
    pub(super) fn verbs(line: &str) -> CommandLines {
        let gid = if line.starts_with("ibv_") { "-g" } else { "-x" };
        let line = format!("{line} -d {{name}} {gid} {{gid}} -p {{port}}");
        CommandLines { connector: format!("{line} {{host}}"), listener: line }
    }

    /// Runs both; what the connecting end prints on standard output.
    pub(super) fn run(
        &self,
        built: &BuiltPrograms,
        ends: &[NamespaceEnd<'_>; 2],
        limit: Duration,
    ) -> Result<String> {
        let port = pair::free_port()?;
        let at =
            ListenAddresses { socket: SocketAddr::new(ends[0].address, port), host: ends[0].host };
        let pair = CommandPair {
            listener: ends[0].words(&self.listener, built, at, limit),
            connector: ends[1].words(&self.connector, built, at, limit),
        };
        pair::run_between(&pair, port, &ends[0].namespace.tables(), limit)
    }
}

impl NamespaceEnd<'_> {
    /// An end of a network, with its device at this address.
    pub(super) fn at(
        network: &NamespacePair,
        end: usize,
        address: IpAddr,
        device: EndDevice,
    ) -> NamespaceEnd<'_> {
        let namespace = &network.namespaces[end];
        NamespaceEnd { namespace, address, host: network.v4(end), device, processor: None }
    }

    /// The words that run a line here which meets no other end, for as long as `limit`.
    pub(super) fn alone(&self, line: &str, built: &BuiltPrograms, limit: Duration) -> Vec<String> {
        let at = ListenAddresses { socket: SocketAddr::new(self.address, 0), host: self.host };
        self.words(line, built, at, limit)
    }

    /// The words that run a line here, for as long as `limit` also if this process has gone.
    fn words(
        &self,
        line: &str,
        built: &BuiltPrograms,
        at: ListenAddresses,
        limit: Duration,
    ) -> Vec<String> {
        let mut words = self.namespace.enter();
        words.extend(["timeout".into(), "--kill-after=5".into(), limit.as_secs().to_string()]);
        if let Some(processor) = self.processor {
            words.extend(["taskset", "--cpu-list", processor].map(str::to_owned));
        }
        let file = |name: &str| Path::join(&built.0, name).display().to_string();
        let mut all = line.split(' ');
        let program = all.next().unwrap_or_default();
        match &self.device {
            _ if program == COMMAND => words.push(file(COMMAND)),
            EndDevice::Roce(options) => words.extend([
                "env".into(),
                format!("RDMA_CONN_ROCE={}{options}", self.address),
                format!("LD_PRELOAD={}", file("librdma_conn_soft.so")),
                program.into(),
            ]),
            EndDevice::Kernel(_) => words.push(program.into()),
        }
        words.extend(all.map(|word| self.filled_in(word, at)));
        words
    }

    /// `{device}` is the device, with its options if our command is to make it, and `{name}` is its
    /// name; `{socket}`, `{host}` and `{port}` are where the listening end listens. `{mgid}` is a
    /// multicast group.
    fn filled_in(&self, word: &str, at: ListenAddresses) -> String {
        let (name, options, gid) = match &self.device {
            EndDevice::Roce(options) => (format!("roce:{}", self.address), &**options, "0"),
            EndDevice::Kernel(name) => ((*name).to_owned(), "", KERNELS_GID),
        };
        word.replace("{device}", &format!("{name}{options}"))
            .replace("{name}", &name)
            .replace("{gid}", gid)
            .replace("{mgid}", &gid_of(group_of(self.address)))
            .replace("{socket}", &at.socket.to_string())
            .replace("{host}", &at.host.to_string())
            .replace("{port}", &at.socket.port().to_string())
    }
}

#[cfg(test)]
mod tests;
