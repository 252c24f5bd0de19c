//! Count of the users of an object that several structs may stand for, and whether the object has
//! ended.
//!
//! What uses an object [joins](Users::join) before it is made, and the object [ends](Users::end)
//! only without users. Both are one exchange of the same word, so that no user joins after the end,
//! through whichever struct.

use core::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::errno;

/// In place of a number: the object has ended.
const ENDED: usize = usize::MAX;

/// The users of an object; none at first.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicUsize);

/// One more user. It is counted no more when this is dropped, unless it is [kept](Self::keep).
#[derive(Debug)]
#[must_use]
pub(crate) struct NewUser<'u>(&'u Users);

impl Users {
    /// Counts one more; `ENOENT` if the object has ended.
    pub(crate) fn join(&self) -> Result<NewUser<'_>, Errno> {
        // Relaxed: the count guards no memory until it is 0.
        let joined = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |users| {
            users.checked_add(1).filter(|users| *users != ENDED)
        });
        joined.map(|_| NewUser(self)).map_err(|_| errno::ENOENT)
    }

    /// Counts one more of an object that the program may not end meanwhile.
    pub(crate) fn add(&self) {
        // Relaxed: as in `join`.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of users of an object that has not ended.
    pub(crate) fn count(&self) -> usize {
        // Relaxed: as in `join`.
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one less.
    pub(crate) fn leave(&self) {
        // Release: the end of the object sees what its users did.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// The object ends: `EBUSY` while it has users, and `ENOENT` if it has ended before.
    pub(crate) fn end(&self) -> Result<(), Errno> {
        // Acquire: the other side of `leave`.
        match self.0.compare_exchange(0, ENDED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(ENDED) => Err(errno::ENOENT),
            Err(_) => Err(errno::EBUSY),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        // Relaxed: only `join` decides.
        self.count() == ENDED
    }
}

impl NewUser<'_> {
    /// It stays counted, until it leaves.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for NewUser<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests;
