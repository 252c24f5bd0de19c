//! Contents of the packets of a connection over the network, so that one that is sent again is
//! known to carry the same.

use super::fingerprint::hash;

/// A packet that was sent: which request it is of, where its bytes begin in those of the request,
/// and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packet {
    request: u64,
    offset: u32,
    hash: u64,
}

/// Packets by their sequence numbers: the last ones, each in the place that its number gives.
#[derive(Debug)]
pub(crate) struct Packets(Box<[Option<Packet>]>);

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
        let packet = Packet { request, offset, hash: hash(bytes) };
        let at = number as usize & (self.0.len() - 1);
        let place = &mut self.0[at];
        let before = place.replace(packet);
        before.is_some_and(|before| {
            (before.request, before.offset) == (request, offset) && before != packet
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEMBERED: u32 = 128;

    #[test]
    fn a_packet_that_is_sent_again_with_other_bytes_differs() {
        let mut packets = Packets::new(100);
        let last = REMEMBERED - 1;
        for number in 0..=last {
            assert!(!packets.differs(number, (7, 1024 * number), &[1; 1024]));
        }
        assert!(!packets.differs(last, (7, 1024 * last), &[1; 1024]));
        assert!(packets.differs(0, (7, 0), &[2; 1024]));
        // It is what was sent last that counts.
        assert!(!packets.differs(0, (7, 0), &[2; 1024]));
    }

    #[test]
    fn packets_of_other_requests_are_others() {
        let mut packets = Packets::new(100);
        assert!(!packets.differs(5, (7, 0), &[1]));
        assert!(!packets.differs(5 + REMEMBERED, (8, 0), &[2]));
        assert!(!packets.differs(5, (8, 1024), &[3]));
    }
}
