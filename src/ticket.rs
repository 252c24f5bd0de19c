//! The ticket of a message that a sender has accepted.

use std::sync::atomic::{AtomicU32, Ordering};

/// Identifier of an accepted message, for its sender's [`wait_acked`](crate::SendHalf::wait_acked)
/// and [`is_acked`](crate::SendHalf::is_acked). Tickets of one sender are ordered by time of
/// acceptance; another sender rejects them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The number of its sender.
    pub(crate) sender: u32,
    /// Number of the message, as its sender counts: by messages, by work requests, or by the
    /// position behind the message in a ring.
    pub(crate) number: u64,
}

impl Ticket {
    /// The ticket of the message with this number of the sender with that
    /// [number](sender_number): for a [protocol](crate::Protocol) of one's own.
    #[must_use]
    pub fn new(sender: u32, number: u64) -> Ticket {
        Ticket { sender, number }
    }

    /// The number of its message, if it is a ticket of this `sender`.
    #[must_use]
    pub fn number_of(self, sender: u32) -> Option<u64> {
        (self.sender == sender).then_some(self.number)
    }
}

/// Numbers of senders, so that a ticket identifies its sender. They are reused after 2^32
/// senders, when no ticket of the first ones is waited for.
static SENDERS: AtomicU32 = AtomicU32::new(0);

/// The number of a new sender, different from those of all others for 2^32 senders.
pub fn sender_number() -> u32 {
    // Relaxed: a number, and nothing that it would publish.
    SENDERS.fetch_add(1, Ordering::Relaxed)
}
