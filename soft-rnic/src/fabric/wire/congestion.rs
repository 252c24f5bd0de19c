//! Congestion: packets that the network has marked, and the notifications (CNP) that answer them.

use roce_core::congestion::{CE, cnp, is_ce, is_ect, without_ecn};
use roce_core::headers::{DEFAULT_PKEY, Headers};
use roce_core::opcode::Opcode;
use roce_core::requester::Received;

use super::packets::add;
use crate::clock;
use crate::objects::state::{Qp, ResponderState};
use crate::peers::wire::state::{PacketCounts, PacketFaults, PacketPath, RoceWire, WireRq, WireSq};
use crate::udp::Marks;

/// Reports whether a packet has met congestion: a switch says so in the IP header, or, if it is of
/// InfiniBand's kind, by FECN. A notification is not answered by another one.
#[inline]
pub(super) fn has_met_congestion(marks: Marks, headers: &Headers) -> bool {
    (is_ce(marks.class) || headers.bth.fecn) && headers.bth.opcode != Opcode::Cnp
}

impl Qp {
    /// A packet of the peer has met congestion. It is counted, and the peer of a connection is
    /// notified. What receives is locked, and so is the receiving side.
    #[cold]
    pub(super) fn note_congestion(&self, wire: &RoceWire, responder: &mut ResponderState) {
        add(&wire.counts.ecn_marked, 1);
        let Some((path, dest_qpn)) = self.due_notification(responder) else { return };
        let marks = Marks { class: without_ecn(path.marks.class), ..path.marks };
        wire.send_now(&PacketPath { marks, ..path }, &cnp(dest_qpn, DEFAULT_PKEY));
        add(&wire.counts.cnp_sent, 1);
    }

    /// Returns the path and the queue pair number that a notification goes to, if one is due.
    fn due_notification(&self, responder: &mut ResponderState) -> Option<(PacketPath, u32)> {
        if !self.state().receives() {
            return None;
        }
        let dest_qpn = responder.dest_qpn;
        let WireRq { path: Some(path), point, .. } = responder.wire.as_deref_mut()? else {
            return None;
        };
        point.on_marked(clock::now()).then_some((*path, dest_qpn))
    }

    /// A notification has arrived: the window of a reliable connection becomes smaller. Others have
    /// none. What receives is locked.
    #[cold]
    pub(super) fn heed_notification(&self, wire: &RoceWire, headers: &Headers) {
        let is_heeded = self.transport.is_reliable() && {
            let mut sq = self.sq.lock();
            match sq.wire.as_deref_mut() {
                Some(WireSq::Reliable(sender)) => {
                    sender.machine.on_response(headers, 0, clock::now()) != Received::Ignored
                }
                _ => false,
            }
        };
        let PacketCounts { cnp_handled, cnp_ignored, .. } = &wire.counts;
        add(if is_heeded { cnp_handled } else { cnp_ignored }, 1);
    }
}

impl PacketFaults {
    /// The marks of a packet behind a network that may be congested: only packets that are
    /// ECN-capable are marked.
    pub(super) fn mark(&mut self, marks: Marks) -> Marks {
        let is_marked = is_ect(marks.class) && self.random.strikes(self.network.congestion);
        if is_marked { Marks { class: marks.class | CE, ..marks } } else { marks }
    }
}
