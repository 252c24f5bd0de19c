//! A network that loses, delays and repeats messages of unreliable transports.
//!
//! What becomes of a message follows from the seed, the number of its queue pair
//! and how many messages that queue pair has sent, and from nothing else: threads
//! that send at the same time do not change each other's fates.
//!
//! A message that is overtaken has left its queue pair: the request is complete,
//! and the data are a copy. It arrives when a few later ones of the same queue pair
//! have been sent, or when its time is over. A reset, or the end of the queue pair,
//! loses it. Messages are late, lost or repeated as a whole, however many packets
//! they have.

use std::sync::Arc;

use rustix::io::Errno;

use crate::engine::execution::{Execution, SqParts, packets};
use crate::engine::injection::delay;
use crate::engine::responder::{InboundRequest, ResponderSession};
use crate::memory::on_demand;
use crate::memory::span::{MemSpan, to_vec};
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, Sq};
use crate::queues::address::DatagramAddress;
use crate::queues::outcome::{PeerReply, WqeOutcome};
use crate::queues::transit::OvertakenMessage;
use crate::queues::wqe::WqeRef;
use crate::reason::WcReason;
use crate::timing::network::{Fate, NetworkFaults};

/// A late message arrives after this time, if nothing overtakes it: 1 ms.
const LATE_NS: u64 = 1_000_000;

/// Lets `soft0` lose, reorder and repeat messages of unreliable transports from now
/// on, until the next call; [`NetworkFaults::default`] is a network without
/// faults, which `soft0` begins with. Reliable connections do not notice.
///
/// The same seed gives the same fate to the n-th message of the same queue pair, in
/// every process that creates its queue pairs in the same order.
///
/// ```
/// use soft_rnic::{NetworkFaults, set_network_faults};
///
/// set_network_faults(42, NetworkFaults { loss: 0.01, reordering: 0.02, ..Default::default() });
/// // … datagrams …
/// set_network_faults(0, NetworkFaults::default());
/// ```
pub fn set_network_faults(seed: u64, faults: NetworkFaults) {
    crate::objects::device::default_device().network.set(seed, faults);
}

