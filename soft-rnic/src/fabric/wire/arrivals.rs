//! Received packets: each to the machine that it is for.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use roce_core::codec::{self, Packet};
use roce_core::icrc::Flow;
use roce_core::opcode::Opcode;

use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, Qp};
use crate::peers::wire::answers::Answers;
use crate::peers::wire::state::{PacketPath, RoceWire};
use crate::udp::{MergedDatagrams, ReceivedDatagram};

use super::congestion::has_met_congestion;
use super::packets::is_of_partition;
use super::responder::{Answering, HeldResponder, OwedAnswer};

/// The state that the packets of one look share; the receive lock is held.
pub(super) struct Arrivals<'l> {
    pub(super) device: &'l Device,
    pub(super) wire: &'l RoceWire,
    /// Queue pairs whose peers are to be answered.
    pub(super) answering: &'l mut Answers,
    /// Queue pairs whose requesters got a response.
    pub(super) resuming: &'l mut Vec<u32>,
    pub(super) shared: &'l mut Answering,
    pub(super) deferred: &'l mut DeferredWork,
}

/// The kind of a packet that was taken.
enum ArrivalKind {
    Nothing,
    Request(OwedAnswer),
    Response,
}

impl Arrivals<'_> {
    pub(super) fn take_all(&mut self, mut merged: MergedDatagrams<'_>) {
        let flow = Flow::new(merged.current().from, self.wire.port.local());
        while !merged.is_empty() {
            let Some(qpn) = dest_of(merged.current()) else {
                self.count(&self.wire.counts.malformed);
                merged.advance();
                continue;
            };
            let Some(qp) = self.device.qps.get(qpn) else {
                let (wire, datagram) = (self.wire, merged.current());
                if !wire.hand_over(datagram, qpn) && !wire.answer_departed(datagram, qpn) {
                    self.count(&self.wire.counts.strangers);
                }
                merged.advance();
                continue;
            };
            let mut held = None;
            while dest_of(merged.current()) == Some(qpn) {
                let heard = self.take(&qp, &mut held, (merged.current(), &flow));
                self.note(&qp, &mut held, &heard, merged.current().from.ip());
                merged.advance();
            }
        }
    }

    fn note(
        &mut self,
        qp: &Arc<Qp>,
        held: &mut HeldResponder<'_>,
        heard: &ArrivalKind,
        from: IpAddr,
    ) {
        match heard {
            ArrivalKind::Nothing | ArrivalKind::Request(OwedAnswer::Nothing) => {}
            ArrivalKind::Request(OwedAnswer::Answer) => self.answering.note(from, qp.num),
            ArrivalKind::Request(OwedAnswer::Nak) => {
                *held = None;
                self.answering.note(from, qp.num);
                // All that the peer sends until it has the NAK is sent again.
                let Answering { buffers, allowance } = &mut *self.shared;
                qp.answer_peer(self.wire, (buffers, allowance), self.deferred);
                self.wire.flush(&mut self.wire.tx.lock());
            }
            // There are few in a batch.
            ArrivalKind::Response if self.resuming.contains(&qp.num) => {}
            ArrivalKind::Response => self.resuming.push(qp.num),
        }
    }

    fn take<'q>(
        &mut self,
        qp: &'q Arc<Qp>,
        held: &mut HeldResponder<'q>,
        (datagram, flow): (&ReceivedDatagram<'_>, &Option<Flow>),
    ) -> ArrivalKind {
        let counts = &self.wire.counts;
        let Some(peek) = codec::peek(datagram.bytes) else { return self.count(&counts.malformed) };
        if peek.opcode == Opcode::Cnp.to_u8() {
            *held = None;
            return self.take_notification(qp, (datagram, flow), peek.pkey);
        }
        // Of an unreliable one the lock may be held for long; its requester takes no responses.
        if is_response(peek.opcode) && qp.transport.is_reliable() {
            *held = None;
            return self.take_response(qp, (datagram, flow), peek.pkey);
        }
        let responder = held.get_or_insert_with(|| qp.responder.lock());
        let Some(connection) = &responder.wire else { return self.count(&counts.strangers) };
        if let Err(heard) = self.check((datagram, flow), connection.path.as_ref(), peek.pkey) {
            return heard;
        }
        ArrivalKind::Request(match codec::parse(datagram.bytes) {
            Ok(packet) => {
                if has_met_congestion(datagram.marks, &packet.headers) {
                    qp.note_congestion(self.wire, responder);
                }
                let own = self.wire.gid;
                qp.serve(held, &packet, datagram, own, self.shared, self.deferred)
            }
            Err(error) if error.is_invalid_request() && !is_response(peek.opcode) => {
                qp.serve_malformed(held, peek.psn, self.shared, self.deferred)
            }
            Err(_) => return self.count(&counts.malformed),
        })
    }

    fn take_response(
        &mut self,
        qp: &Arc<Qp>,
        (datagram, flow): (&ReceivedDatagram<'_>, &Option<Flow>),
        pkey: u16,
    ) -> ArrivalKind {
        let mut sq = qp.sq.lock();
        let Some(connection) = &mut sq.wire else { return self.count(&self.wire.counts.strangers) };
        let packet = match self.checked((datagram, flow), Some(connection.path()), pkey) {
            Ok(packet) => packet,
            Err(heard) => return heard,
        };
        qp.hear(&mut sq, &packet.headers, packet.payload, self.deferred);
        if has_met_congestion(datagram.marks, &packet.headers) {
            drop(sq);
            qp.note_congestion(self.wire, &mut qp.responder.lock());
        }
        ArrivalKind::Response
    }

    #[cold]
    fn take_notification(
        &mut self,
        qp: &Arc<Qp>,
        (datagram, flow): (&ReceivedDatagram<'_>, &Option<Flow>),
        pkey: u16,
    ) -> ArrivalKind {
        let path = qp.responder.lock().wire.as_ref().map(|connection| connection.path);
        let Some(path) = path else { return self.count(&self.wire.counts.strangers) };
        let packet = match self.checked((datagram, flow), path.as_ref(), pkey) {
            Ok(packet) => packet,
            Err(heard) => return heard,
        };
        qp.heed_notification(self.wire, &packet.headers);
        ArrivalKind::Nothing
    }

    /// A packet that is what it has to be, parsed.
    fn checked<'d>(
        &self,
        (datagram, flow): (&ReceivedDatagram<'d>, &Option<Flow>),
        path: Option<&PacketPath>,
        pkey: u16,
    ) -> Result<Packet<'d>, ArrivalKind> {
        self.check((datagram, flow), path, pkey)?;
        codec::parse(datagram.bytes).map_err(|_| self.count(&self.wire.counts.malformed))
    }

    /// Checks a packet before it is parsed: its source, partition and ICRC. Without a path it may
    /// be from anywhere.
    fn check(
        &self,
        (datagram, flow): (&ReceivedDatagram<'_>, &Option<Flow>),
        path: Option<&PacketPath>,
        pkey: u16,
    ) -> Result<(), ArrivalKind> {
        let counts = &self.wire.counts;
        if path.is_some_and(|path| !is_from(datagram, path)) {
            self.wire.symptoms.note_foreign(datagram.from.ip());
            return Err(self.count(&counts.strangers));
        }
        if !is_of_partition(pkey) {
            return Err(self.count(&counts.strangers));
        }
        if flow.is_none_or(|flow| flow.check(datagram.nth, datagram.bytes).is_err()) {
            return Err(self.count(&counts.bad_icrc));
        }
        Ok(())
    }

    fn count(&self, which: &AtomicU64) -> ArrivalKind {
        // Relaxed: a statistic.
        which.fetch_add(1, Ordering::Relaxed);
        ArrivalKind::Nothing
    }
}

fn dest_of(datagram: &ReceivedDatagram<'_>) -> Option<u32> {
    codec::peek(datagram.bytes).map(|peek| peek.dest_qpn)
}

/// Reports whether a packet is from the peer, as far as its address says.
fn is_from(datagram: &ReceivedDatagram<'_>, path: &PacketPath) -> bool {
    path.peer.ip() == datagram.from.ip().to_canonical()
}

fn is_response(opcode: u8) -> bool {
    Opcode::from_u8(opcode).is_some_and(Opcode::is_response)
}
