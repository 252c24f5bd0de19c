//! Congestion notification: how a network that marks packets makes a sender slower before it loses
//! any.
//!
//! ```text
//!   sender  ── ECT ──>  switch whose queue is long  ── CE ──>  receiver
//!   sender  <─────────────────── CNP ────────────────────────  receiver
//! ```
//!
//! A sender that reacts says so in the ECN bits of the IP header ([`with_ect`]), where a switch
//! sets [`CE`] instead of dropping. The receiver, the *notification point*, answers with a
//! congestion notification packet (CNP, annex A17 of the specification), and the sender, the
//! *reaction point*, makes its window smaller:
//! [`Requester::on_response`](crate::requester::Requester::on_response) takes the packet.

use crate::headers::{Bth, Headers};
use crate::opcode::Opcode;
use crate::psn::Psn;

/// The ECN bits of a traffic class (or type of service).
pub const ECN: u8 = 0b11;
/// Congestion experienced.
pub const CE: u8 = 0b11;
/// ECN-capable transport, codepoint 0: what a sender that reacts sends with.
pub const ECT_0: u8 = 0b10;

/// A queue pair sends at most one CNP in this time: the N of the DCQCN paper.
pub const CNP_INTERVAL_NS: u64 = 50_000;

/// Reports whether a switch has marked a packet of this traffic class.
#[inline]
pub const fn is_ce(class: u8) -> bool {
    class & ECN == CE
}

/// Reports whether a switch may mark a packet of this traffic class: ECT(0) or ECT(1).
pub const fn is_ect(class: u8) -> bool {
    matches!(class & ECN, 1 | ECT_0)
}

/// The class with ECT(0), unless it has ECN bits of its own.
pub const fn with_ect(class: u8) -> u8 {
    if class & ECN == 0 { class | ECT_0 } else { class }
}

/// The class without ECN bits: a CNP is not ECN-capable.
pub const fn without_ecn(class: u8) -> u8 {
    class & !ECN
}

/// The notification point of one queue pair: when a marked packet is answered.
///
/// ```
/// use roce_core::congestion::{CNP_INTERVAL_NS, NotificationPoint};
///
/// let mut point = NotificationPoint::new();
/// assert!(point.on_marked(7));
/// assert!(!point.on_marked(6 + CNP_INTERVAL_NS));
/// assert!(point.on_marked(7 + CNP_INTERVAL_NS));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationPoint {
    /// No CNP is sent before.
    next_ns: u64,
}

impl NotificationPoint {
    /// One that has sent no CNP.
    pub const fn new() -> Self {
        Self { next_ns: 0 }
    }

    /// A marked packet of the peer has arrived; returns true if a [`cnp`] is to be sent now.
    pub const fn on_marked(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        self.next_ns = now_ns.saturating_add(CNP_INTERVAL_NS);
        true
    }
}

/// The headers of a CNP, which has no payload, to the queue pair that has sent marked packets.
pub const fn cnp(dest_qpn: u32, pkey: u16) -> Headers {
    let bth = Bth::new(Opcode::Cnp, dest_qpn, Psn::new(0));
    Headers::new(Bth { pkey, becn: true, ..bth })
}

#[cfg(test)]
mod tests;
