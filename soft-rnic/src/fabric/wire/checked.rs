//! Reports to the checker on the use of buffers by a device on the network.

use roce_core::request::Outgoing;
use roce_core::responder::ReceiveDone;

use crate::check::packets::Packets;
use crate::check::report::ReportKind;
use crate::objects::state::Qp;
use crate::queues::wqe::Wqe;

use super::target::QpTarget;

impl QpTarget<'_, '_> {
    /// A receive request has been taken; nothing was written to its buffer yet. A shared queue's
    /// lock is held.
    #[cold]
    pub(super) fn check_taken(&self) {
        if let Some(check) = self.qp.check() {
            // It is looked at when a SEND begins: the buffer of one that a WRITE takes is the
            // program's.
            check.arrive(&check.receives, |posted| posted);
        }
    }

    /// A message is going to be put into the buffer of the receive request that was taken.
    #[cold]
    pub(super) fn check_filled(&self) {
        let Some(check) = self.qp.check() else { return };
        check.with_last(|posted| {
            self.qp.compare(check, posted, ReportKind::WrittenWhilePosted);
            // What lies there from now on is the message's, or a part of one that was lost.
            posted.print = None;
        });
    }

    /// The receive request that was taken completes: what its message has brought is there.
    #[cold]
    pub(super) fn check_arrived(&self, is_success: bool, done: &ReceiveDone) {
        let Some(check) = self.qp.check() else { return };
        check.with_last(|posted| {
            (posted.completes, posted.print) = (true, None);
            if is_success && !done.is_write {
                self.qp.print_message(posted, u64::from(done.length + self.before()));
            }
        });
    }

    /// A receive request has room for the first number of bytes, and its message has the second, or
    /// more unless `is_all`.
    #[cold]
    pub(super) fn check_short(&self, wr_id: u64, bytes: (u64, u64), is_all: bool) {
        let (from, has_header) = (self.source(), self.datagram.is_some());
        self.qp.check_short(wr_id, bytes, is_all, (from, has_header));
    }
}

impl Qp {
    /// A packet carries these bytes of a request.
    #[cold]
    pub(super) fn check_packet(
        &self,
        packets: &mut Packets,
        packet: &Outgoing,
        wqe: &Wqe,
        bytes: &[u8],
    ) {
        let (psn, of) = (packet.headers.bth.psn.get(), (packet.index.0, packet.offset));
        if !bytes.is_empty() && packets.differs(psn, of, bytes) {
            let from = packet.offset as usize;
            self.check_resent(wqe.position, from..from + bytes.len());
        }
    }
}
