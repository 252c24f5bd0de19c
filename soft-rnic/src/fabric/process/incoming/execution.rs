//! Executing one request of another process, as if a queue pair of this one had sent it.

use std::sync::Arc;

use crate::engine::responder::{InboundRequest, ResponderSession};
use crate::limits;
use crate::memory::paging::RequestPages;
use crate::memory::span::MemSpan;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::peers::process::ring::{
    EntryOp, HAS_IMM, INVALIDATES, JUDGE, PayloadLocation, RingRequest, SOLICITED, XRC,
};
use crate::peers::process::side::{MessageScratch, ReadSide, carries_data, read_there};
use crate::queues::address::{DatagramAddress, GidBytes};
use crate::queues::outcome::PeerReply;
use crate::queues::qp_state::QpTransport;
use crate::queues::wqe::{SqOp, Wqe};

use super::super::gather::Gathered;
use super::parts::Coming;

impl ReadSide {
    /// [`execute`](Self::execute) with the pages that were brought, or by a thread that waits for
    /// those that were not.
    pub(super) fn execute_with<'a>(
        &mut self,
        session: &mut ResponderSession<'a>,
        request: &RingRequest,
        scratch: &mut MessageScratch,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
        pages: Option<&RequestPages>,
    ) -> Option<(PeerReply, u64)> {
        let transport = session.peer.transport;
        if !hears(transport, request) {
            return Some((PeerReply::Silence, 0));
        }
        let reliable = transport.is_reliable();
        let expected = request.generation == session.responder.generation
            && request.number == session.responder.number;
        if reliable && !expected {
            return Some((PeerReply::Silence, 0));
        }
        let there = is_elsewhere(request).then(|| Arc::clone(&self.pair));
        let reading = there.as_deref().map(|pair| read_there(pair, request));
        if matches!(reading, Some(None)) {
            return Some((PeerReply::Silence, 0));
        }
        let device = &session.peer.pd.context.device;
        let longest = if transport == QpTransport::Ud { device.mtu() } else { limits::MAX_MESSAGE };
        if u64::from(request.len) > longest {
            return Some((PeerReply::Silence, 0));
        }
        let wqe = wqe(request);
        let to = (transport == QpTransport::Ud).then(|| address(request, device.gid()));
        let MessageScratch { local, room, list } = scratch;
        let (from, len) = ((request.from, session.responder.psn), request.len.into());
        let message =
            InboundRequest { pages, ..InboundRequest::new(&wqe, from, (&[], len), to.as_ref()) };
        // Nothing is fetched, nor memory taken for it, that is refused whatever it is.
        let takes_parts = match &reading {
            None => false,
            Some(_) => match session.judge_unread(&message, request.srqn(), room, writer, deferred)
            {
                Ok(takes_parts) => takes_parts,
                Err(reply) => return Some((reply, 0)),
            },
        };
        let mut local = match self.gather(request, local, list) {
            Gathered::There(local) => local,
            Gathered::Later => return None,
            Gathered::InParts(n) if takes_parts => {
                let list = (&*list, n);
                match self.go_on_with(session, request, &message, list, room, writer, deferred) {
                    Coming::Placed => local.start(),
                    Coming::Later => return None,
                    Coming::Refused(reply) => return Some((reply, 0)),
                }
            }
            Gathered::InParts(n) => match self.fetched(request, &list[..n], local.start()) {
                Gathered::There(local) => local,
                Gathered::Later => return None,
                _ => return Some((PeerReply::Refused(self.pair.unreadable()), 0)),
            },
            Gathered::Never => {
                return Some((PeerReply::Refused(self.pair.unreadable()), 0));
            }
        };
        let mut value = [0_u64];
        let is_atomic = wqe.op.is_atomic();
        if is_atomic {
            local.push(MemSpan::from_words(&mut value));
        }
        let message = InboundRequest { local: local.as_slice(), ..message };
        let reply = match request.srqn() {
            None => session.deliver(&message, room, writer, deferred),
            Some(srqn) => session.deliver_xrc(&message, srqn, room, writer, deferred),
        };
        let verdict = match reply {
            PeerReply::Done if request.flags & JUDGE != 0 && !wqe.op.is_word() => PeerReply::Again,
            verdict => verdict,
        };
        if verdict == PeerReply::Done {
            session.responder.number = session.responder.number.wrapping_add(1);
        }
        Some((verdict, value[0]))
    }
}

/// Reports whether a queue pair of this transport hears such requests.
#[inline]
fn hears(transport: QpTransport, request: &RingRequest) -> bool {
    match transport {
        QpTransport::Ud => request.what == EntryOp::Datagram && request.srqn().is_none(),
        QpTransport::Rc => !request.is_datagram() && request.srqn().is_none(),
        QpTransport::Uc => !request.is_datagram() && request.flags & (XRC | INVALIDATES) == 0,
        QpTransport::XrcRecv => {
            !request.is_datagram() && request.flags & (XRC | INVALIDATES) == XRC
        }
        QpTransport::XrcSend => false,
    }
}

/// Reports whether the data of a request are still where the sender's program has them.
#[inline]
fn is_elsewhere(request: &RingRequest) -> bool {
    request.location == PayloadLocation::Regions && carries_data(request)
}

/// Returns the operation that a request asks for, as a send queue's request.
pub(super) fn wqe(request: &RingRequest) -> Wqe {
    let op = match request.what {
        EntryOp::Send | EntryOp::Datagram | EntryOp::Multicast => SqOp::Send,
        EntryOp::Write => SqOp::Write,
        EntryOp::Read => SqOp::Read,
        EntryOp::CompareSwap => SqOp::CompareSwap,
        EntryOp::FetchAdd => SqOp::FetchAdd,
        EntryOp::AtomicWrite => SqOp::AtomicWrite,
    };
    // Of what carries data, the first two say where they are.
    let [first, compare_add, third, rkey] = request.body;
    let (remote_addr, swap) = if carries_data(request) { (third, 0) } else { (first, third) };
    Wqe {
        remote_addr,
        compare_add,
        swap,
        rkey: rkey as u32,
        imm: (request.flags & HAS_IMM != 0).then_some(request.imm),
        op,
        solicited: request.flags & SOLICITED != 0,
        invalidates: request.what == EntryOp::Send && request.flags & INVALIDATES != 0,
        ..Wqe::default()
    }
}

/// Destination of a datagram, at the device or group of this GID, and the key that it carries.
pub(super) fn address(request: &RingRequest, gid: GidBytes) -> (DatagramAddress, u32) {
    let [qkey, class_and_limit] = [request.body[1] as u32, (request.body[1] >> 32) as u32];
    let [traffic_class, hop_limit, _, _] = class_and_limit.to_le_bytes();
    (DatagramAddress::here(gid, request.to, traffic_class, hop_limit), qkey)
}
