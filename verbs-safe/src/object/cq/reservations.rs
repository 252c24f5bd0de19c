//! Reservations of room in a completion queue: one for each queue that completes into it.
//!
//! A completion queue that overruns is dead, and all its queue pairs with it. So each queue
//! reserves room for all its possible outstanding requests; a queue pair that does not fit is
//! refused when it is created.
//!
//! A send or receive queue reserves its depth. A shared receive queue reserves its size once in
//! each completion queue, for any number of queue pairs that use both: it bounds their outstanding
//! requests.
//!
//! A reservation ends when its queue pair has been destroyed. Some devices (mlx5) remove its
//! unpolled completions then; on others, poll before making the next queue pair on the same
//! completion queue.

use host::sync::Mutex;

use crate::error::CqTooSmall;
use crate::ids::SrqId;

/// The reservations in one completion queue. Invariant: `reserved <= capacity`, and `reserved` is
/// the sum over the live [`Reservation`](super::Reservation)s, with each shared receive queue
/// counted once: only they reserve and release.
#[derive(Debug)]
pub(super) struct Reservations {
    pub(super) capacity: u32,
    books: Mutex<ReservedEntries>,
}

#[derive(Debug, Default)]
struct ReservedEntries {
    reserved: u32,
    shared: Vec<SrqUsers>,
}

#[derive(Debug)]
struct SrqUsers {
    srq: SrqId,
    users: usize,
}

impl Reservations {
    pub(super) fn new(capacity: u32) -> Reservations {
        Reservations { capacity, books: Mutex::default() }
    }

    pub(super) fn reserved(&self) -> u32 {
        self.books.lock().reserved
    }

    pub(super) fn reserve(&self, entries: u32, srq: Option<SrqId>) -> Result<(), CqTooSmall> {
        let mut books = self.books.lock();
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
        books.shared.extend(srq.map(|srq| SrqUsers { srq, users: 1 }));
        Ok(())
    }

    pub(super) fn release(&self, entries: u32, srq: Option<SrqId>) {
        let mut books = self.books.lock();
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

#[cfg(test)]
mod tests;
