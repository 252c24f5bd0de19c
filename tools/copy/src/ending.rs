//! End of a copy: it happens once, by the copy's own work or by a signal.
//!
//! A signal ends the process: it reports what has arrived so far, and notifies the other ends. A
//! copy that is at its end by then is reported as such: at a receiver, from before its sender is
//! notified.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use base::frame;
use base::signals::Interrupted;
use host::sync::{Condvar, Mutex};

use super::tally::CopyTally;
use super::wire::{CopyReply, MOST_REPLY};

/// After a signal: how long a copy that has ended may take to be reported.
const GRACE: Duration = Duration::from_secs(3);
/// Longest time in which an interrupted end tells another one why, and that one reads it.
const LAST_WORD: Duration = Duration::from_secs(2);

/// One copy, as a signal finds it.
#[derive(Debug)]
pub(super) struct Ongoing {
    pub(super) peer: String,
    pub(super) start: Instant,
    pub(super) tally: CopyTally,
    /// To the other end, once there is one.
    stream: Mutex<Option<TcpStream>>,
}

impl Ongoing {
    pub(super) fn new(peer: String) -> Ongoing {
        Ongoing {
            peer,
            start: host::time::now(),
            tally: CopyTally::default(),
            stream: Mutex::new(None),
        }
    }

    /// The other end has connected.
    pub(super) fn connected(&self, stream: &TcpStream) -> std::io::Result<()> {
        *self.stream.lock() = Some(stream.try_clone()?);
        Ok(())
    }

    /// Sends the other end a reply, which it has to read within `patience`.
    pub(super) fn tell(&self, reply: &CopyReply, patience: Duration) -> Result<()> {
        let mut stream = self.stream.lock();
        stream.as_mut().map_or(Ok(()), |to| frame::write(to, reply, MOST_REPLY, patience))
    }

    /// Tells the other end why this one ends, unless a reply is still being sent.
    fn tell_last(&self, why: Interrupted) {
        let Some(mut stream) = self.stream.try_lock() else { return };
        let Some(stream) = stream.as_mut() else { return };
        let word = CopyReply::GivenUp { why: why.to_string() };
        // This process ends, whether the other end reads it or not.
        let _ = frame::write(stream, &word, MOST_REPLY, LAST_WORD);
    }
}

/// Returns the reason for which the sender has ended, if it gave one.
pub(super) fn last_word(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(LAST_WORD)).ok()?;
    match frame::read(stream, MOST_REPLY, LAST_WORD) {
        Ok(CopyReply::GivenUp { why }) => Some(why),
        _ => None,
    }
}

/// Copies that are being received.
#[derive(Debug, Default, Clone)]
pub(super) struct Underway(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    copies: Mutex<OngoingCopies>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OngoingCopies {
    next: u64,
    all: BTreeMap<u64, OngoingCopy>,
}

#[derive(Debug)]
struct OngoingCopy {
    ongoing: Arc<Ongoing>,
    from: Option<IpAddr>,
    /// It has ended, and reports that itself.
    is_at_end: bool,
}

/// A copy that is being received, until this is dropped.
#[derive(Debug)]
pub(super) struct Hand {
    board: Arc<Board>,
    number: u64,
    pub(super) ongoing: Arc<Ongoing>,
}

/// Maximum of copies that are received at a time: each takes threads, descriptors and memory, and
/// any sender can begin one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyLimits {
    /// In all.
    all: usize,
    /// From one address, so that others have some left.
    of_one: usize,
}

impl CopyLimits {
    const MOST: usize = 64;
    /// Descriptors of a copy: its stream and a clone of it, its connection's, files and folders
    /// that are open.
    const DESCRIPTORS: usize = 12;
    /// Descriptors that are kept back: for the process, its device, and the 64 connections that
    /// have sent no Hello yet.
    const KEPT_BACK: usize = 128;

    /// As this process's limit of descriptors allows.
    pub(super) fn of_process() -> CopyLimits {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        CopyLimits::with_descriptors(
            limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX),
        )
    }

    fn with_descriptors(descriptors: usize) -> CopyLimits {
        let fit = descriptors.saturating_sub(Self::KEPT_BACK) / Self::DESCRIPTORS;
        let all = fit.clamp(1, Self::MOST);
        CopyLimits { all, of_one: all.div_ceil(4) }
    }
}

