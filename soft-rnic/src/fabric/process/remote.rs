//! Requests to a queue pair of another process: the requester's side.
//!
//! What was sent through the ring stays in the send queue until its reply is there:
//!
//! ```text
//!   pending:   | sent, no reply yet      | not sent |
//!              head                      head + sent
//! ```
//!
//! Replies come in the order of the requests. One that says "not ready" or "not
//! there" moves the second mark back to the head: all is sent again from there, when
//! the time has come, and the other side has ignored what came behind it.
//!
//! An operation on memory is carried out here when nothing before it waits for a reply.
//! A write with immediate is not: nothing is written before there is a receive request.

mod replies;
mod requests;
pub(crate) mod tx_fast_path;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;

use crate::engine::execution::{Execution, SqParts};
use crate::engine::link::{SendAttempt, SqLink};
use crate::memory::span::MemSpan;
use crate::objects::deferred_work::WorkItem;
use crate::objects::state::{Qp, Sq};
use crate::peers::process::directory::slot_of;
use crate::peers::process::outside::wait_for;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::regions::Regions;
use crate::peers::process::remote::RemotePeer;
use crate::peers::process::ring::{DATA, RingRequest};
use crate::queues::outcome::{PeerReply, WaitCause, WqeOutcome};
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::QpTransport;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{Wqe, WqeRef};
use crate::reason::WcReason;
use crate::timing::timer::response_timeout_ns;

use super::one_sided::AccessAttempt;
use super::out::{COPIED, OutRing};
use requests::flags_of;

/// Longest time, in nanoseconds, after which a request to a peer's process that has died fails: one
/// timeout of the queue pair, but not more than code 14 (67 ms), and this too for one that waits
/// without end.
const LOSS_NS: u64 = 4_096 << 14;

impl RemotePeer {
    pub(crate) fn new(qpn: u32, incarnation: u8) -> RemotePeer {
        RemotePeer {
            slot: slot_of(qpn),
            pair: None,
            generation: 0,
            bound: 0,
            incarnation,
            psn: 0,
            next: 0,
            sent: 0,
            regions: Regions::default(),
        }
    }

    /// The queue pair begins to send, with this PSN.
    pub(crate) fn begin(&mut self, psn: u32) {
        self.psn = psn;
    }

    /// All that was sent and has no reply is given up. Its numbers are not used again: the replies
    /// may still come, and an unreliable connection can go on.
    pub(crate) fn give_up(&mut self) {
        self.sent = 0;
        self.generation = 0;
    }

    /// All that was sent and has no reply will be sent again.
    pub(crate) fn go_back(&mut self) {
        self.next = self.next.wrapping_sub(self.sent);
        self.sent = 0;
        // Look again: it may be another one by now.
        self.generation = 0;
    }

    /// Waits until the peer's process reads no message any more where it lies: it has been
    /// told that the queue pair sends no more, and the program gets the memory back. A process
    /// that does not go on within seconds is stopped, and cannot be waited for: false.
    pub(crate) fn reclaim(&self, pending: &PendingWqes) -> bool {
        self.reclaim_from(self.pair.as_deref(), pending)
    }

    fn reclaim_from(&self, pair: Option<&ProcessPair>, pending: &PendingWqes) -> bool {
        let Some(pair) = pair else { return true };
        let is_read_there = |nth| {
            let request = pending.nth(nth);
            request.is_some_and(|request| request.wqe.takes_receive() && request.len() > COPIED)
        };
        let reads = || core::iter::once(&*pair.incoming.reads);
        !(0..self.sent).any(is_read_there) || wait_for(pair, reads()).is_ok()
    }
}

/// The hold on a peer in another process; `XRC` says whether requests go over XRC.
pub(crate) struct RemoteLink<'l, const XRC: bool> {
    pub(super) remote: &'l mut RemotePeer,
    pub(super) out: Option<OutRing<'l>>,
}

impl RemotePeer {
    /// Takes the hold on the peer for a list.
    #[inline(always)]
    pub(crate) fn hold<const XRC: bool, R>(
        &mut self,
        qp: &Qp,
        act: impl FnOnce(&mut RemoteLink<'_, XRC>) -> R,
    ) -> R {
        self.look_up(qp);
        // Lent, not shared: its count of owners lies where all threads of the process look.
        let pair = self.pair.take();
        let mut link = RemoteLink { out: pair.as_deref().map(OutRing::new), remote: self };
        let result = act(&mut link);
        drop(link);
        self.pair = pair;
        result
    }
}

impl<'a, const XRC: bool> SqLink<'a> for RemoteLink<'_, XRC> {
    fn sent(&self) -> u32 {
        self.remote.sent
    }

    fn count_sent(&mut self) {
        self.remote.next = self.remote.next.wrapping_add(1);
        self.remote.sent += 1;
    }

