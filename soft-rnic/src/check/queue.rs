//! Requests that are outstanding on a queue pair, or a shared receive queue.
//!
//! ```text
//!   sends:     posted ──────────────────────> polled
//!   receives:  posted ──> taken (arrived) ──> polled
//! ```
//!
//! Each has a lock of its own, under which nothing is taken but those of claims and reports.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use host::sync::Mutex;
use verbs_sys::ibv_sge;

use super::checker::{Checker, PostedReceives};
use super::claims::AddressRange;
use super::completions::CqAccount;
use super::fingerprint::Fingerprint;
use super::report::ReportKind;

/// Messages that have arrived and were not polled. More are only there where completions got lost.
const ARRIVED: usize = 1 << 16;

/// A request that is outstanding.
#[derive(Debug, Default)]
pub(crate) struct PostedWr {
    pub(crate) wr_id: u64,
    pub(crate) operation: &'static str,
    /// The send queue's position after it.
    pub(crate) position: u32,
    pub(crate) sges: Vec<ibv_sge>,
    /// Bytes of a send request.
    pub(crate) len: u64,
    /// The domain of its memory.
    pub(crate) pd: u32,
    /// Fingerprint of its buffer, if it is looked at.
    pub(crate) print: Option<Fingerprint>,
    pub(crate) claims: Vec<AddressRange>,
    pub(crate) writes: bool,
    /// Peers cannot access the buffer of this receive, by whatever region.
    pub(crate) is_private: bool,
    /// A send is signalled; a receive was taken by a message.
    pub(crate) completes: bool,
    /// It was reported that its region, or its memory, has gone: that it fails then is said with
    /// it.
    pub(crate) is_said: bool,
}

impl PostedWr {
    /// Describes the place of some of its bytes.
    pub(crate) fn location(&self, bytes: &Range<usize>) -> String {
        let mut offset = bytes.start as u64;
        for sge in &self.sges {
            if offset < sge.length.into() {
                let at = sge.addr.wrapping_add(offset);
                return format!("within bytes {}..{}, at {at:#x}", bytes.start, bytes.end);
            }
            offset -= u64::from(sge.length);
        }
        format!("within bytes {}..{}", bytes.start, bytes.end)
    }
}

/// Reports, in one line, the requests of a queue that name a region which is deregistered.
fn report_deregistered<'a>(
    checker: &Checker,
    queue: &str,
    posted: impl Iterator<Item = &'a mut PostedWr>,
    key: u32,
) {
    let mut named = posted.filter(|posted| posted.sges.iter().any(|sge| sge.lkey == key));
    let Some(first) = named.next() else { return };
    let say = |posted: &mut PostedWr| (posted.print, posted.is_said) = (None, true);
    say(first);
    let more = named.map(say).count();
    checker.report.say(ReportKind::Deregistered, || {
        let more = if more > 0 { format!(" (and of {more} more)") } else { String::new() };
        let PostedWr { operation, wr_id, .. } = first;
        format!(
            "the buffer of {operation} wr_id {wr_id:#x} on {queue}{more} was deregistered before \
             its completion was polled"
        )
    });
}

/// Receive requests that are posted to one queue.
pub(crate) struct RecvAccount {
    pub(crate) checker: Arc<Checker>,
    /// Name of the queue in reports.
    pub(crate) name: String,
    posted: Mutex<VecDeque<PostedWr>>,
    /// Completion queues that they complete at: each counts all that are posted. Taken under the
    /// lock of `posted`.
    cqs: Mutex<Vec<Weak<CqAccount>>>,
    is_overlap_said: AtomicBool,
}

