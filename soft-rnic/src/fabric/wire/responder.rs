//! The receiving side: requests of peers, and what answers them.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use roce_core::codec::Packet;
use roce_core::congestion::NotificationPoint;
use roce_core::headers::{DEFAULT_PKEY, Headers, RnrTimer};
use roce_core::psn::Psn;
use roce_core::responder::{Outcome, Refusal, Responder, ResponderConfig, ResponseSlot};
use roce_core::{uc, ud};
use verbs_sys::*;

use crate::clock;
use crate::copy::summed_bytes;
use crate::engine::responder::datagram::DatagramRoute;
use crate::lock::Guard;
use crate::memory::span::SpanBuf;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, ResponderState};
use crate::peers::wire::answers::{Allowance, AnswersSent};
use crate::peers::wire::state::{
    KeptReads, PacketPath, ReceivingMachine, RoceWire, WireRq, gid_of,
};
use crate::queues::address::GidBytes;
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::reason::WcReason;
use crate::udp::ReceivedDatagram;

use super::paging::{Paging, peer_of};
use super::target::QpTarget;

/// The answer that is still owed to the peer of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwedAnswer {
    Nothing,
    /// Behind the batch.
    Answer,
    /// At once: the peer loses time until it knows.
    Nak,
}

/// The receiving side of a queue pair, from the first request of a run on. To take the lock for
/// each packet would cost more than the packet: an atomic exchange waits until the bytes before it,
/// which were copied to memory that is in no cache, are there.
pub(super) type HeldResponder<'q> = Option<Guard<'q, ResponderState>>;

/// The buffers and the allowance that the requests of one batch share.
pub(super) struct Answering {
    pub(super) buffers: RequestBuffers,
    pub(super) allowance: Allowance,
}

/// Room for what one request takes or gives.
pub(super) struct RequestBuffers {
    room: SpanBuf,
    payload: Vec<u8>,
}

impl Answering {
    /// For a look, whose answers are limited by `allowance`.
    pub(super) fn with(allowance: Allowance) -> Answering {
        Answering { buffers: RequestBuffers::new(), allowance }
    }

    pub(super) fn new() -> Answering {
        Answering::with(Allowance::of_look())
    }
}

impl RequestBuffers {
    pub(super) fn new() -> RequestBuffers {
        // SAFETY: what it is made for owns it, and hands it out to one queue pair at a time.
        RequestBuffers { room: unsafe { SpanBuf::new() }, payload: Vec::new() }
    }
}

impl Qp {
    /// The queue pair may receive from now on; a connection from `path`.
    pub(super) fn listen_wire(
        &self,
        responder: &mut ResponderState,
        mtu_shift: u32,
        path: Option<PacketPath>,
        slots: Vec<ResponseSlot>,
    ) {
        let machine = self.machine(responder, 1 << mtu_shift, slots);
        responder.wire = machine.map(|machine| {
            Box::new(WireRq {
                machine,
                path,
                taken: None,
                is_established: false,
                point: NotificationPoint::new(),
                kept: KeptReads::default(),
                asked: None,
            })
        });
    }

    fn machine(
        &self,
        responder: &ResponderState,
        mtu: u32,
        slots: Vec<ResponseSlot>,
    ) -> Option<ReceivingMachine> {
        let (dest_qpn, pkey) = (responder.dest_qpn, DEFAULT_PKEY);
        let first_psn = Psn::new(responder.psn);
        Some(match self.transport {
            QpTransport::Uc => ReceivingMachine::Unreliable(uc::Receiver::new(uc::Config {
                mtu,
                dest_qpn,
                pkey,
                first_psn,
            })),
            QpTransport::Ud => ReceivingMachine::Datagrams(ud::Receiver::new()),
            _ => {
                let min_rnr_timer = RnrTimer::new(responder.min_rnr_timer)?;
                let config = ResponderConfig { mtu, dest_qpn, pkey, first_psn, min_rnr_timer };
                ReceivingMachine::Reliable(Responder::new(slots, config).ok()?)
            }
        })
    }

