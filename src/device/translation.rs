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

/// A peer with another address than its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// The address that its device has.
    gid: IpAddr,
    /// The address at the other end of its stream.
    stream: IpAddr,
    /// This end has one address for both: so should the peer.
    is_likely: bool,
}

static SUSPICIONS: Mutex<Vec<Suspicion>> = Mutex::new(Vec::new());

/// Compares the peer's GID with the address of its stream, which has these ends (here, there).
/// Warns once where they differ for no reason that is known.
pub(crate) fn look(own: &[u8; 16], ends: Option<(SocketAddr, SocketAddr)>, peer: &[u8; 16]) {
    let Some(suspicion) = ends.and_then(|ends| Suspicion::find(ip_of(own), ends, ip_of(peer)))
    else {
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

/// Returns the suspicion about a peer of this address, if there is one.
pub(super) fn about(gid: IpAddr) -> Option<Suspicion> {
    let known = SUSPICIONS.lock();
    known.iter().copied().find(|suspicion| suspicion.gid == gid)
}

impl Suspicion {
    /// `own` is the address of this end's device.
    fn find(
        own: IpAddr,
        (here, there): (SocketAddr, SocketAddr),
        gid: IpAddr,
    ) -> Option<Suspicion> {
        let (here, stream) = (here.ip().to_canonical(), there.ip().to_canonical());
        // Addresses within a machine are not translated.
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
             bridge, or on the host's network); if {gid} is reachable from here untranslated, ignore this"
        )
    }
}

fn ip_of(gid: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*gid)).to_canonical()
}

#[cfg(test)]
mod tests;
