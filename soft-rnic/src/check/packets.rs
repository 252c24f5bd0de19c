//! Contents of the packets of a connection over the network, so that one that is sent again is
//! known to carry the same.

use super::fingerprint::hash;

/// A packet that was sent: which request it is of, where its bytes begin in those of the request,
/// and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SentPacket {
    request: u64,
    offset: u32,
    hash: u64,
}

/// Packets by their sequence numbers: the last ones, each in the place that its number gives.
#[derive(Debug)]
pub(crate) struct Packets(Box<[Option<SentPacket>]>);

impl Packets {
    /// Creates the record of a connection that has at most `window` packets without an answer.
    pub(crate) fn new(window: u32) -> Packets {
        // A power of two: sequence numbers wrap.
        // Bounded: by the largest window, 65,536, and by what the socket holds.
        Packets(vec![None; window.next_power_of_two() as usize].into())
    }

    /// The packet of this number is sent, with these bytes of a request, which begin at `offset`.
    /// Whether it was sent before with other bytes.
    pub(crate) fn differs(
        &mut self,
        number: u32,
        (request, offset): (u64, u32),
        bytes: &[u8],
    ) -> bool {
        let packet = SentPacket { request, offset, hash: hash(bytes) };
        let at = number as usize & (self.0.len() - 1);
        let place = &mut self.0[at];
        let before = place.replace(packet);
        before.is_some_and(|before| {
            (before.request, before.offset) == (request, offset) && before != packet
        })
    }
}

#[cfg(test)]
mod tests;
