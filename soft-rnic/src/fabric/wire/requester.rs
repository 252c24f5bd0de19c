//! The requester's side: requests into packets, and responses into completions.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use host::plant::{Plant, is_planted};
use roce_core::headers::{DEFAULT_PKEY, Headers};
use roce_core::opcode::Opcode;
use roce_core::psn::Psn;
use roce_core::request::Outgoing;
use roce_core::requester::{
    Completion, CompletionStatus, MAX_WINDOW, PostError, Received, Requester, RequesterConfig,
    SendSlot,
};
use roce_core::uc;

use crate::check::packets::Packets;
use crate::clock;
use crate::engine::execution::{Execution, SqParts};
use crate::engine::link::{SendAttempt, SqLink};
use crate::engine::responder::place::land;
use crate::memory::span::{MemSpan, Spans};
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, Sq};
use crate::peers::wire::state::{OwnPages, PacketPath, Reliable, RoceWire, WireSq};
use crate::queues::outcome::WqeOutcome;
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::QpTransport;
use crate::queues::wqe::WqeRef;
use crate::reason::WcReason;
use crate::udp::PacketOutbox;

use super::own_pages::{LOOK_AGAIN_NS, UnsentReason};
use super::packets::HOLDS_FROM;
use super::requests::{copy_payload, request_of, span_of};
use super::responder::Answering;
use super::unreliable::UnreliableLink;

/// Bytes that the kernel adds to a packet that it keeps, at most.
const OVERHEAD: u32 = 1_024;
/// The shortest time from now to a deadline. (RNR timers that are shorter take as long.)
const SOONEST_NS: u64 = 200_000;

/// The code of the shortest timeout, 67 ms: a peer on a busy machine takes as long to answer, and
/// the kernel's device waits no shorter.
const SHORTEST: u8 = 14;

pub(super) fn timeout(code: u8) -> u8 {
    if code == 0 { 0 } else { code.clamp(SHORTEST, 31) }
}

impl<'a> SqLink<'a> for Reliable {
    fn sent(&self) -> u32 {
        self.machine.outstanding() as u32
    }

    fn advance(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        _: &mut Execution<'a>,
    ) -> SendAttempt {
        let fails = |reason, sent: u32| match sent {
            0 => SendAttempt::Ended(WqeOutcome::Failed(reason)),
            // It fails in its turn.
            _ => SendAttempt::Later,
        };
        let SqParts { requester, scratch, .. } = parts;
        match qp.check_local(requester, request, &mut scratch.local, &mut self.own) {
            Ok(()) => {}
            Err(UnsentReason::Later) => return SendAttempt::Later,
            Err(UnsentReason::Failed(reason)) => return fails(reason, self.sent()),
        }
        let Some(asked) = request_of(request) else {
            return fails(WcReason::Operation, self.sent());
        };
        match self.machine.post(asked) {
            Ok(_) => {
                requester.started = true;
                SendAttempt::Sent
            }
            // The peer would refuse it. A packet of another length is not sent: not all peers look at that.
            Err(PostError::NotAWord(_)) => fails(WcReason::PeerWord, self.sent()),
            Err(PostError::NoReads) => fails(WcReason::NoReads, self.sent()),
            // There is an entry for each request of the queue: the machine has failed, and the
            // queue is flushed.
            Err(_) => SendAttempt::Later,
        }
    }

    fn advance_lossy(
        &mut self,
        _: &'a Arc<Qp>,
        _: &mut SqParts<'_>,
        _: &WqeRef<'_>,
        _: &mut Execution<'a>,
        _: bool,
    ) -> WqeOutcome {
        WqeOutcome::Dropped
    }
}

/// The reason of a request that the peer has refused, or did not answer. A NAK says no more.
fn failure_of(status: CompletionStatus) -> Option<WcReason> {
    Some(match status {
        CompletionStatus::Success => return None,
        CompletionStatus::LocalLength => WcReason::TooLong,
        CompletionStatus::BadResponse => WcReason::BadResponse,
        CompletionStatus::RemoteInvalidRequest => WcReason::PeerInvalid,
        CompletionStatus::RemoteAccess => WcReason::PeerAccess,
        CompletionStatus::RemoteOperation => WcReason::PeerOperation,
        CompletionStatus::RetryExceeded => WcReason::NoResponse,
        CompletionStatus::RnrRetryExceeded => WcReason::Rnr,
    })
}

