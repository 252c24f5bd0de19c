//! Processes that hold a UDP port.
//!
//! The kernel lists all sockets of the network namespace (`/proc/net/udp`), with their users. Which
//! process a socket is of, only the descriptors of processes say, and those of other users cannot
//! be read.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::fs;

/// Holder of a UDP port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    /// The user of its socket.
    pub user: u32,
    /// The number of a process that has the socket, and its name, if that can be seen.
    pub process: Option<(u32, String)>,
    /// The kernel's own device, if it is that.
    pub kernel_device: Option<String>,
    /// There are several sockets: processes of this user share the address.
    pub is_shared: bool,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.process, &self.kernel_device, self.user) {
            (Some((id, name)), ..) => write!(f, "{name} (process {id})"),
            (None, Some(name), _) => write!(f, "the kernel's soft-RoCE ({name}: see `rdma link`)"),
            (None, None, user) => write!(f, "a process of user {user}, or the kernel"),
        }
    }
}

/// Returns the holders of the port of an address, or of all addresses. Nothing is bound to find
/// out.
#[must_use]
pub fn port_holders(addr: SocketAddr) -> Vec<PortHolder> {
    let lists = ["/proc/net/udp", "/proc/net/udp6"].map(fs::read_to_string);
    let sockets = sockets_of(&lists.into_iter().flatten().collect::<String>(), addr);
    let inodes: Vec<u64> = sockets.iter().map(|socket| socket.inode).collect();
    let is_shared = are_shared(&sockets);
    let (mut holders, mut named) = (Vec::new(), Vec::new());
    for (process, inode) in processes_with(&inodes) {
        named.push(inode);
        let user =
            sockets.iter().find(|socket| socket.inode == inode).map_or(0, |socket| socket.user);
        holders.push(PortHolder { user, process: Some(process), kernel_device: None, is_shared });
    }
    let unnamed = sockets.iter().filter(|socket| !named.contains(&socket.inode));
    // Processes that share an address have all its sockets.
    if holders.is_empty() {
        holders.extend(unnamed.map(|socket| unnamed_holder(socket, is_shared)));
        holders.dedup();
    }
    holders
}

/// A line of the kernel's list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SocketLine {
    local: SocketAddr,
    user: u32,
    inode: u64,
}

impl SocketLine {
    /// Reports whether it keeps others from binding the address.
    fn takes(&self, addr: SocketAddr) -> bool {
        let (mine, asked) = (self.local.ip().to_canonical(), addr.ip().to_canonical());
        let is_any = match self.local.ip() {
            IpAddr::V4(ip) => ip.is_unspecified() && asked.is_ipv4(),
            // It may be for IPv4 as well.
            IpAddr::V6(ip) => ip.is_unspecified(),
        };
        self.local.port() == addr.port() && (is_any || mine == asked)
    }
}

/// The sockets of the kernel's list that have an address, in the order of their inodes, each once:
/// a list that changes while it is read has some of them twice.
fn sockets_of(list: &str, addr: SocketAddr) -> Vec<SocketLine> {
    let mut sockets: Vec<SocketLine> = list.lines().filter_map(socket_of).collect();
    sockets.retain(|socket| socket.takes(addr));
    sockets.sort_unstable_by_key(|socket| socket.inode);
    sockets.dedup();
    sockets
}

/// True if several of them are bound to one address, as only processes that share it can do.
fn are_shared(sockets: &[SocketLine]) -> bool {
    let shares =
        |(at, one): (usize, &SocketLine)| sockets[..at].iter().any(|it| it.local == one.local);
    sockets.iter().enumerate().any(shares)
}

/// Reads `  7: 0200007F:12B7 00000000:0000 07 … uid timeout inode …`.
fn socket_of(line: &str) -> Option<SocketLine> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = words.get(1)?.split_once(':')?;
    let local = SocketAddr::new(ip_of(ip)?, u16::from_str_radix(port, 16).ok()?);
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some(SocketLine { local, user: number(7)? as u32, inode: number(9)? })
}

/// An address in words of the processor's order, each as a number.
fn ip_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(8 * at..8 * at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
        }
        _ => None,
    }
}

/// Returns the holder of a socket that no visible process has.
fn unnamed_holder(socket: &SocketLine, is_shared: bool) -> PortHolder {
    // The kernel's sockets are for all addresses, and root's.
    let may_be_kernel =
        socket.inode == 0 || (socket.user == 0 && socket.local.ip().is_unspecified());
    let kernel_device = if may_be_kernel { kernel_device() } else { None };
    PortHolder { user: socket.user, process: None, kernel_device, is_shared }
}

/// Processes that have one of these sockets among their descriptors, each with one of them.
fn processes_with(inodes: &[u64]) -> Vec<((u32, String), u64)> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let socket_in = |process: u32| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        descriptors.flatten().find_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
            inodes.binary_search(&inode).is_ok().then_some(inode)
        })
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = processes.filter_map(|process| {
        let inode = socket_in(process)?;
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        Some(((process, name.trim_end().to_owned()), inode))
    });
    found.collect()
}

/// A device of the kernel's that speaks RoCE v2 over UDP: it alone has a file `parent`.
fn kernel_device() -> Option<String> {
    let all = fs::read_dir("/sys/class/infiniband").ok()?.flatten();
    let mut soft = all.filter(|entry| entry.path().join("parent").exists());
    soft.next().map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
