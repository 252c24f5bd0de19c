//! Datagrams to queue pairs of other processes. There are no replies.

use std::sync::Arc;

use crate::engine::execution::Execution;
use crate::memory::span::MemSpan;
use crate::objects::deferred_work::WorkItem;
use crate::objects::state::Qp;
use crate::peers::process::directory::slot_of;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::ring::{EntryOp, HAS_IMM, PayloadLocation, RingRequest, SOLICITED};
use crate::queues::address::DatagramAddress;
use crate::queues::outcome::{WaitCause, WqeOutcome};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{Wqe, WqeRef};

use super::out::OutRing;

impl Qp {
    /// Reports whether an address leads to another process.
    pub(crate) fn is_foreign(&self, to: &DatagramAddress) -> bool {
        let device = &self.pd.context.device;
        let is_here = to.gid == device.gid() && device.loops_by_memory();
        is_here && device.peers.as_ref().is_some_and(|peers| peers.is_foreign(to.qpn))
    }

    /// Sends a request that was checked, from these pieces. The process that it is for is met
    /// first.
    pub(crate) fn send_remote_ud(
        self: &Arc<Qp>,
        requester: &mut RequesterState,
        local: &[MemSpan<'_>],
        execution: &mut Execution<'_>,
        request: &WqeRef<'_>,
        to: &DatagramAddress,
        qkey: u32,
    ) -> WqeOutcome {
        let is_missing = core::mem::take(&mut requester.peer_not_found);
        let outcome = match self.pair_of(to) {
            Some(pair) if self.put_remote_ud(&pair, request.wqe, local, to, qkey) => {
                WqeOutcome::Done
            }
            Some(pair) => self.await_room(requester, &pair, pair.has_read()),
            None if is_missing => WqeOutcome::Dropped,
            None => {
                execution.deferred.push(WorkItem::Meet(Arc::clone(self), slot_of(to.qpn)));
                WqeOutcome::Blocked(WaitCause::Meeting, None)
            }
        };
        if matches!(outcome, WqeOutcome::Done | WqeOutcome::Dropped) {
            requester.advance_psn(1);
        }
        outcome
    }

    fn pair_of(&self, to: &DatagramAddress) -> Option<Arc<ProcessPair>> {
        let pair = self.pd.context.device.peers.as_ref()?.pair(slot_of(to.qpn))?;
        (!pair.is_dead()).then_some(pair)
    }

    /// Puts a late datagram into the ring of the process that it is for. False if it is
    /// dropped: no such process is there, or there is no room, as in a switch.
    pub(crate) fn post_remote_ud(
        &self,
        wqe: &Wqe,
        local: &[MemSpan<'_>],
        to: &DatagramAddress,
        qkey: u32,
    ) -> bool {
        self.pair_of(to).is_some_and(|pair| self.put_remote_ud(&pair, wqe, local, to, qkey))
    }

    /// Puts a datagram into the ring of a process. False if there is no room.
    fn put_remote_ud(
        &self,
        pair: &ProcessPair,
        wqe: &Wqe,
        local: &[MemSpan<'_>],
        to: &DatagramAddress,
        qkey: u32,
    ) -> bool {
        OutRing::new(pair).put_data(&mut self.datagram(wqe, local, to, qkey), local)
    }

    /// Returns the request that goes into the ring.
    pub(super) fn datagram(
        &self,
        wqe: &Wqe,
        local: &[MemSpan<'_>],
        to: &DatagramAddress,
        qkey: u32,
    ) -> RingRequest {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let classes = u32::from_le_bytes([to.traffic_class, to.hop_limit, 0, 0]);
        RingRequest {
            what: EntryOp::Datagram,
            flags: flag(wqe.imm.is_some(), HAS_IMM) | flag(wqe.solicited, SOLICITED),
            location: PayloadLocation::Data,
            to: to.qpn,
            from: self.num,
            imm: wqe.imm.unwrap_or(0),
            len: local.iter().map(|span| span.len() as u32).sum(),
            body: [0, u64::from(qkey) | u64::from(classes) << 32, 0, 0],
            ..RingRequest::default()
        }
    }
}