    #[inline(always)]
    fn advance(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
    ) -> SendAttempt {
        let len = request.len();
        let SqParts { requester, scratch, .. } = parts;
        let room = &mut scratch.local;
        let local = match qp.local_unless(requester, request, len, room, |_, _| Err(None)) {
            Ok(local) => local,
            Err(Some(reason)) => return self.ended(WqeOutcome::Failed(reason)),
            Err(None) => {
                let Some(_section) = qp.begin_paging(self.out.as_mut(), execution) else {
                    return SendAttempt::Later;
                };
                match qp.local(requester, request, len, &mut scratch.local) {
                    Ok(local) => local,
                    Err(reason) => return self.ended(WqeOutcome::Failed(reason)),
                }
            }
        };
        let is_lost = self.out.as_ref().is_none_or(|out| out.pair.is_dead());
        if (is_lost || self.remote.generation == 0)
            && let Some(step) = self.find_peer(qp, requester, len, execution)
        {
            return step;
        }
        let RemoteLink { remote, out: Some(out) } = self else { return SendAttempt::Later };
        if request.wqe.takes_receive() {
            return qp.send::<XRC>(requester, &local, remote, out, request);
        }
        if remote.sent > 0 {
            return SendAttempt::Later;
        }
        match qp.one_sided::<XRC>(requester, &local, remote, out, execution, request) {
            AccessAttempt::Done => {
                remote.bound = remote.generation;
                SendAttempt::Ended(qp.judge(requester, PeerReply::Done, len))
            }
            AccessAttempt::Judge => qp.refer::<XRC>(requester, &local, remote, out, request),
            AccessAttempt::Later => {
                execution.deferred.push(WorkItem::Attach(Arc::clone(qp), out.pair.pid));
                SendAttempt::Later
            }
            AccessAttempt::Ended(outcome) => SendAttempt::Ended(outcome),
        }
    }

    /// Nothing waits for replies, and what is too long to be copied gets lost, too.
    fn advance_lossy(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
        arrives: bool,
    ) -> WqeOutcome {
        let len = request.len();
        let SqParts { requester, scratch, .. } = parts;
        let local = match qp.local(requester, request, len, &mut scratch.local) {
            Ok(local) => local,
            Err(reason) => return WqeOutcome::Failed(reason),
        };
        let Some(out) = &mut self.out else {
            return qp.meet_or_fail(requester, self.remote, len, execution);
        };
        let to = requester.dest_qpn;
        let mut sent = RingRequest {
            len: len as u32,
            ..qp.request(self.remote, request, to, flags_of(request))
        };
        let reply = match request.wqe.op {
            _ if !arrives || out.pair.is_dead() => PeerReply::Silence,
            _ if request.wqe.takes_receive() && len <= u64::from(DATA / 4) => {
                match out.put_copied(&mut sent, &local) {
                    Ok(true) => PeerReply::Done,
                    Ok(false) => match qp.await_room(requester, out.pair, out.pair.has_read()) {
                        WqeOutcome::Dropped => PeerReply::Silence,
                        waits => return waits,
                    },
                    Err(_gone) => return WqeOutcome::Failed(WcReason::LocalGone),
                }
            }
            _ if request.wqe.takes_receive() => PeerReply::Silence,
            _ => match qp.one_sided::<XRC>(requester, &local, self.remote, out, execution, request)
            {
                AccessAttempt::Done => PeerReply::Done,
                // Lost, as it may be: the network is one that loses.
                AccessAttempt::Judge | AccessAttempt::Later => PeerReply::Silence,
                AccessAttempt::Ended(outcome) => return outcome,
            },
        };
        qp.judge(requester, reply, len)
    }

    fn give_up(&mut self, pending: &PendingWqes, execution: &mut Execution<'a>) {
        if let Some(out) = &mut self.out {
            out.release();
        }
        // What has been completed can be seen meanwhile.
        execution.writer.release();
        let _ = self.remote.reclaim_from(self.out.as_ref().map(|out| out.pair), pending);
        self.remote.give_up();
    }
}

impl<const XRC: bool> RemoteLink<'_, XRC> {
    /// An end that comes only when nothing before it waits for a reply.
    #[cold]
    fn ended(&self, outcome: WqeOutcome) -> SendAttempt {
        if self.remote.sent > 0 { SendAttempt::Later } else { SendAttempt::Ended(outcome) }
    }

    /// Looks for the queue pair at the other end, or what became of its process; what to do
    /// unless it expects what is going to be sent.
    #[cold]
    fn find_peer(
        &mut self,
        qp: &Arc<Qp>,
        requester: &mut RequesterState,
        len: u64,
        execution: &mut Execution<'_>,
    ) -> Option<SendAttempt> {
        if self.remote.sent > 0 && self.out.as_ref().is_none_or(|out| out.pair.is_dead()) {
            return Some(SendAttempt::Later);
        }
        Some(SendAttempt::Ended(match &self.out {
            None => qp.meet_or_fail(requester, self.remote, len, execution),
            Some(out) if out.pair.is_dead() => qp.lost(requester, len),
            Some(out) if qp.greet(self.remote, out.pair, requester.dest_qpn) => return None,
            Some(_) => {
                requester.started = true;
                qp.judge(requester, PeerReply::Silence, len)
            }
        }))
    }
}

