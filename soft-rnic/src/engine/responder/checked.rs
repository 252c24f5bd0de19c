//! Reports to the checker about the receive request that a message takes, if the process is
//! checked.

use std::sync::Arc;

use crate::check::queue::{PostedWr, QpAccount, RecvAccount};
use crate::check::report::{ReportKind, number};
use crate::engine::responder::datagram::GRH_LEN;
use crate::engine::responder::delivery::RequestDelivery;
use crate::objects::state::Qp;
use crate::queues::recv_ring::RecvRequest;
use crate::queues::wqe::SqOp;
use crate::reason::WcReason;

impl<const XRC: usize> RequestDelivery<'_, '_, XRC> {
    /// The checked queue pair, and the queue that the message takes its receive request from.
    fn checked(&self) -> Option<(&QpAccount, &Arc<RecvAccount>)> {
        let check = self.peer.check()?;
        let named = self.named().map(|srq| srq.check.as_ref());
        Some((check, named.unwrap_or(Some(&check.receives))?))
    }

    /// A receive request has been taken; nothing was written to its buffer yet. The queue's lock is
    /// held.
    #[cold]
    pub(super) fn check_taken(&self) {
        let Some((check, receives)) = self.checked() else { return };
        check.arrive(receives, |mut posted| {
            if self.message.wqe.op == SqOp::Send {
                self.peer.compare(check, &mut posted, ReportKind::WrittenWhilePosted);
            }
            PostedWr { print: None, completes: true, ..posted }
        });
    }

    /// A message is going to be put into the buffers of the oldest receive request, before it takes
    /// that. The queue's lock is held.
    #[cold]
    pub(super) fn check_filled(&self) {
        let Some((check, receives)) = self.checked() else { return };
        receives.with_first(|posted| {
            self.peer.compare(check, posted, ReportKind::WrittenWhilePosted);
            // What lies there from now on is the message's, or a part of one that was lost.
            posted.print = None;
        });
    }

    /// The receive request that was taken last completes: what its message has brought is there.
    #[cold]
    pub(super) fn check_arrived(&self, is_success: bool) {
        let Some(check) = self.peer.check() else { return };
        if is_success && self.message.wqe.op == SqOp::Send {
            check.with_last(|posted| self.peer.print_message(posted, self.len()));
        }
    }

    /// The device may not write to the buffers of a receive request, which are in this domain. Why.
    #[cold]
    pub(super) fn check_buffer(&self, request: &RecvRequest<'_>) -> WcReason {
        let sges: Vec<_> = (0..request.num_sge()).map(|i| request.sge(i)).collect();
        self.peer.check_buffer(request.wr_id(), (&sges, self.len()), request.pd())
    }

    /// The message has no room in a receive request.
    #[cold]
    pub(super) fn check_short(&self, request: &RecvRequest<'_>) {
        let (from, has_header) = (self.message.from_qpn, self.message.to.is_some());
        let bytes = (request.room(), self.len());
        self.peer.check_short(request.wr_id(), bytes, true, (from, has_header));
    }
}

impl Qp {
    /// A receive request has room for `room` bytes, and its message, from this queue pair, has
    /// `needs`, or more unless `is_all`; a datagram's header is among them.
    #[cold]
    pub(crate) fn check_short(
        &self,
        wr_id: u64,
        (room, needs): (u64, u64),
        is_all: bool,
        (from, has_header): (u32, bool),
    ) {
        let Some(check) = self.check() else { return };
        let (least, more) = if is_all { ("", "") } else { ("at least ", " or more") };
        let header = match has_header {
            true => format!(" ({GRH_LEN} of them the header in front)"),
            false => String::new(),
        };
        let dropped = match self.transport.is_reliable() {
            true => "",
            false => "; the message is dropped",
        };
        check.checker.report.say(ReportKind::TooSmall, || {
            format!(
                "RECV wr_id {wr_id:#x} on QP {:#x} is too small by {least}{}: it has room for {room}, \
                 and a message from QP {from:#x} has {needs}{more}{header}{dropped}",
                check.number,
                number(needs - room, "byte"),
            )
        });
    }
}