    /// Takes a request, to an address of this device or of a group.
    pub(super) fn serve<'q>(
        self: &'q Arc<Qp>,
        held: &mut HeldResponder<'q>,
        packet: &Packet<'_>,
        datagram: &ReceivedDatagram<'_>,
        destination: GidBytes,
        answering: &mut Answering,
        deferred: &mut DeferredWork,
    ) -> OwedAnswer {
        let headers = &packet.headers;
        if self.state() == QueuePairState::Err {
            self.serve_late(held, headers);
            return OwedAnswer::Nothing;
        }
        self.with_machine(held, (answering, deferred), |machine, here| match machine {
            ReceivingMachine::Reliable(machine) => {
                machine.on_request(headers, packet.payload, here)
            }
            ReceivingMachine::Unreliable(machine) => {
                machine.on_request(headers, packet.payload, here)
            }
            ReceivingMachine::Datagrams(machine) => {
                // Before anything else is done for it: any machine may send it.
                let Some(deth) = headers.deth.filter(|deth| deth.qkey == here.qkey) else {
                    // Relaxed: a statistic.
                    let violations = &here.qp.pd.context.device.qkey_violations;
                    violations.fetch_add(1, Ordering::Relaxed);
                    return Outcome::Dropped;
                };
                let route = DatagramRoute {
                    source: gid_of(datagram.from.ip()),
                    destination,
                    class: datagram.marks.class,
                    hops: datagram.marks.hops,
                };
                let len = packet.payload.len() as u64;
                here.datagram = Some((deth.src_qpn, route.header(len, headers.imm.is_some())));
                machine.on_request(headers, packet.payload, here)
            }
        })
    }

    /// Takes a request that arrived although the queue pair is in the error state.
    #[cold]
    fn serve_late<'q>(&'q self, held: &mut HeldResponder<'q>, headers: &Headers) {
        let Some(device) = self.pd.context.device.wire() else { return };
        let responder = held.get_or_insert_with(|| self.responder.lock());
        if let Some(WireRq {
            machine: ReceivingMachine::Reliable(machine), path: Some(path), ..
        }) = responder.wire.as_deref()
            && let Some(answer) = machine.answer_late(headers)
        {
            device.say(path, &answer);
        }
    }

    /// Takes a packet that breaks the rules, for the next request.
    pub(super) fn serve_malformed<'q>(
        self: &'q Arc<Qp>,
        held: &mut HeldResponder<'q>,
        psn: Psn,
        answering: &mut Answering,
        deferred: &mut DeferredWork,
    ) -> OwedAnswer {
        self.with_machine(held, (answering, deferred), |machine, here| match machine {
            ReceivingMachine::Reliable(machine) => machine.on_malformed(psn, here),
            _ => Outcome::Dropped,
        })
    }

    fn with_machine<'q>(
        self: &'q Arc<Qp>,
        held: &mut HeldResponder<'q>,
        (answering, deferred): (&mut Answering, &mut DeferredWork),
        act: impl FnOnce(&mut ReceivingMachine, &mut QpTarget<'_, '_>) -> Outcome,
    ) -> OwedAnswer {
        let guard = held.get_or_insert_with(|| self.responder.lock());
        if !self.state().receives() {
            return OwedAnswer::Nothing;
        }
        let Some((machine, mut here)) = self.here(guard, &mut answering.buffers, deferred) else {
            return OwedAnswer::Nothing;
        };
        let outcome = act(machine, &mut here);
        if outcome != Outcome::Accepted {
            self.count_unusual(outcome);
        }
        let denied = here.denied;
        let owed = match machine {
            ReceivingMachine::Reliable(machine) if machine.reports_gap() => OwedAnswer::Nak,
            ReceivingMachine::Reliable(machine) if machine.has_response() => OwedAnswer::Answer,
            _ => OwedAnswer::Nothing,
        };
        // Relaxed: a thread that replies has seen the completion, which is published behind it.
        // (Most find it set: the line is others' to read.)
        if owed != OwedAnswer::Nothing && !self.owes_response.load(Ordering::Relaxed) {
            self.owes_response.store(true, Ordering::Relaxed);
        }
        drop(here);
        let is_first = outcome == Outcome::Accepted
            && guard
                .wire
                .as_mut()
                .is_some_and(|wire| !core::mem::replace(&mut wire.is_established, true));
        if is_first && self.state() == QueuePairState::Rtr && self.transport != QpTransport::Ud {
            *held = None;
            self.raise(ibv_event_type::IBV_EVENT_COMM_EST);
        }
        if let Outcome::Failed(refusal) = outcome {
            *held = None;
            self.end_refused((refusal, denied), deferred);
        }
        owed
    }

    #[cold]
    fn count_unusual(&self, outcome: Outcome) {
        let Some(wire) = self.pd.context.device.wire() else { return };
        let count = match outcome {
            Outcome::Duplicate => &wire.counts.duplicates,
            Outcome::OutOfSequence => &wire.counts.out_of_sequence,
            Outcome::NotReady => &wire.counts.not_ready,
            Outcome::Accepted | Outcome::Failed(_) | Outcome::Dropped => return,
        };
        // Relaxed: a statistic.
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the objects that requests act on, and the machine that says how.
    pub(super) fn here<'h, 'a: 'h>(
        self: &'a Arc<Qp>,
        responder: &'h mut ResponderState,
        buffers: &'h mut RequestBuffers,
        deferred: &'h mut DeferredWork,
    ) -> Option<(&'h mut ReceivingMachine, QpTarget<'h, 'a>)> {
        let ResponderState { wire, consumer, access, max_dest_rd_atomic, dest_qpn, qkey, .. } =
            responder;
        let WireRq { machine, taken, kept, asked, path, .. } = wire.as_deref_mut()?;
        let workers = &self.pd.context.device.wire()?.workers;
        let here = QpTarget {
            qp: self,
            rights: (*access, u32::from(*max_dest_rd_atomic)),
            dest_qpn: *dest_qpn,
            qkey: *qkey,
            consumer,
            taken,
            kept,
            room: &mut buffers.room,
            writer: CqWriter::default(),
            deferred,
            payload: &mut buffers.payload,
            paging: Paging { asked, workers, peer: peer_of(path.as_ref()), resumes: None },
            datagram: None,
            denied: None,
        };
        Some((machine, here))
    }

    /// The connection ends, because of a request that was refused.
    fn end_refused(
        self: &Arc<Qp>,
        (refusal, denied): (Refusal, Option<WcReason>),
        deferred: &mut DeferredWork,
    ) {
        let (reason, event) = match refusal {
            Refusal::Invalid => (WcReason::PeerInvalid, ibv_event_type::IBV_EVENT_QP_REQ_ERR),
            Refusal::Access => (WcReason::PeerAccess, ibv_event_type::IBV_EVENT_QP_ACCESS_ERR),
            // The receive request that has completed in error says it.
            Refusal::Operation => return self.refuse(WcReason::PeerReceiveBuffer, None, deferred),
        };
        self.refuse(denied.unwrap_or(reason), Some(event), deferred);
    }

    /// Reports whether the peer is still to be answered.
    pub(super) fn owes_response(&self) -> bool {
        // Acquire: what is not owed any more is in the outbox.
        self.owes_response.load(Ordering::Acquire)
    }

    /// Takes a turn in answering what the requests of a batch have asked for.
    pub(super) fn answer_peer(
        self: &Arc<Qp>,
        device: &RoceWire,
        (buffers, allowance): (&mut RequestBuffers, &mut Allowance),
        deferred: &mut DeferredWork,
    ) -> AnswersSent {
        let mut guard = self.responder.lock();
        let Some(path) = guard.wire.as_ref().and_then(|wire| wire.path) else {
            return AnswersSent::All;
        };
        // Of a queue pair in the error state, what it owed is left to be sent, or the NAK.
        let Some((ReceivingMachine::Reliable(machine), mut here)) =
            self.here(&mut guard, buffers, deferred)
        else {
            return AnswersSent::All;
        };
        let mut turn = allowance.turn();
        while turn.has_another() && device.has_room(&path) {
            let Some(response) = machine.next_response(&mut here) else { break };
            let len = response.length as usize;
            turn.take(len);
            // The completion queue's lock, which `here` may hold, is taken before this one.
            let mut tx = device.tx.lock();
            let Ok(()) = device.put(&mut tx, &path, (&response.headers, len), |to, crc| {
                Ok::<u32, core::convert::Infallible>(summed_bytes(to, &here.payload[..len], crc))
            });
        }
        if turn.has_sent() {
            // Relaxed: of one of those that answer at once.
            device.answered_ns.store(clock::now(), Ordering::Relaxed);
        }
        let (has_more, has_failed) = (machine.has_response(), machine.has_failed());
        let denied = here.denied;
        // Release: a thread that finds nothing owed sends behind what is in the outbox.
        self.owes_response.store(has_more, Ordering::Release);
        drop(here);
        drop(guard);
        if has_failed {
            // The key of a READ has ended since its request was accepted.
            self.end_refused((Refusal::Access, denied), deferred);
        }
        match has_more {
            false => AnswersSent::All,
            true if turn.has_sent() => AnswersSent::Some,
            true => AnswersSent::Nothing,
        }
    }
}