impl Qp {
    /// A late message arrives at another process. False if it does not; a plain write has
    /// no memory to go to any more.
    pub(crate) fn arrive_remote(&self, sq: &mut Sq, wqe: &Wqe, payload: &[MemSpan<'_>]) -> bool {
        let to = sq.requester.dest_qpn;
        let Some(remote) = sq.remote.as_deref_mut() else { return false };
        remote.look_up(self);
        let pair = remote.pair.clone();
        let Some(pair) = pair.filter(|pair| !pair.is_dead()) else { return false };
        let len: usize = payload.iter().map(|span| span.len()).sum();
        let request = WqeRef { wqe, sges: &[], to: None };
        let flags = flags_of(&request);
        let mut sent = RingRequest { len: len as u32, ..self.request(remote, &request, to, flags) };
        let fits = len <= DATA as usize / 4;
        wqe.takes_receive() && fits && OutRing::new(&pair).put_data(&mut sent, payload)
    }

    /// There is no pair: the process has to be met first, or is not there.
    fn meet_or_fail(
        self: &Arc<Qp>,
        requester: &mut RequesterState,
        remote: &RemotePeer,
        len: u64,
        execution: &mut Execution<'_>,
    ) -> WqeOutcome {
        requester.started = true;
        if core::mem::take(&mut requester.peer_not_found) {
            return self.judge(requester, PeerReply::Silence, len);
        }
        execution.deferred.push(WorkItem::Meet(Arc::clone(self), remote.slot));
        WqeOutcome::Blocked(WaitCause::Meeting, None)
    }

    /// The peer's process has died. The request fails, but not at once: a peer that has all that it
    /// wants may exit, and what it sent before completes here first, as with a card.
    pub(super) fn lost(&self, requester: &mut RequesterState, len: u64) -> WqeOutcome {
        if self.transport.is_reliable() {
            // It will not come back, so that one timeout is enough.
            (requester.started, requester.retries_left) = (true, 0);
            let timeout = response_timeout_ns(requester.timeout);
            let delay = timeout.map_or(LOSS_NS, |timeout| timeout.min(LOSS_NS));
            return WqeOutcome::Blocked(WaitCause::Response, Some(delay));
        }
        self.judge(requester, PeerReply::Silence, len)
    }

    /// Looks the peer up; whether it expects what we are going to send.
    fn greet(&self, remote: &mut RemotePeer, pair: &ProcessPair, to: u32) -> bool {
        let Some(entry) = pair.theirs.receiver(to, self.transport as u32, self.num) else {
            return false;
        };
        let generation = entry.generation.load(Ordering::Relaxed);
        let expected = entry.psn.load(Ordering::Relaxed) == remote.psn;
        let is_another = remote.bound != 0 && generation != remote.bound;
        if self.transport.is_reliable() && (!expected || is_another) {
            return false;
        }
        remote.generation = generation;
        generation != 0
    }
}

impl RemotePeer {
    /// Finds the process at the other end, if it has been met.
    fn look_up(&mut self, qp: &Qp) {
        let Some(peers) = &qp.pd.context.device.peers else { return };
        let known = self.pair.as_ref().is_some_and(|pair| !pair.is_dead() || self.sent > 0);
        if !known {
            let found = peers.pair(self.slot);
            // A connection to a process that has died stays one to that.
            if self.pair.is_none() {
                self.pair = found;
            }
        }
    }
}

impl Sq {
    /// The queue pair lets its peer go, and waits until no thread of the peer's process is inside
    /// this one's memory for it; `EBUSY` if one stays.
    pub(crate) fn part(&mut self, qp: &Qp) -> Result<(), Errno> {
        let peers = qp.pd.context.device.peers.as_ref();
        let (Some(remote), Some(peers)) = (self.remote.take(), peers) else {
            return Ok(());
        };
        let _ = remote.reclaim(&self.pending);
        if qp.transport == QpTransport::Uc {
            // An unreliable connection accepts any sender: each process may be inside.
            return peers.wait_outside();
        }
        // It may have been met since, or declared dead.
        let to = self.requester.dest_qpn;
        let pairs = remote.pair.into_iter().chain(peers.all_in(remote.slot));
        pairs
            .into_iter()
            .try_for_each(|pair| wait_for(&pair, core::iter::once(pair.theirs.qp(to).inside())))
    }
}
