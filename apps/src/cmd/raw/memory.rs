//! Messages that are found by polling memory ("RDMA Tutorial", example 2).
//!
//! The first and the last byte of a message are its mark, which is never 0; where there
//! is no message, both are 0. A thread that polls waits until *both* have arrived: the
//! first one alone says that a message begins, not that it is there. The device has to deliver
//! the bytes of one write in order for that.

use anyhow::Result;
use rdma_conn::verbs_safe::SharedRegion;

use super::plan::RawPlan;

/// The mark of message `number`.
#[inline]
pub(super) fn mark(number: u64) -> u8 {
    (number % 255) as u8 + 1
}

/// The places of messages in a region: `each` for every queue pair, used in turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessagePlaces {
    each: u64,
    stride: u64,
}

impl MessagePlaces {
    pub(super) fn new(plan: &RawPlan) -> MessagePlaces {
        MessagePlaces { each: plan.places().into(), stride: plan.stride() }
    }

    /// Returns the offset in the region of message `number` of a queue pair.
    #[inline]
    pub(super) fn at(&self, rank: usize, number: u64) -> usize {
        // To divide by one takes as long as by any other number.
        let place = if self.each == 1 { 0 } else { number % self.each };
        ((rank as u64 * self.each + place) * self.stride) as usize
    }

    /// Bytes of each place.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.stride
    }
}

/// Returns the bytes of a message between its marks.
pub(super) fn body(message: &[u8]) -> &[u8] {
    match message {
        [_, body @ .., _] => body,
        _ => &[],
    }
}

/// Marks a message, and lets `fill` write what lies between.
#[inline]
pub(super) fn wrap(message: &mut [u8], mark: u8, fill: impl FnOnce(&mut [u8])) {
    match message {
        [first, body @ .., last] => {
            (*first, *last) = (mark, mark);
            fill(body);
        }
        [only] => *only = mark,
        [] => {}
    }
}

/// The mark of the message of `size` bytes at `at`, if all of it has arrived.
#[inline]
pub(super) fn arrived(memory: &SharedRegion, at: usize, size: usize) -> Result<Option<u8>> {
    let last = memory.observe_byte(at + size - 1)?;
    if last == 0 {
        return Ok(None);
    }
    Ok((memory.observe_byte(at)? == last).then_some(last))
}

/// As [`arrived`], but looks up to `looks` times in a row.
#[inline]
pub(super) fn arrives(
    memory: &SharedRegion,
    at: usize,
    size: usize,
    looks: u32,
) -> Result<Option<u8>> {
    for _ in 1..looks {
        if memory.observe_byte(at + size - 1)? != 0 {
            break;
        }
    }
    arrived(memory, at, size)
}

/// Makes the place ready for the next message. Messages begin at cache lines, so that the words
/// which hold the marks belong to this message only, and plain stores do.
#[inline]
pub(super) fn reset(memory: &SharedRegion, at: usize, size: usize) -> Result<()> {
    let last = at + size - 1;
    memory.store_u64(at - at % 8, 0)?;
    Ok(memory.store_u64(last - last % 8, 0)?)
}

#[cfg(test)]
mod tests;
