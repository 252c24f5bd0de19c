//! Sending over unreliable connections and by datagram queue pairs: a request is complete when its
//! packets are sent.

use std::sync::Arc;

use roce_core::headers::DEFAULT_PKEY;
use roce_core::psn::Psn;
use roce_core::request::WqeIndex;
use roce_core::{uc, ud};

use crate::engine::execution::{Execution, SqParts};
use crate::engine::link::SqLink;
use crate::memory::span::{MemSpan, copy_summed};
use crate::objects::cq::CqWriter;
use crate::objects::state::Qp;
use crate::peers::wire::state::{PacketPath, RoceWire, ip_of};
use crate::queues::address::DatagramAddress;
use crate::queues::outcome::{PeerReply, WqeOutcome};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::WqeRef;
use crate::reason::WcReason;
use crate::udp::{Marks, PacketOutbox};

use super::requests::{copy_payload, request_of};

/// Packets of a request that go until others have their turn to send, of which there may be a
/// quarter of a million.
const TURN: u32 = 64;

/// The send queue's hold on an unreliable connection.
pub(super) struct UnreliableLink<'w> {
    pub(super) sender: &'w mut uc::Sender,
    pub(super) path: &'w PacketPath,
}

impl UnreliableLink<'_> {
    fn send(
        &mut self,
        qp: &Qp,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        writer: &mut CqWriter<'_>,
    ) -> Result<(), WcReason> {
        let refused = WcReason::Operation;
        let device = qp.pd.context.device.wire().ok_or(refused)?;
        let SqParts { requester, scratch, .. } = parts;
        let local = qp.local(requester, request, request.len(), &mut scratch.local)?;
        let asked = request_of(request).ok_or(refused)?;
        self.sender.begin(WqeIndex(0), asked).map_err(|_| refused)?;
        let mut tx = device.tx.lock();
        let (mut sent, mut turn) = (Ok(()), 0..TURN);
        // Those behind one that is lost go as well: the numbers count them.
        while let Some(packet) = self.sender.next_packet() {
            if turn.next().is_none() {
                // What holds the lock of what receives may wait for that of the completion queue.
                writer.release();
                (tx, turn) = (tx.give_way(), 1..TURN);
            }
            tx = device.make_room(tx, writer);
            let len = packet.length as usize;
            let put = device.put(&mut tx, self.path, (&packet.headers, len), |to, crc| {
                // SAFETY: it was checked above; the caller holds the lock of the send queue.
                unsafe { copy_payload(&local, &packet, (to, crc)) }
            });
            sent = sent.and(put);
        }
        sent
    }
}

impl<'a> SqLink<'a> for UnreliableLink<'_> {
    fn advance_lossy(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
        arrives: bool,
    ) -> WqeOutcome {
        if !arrives {
            return qp.judge(parts.requester, PeerReply::Silence, request.len());
        }
        parts.requester.started = true;
        match self.send(qp, parts, request, &mut execution.writer) {
            Ok(()) => qp.judge(parts.requester, PeerReply::Done, request.len()),
            Err(reason) => WqeOutcome::Failed(reason),
        }
    }
}

impl Qp {
    /// The device's network, if a datagram to this address goes there.
    pub(crate) fn wire_to(&self, to: &DatagramAddress) -> Option<&RoceWire> {
        let device = &self.pd.context.device;
        device.wire().filter(|wire| wire.loops || to.gid != wire.gid)
    }

    /// Sends a datagram, whose memory was checked.
    pub(crate) fn send_datagram(
        &self,
        wire: &RoceWire,
        requester: &mut RequesterState,
        local: &[MemSpan<'_>],
        request: &WqeRef<'_>,
        (to, qkey): &(DatagramAddress, u32),
        writer: &mut CqWriter<'_>,
    ) -> WqeOutcome {
        let hops = if to.hop_limit == 0 { Marks::default().hops } else { to.hop_limit };
        let marks = Marks { class: to.traffic_class, hops };
        let Some(path) = wire.path(ip_of(&to.gid), marks, (self.num, to.qpn)) else {
            return WqeOutcome::Dropped;
        };
        let datagram = ud::Datagram {
            length: request.len() as u32,
            imm: request.wqe.imm.map(u32::from_be),
            is_solicited: request.wqe.solicited,
            dest_qpn: to.qpn,
            qkey: *qkey,
        };
        let psn = Psn::new(requester.psn);
        let mut sender = ud::Sender::new(wire.port_state.mtu(), self.num, DEFAULT_PKEY, psn);
        let Ok(packet) = sender.packet(WqeIndex(0), datagram) else {
            return WqeOutcome::Failed(WcReason::TooLong);
        };
        let mut tx = wire.make_room(wire.tx.lock(), writer);
        let len = packet.length as usize;
        let Ok(()) = wire.put(&mut tx, &path, (&packet.headers, len), |to, crc| {
            let from = local.iter().copied();
            // SAFETY: the list was checked, and the lock of the send queue is held; programs access
            // it atomically only.
            Ok::<u32, core::convert::Infallible>(unsafe { copy_summed(to, from, crc) })
        });
        requester.advance_psn(1);
        WqeOutcome::Done
    }

    /// Sends what is in the device's outbox. What the socket has no room for, although this thread
    /// has waited, is left in it.
    pub(crate) fn flush_wire(&self) {
        if let Some(wire) = self.pd.context.device.wire() {
            wire.flush_until(PacketOutbox::is_empty);
        }
    }
}