impl Qp {
    /// The queue pair may send from now on: to `path`.
    pub(super) fn begin_wire(
        &self,
        sq: &mut Sq,
        wire: &RoceWire,
        path: PacketPath,
        slots: Vec<SendSlot>,
    ) {
        if self.transport == QpTransport::Uc {
            let Sq { requester, .. } = sq;
            let sender = uc::Sender::new(uc::Config {
                mtu: 1 << requester.mtu_shift,
                dest_qpn: requester.dest_qpn,
                pkey: DEFAULT_PKEY,
                first_psn: Psn::new(requester.psn),
            });
            sq.wire = Some(Box::new(WireSq::Unreliable(sender, path)));
            return;
        }
        let Sq { requester, .. } = sq;
        let mtu = 1 << requester.mtu_shift;
        // Half of what the peer keeps, if it keeps as much as this end.
        let window = (wire.port.buffer() as u32 / 2 / (mtu + OVERHEAD)).clamp(4, MAX_WINDOW);
        let config = RequesterConfig {
            mtu,
            dest_qpn: requester.dest_qpn,
            pkey: DEFAULT_PKEY,
            first_psn: Psn::new(requester.psn),
            timeout: timeout(requester.timeout),
            retry_cnt: requester.retry_cnt,
            rnr_retry: requester.rnr_retry,
            max_rd_atomic: requester.max_rd_atomic,
            max_window: window,
            read_packets: window,
        };
        let machine = Requester::new(slots, config).ok();
        sq.wire = machine.map(|machine| {
            let packets = self.check().map(|_| Packets::new(window));
            let (lost, armed, waits_at) = (None, None, None);
            let own = OwnPages::default();
            let reliable =
                Reliable { machine, path, first: 0, lost, armed, own, packets, waits_at };
            Box::new(WireSq::Reliable(reliable))
        });
    }

    /// Posts and sends what can go, and completes what is complete. The send queue's lock is held.
    pub(crate) fn run_wire(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) {
        if self.state().flushes_sends() {
            return self.flush_sends(sq, deferred);
        }
        let Sq { requester, pending, wire, counters, scratch, .. } = sq;
        let (mut execution, mut parts) =
            (Execution::new(), SqParts { requester, counters, scratch });
        let wire = match wire.as_deref_mut() {
            None => return,
            Some(WireSq::Reliable(wire)) => wire,
            Some(WireSq::Unreliable(sender, path)) => {
                let mut link = UnreliableLink { sender, path };
                self.run_over(&mut link, &mut parts, pending, &mut execution, only_one);
                deferred.append(execution.finish());
                return self.flush_wire();
            }
        };
        wire.own.looks_again = false;
        self.end_requests(&mut parts, &mut execution, (pending, wire));
        self.run_over(wire, &mut parts, pending, &mut execution, only_one);
        // What has been completed can be seen meanwhile.
        execution.writer.release();
        self.transmit(&mut parts, pending, wire, &mut execution.deferred);
        if wire.lost == Some(wire.first)
            && let Some(head) = pending.front()
        {
            let failed = WqeOutcome::Failed(self.local_denial(&head));
            self.settle(&mut parts, &mut execution, head.wqe, 0, failed);
            pending.pop();
            (wire.first, wire.lost) = (wire.first + 1, None);
        }
        deferred.append(execution.finish());
        self.arm_wire(wire);
        self.trace_progress(sq);
        self.check_drained(sq);
    }

