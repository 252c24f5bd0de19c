//! Pages of on-demand memory that requests of peers need.
//!
//! A page may be slow to come: from a disk, or from a thread of the program (`userfaultfd`). The
//! threads that take packets do not wait for it: they ask the kernel whether the pages are there,
//! and if not, another thread has them brought, and the request is not executed. Its peer gets an
//! RNR NAK, and sends it again later; what is not reliable is dropped.
//!
//! A peer can ask for the pages of one request a queue pair at once, and all queue pairs of its
//! address for those of two (`WORKERS_PER_PEER`), which two threads bring, [`BROUGHT_AT_ONCE`]
//! bytes with each call, as long as the queue pair receives. All peers together occupy 32 threads
//! (`WORKERS`), on which nothing else relies.
//!
//! [`BROUGHT_AT_ONCE`]: crate::objects::paging::BROUGHT_AT_ONCE

use host::sync::OnceLock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use crate::fabric::process::workers::Workers;
use crate::objects::paging::{Asked, Needed, Presence};
use crate::objects::residency::are_present;
use crate::objects::span::Span;
use crate::objects::state::Device;

use super::state::Path;

/// Bytes whose pages are looked at when a request names them: the kernel walks a thousand pages in
/// some tens of microseconds. Those of a longer request are brought whenever it comes, and looked
/// at packet by packet.
pub(super) const LOOKED_AT: usize = 4 << 20;

/// Looks for the pages that a queue pair's peer may access, and has others brought.
#[derive(Debug)]
pub(super) struct Paging<'p> {
    pub(super) asked: &'p mut Option<Arc<Asked>>,
    pub(super) workers: &'p Arc<Workers>,
    /// The peer that threads are reserved for: see [`peer_of`].
    pub(super) peer: i32,
    /// A queue pair that goes on when the pages were brought, or have gone.
    pub(super) resumes: Option<(Weak<Device>, u32)>,
}

/// A number for a peer's address. (Those of two may be equal: then they have two threads together,
/// as all have that send datagrams.)
pub(super) fn peer_of(path: Option<&Path>) -> i32 {
    let mut hasher = DefaultHasher::new();
    path.map(|path| path.peer.ip()).hash(&mut hasher);
    hasher.finish() as i32
}

impl Paging<'_> {
    /// Reports whether pieces can be accessed without waiting for their pages. If not, the pages
    /// are on their way, unless the peer has as many on their way as it may.
    pub(super) fn look(&mut self, pieces: &[Span<'_>], is_written: bool) -> Presence {
        self.look_for(pieces, || pieces.to_vec(), is_written)
    }

    /// As [`look`](Self::look), of a part of what is brought. Other parts of that have the same
    /// answer: one that only the part had would be forgotten when the next one is looked at.
    pub(super) fn look_for<'s>(
        &mut self,
        pieces: &[Span<'s>],
        brought: impl FnOnce() -> Vec<Span<'s>>,
        is_written: bool,
    ) -> Presence {
        let present = look_at(pieces, is_written);
        if present == Some(true) {
            return Presence::There;
        }
        let needed = Needed::of(&brought(), is_written);
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
        let asked = Arc::new(Asked { needed, is_there: OnceLock::new() });
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
fn look_at(pieces: &[Span<'_>], is_written: bool) -> Option<bool> {
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
mod tests {
    use super::*;

    /// A page of this process that was never written to.
    fn page() -> Span<'static> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let (len, prot) = (rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping, which stays.
        unsafe {
            let at = mmap_anonymous(core::ptr::null_mut(), len, prot, MapFlags::PRIVATE).unwrap();
            Span::shared(at.cast(), len)
        }
    }

    fn is_over(asked: &Option<Arc<Asked>>) -> bool {
        asked.as_ref().is_some_and(|asked| asked.is_there.get().is_some())
    }

    #[test]
    fn a_peer_that_occupies_its_threads_has_no_more_pages_brought() {
        let (workers, mut asked) = (Arc::<Workers>::default(), None);
        let occupied: Vec<_> = core::iter::from_fn(|| workers.reserve(1)).collect();
        let page = page();
        let look = |asked: &mut _, peer| {
            Paging { asked, workers: &workers, peer, resumes: None }.look(&[page], true)
        };
        assert_eq!((look(&mut asked, 1), asked.is_none()), (Presence::Unknown, true));
        // Another one's are.
        let mut others = None;
        assert_eq!((look(&mut others, 2), others.is_some()), (Presence::Unknown, true));
        while !is_over(&others) {
            host::thread::yield_now();
        }
        assert_eq!(look(&mut others, 2), Presence::There);
        drop(occupied);
        assert_eq!(look(&mut asked, 1), Presence::There);
    }

    #[test]
    fn pages_of_a_long_request_are_not_looked_at_together() {
        let mut bytes = vec![1_u8; LOOKED_AT + 1];
        let all = Span::of(&mut bytes);
        let most = all.first(LOOKED_AT);
        assert_eq!(look_at(&[most], true), are_present(most.ptr().addr(), LOOKED_AT, true));
        assert_eq!(look_at(&[all], true), None);
    }

    /// All packets of a request learn of a page that has gone, whichever has asked.
    #[test]
    fn what_has_gone_is_known_of_each_part() {
        let (workers, mut asked) = (Arc::<Workers>::default(), None);
        let page = page();
        // SAFETY: the page of the mapping, which nothing accesses.
        unsafe {
            let none = rustix::mm::MprotectFlags::empty();
            rustix::mm::mprotect(page.ptr().cast(), page.len(), none).unwrap();
        }
        let mut look = |part: Span<'static>| {
            let mut paging =
                Paging { asked: &mut asked, workers: &workers, peer: 1, resumes: None };
            let presence = paging.look_for(&[part], || vec![page], true);
            while paging.asked.as_ref().is_some_and(|asked| asked.is_there.get().is_none()) {
                host::thread::yield_now();
            }
            presence
        };
        assert_eq!(look(page.first(64)), Presence::Unknown);
        assert_eq!(look(page.first(32)), Presence::Gone);
    }

    #[test]
    fn one_request_at_a_time_has_its_pages_brought() {
        let (workers, mut asked) = (Arc::<Workers>::default(), None);
        let (first, second) = (page(), page());
        let never = Needed::of(&[first], true);
        asked.replace(Arc::new(Asked { needed: never, is_there: OnceLock::new() }));
        let mut paging = Paging { asked: &mut asked, workers: &workers, peer: 1, resumes: None };
        assert_eq!(paging.look(&[second], true), Presence::Unknown);
        assert_eq!((workers.threads(), asked.is_some()), (0, true));
    }
}
