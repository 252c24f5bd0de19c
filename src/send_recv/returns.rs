//! The way back of receive buffers that other threads have freed.

use std::sync::Arc;

use conn_core::repost::{RepostQueue, RepostWord, words_for};
use verbs_safe::Recycle;

use crate::bell::Bell;

/// The freed buffers of all peers of one receiver, and the bell that wakes it.
///
/// A buffer's id is the number of its link and its slot in that link's pool, side
/// by side. Each buffer is in the queue at most once, so that it cannot overflow.
pub(crate) struct Returns {
    queue: RepostQueue<Box<[RepostWord]>>,
    slot_bits: u32,
    bell: Bell,
}

impl std::fmt::Debug for Returns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Returns").field("slot_bits", &self.slot_bits).finish_non_exhaustive()
    }
}

impl Returns {
    /// For `links` links of up to `slots` buffers each.
    pub(crate) fn new(links: u32, slots: u32) -> std::io::Result<Arc<Returns>> {
        let slot_bits = slots.next_power_of_two().trailing_zeros();
        let wide = u64::from(links) << slot_bits;
        let ids = u32::try_from(wide).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        let words = (0..words_for(ids)).map(|_| RepostWord::new());
        let queue = RepostQueue::new(words.collect(), ids)
            .map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidInput, e.to_string()))?;
        Ok(Arc::new(Returns { queue, slot_bits, bell: Bell::new()? }))
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Takes freed buffers, as many as `ids` holds; returns how many there were.
    #[inline]
    pub(crate) fn drain(&self, ids: &mut [u32]) -> usize {
        self.queue.drain(ids)
    }

    /// Buffers that one link may have.
    pub(crate) fn slots(&self) -> u32 {
        1 << self.slot_bits
    }

    /// The place of the link, and the slot, of a buffer.
    #[inline]
    pub(crate) fn split(&self, id: u32) -> (u32, u32) {
        (id >> self.slot_bits, id & ((1 << self.slot_bits) - 1))
    }
}

/// What a receive buffer knows of where it belongs.
#[derive(Debug, Clone)]
pub(crate) enum SlotReturn {
    /// To the receiver of the link with this number.
    Receiver { returns: Arc<Returns>, link: u32 },
    /// To the pool that many connections share.
    Shared(super::shared::SharedReturn),
}

impl Recycle for SlotReturn {
    #[inline]
    fn recycle(&self, slot: u32) {
        match self {
            SlotReturn::Receiver { returns, link } => {
                // The buffer's owner gives it back once; if it were twice, the
                // queue would say so, and once is what counts.
                let _ = returns.queue.enqueue(link << returns.slot_bits | slot);
                returns.bell.ring();
            }
            SlotReturn::Shared(shared) => shared.recycle(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_buffers_than_have_numbers_are_refused() {
        Returns::new(1 << 10, 64).unwrap();
        // Numbers that would come twice.
        for links in [(1 << 26) + 1, (1 << 27) + 1, u32::MAX] {
            assert!(Returns::new(links, 64).is_err(), "{links}");
        }
    }
}
