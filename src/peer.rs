//! The number of a peer.

/// Number of the sender of a message: the order in which the senders joined the receiver, from 0.
/// Numbers of senders that have gone are not used again (so that a receiver has 2^32 - 1 senders in
/// its life).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u32);

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