impl RecvAccount {
    pub(crate) fn new(checker: &Arc<Checker>, name: String) -> Arc<RecvAccount> {
        let receives = Arc::new(RecvAccount {
            checker: Arc::clone(checker),
            name,
            posted: Mutex::default(),
            cqs: Mutex::default(),
            is_overlap_said: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&receives);
        checker.made_receives(weak);
        receives
    }

    /// They complete there.
    pub(crate) fn complete_at(&self, cq: &Arc<CqAccount>) {
        let posted = self.posted.lock();
        let mut cqs = self.cqs.lock();
        cqs.retain(|other| other.strong_count() > 0);
        if !cqs.iter().any(|other| core::ptr::eq(other.as_ptr(), &raw const **cq)) {
            cq.add(posted.len() as u32);
            cqs.push(Arc::downgrade(cq));
        }
    }

    fn for_each_cq(&self, act: impl FnMut(Arc<CqAccount>)) {
        self.cqs.lock().iter().filter_map(Weak::upgrade).for_each(act);
    }

    /// One is posted; the posting side's lock is held.
    pub(crate) fn post(&self, posted: PostedWr) {
        if self.checker.claim(&posted.claims, true)
            && !self.is_overlap_said.swap(true, Ordering::Relaxed)
        {
            let (name, id) = (&self.name, posted.wr_id);
            self.checker.report.say(ReportKind::Overlaps, || {
                format!(
                    "the buffer of RECV wr_id {id:#x} on {name} overlaps that of another request \
                     that is posted: what arrives there is not checked"
                )
            });
        }
        let mut all = self.posted.lock();
        all.push_back(posted);
        self.for_each_cq(|cq| cq.add(1));
        self.for_each_cq(|cq| cq.test());
    }

    /// Does something with the oldest; the taking side's lock is held.
    pub(crate) fn with_first(&self, act: impl FnOnce(&mut PostedWr)) {
        if let Some(posted) = self.posted.lock().front_mut() {
            act(posted);
        }
    }

    /// The oldest is taken, and will complete at `at`, which still counts it; the taking side's
    /// lock is held.
    fn take(&self, at: Option<&Arc<CqAccount>>) -> Option<PostedWr> {
        let mut all = self.posted.lock();
        let posted = all.pop_front()?;
        let mut is_counted = false;
        self.for_each_cq(|cq| match at {
            Some(at) if Arc::ptr_eq(at, &cq) => is_counted = true,
            _ => cq.sub(),
        });
        if let Some(at) = at.filter(|_| !is_counted) {
            at.add(1);
        }
        Some(posted)
    }

    /// All are forgotten.
    pub(crate) fn clear(&self) {
        while let Some(posted) = self.take(None) {
            self.checker.disclaim(&posted.claims, true);
        }
    }
}

impl PostedReceives for RecvAccount {
    fn deregistered(&self, key: u32) {
        let mut posted = self.posted.lock();
        report_deregistered(&self.checker, &self.name, posted.iter_mut(), key);
    }
}

impl Drop for RecvAccount {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Requests that are outstanding on a queue pair.
pub(crate) struct QpAccount {
    pub(crate) checker: Arc<Checker>,
    pub(crate) number: u32,
    /// Name of the queue pair in reports.
    pub(crate) name: String,
    sends: Mutex<VecDeque<PostedWr>>,
    /// Its own receive queue, or the shared one.
    pub(crate) receives: Arc<RecvAccount>,
    is_shared: bool,
    arrived: Mutex<VecDeque<PostedWr>>,
    send_cq: Option<Arc<CqAccount>>,
    recv_cq: Option<Arc<CqAccount>>,
    is_overlap_said: AtomicBool,
}

impl QpAccount {
    /// Creates the state of a queue pair with these completion queues, which takes receive requests
    /// from a shared queue, or from its own.
    pub(crate) fn new(
        checker: &Arc<Checker>,
        number: u32,
        [send_cq, recv_cq]: [Option<Arc<CqAccount>>; 2],
        shared: Option<Arc<RecvAccount>>,
    ) -> QpAccount {
        let is_shared = shared.is_some();
        let name = format!("QP {number:#x}");
        let receives = shared.unwrap_or_else(|| RecvAccount::new(checker, name.clone()));
        if let Some(cq) = &recv_cq {
            receives.complete_at(cq);
        }
        QpAccount {
            checker: Arc::clone(checker),
            number,
            name,
            sends: Mutex::default(),
            receives,
            is_shared,
            arrived: Mutex::default(),
            send_cq,
            recv_cq,
            is_overlap_said: AtomicBool::new(false),
        }
    }

    /// Name of a request of the queue pair in reports.
    pub(crate) fn name_of(&self, posted: &PostedWr) -> String {
        format!("{} wr_id {:#x} on {}", posted.operation, posted.wr_id, self.name)
    }

    /// A request is posted to the send queue, whose lock is held.
    pub(crate) fn post_send(&self, posted: PostedWr) {
        let overlaps = self.checker.claim(&posted.claims, posted.writes);
        if overlaps && posted.writes && !self.is_overlap_said.swap(true, Ordering::Relaxed) {
            let (operation, id) = (posted.operation, posted.wr_id);
            self.checker.report.say(ReportKind::Overlaps, || {
                format!(
                    "the buffer of {operation} wr_id {id:#x} on {} overlaps that of another request \
                     that is posted",
                    self.name
                )
            });
        }
        let cq = self.send_cq.as_ref().filter(|_| posted.completes);
        cq.inspect(|cq| cq.add(1));
        self.sends.lock().push_back(posted);
        cq.inspect(|cq| cq.test());
    }

