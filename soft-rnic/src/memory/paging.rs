//! Pages of on-demand memory for a thread that others rely on, which does not wait for them.
//!
//! A page may be slow to be paged in: from a disk, a network, or a thread of the program
//! (`userfaultfd`). So such a thread does not have pages brought: it notes which a request needs,
//! and leaves the request where it is. Another thread has them brought, and the request is tried
//! again. (A page that is gone again by then is waited for: the kernel has no copy that does not.)

use core::cell::RefCell;
use host::sync::OnceLock;

use crate::memory::on_demand::{bring, bring_at};
use crate::memory::span::MemSpan;

/// Bytes whose pages are brought by one call. Whether they still matter is looked at in between.
pub(crate) const BROUGHT_AT_ONCE: usize = 2 << 20;

/// Presence of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    There,
    /// They have gone, or do not permit the access.
    Gone,
    /// Another thread has to bring them first.
    Unknown,
}

/// Pieces of memory whose pages a request needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// Their addresses and lengths. At most as many as a list has entries.
    pieces: Vec<(usize, usize)>,
    is_written: bool,
}

impl Needed {
    pub(crate) fn from_spans(pieces: &[MemSpan<'_>], is_written: bool) -> Needed {
        let pieces = pieces.iter().map(|piece| (piece.ptr().addr(), piece.len()));
        Needed { pieces: pieces.collect(), is_written }
    }

    /// Brings the pages, as long as they matter; returns true if all are there.
    pub(crate) fn bring(&self, matter: impl Fn() -> bool) -> bool {
        self.pieces.iter().all(|(addr, len)| {
            (0..*len).step_by(BROUGHT_AT_ONCE).all(|at| {
                let n = BROUGHT_AT_ONCE.min(len - at);
                matter() && bring_at(addr + at, n, self.is_written).is_ok()
            })
        })
    }
}

/// Pages that another thread brings for a request.
#[derive(Debug)]
pub(crate) struct PendingPages {
    pub(crate) needed: Needed,
    /// Set when it is over: true if they are all there.
    pub(crate) is_there: OnceLock<bool>,
}

/// Pages that a request needs of a thread that does not wait, and those that were brought for it.
#[derive(Debug, Default)]
pub(crate) struct RequestPages {
    /// And whether all of it is there.
    brought: Option<(Needed, bool)>,
    needed: RefCell<Option<Needed>>,
}

impl RequestPages {
    pub(crate) fn new(brought: Option<(Needed, bool)>) -> RequestPages {
        RequestPages { brought, needed: RefCell::default() }
    }

    /// The pages to be brought before the request is tried again, and those that were brought.
    pub(crate) fn into_parts(self) -> (Option<Needed>, Option<(Needed, bool)>) {
        (self.needed.into_inner(), self.brought)
    }

    fn look(&self, pieces: &[MemSpan<'_>], is_written: bool) -> Presence {
        let needed = Needed::from_spans(pieces, is_written);
        match &self.brought {
            Some((brought, true)) if *brought == needed => Presence::There,
            Some((brought, false)) if *brought == needed => Presence::Gone,
            _ => {
                *self.needed.borrow_mut() = Some(needed);
                Presence::Unknown
            }
        }
    }
}

/// Finds out whether pages are there. This thread brings them, if it may wait and has no `pages`.
pub(crate) fn presence(
    pages: Option<&RequestPages>,
    to: &[MemSpan<'_>],
    is_written: bool,
) -> Presence {
    match pages {
        Some(pages) => pages.look(to, is_written),
        None if bring(to, is_written) => Presence::There,
        None => Presence::Gone,
    }
}

#[cfg(test)]
mod tests;
