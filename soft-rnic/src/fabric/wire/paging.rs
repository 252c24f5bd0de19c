//! Pages of on-demand memory that requests of peers need.
//!
//! A page may be slow to be paged in: from a disk, or from a thread of the program (`userfaultfd`).
//! The threads that take packets do not wait for it: they ask the kernel whether the pages are
//! there, and if not, another thread has them brought, and the request is not executed. Its peer
//! gets an RNR NAK, and sends it again later; what is not reliable is dropped.
//!
//! A peer can ask for the pages of one request a queue pair at once, and all queue pairs of its
//! address for those of two (`WORKERS_PER_PEER`), which two threads bring, [`BROUGHT_AT_ONCE`]
//! bytes with each call, as long as the queue pair receives. All peers together occupy 32 threads
//! (`WORKERS`), on which nothing else relies.
//!
//! [`BROUGHT_AT_ONCE`]: crate::memory::paging::BROUGHT_AT_ONCE

use host::sync::OnceLock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use crate::memory::paging::{Needed, PendingPages, Presence};
use crate::memory::residency::are_present;
use crate::memory::span::MemSpan;
use crate::objects::state::Device;
use crate::peers::process::workers::Workers;

use crate::peers::wire::state::PacketPath;

/// Bytes whose pages are looked at when a request names them: the kernel walks a thousand pages in
/// some tens of microseconds. Those of a longer request are brought whenever it arrives, and looked
/// at packet by packet.
pub(super) const LOOKED_AT: usize = 4 << 20;

/// Looks for the pages that a queue pair's peer may access, and has others brought.
#[derive(Debug)]
pub(super) struct Paging<'p> {
    pub(super) asked: &'p mut Option<Arc<PendingPages>>,
    pub(super) workers: &'p Arc<Workers>,
    /// The peer that threads are reserved for: see [`peer_of`].
    pub(super) peer: i32,
    /// A queue pair that is resumed when the pages were brought, or have gone.
    pub(super) resumes: Option<(Weak<Device>, u32)>,
}

/// A number for a peer's address. (Those of two may be equal: then they have two threads together,
/// as all have that send datagrams.)
pub(super) fn peer_of(path: Option<&PacketPath>) -> i32 {
    let mut hasher = DefaultHasher::new();
    path.map(|path| path.peer.ip()).hash(&mut hasher);
    hasher.finish() as i32
}

impl Paging<'_> {
    /// Reports whether pieces can be accessed without waiting for their pages. If not, the pages
    /// are on their way, unless the peer has as many on their way as it may.
    pub(super) fn look(&mut self, pieces: &[MemSpan<'_>], is_written: bool) -> Presence {
        self.look_for(pieces, || pieces.to_vec(), is_written)
    }

    /// As [`look`](Self::look), of a part of what is brought. Other parts of that have the same
    /// answer: one that only the part had would be forgotten when the next one is looked at.
    pub(super) fn look_for<'s>(
        &mut self,
        pieces: &[MemSpan<'s>],
        brought: impl FnOnce() -> Vec<MemSpan<'s>>,
        is_written: bool,
    ) -> Presence {
        let present = look_at(pieces, is_written);
        if present == Some(true) {
            return Presence::There;
        }
        let needed = Needed::from_spans(&brought(), is_written);
        let over = match self.asked.as_deref() {
            Some(asked) => match asked.is_there.get() {
                None => return Presence::Unknown,
                Some(is_there) => (asked.needed == needed).then_some(*is_there),
            },
            None => None,
        };
        *self.asked = None;
        match over {
            Some(false) => Presence::Gone,
            // The kernel does not say, or was not asked.
            Some(true) if present.is_none() => Presence::There,
            // They have gone again, or were others.
            _ => {
                self.ask(needed);
                Presence::Unknown
            }
        }
    }

    /// Has pages brought, if a thread is free. (It may have to be started, once: packets wait for
    /// that.)
    #[cold]
    fn ask(&mut self, needed: Needed) {
        let Some(reservation) = self.workers.reserve(self.peer) else { return };
        let asked = Arc::new(PendingPages { needed, is_there: OnceLock::new() });
        let theirs = Arc::clone(&asked);
        let bring = move || {
            // Only the thread has it when the queue pair has ended.
            let is_there = theirs.needed.bring(|| Arc::strong_count(&theirs) > 1);
            let _ = theirs.is_there.set(is_there);
        };
        let resumes = self.resumes.take();
        let resume = move || {
            if let Some((device, qpn)) = resumes
                && let Some(qp) = device.upgrade().and_then(|device| device.qps.get(qpn))
            {
                qp.resume_wire();
            }
        };
        *self.asked = reservation.run(bring, resume).then_some(asked);
    }
}

/// Reports whether all pages are there; `None` if the kernel does not say, or they are too many.
fn look_at(pieces: &[MemSpan<'_>], is_written: bool) -> Option<bool> {
    if pieces.iter().map(|piece| piece.len()).sum::<usize>() > LOOKED_AT {
        return None;
    }
    let mut all = Some(true);
    for piece in pieces {
        match are_present(piece.ptr().addr(), piece.len(), is_written) {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all
}

#[cfg(test)]
mod tests;