    /// A request that is outstanding in the send queue will have a completion.
    pub(crate) fn is_any_signaled(&self) -> bool {
        self.sends.lock().iter().any(|posted| posted.completes)
    }

    /// Does something with the request of this position, if it is there.
    pub(crate) fn with_send(&self, position: u32, act: impl FnOnce(&mut PostedWr)) {
        let mut sends = self.sends.lock();
        let Some(first) = sends.front().map(|posted| posted.position) else { return };
        if let Some(posted) = sends.get_mut(position.wrapping_sub(first) as usize) {
            act(posted);
        }
    }

    /// A region is deregistered: reports the requests from this position on, which are not done,
    /// that name it.
    pub(crate) fn deregistered(&self, key: u32, from: u32) {
        let is_under_way =
            |posted: &&mut PostedWr| posted.position.wrapping_sub(from).cast_signed() >= 0;
        let mut sends = self.sends.lock();
        let sends = sends.iter_mut().filter(is_under_way);
        report_deregistered(&self.checker, &self.name, sends, key);
    }

    /// The program knows that the requests up to this position are done; each is shown to `look`.
    pub(crate) fn retire_sends(&self, position: u32, mut look: impl FnMut(&mut PostedWr)) {
        let mut sends = self.sends.lock();
        let is_done = |posted: &PostedWr| position.wrapping_sub(posted.position).cast_signed() >= 0;
        while sends.front().is_some_and(is_done) {
            let Some(mut posted) = sends.pop_front() else { return };
            look(&mut posted);
            self.forget_send(&posted);
        }
    }

    fn forget_send(&self, posted: &PostedWr) {
        self.checker.disclaim(&posted.claims, posted.writes);
        self.send_cq.as_ref().filter(|_| posted.completes).inspect(|cq| cq.sub());
    }

    /// A message takes the oldest receive request of a queue; the lock of its taking side is held.
    /// `look` is shown it, and says what is kept of it until its completion is polled.
    pub(crate) fn arrive(&self, receives: &RecvAccount, look: impl FnOnce(PostedWr) -> PostedWr) {
        let Some(posted) = receives.take(self.recv_cq.as_ref()) else { return };
        let posted = look(posted);
        let mut arrived = self.arrived.lock();
        arrived.push_back(posted);
        if arrived.len() > ARRIVED
            && let Some(lost) = arrived.pop_front()
        {
            self.forget_arrived(&lost);
        }
    }

    /// The receive request that is filled now was reported: its memory has gone.
    pub(crate) fn is_receive_said(&self, wr_id: u64) -> bool {
        let is_it = |posted: &PostedWr| posted.is_said && posted.wr_id == wr_id;
        let mut is_said = self.arrived.lock().back().is_some_and(is_it);
        self.receives.with_first(|posted| is_said |= is_it(posted));
        is_said
    }

    /// Does something with what was taken last.
    pub(crate) fn with_last(&self, act: impl FnOnce(&mut PostedWr)) {
        if let Some(posted) = self.arrived.lock().back_mut() {
            act(posted);
        }
    }

    /// The completion of a receive request is polled: the oldest with this number, which is shown
    /// to `look`.
    pub(crate) fn retire_receive(&self, wr_id: u64, look: impl FnOnce(&mut PostedWr)) {
        let mut arrived = self.arrived.lock();
        let Some(n) = arrived.iter().position(|posted| posted.wr_id == wr_id) else { return };
        for lost in arrived.drain(..n) {
            self.forget_arrived(&lost);
        }
        if let Some(mut posted) = arrived.pop_front() {
            look(&mut posted);
            self.forget_arrived(&posted);
        }
    }

    fn forget_arrived(&self, posted: &PostedWr) {
        self.checker.disclaim(&posted.claims, true);
        self.recv_cq.as_ref().inspect(|cq| cq.sub());
    }

    /// Forgets all requests, except those of a shared queue. Returns how many received messages
    /// were not polled.
    pub(crate) fn clear(&self) -> usize {
        let mut sends = self.sends.lock();
        sends.drain(..).for_each(|posted| self.forget_send(&posted));
        if !self.is_shared {
            self.receives.clear();
        }
        let mut arrived = self.arrived.lock();
        let n = arrived.iter().filter(|posted| posted.completes).count();
        arrived.drain(..).for_each(|posted| self.forget_arrived(&posted));
        n
    }
}

#[cfg(test)]
mod tests;
