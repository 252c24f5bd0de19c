//! The way back of receive buffers that other threads have freed.

use std::sync::Arc;

use conn_core::repost::{RepostQueue, RepostWord};

use crate::allocate::repost_queue;
use crate::wakeup::EventfdWakeup;

/// The freed buffers of all peers of one receiver, the links that a shared pool has something
/// for, and the wakeup of its thread.
///
/// A buffer's id is the number of its link and its slot in that link's pool, side
/// by side. Each buffer is in the queue at most once, so that it cannot overflow.
pub(crate) struct SlotReturns {
    queue: RepostQueue<Box<[RepostWord]>>,
    /// Places of links.
    told: RepostQueue<Box<[RepostWord]>>,
    slot_bits: u32,
    wakeup: EventfdWakeup,
}

impl std::fmt::Debug for SlotReturns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotReturns").field("slot_bits", &self.slot_bits).finish_non_exhaustive()
    }
}

impl SlotReturns {
    /// For `links` links of up to `slots` buffers each.
    pub(crate) fn new(links: u32, slots: u32) -> std::io::Result<Arc<SlotReturns>> {
        let slot_bits = slots.next_power_of_two().trailing_zeros();
        let wide = u64::from(links) << slot_bits;
        let ids = u32::try_from(wide).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        let (queue, told) = (repost_queue(ids)?, repost_queue(links)?);
        Ok(Arc::new(SlotReturns { queue, told, slot_bits, wakeup: EventfdWakeup::new()? }))
    }

    /// A buffer of the link in that place was freed.
    #[inline]
    pub(crate) fn give_back(&self, place: u32, slot: u32) {
        // The buffer's owner returns it once; the queue refuses a second return.
        let _ = self.queue.enqueue(place << self.slot_bits | slot);
        host::notify_changed(&self.queue, 1);
        self.wakeup.wake();
    }

    /// A shared pool has something for the link in that place.
    pub(crate) fn tell(&self, place: u32) {
        // The queue refuses a link that is in it already, as intended.
        let _ = self.told.enqueue(place);
        host::notify_changed(&self.told, 1);
        self.wakeup.wake();
    }

    /// Takes the places of links that [`tell`](Self::tell) has queued, as many as `places`
    /// holds; returns how many there were.
    #[inline]
    pub(crate) fn drain_told(&self, places: &mut [u32]) -> usize {
        host::watch(&self.told);
        self.told.drain(places)
    }

    pub(crate) fn wakeup(&self) -> &EventfdWakeup {
        &self.wakeup
    }

    /// Takes freed buffers, up to the length of `ids`; returns their number.
    #[inline]
    pub(crate) fn drain(&self, ids: &mut [u32]) -> usize {
        host::watch(&self.queue);
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

#[cfg(test)]
mod tests;