impl Underway {
    /// One more is received, from `peer`, if there is a place for it.
    ///
    /// # Errors
    /// The reason for its sender: there is no place.
    pub(super) fn enter(
        &self,
        peer: Option<SocketAddr>,
        places: CopyLimits,
    ) -> Result<Hand, String> {
        let from = peer.map(|peer| peer.ip());
        let mut copies = self.0.copies.lock();
        let CopyLimits { all, of_one } = places;
        if copies.all.len() >= all {
            return Err(format!("{all} copies are being received already: try again later"));
        }
        let same = |copy: &&OngoingCopy| from.is_some() && copy.from == from;
        if copies.all.values().filter(same).count() >= of_one {
            return Err(format!("{of_one} copies from this address are being received already"));
        }
        let ongoing = Arc::new(Ongoing::new(peer.map_or("?".into(), |peer| peer.to_string())));
        let number = copies.next;
        copies.next += 1;
        copies.all.insert(number, OngoingCopy { ongoing: ongoing.clone(), from, is_at_end: false });
        Ok(Hand { board: self.0.clone(), number, ongoing })
    }

    /// Ends the copies that are under way, at a signal: waits, for [`GRACE`] at most, until those
    /// that were at their end have been reported, tells the senders of the others `why`, and passes
    /// these to `end`, which ends the process. A copy that ends meanwhile waits for the lock until
    /// then.
    pub(super) fn interrupt<T>(
        &self,
        why: Interrupted,
        end: impl FnOnce(&[Arc<Ongoing>]) -> T,
    ) -> T {
        let (mut copies, limit) = (self.0.copies.lock(), host::time::now() + GRACE);
        while copies.all.values().any(|copy| copy.is_at_end) && host::time::now() < limit {
            self.0.changed.wait_for(&mut copies, host::time::until(limit));
        }
        let left = copies.all.values().filter(|copy| !copy.is_at_end);
        let left: Vec<_> = left.map(|copy| copy.ongoing.clone()).collect();
        left.iter().for_each(|ongoing| ongoing.tell_last(why));
        end(&left)
    }
}

impl Hand {
    /// The copy has ended: a later signal waits until it was reported.
    pub(super) fn is_at_end(&self) {
        if let Some(copy) = self.board.copies.lock().all.get_mut(&self.number) {
            copy.is_at_end = true;
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.board.copies.lock().all.remove(&self.number);
        self.board.changed.notify_all();
    }
}

/// Copies that are being sent, each with its outcome once it has one, until they are reported: by
/// the first caller.
#[derive(Debug)]
pub(super) struct SentCopies<T>(Mutex<Option<Outcomes<T>>>);

/// Copies, each with its outcome once it has one.
pub(super) type Outcomes<T> = Vec<(Arc<Ongoing>, Option<T>)>;

impl<T> SentCopies<T> {
    pub(super) fn new(copies: impl IntoIterator<Item = Arc<Ongoing>>) -> SentCopies<T> {
        SentCopies(Mutex::new(Some(copies.into_iter().map(|copy| (copy, None)).collect())))
    }

    /// Records the outcome of a copy that has ended.
    pub(super) fn ended(&self, at: usize, outcome: T) {
        if let Some(all) = &mut *self.0.lock() {
            all[at].1 = Some(outcome);
        }
    }

    /// Passes all of them to `report`, once: `None` if another caller has got them. Other callers
    /// wait until `report` returns.
    pub(super) fn report<R>(
        &self,
        report: impl FnOnce(Outcomes<T>) -> Result<R>,
    ) -> Option<Result<R>> {
        let mut copies = self.0.lock();
        copies.take().map(report)
    }

    /// As [`report`](Self::report), at a signal: the receivers of unfinished copies are told why.
    pub(super) fn interrupt<R>(
        &self,
        why: Interrupted,
        report: impl FnOnce(Outcomes<T>) -> Result<R>,
    ) -> Option<Result<R>> {
        self.report(|copies| {
            let open = copies.iter().filter(|(_, outcome)| outcome.is_none());
            open.for_each(|(ongoing, _)| ongoing.tell_last(why));
            report(copies)
        })
    }
}

#[cfg(test)]
mod tests;
