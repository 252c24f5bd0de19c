//! Requests as they go through the ring.

use verbs_sys::*;

use crate::engine::link::SendAttempt;
use crate::memory::span::{MemSpan, Spans};
use crate::objects::state::Qp;
use crate::peers::process::remote::RemotePeer;
use crate::peers::process::ring::{
    EntryOp, HAS_IMM, INVALIDATES, JUDGE, RingRequest, SOLICITED, WANTS_REPLY,
};
use crate::queues::outcome::{PeerReply, WqeOutcome};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{SqOp, WqeRef};
use crate::reason::WcReason;

use super::super::out::{COPIED, COPIED_UNMAPPED, OutRing};

impl Qp {
    pub(super) fn send<const XRC: bool>(
        &self,
        requester: &mut RequesterState,
        local: &Spans<'_>,
        remote: &RemotePeer,
        out: &mut OutRing<'_>,
        request: &WqeRef<'_>,
    ) -> SendAttempt {
        let len = request.len();
        // An unreliable queue pair takes silence for success: it waits only for what is not copied.
        let waits = self.transport.is_reliable() || len > COPIED || remote.sent > 0;
        let mut flags = flags_of(request);
        if waits {
            flags |= WANTS_REPLY;
        }
        let to = requester.dest_qpn;
        let mut sent = RingRequest { len: len as u32, ..self.request(remote, request, to, flags) };
        // Inline data lie in the queue, which the peer cannot read: they are copied, however
        // many they are.
        let stays = len > COPIED && !request.wqe.inline && self.stays(request.sges, len, local);
        let (regions, local) = (stays.then_some(request.sges), local.as_slice());
        let is_put = match XRC {
            false => out.put_message(&mut sent, local, regions),
            true => {
                sent.name_srq(request.srqn());
                out.put_apart(&mut sent, local, regions)
            }
        };
        if !is_put {
            return SendAttempt::Later;
        }
        requester.started = true;
        if waits {
            return SendAttempt::Sent;
        }
        SendAttempt::Ended(self.judge(requester, PeerReply::Done, len))
    }

    /// Reports whether a long message stays where it is, for the peer to copy.
    fn stays(&self, sges: &[ibv_sge], len: u64, local: &Spans<'_>) -> bool {
        let peers = &self.pd.context.device.peers;
        let is_mapped = |sge: &ibv_sge| {
            sge.length == 0 || peers.as_ref().is_some_and(|peers| peers.may_be_mapped(sge.lkey))
        };
        len > COPIED_UNMAPPED || local.on_demand || sges.iter().all(is_mapped)
    }

    /// Leaves it to the peer to say what is wrong with an operation on memory, or to carry
    /// out an atomic that cannot be carried out here.
    pub(super) fn refer<const XRC: bool>(
        &self,
        requester: &RequesterState,
        local: &Spans<'_>,
        remote: &RemotePeer,
        out: &mut OutRing<'_>,
        request: &WqeRef<'_>,
    ) -> SendAttempt {
        let (wqe, len) = (request.wqe, request.len() as u32);
        let mut operand = wqe.compare_add;
        if wqe.op == SqOp::AtomicWrite && len == 8 {
            let to = [MemSpan::from_words(core::slice::from_mut(&mut operand))];
            // SAFETY: the list has just been checked; the program accesses it atomically only.
            if unsafe { local.copy_to(&to) }.is_err() {
                return SendAttempt::Ended(WqeOutcome::Failed(WcReason::LocalGone));
            }
        }
        let flags = flags_of(request) | WANTS_REPLY | JUDGE;
        let body = [wqe.remote_addr, operand, wqe.swap, wqe.rkey.into()];
        let to = requester.dest_qpn;
        let mut sent = RingRequest { body, len, ..self.request(remote, request, to, flags) };
        if XRC {
            sent.name_srq(request.srqn());
        }
        if out.put(&sent) { SendAttempt::Sent } else { SendAttempt::Later }
    }

    #[inline(always)]
    pub(super) fn request(
        &self,
        remote: &RemotePeer,
        request: &WqeRef<'_>,
        to: u32,
        flags: u8,
    ) -> RingRequest {
        let what = match request.wqe.op {
            // Those two go to no peer.
            SqOp::Send | SqOp::BindMw | SqOp::LocalInv => EntryOp::Send,
            SqOp::Write => EntryOp::Write,
            SqOp::Read => EntryOp::Read,
            SqOp::CompareSwap => EntryOp::CompareSwap,
            SqOp::FetchAdd => EntryOp::FetchAdd,
            SqOp::AtomicWrite => EntryOp::AtomicWrite,
        };
        RingRequest {
            what,
            flags,
            incarnation: remote.incarnation,
            to,
            from: self.num,
            generation: remote.generation,
            number: remote.next,
            imm: request.wqe.imm.unwrap_or(0),
            // Of a write with immediate; what else has no data sets its own.
            body: [0, 0, request.wqe.remote_addr, request.wqe.rkey.into()],
            ..RingRequest::default()
        }
    }
}

pub(super) fn flags_of(request: &WqeRef<'_>) -> u8 {
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    flag(request.wqe.imm.is_some(), HAS_IMM)
        | flag(request.wqe.solicited, SOLICITED)
        | flag(request.wqe.invalidates, INVALIDATES)
}