    /// Completes what the machine says is complete.
    fn end_requests<'a>(
        self: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        execution: &mut Execution<'a>,
        (pending, wire): (&mut PendingWqes, &mut Reliable),
    ) {
        while let Some(completion) = wire.machine.next_completion() {
            self.end_request(parts, execution, (pending, wire), completion);
        }
    }

    fn end_request<'a>(
        self: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        execution: &mut Execution<'a>,
        (pending, wire): (&mut PendingWqes, &mut Reliable),
        completion: Completion,
    ) {
        let Some((wqe, len)) = pending.front().map(|head| (*head.wqe, head.len())) else { return };
        if completion.status == CompletionStatus::RetryExceeded {
            self.note_unreached(wire, len);
        }
        let is_lost = wire.lost.take_if(|lost| *lost == completion.index.0).is_some();
        let outcome = match failure_of(completion.status) {
            // There was no memory for the received data. What was to be sent has been, before.
            None if is_lost && wqe.op.is_response() => WqeOutcome::Failed(WcReason::LocalGone),
            None => WqeOutcome::Done,
            Some(reason) => WqeOutcome::Failed(reason),
        };
        self.settle(parts, execution, &wqe, len, outcome);
        pending.pop();
        wire.first += 1;
        parts.requester.started = wire.machine.outstanding() > 0;
    }

    /// Sends the packets that may go now, behind what the peer is still to be answered: a program
    /// sees the acknowledgement of what it has sent before the reply to it.
    fn transmit(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        pending: &PendingWqes,
        wire: &mut Reliable,
        deferred: &mut DeferredWork,
    ) {
        let Some(device) = self.pd.context.device.wire() else { return };
        let now = clock::now();
        let in_flight = wire.machine.in_flight();
        let mut next = wire.machine.next_packet(now);
        if next.is_none() {
            return;
        }
        if self.owes_response() {
            let Answering { mut buffers, mut allowance } = Answering::new();
            self.answer_peer(device, (&mut buffers, &mut allowance), deferred);
        }
        let mut tx = device.tx.lock();
        let is_busy = in_flight >= HOLDS_FROM + tx.held() as u64;
        let mut is_awaited = false;
        while let Some(packet) = next {
            let opcode = packet.headers.bth.opcode;
            // The peer's answer takes its time.
            is_awaited = opcode.is_read_request() || opcode.is_atomic();
            next = self.transmit_request((device, &mut tx), parts, (pending, wire), packet, now);
        }
        // Relaxed: it is cleared before the outbox is locked that is looked at then.
        let is_watched = device.is_watched.load(Ordering::Relaxed);
        match is_busy && is_watched && !is_awaited {
            true => device.flush_full(&mut tx),
            false => device.flush(&mut tx),
        }
        if tx.has_due() {
            device.leave();
        }
    }

    /// Sends a packet and those behind it of the same request, as far as they may go now. The first one
    /// behind these.
    fn transmit_request(
        self: &Arc<Qp>,
        (device, tx): (&RoceWire, &mut PacketOutbox),
        SqParts { requester, scratch, .. }: &mut SqParts<'_>,
        (pending, wire): (&PendingWqes, &mut Reliable),
        mut packet: Outgoing,
        now: u64,
    ) -> Option<Outgoing> {
        let index = packet.index;
        let mut is_lost = wire.lost.is_some_and(|lost| lost <= index.0);
        let request = pending.nth((index.0 - wire.first) as u32);
        // Its memory stays what it is as long as the send queue is locked.
        let local = request.as_ref().filter(|_| packet.length > 0);
        let local = local.map(|request| self.local_again(requester, request, &mut scratch.local));
        loop {
            if let Some(asked) = request.as_ref().filter(|_| !is_lost) {
                let put = self.put_packet((device, &mut *tx), wire, asked, local.as_ref(), &packet);
                if put.is_err() {
                    (wire.lost, is_lost) = (Some(index.0), true);
                }
                if tx.is_full() {
                    // The peer has work already, and the next run is where this one was, in a cache.
                    device.flush(tx);
                }
            }
            packet = wire.machine.next_packet(now)?;
            if packet.index != index {
                return Some(packet);
            }
        }
    }

    /// Puts a packet of a request into the outbox. `local` is the memory of the request, if the packet has a
    /// payload. The packet is lost while pages of that are brought.
    fn put_packet(
        self: &Arc<Qp>,
        (device, tx): (&RoceWire, &mut PacketOutbox),
        wire: &mut Reliable,
        request: &WqeRef<'_>,
        local: Option<&Result<Spans<'_>, WcReason>>,
        packet: &Outgoing,
    ) -> Result<(), WcReason> {
        let len = packet.length as usize;
        let local = local.map(|local| local.as_ref().map_err(|reason| *reason)).transpose()?;
        if let Some(local) = local
            && !self.may_copy(local, (packet.offset as usize, len), false, &mut wire.own)
        {
            return Ok(());
        }
        device.put(tx, &wire.path, (&packet.headers, len), |to, crc| {
            let Some(local) = local else { return Ok(crc) };
            // SAFETY: `wire` is borrowed from the send queue: its lock is held. The caller has checked the list under it.
            let crc = unsafe { copy_payload(local, packet, (&mut *to, crc)) }?;
            if let Some(packets) = &mut wire.packets {
                self.check_packet(packets, packet, request.wqe, to);
            }
            Ok(crc)
        })
    }

    /// Takes a response. What it completes is complete before the packets behind it are looked at.
    /// The send queue's lock is held; what may be sent now is [`run_wire`]'s.
    ///
    /// [`run_wire`]: Self::run_wire
    pub(super) fn hear(
        self: &Arc<Qp>,
        sq: &mut Sq,
        headers: &Headers,
        payload: &[u8],
        deferred: &mut DeferredWork,
    ) {
        let Sq { requester, pending, wire, counters, scratch, .. } = &mut *sq;
        let Some(WireSq::Reliable(wire)) = wire.as_deref_mut() else { return };
        if self.state().flushes_sends() {
            return;
        }
        let before = wire.machine.counts();
        let mut parts = SqParts { requester, counters, scratch };
        self.place_response((pending, wire), &mut parts, headers, payload);
        let mut execution = Execution::new();
        self.end_requests(&mut parts, &mut execution, (pending, wire));
        deferred.append(execution.finish());
        // What the program sees complete is traced, and is an end of draining, under the same lock.
        self.trace_progress(sq);
        self.check_drained(sq);
        if self.is_watched {
            self.trace_retries(sq, before);
        }
    }

    /// Tells the machine about a response, and puts its payload where it belongs.
    fn place_response(
        self: &Arc<Qp>,
        (pending, wire): (&PendingWqes, &mut Reliable),
        SqParts { requester, scratch, .. }: &mut SqParts<'_>,
        headers: &Headers,
        payload: &[u8],
    ) {
        if wire.own.are_used
            && let Some((index, offset, length)) = wire.machine.landing(headers)
            && let Some(request) = pending.nth((index.0 - wire.first) as u32)
            && let Ok(local) = self.local_again(requester, &request, &mut scratch.local)
            && !self.may_copy(&local, (offset as usize, length as usize), true, &mut wire.own)
        {
            return;
        }
        let mut late = *headers;
        if is_planted(Plant::PsnWindow) && headers.bth.opcode == Opcode::RcAck {
            late.bth.psn = late.bth.psn.wrapping_add(1);
        }
        let received = wire.machine.on_response(&late, payload.len() as u32, clock::now());
        let mut value;
        let (index, offset, from) = match received {
            Received::Place { index, offset, .. } => (index, offset as usize, span_of(payload)),
            Received::Original { index, value: found } => {
                value = found;
                (index, 0, MemSpan::from_words(core::slice::from_mut(&mut value)))
            }
            Received::Ignored | Received::Noted => return,
        };
        let landed = pending.nth((index.0 - wire.first) as u32).and_then(|request| {
            let local = self.local_again(requester, &request, &mut scratch.local).ok()?;
            // SAFETY: `local_again` has just checked the list, and `wire` is of a send queue that
            // is locked; programs access the list atomically only.
            unsafe { land(&local, offset, from) }.ok()
        });
        if landed.is_none() {
            wire.lost.get_or_insert(index.0);
        }
    }

    /// Arms the deadline of the machine, unless an earlier one is armed.
    pub(super) fn arm_wire(self: &Arc<Qp>, wire: &mut Reliable) {
        let now = clock::now();
        let looks_again = wire.own.looks_again.then_some(now + LOOK_AGAIN_NS);
        let Some(due) = wire.machine.deadline_ns().into_iter().chain(looks_again).min() else {
            return;
        };
        let at = due.max(now + SOONEST_NS);
        if wire.armed.is_some_and(|(_, armed)| armed <= at) {
            return;
        }
        let token = self.pd.context.device.arm(self.num, Some(at - now));
        wire.armed = Some((token, at));
    }

    /// A deadline has passed; returns true if it was this machine's. The send queue's lock is held.
    pub(crate) fn wire_expired(
        self: &Arc<Qp>,
        sq: &mut Sq,
        token: u64,
        deferred: &mut DeferredWork,
    ) -> bool {
        let Some(WireSq::Reliable(wire)) = sq.wire.as_deref_mut() else { return false };
        if wire.armed.is_none_or(|(armed, _)| armed != token) {
            return false;
        }
        wire.armed = None;
        let now = clock::now();
        if wire.machine.deadline_ns().is_some_and(|due| due <= now) {
            let before = wire.machine.counts();
            wire.machine.on_timer(now);
            self.trace_retries(sq, before);
        }
        self.run_wire(sq, deferred, false);
        true
    }
}
