//! Who may complete how much into a completion queue.
//!
//! A completion queue that overruns is dead, and all its queue pairs with it. So
//! each queue reserves room for all that it can have outstanding; what does not
//! fit is refused when the queue pair is created.
//!
//! A send or receive queue reserves its depth. A shared receive queue reserves its
//! size once in each completion queue, however many queue pairs use both: no more
//! requests than it holds can be outstanding.
//!
//! What a queue pair reserved is free again when it has been destroyed. Its completions
//! that nobody polled are gone by then on devices that take them back (as mlx5 does);
//! on others, poll before making the next queue pair on the same completion queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cq::CqInner;
use crate::error::CqTooSmall;
use crate::srq::SrqId;

/// The reservations in one completion queue. Invariant: `reserved <= capacity`, and
/// `reserved` is the sum of what the live [`Reservation`]s hold, a shared receive
/// queue counted once.
#[derive(Debug)]
pub(crate) struct Ledger {
    capacity: u32,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    reserved: u32,
    shared: Vec<Shared>,
}

#[derive(Debug)]
struct Shared {
    srq: SrqId,
    users: usize,
}

impl Ledger {
    pub(crate) fn new(capacity: u32) -> Ledger {
        Ledger { capacity, books: Mutex::default() }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn reserved(&self) -> u32 {
        self.lock().reserved
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, entries: u32, srq: Option<SrqId>) -> Result<(), CqTooSmall> {
        let mut books = self.lock();
        if let Some(shared) = books.shared.iter_mut().find(|s| Some(s.srq) == srq) {
            shared.users += 1;
            return Ok(());
        }
        let needed = u64::from(books.reserved) + u64::from(entries);
        if needed > self.capacity.into() {
            let (capacity, reserved) = (self.capacity, books.reserved);
            return Err(CqTooSmall { capacity, reserved, wanted: entries, needed });
        }
        books.reserved += entries;
        books.shared.extend(srq.map(|srq| Shared { srq, users: 1 }));
        Ok(())
    }

    fn release(&self, entries: u32, srq: Option<SrqId>) {
        let mut books = self.lock();
        if let Some(i) = books.shared.iter().position(|s| Some(s.srq) == srq) {
            books.shared[i].users -= 1;
            if books.shared[i].users > 0 {
                return;
            }
            books.shared.swap_remove(i);
        }
        books.reserved = books.reserved.saturating_sub(entries); // no panic in drop
    }
}

/// Room in a completion queue, given back on drop. It keeps the queue alive.
pub(crate) struct Reservation {
    cq: Arc<CqInner>,
    entries: u32,
    srq: Option<SrqId>,
}

impl Reservation {
    pub(crate) fn new(
        cq: &Arc<CqInner>,
        entries: u32,
        srq: Option<SrqId>,
    ) -> Result<Reservation, CqTooSmall> {
        cq.ledger.reserve(entries, srq)?;
        Ok(Reservation { cq: cq.clone(), entries, srq })
    }

    pub(crate) fn cq(&self) -> &CqInner {
        &self.cq
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cq.ledger.release(self.entries, self.srq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_named() {
        let ledger = Ledger::new(10);
        ledger.reserve(7, None).unwrap();
        let error = ledger.reserve(4, None).unwrap_err();
        assert_eq!(error, CqTooSmall { capacity: 10, reserved: 7, wanted: 4, needed: 11 });
        ledger.reserve(3, None).unwrap();
        ledger.release(7, None);
        ledger.reserve(7, None).unwrap();
        assert_eq!(ledger.reserved(), 10);
    }

    #[test]
    fn a_shared_queue_counts_once_until_its_last_user_has_gone() {
        let ledger = Ledger::new(10);
        let (a, b) = (Some(SrqId::for_test(1)), Some(SrqId::for_test(2)));
        ledger.reserve(6, a).unwrap();
        ledger.reserve(6, a).unwrap();
        assert_eq!(ledger.reserve(6, b).unwrap_err().needed, 12);
        ledger.release(6, a);
        assert_eq!(ledger.reserved(), 6);
        ledger.release(6, a);
        assert_eq!(ledger.reserved(), 0);
        ledger.reserve(6, b).unwrap();
    }

    #[test]
    fn a_sum_beyond_32_bits_is_refused() {
        let ledger = Ledger::new(u32::MAX);
        ledger.reserve(u32::MAX, None).unwrap();
        assert_eq!(ledger.reserve(u32::MAX, None).unwrap_err().needed, 2 * u64::from(u32::MAX));
    }
}
