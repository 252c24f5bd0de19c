//! Address translation between the ends of a connection over RoCE v2.
//!
//! A checksum in each packet (ICRC) covers the addresses: where something translates them, all
//! packets are dropped, and no status says why. The handshake's stream is translated as well, and
//! that can be seen: the peer's GID is the address that it has, the stream's the one that it seems
//! to have.

use host::sync::Mutex;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Pairs of addresses that are kept, at most.
const KEPT: usize = 16;

/// A peer whose address is not that of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// The address that its device has.
    gid: IpAddr,
    /// The address that its stream comes from, or goes to.
    stream: IpAddr,
    /// This end has one address for both: so should the peer.
    is_likely: bool,
}

static SUSPICIONS: Mutex<Vec<Suspicion>> = Mutex::new(Vec::new());

/// Compares the peer's GID with the address of its stream, which has these ends (here, there).
/// Warns once where they differ for no reason that is known.
pub(crate) fn look(own: &[u8; 16], ends: Option<(SocketAddr, SocketAddr)>, peer: &[u8; 16]) {
    let Some(suspicion) = ends.and_then(|ends| Suspicion::of(ip_of(own), ends, ip_of(peer))) else {
        return;
    };
    let mut known = SUSPICIONS.lock();
    if known.contains(&suspicion) || known.len() == KEPT {
        return;
    }
    known.push(suspicion);
    if suspicion.is_likely {
        tracing::warn!("{suspicion}");
    }
}

/// Returns what was found about a peer of this address.
pub(super) fn about(gid: IpAddr) -> Option<Suspicion> {
    let known = SUSPICIONS.lock();
    known.iter().copied().find(|suspicion| suspicion.gid == gid)
}

impl Suspicion {
    /// `own` is the address of this end's device.
    fn of(own: IpAddr, (here, there): (SocketAddr, SocketAddr), gid: IpAddr) -> Option<Suspicion> {
        let (here, stream) = (here.ip().to_canonical(), there.ip().to_canonical());
        // Within a machine nothing is translated.
        if gid == stream || stream.is_loopback() || gid.is_unspecified() {
            return None;
        }
        // With a network for the handshake, and another one for the data, this end has two
        // addresses.
        Some(Suspicion { gid, stream, is_likely: own == here })
    }
}

impl std::fmt::Display for Suspicion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Suspicion { gid, stream, .. } = self;
        write!(
            f,
            "the peer's device has the address {gid}, and its stream {stream}: if address translation lies \
             between (a container's published port, a NAT gateway), all packets will be dropped, because \
             RoCE v2's checksum covers the addresses: put both ends on one network (containers: on one \
             bridge, or on the host's network); if {gid} can be reached from here as it is, all is well"
        )
    }
}

fn ip_of(gid: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*gid)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(own: &str, here: &str, there: &str, gid: &str) -> Option<bool> {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let at = |text: &str| SocketAddr::new(ip(text), 7);
        Suspicion::of(ip(own), (at(here), at(there)), ip(gid)).map(|suspicion| suspicion.is_likely)
    }

    #[test]
    fn a_peer_whose_stream_has_another_address_is_suspected() {
        // A container behind its host, from outside, and its gateway from inside.
        assert_eq!(found("10.0.0.2", "10.0.0.2", "10.0.0.1", "172.17.0.2"), Some(true));
        assert_eq!(found("fd00::2", "fd00::2", "fd00::1", "fd01::2"), Some(true));
    }

    #[test]
    fn a_separate_handshake_network_causes_no_warning() {
        assert_eq!(found("10.0.0.2", "192.168.0.2", "192.168.0.1", "10.0.0.1"), Some(false));
        assert_eq!(found("127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.3"), None, "one machine");
        assert_eq!(found("10.0.0.2", "10.0.0.2", "10.0.0.1", "10.0.0.1"), None);
        assert_eq!(found("10.0.0.2", "::ffff:10.0.0.2", "::ffff:10.0.0.1", "10.0.0.1"), None);
    }

    #[test]
    fn a_suspicion_is_remembered_for_the_error_that_follows() {
        let gid =
            |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped().octets();
        let ends = Some(("10.7.0.2:1".parse().unwrap(), "10.7.0.1:2".parse().unwrap()));
        look(&gid("10.7.0.2"), ends, &gid("172.17.7.2"));
        let known = about("172.17.7.2".parse().unwrap()).unwrap();
        assert!(known.to_string().contains("address translation"), "{known}");
        assert_eq!(about("10.7.0.1".parse().unwrap()), None);
    }
}
