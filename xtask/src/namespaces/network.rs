//! Two network namespaces, joined by a pair of virtual Ethernet devices.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process;

/// Makes a namespace, says that it is there, and ends with its standard input.
const HOLD: [&str; 4] = ["--net", "sh", "-c", "echo; exec cat"];

/// A network namespace: that of this process, or one that a process holds, which ends with this
/// one.
pub(super) struct Namespace {
    holder: Option<Child>,
}

impl Namespace {
    pub(super) fn own() -> Namespace {
        Namespace { holder: None }
    }

    pub(super) fn new() -> Result<Namespace> {
        let mut unshare = Command::new("unshare");
        unshare.args(HOLD).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = unshare.spawn().context("starting unshare (Debian: util-linux)")?;
        let mut said = [0];
        let read = holder.stdout.take().map(|mut out| out.read_exact(&mut said));
        let namespace = Namespace { holder: Some(holder) };
        ensure!(matches!(read, Some(Ok(()))), "unshare --net has made no network namespace");
        Ok(namespace)
    }

    /// The process whose namespace it is, as /proc names it.
    fn process(&self) -> String {
        self.holder.as_ref().map_or_else(|| "self".to_owned(), |holder| holder.id().to_string())
    }

    /// The tables of its sockets.
    pub(super) fn tables(&self) -> PathBuf {
        format!("/proc/{}/net", self.process()).into()
    }

    /// The words that run a command in it.
    pub(super) fn enter(&self) -> Vec<String> {
        match self.holder {
            None => Vec::new(),
            Some(_) => {
                vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.process())]
            }
        }
    }

    /// Runs a command in it, to its end.
    pub(super) fn run(&self, line: &str) -> Result<()> {
        let words = [self.enter(), line.split(' ').map(str::to_owned).collect()].concat();
        process::printed(&mut process::command_of(&words)).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take()); // `cat` ends
            let _ = holder.wait();
        }
    }
}

/// A pair of namespaces whose interfaces see each other; the first one's programs listen.
pub(super) struct NamespacePair {
    pub(super) namespaces: [Namespace; 2],
    interfaces: [String; 2],
    subnet: u8,
}

/// MTU of the interfaces, for the largest path MTU of RoCE, 4,096 bytes.
pub(super) const JUMBO: u32 = 9_000;
/// The common one: 1,024 bytes.
pub(super) const ORDINARY: u32 = 1_500;

impl NamespacePair {
    /// Joins them; each network has a number of its own.
    pub(super) fn join(namespaces: [Namespace; 2], subnet: u8) -> Result<NamespacePair> {
        let interfaces = [0, 1].map(|end| format!("rdma{subnet}{end}"));
        namespaces.iter().try_for_each(|namespace| namespace.run("ip link set lo up"))?;
        let network = NamespacePair { namespaces, interfaces, subnet };
        network.make_interfaces()?;
        Ok(network)
    }

    /// Makes the pair of interfaces, with their addresses.
    pub(super) fn make_interfaces(&self) -> Result<()> {
        let ([near, far], [here, there]) = (&self.interfaces, &self.namespaces);
        here.run(&format!("ip link add {near} type veth peer name {far}"))?;
        if there.holder.is_some() {
            here.run(&format!("ip link set {far} netns {}", there.process()))?;
        }
        for (end, namespace) in self.namespaces.iter().enumerate() {
            let interface = &self.interfaces[end];
            for (address, bits) in [(self.v4(end), 24), (self.v6(end), 64)] {
                // An address that is looked for on the network first is not there at once.
                let nodad = if address.is_ipv6() { " nodad" } else { "" };
                namespace
                    .run(&format!("ip address add {address}/{bits} dev {interface}{nodad}"))?;
            }
        }
        self.set_mtu([JUMBO; 2])
    }

    pub(super) fn v4(&self, end: usize) -> IpAddr {
        Ipv4Addr::new(10, 0, self.subnet, end as u8 + 1).into()
    }

    pub(super) fn v6(&self, end: usize) -> IpAddr {
        Ipv6Addr::new(0xfd00, 0, 0, self.subnet.into(), 0, 0, 0, end as u16 + 1).into()
    }

    /// Runs a line at both ends, with `{}` for the interface.
    pub(super) fn at_both(&self, line: &str) -> Result<()> {
        let mut ends = self.namespaces.iter().zip(&self.interfaces);
        ends.try_for_each(|(end, interface)| end.run(&line.replace("{}", interface)))
    }

    /// Sets the MTU of each end, and has the interfaces up.
    pub(super) fn set_mtu(&self, mtu: [u32; 2]) -> Result<()> {
        for ((namespace, interface), mtu) in self.namespaces.iter().zip(&self.interfaces).zip(mtu) {
            namespace.run(&format!("ip link set {interface} mtu {mtu} up"))?;
        }
        Ok(())
    }

    pub(super) fn interface(&self, end: usize) -> &str {
        &self.interfaces[end]
    }
}
