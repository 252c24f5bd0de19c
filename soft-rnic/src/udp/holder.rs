//! Which process, or user, has a port that is in use, as far as the system says.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::process::geteuid;

/// A socket of the system's lists that has the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Socket {
    user: u32,
    /// 0 is the kernel's own.
    inode: u64,
}

/// What has an address, as a clause of a sentence; `None` if it is not seen.
pub(super) fn holder(addr: SocketAddr) -> Option<String> {
    let lists = ["/proc/net/udp", "/proc/net/udp6"];
    let lists = lists.map(|list| std::fs::read_to_string(list).unwrap_or_default());
    let socket = lists.iter().find_map(|list| find(list, addr))?;
    Some(match socket {
        Socket { inode: 0, .. } => {
            "the kernel has it, for its soft-RoCE: see `rdma link`".to_owned()
        }
        Socket { user, .. } if user != geteuid().as_raw() => format!("user {user} has it"),
        Socket { inode, .. } => match process_of(inode) {
            Some((pid, name)) => format!("process {pid} ({name}) has it"),
            None => "a process of this user, in another container, has it".to_owned(),
        },
    })
}

/// The first socket of a list that is bound to an address, or to all.
fn find(list: &str, addr: SocketAddr) -> Option<Socket> {
    list.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = words.get(1)?.split_once(':')?;
        let is_port = u16::from_str_radix(port, 16) == Ok(addr.port());
        let ip = parse(ip).filter(|_| is_port)?;
        let has_it = ip.is_unspecified() || ip.to_canonical() == addr.ip().to_canonical();
        let (user, inode) = (words.get(7)?.parse().ok()?, words.get(9)?.parse().ok()?);
        has_it.then_some(Socket { user, inode })
    })
}

/// An address as words of the machine's order, in hexadecimal digits.
fn parse(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(8 * at..8 * at + 8)?, 16).ok();
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?.to_ne_bytes()).into()),
        32 => {
            let mut bytes = [0; 16];
            for (at, to) in bytes.chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// The process, and its name, that has a socket open.
fn process_of(inode: u64) -> Option<(u32, String)> {
    let link = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in numbers {
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let is_it = |path: std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.as_os_str() == link.as_str())
        };
        if open.flatten().any(|entry| is_it(entry.path())) {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  155: 0300007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0000000000000000 0
  156: 00000000:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0000000000000000 0
";

    #[test]
    fn a_socket_has_its_address_or_all_of_them() {
        if cfg!(target_endian = "big") {
            return;
        }
        let of = |addr: &str| find(LINES, addr.parse().unwrap());
        assert_eq!(of("127.0.0.3:4791"), Some(Socket { user: 1_000, inode: 4_711 }));
        assert_eq!(of("127.0.0.4:4791"), None);
        assert_eq!(of("127.0.0.4:4792"), Some(Socket { user: 0, inode: 0 }));
        let v6 = "0000000000000000FFFF00000300007F";
        assert_eq!(parse(v6), Some("::ffff:127.0.0.3".parse().unwrap()));
    }

    #[test]
    fn the_process_that_has_a_port_is_found() {
        let socket = std::net::UdpSocket::bind("127.0.0.5:0").unwrap();
        let found = holder(socket.local_addr().unwrap()).unwrap();
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
    }
}