impl Qp {
    /// Sends a message of an unreliable transport; `execute` checks the request and
    /// hands it over, if it is to arrive. `to` is where a datagram
    /// goes, and the key that it carries.
    pub(crate) fn send_unreliably(
        &self,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        to: Option<(DatagramAddress, u32)>,
        mut execute: impl FnMut(&mut SqParts<'_>, bool) -> WqeOutcome,
    ) -> WqeOutcome {
        let device = &self.pd.context.device;
        if let Some(outcome) = delay(device, parts) {
            return outcome;
        }
        if !device.network.is_faulty() {
            return execute(parts, true);
        }
        let transit = parts.requester.transit.get_or_insert_default();
        let fate = device.network.fate(self.num, transit.sent + 1);
        let psn = parts.requester.psn;
        let outcome = match fate {
            Fate::Arrives => execute(parts, true),
            Fate::Lost => {
                let outcome = execute(parts, false);
                parts.counters.lost += u64::from(outcome == WqeOutcome::Dropped);
                outcome
            }
            Fate::Twice => {
                let first = execute(parts, true);
                // One that fails here fails both times, and changes nothing. A second copy
                // that would have to wait is lost.
                if !matches!(first, WqeOutcome::Blocked(..)) {
                    execute(parts, true);
                }
                first
            }
            Fate::Late(overtakers) => match execute(parts, false) {
                WqeOutcome::Dropped => self.keep_late(parts, request, to, psn, overtakers),
                failed => failed,
            },
        };
        // One that waits has not been sent: it will have the same fate when it is.
        if !matches!(outcome, WqeOutcome::Blocked(..)) {
            parts.requester.transit.get_or_insert_default().sent += 1;
            parts.counters.faults += u64::from(fate != Fate::Arrives);
        }
        outcome
    }

    /// Keeps a message back. One whose memory was taken away since it was checked fails.
    fn keep_late(
        &self,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        to: Option<(DatagramAddress, u32)>,
        psn: u32,
        overtakers: u32,
    ) -> WqeOutcome {
        let room = &mut parts.scratch.local;
        let local = match self.local(parts.requester, request, request.len(), room) {
            Ok(local) => local,
            Err(reason) => return WqeOutcome::Failed(reason),
        };
        // SAFETY: the pieces have just been checked.
        let payload = unsafe {
            match local.on_demand {
                false => to_vec(local.as_slice()).map_err(Errno::from),
                true => on_demand::to_vec(local.as_slice()),
            }
        };
        let Ok(payload) = payload.map(Vec::into_boxed_slice) else {
            return WqeOutcome::Failed(WcReason::LocalGone);
        };
        let token = self.pd.context.device.arm(self.num, Some(LATE_NS));
        // The message that is kept counts itself when it has been sent.
        let overtakers = overtakers + 1;
        let late = OvertakenMessage { wqe: *request.wqe, to, psn, payload, overtakers, token };
        parts.requester.transit.get_or_insert_default().late.push(late);
        WqeOutcome::Done
    }

    /// Executes what is pending, one request at a time, and after each lets those
    /// messages arrive that enough others have overtaken.
    pub(crate) fn run_faulty(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) {
        loop {
            let before = sq.pending.len();
            self.run_queue(sq, deferred, true);
            if sq.pending.len() == before {
                return;
            }
            self.release_late(sq, deferred, |late| {
                late.overtakers -= 1;
                late.overtakers == 0
            });
            if only_one {
                return;
            }
        }
    }

    /// The deadline that `token` names has passed: lets its message arrive, if that is
    /// still under way.
    pub(crate) fn late_expired(
        self: &Arc<Qp>,
        sq: &mut Sq,
        token: u64,
        deferred: &mut DeferredWork,
    ) {
        self.release_late(sq, deferred, |late| late.token == token);
    }

    /// Lets those late messages arrive that are `due`. The send queue's lock is
    /// held.
    fn release_late(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        mut due: impl FnMut(&mut OvertakenMessage) -> bool,
    ) {
        let Some(transit) = &mut sq.requester.transit else { return };
        let arriving: Vec<OvertakenMessage> =
            transit.late.extract_if(.., |late| due(late)).collect();
        for mut late in arriving {
            let arrived = self.arrive(sq, &mut late, deferred);
            sq.counters.dropped += u64::from(!arrived);
        }
    }

    /// Delivers a late message. Returns true if a queue pair received it, or another process's
    /// ring took it.
    fn arrive(
        &self,
        sq: &mut Sq,
        late: &mut OvertakenMessage,
        deferred: &mut DeferredWork,
    ) -> bool {
        let mtu_shift = sq.requester.mtu_shift;
        if let Some((to, qkey)) = late.to.filter(|(to, _)| self.is_foreign(to)) {
            let payload = [MemSpan::from_slice(&mut late.payload)];
            return self.post_remote_ud(&late.wqe, &payload, &to, qkey);
        }
        if sq.remote.is_some() && late.to.is_none() {
            let payload = [MemSpan::from_slice(&mut late.payload)];
            return self.arrive_remote(sq, &late.wqe, &payload);
        }
        let len = late.payload.len() as u64;
        let payload = [MemSpan::from_slice(&mut late.payload)];
        let (from, local) = ((self.num, late.psn), &payload[..usize::from(len > 0)]);
        let message = InboundRequest::new(&late.wqe, from, (local, len), late.to.as_ref());
        let message = InboundRequest { packets: packets(len, mtu_shift), ..message };
        if let Some((to, _)) = late.to.as_ref().filter(|(to, _)| to.is_group()) {
            return self.arrive_at_group(&message, &to.gid, &mut sq.scratch.remote, deferred);
        }
        let Some(peer) = self.resolve(sq, late.to.as_ref().map(|(to, _)| to)) else {
            return false;
        };
        let peer = Arc::clone(peer);
        let mut execution = Execution::new();
        let mut session = ResponderSession::open(&peer);
        let Execution { writer, deferred: entailed } = &mut execution;
        let reply = session.deliver(&message, &mut sq.scratch.remote, writer, entailed);
        deferred.append(execution.finish());
        reply == PeerReply::Done
    }
}
