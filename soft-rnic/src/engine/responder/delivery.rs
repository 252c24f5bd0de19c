//! A request on its way, and at its destination.

use std::sync::Arc;

use crate::memory::paging::RequestPages;
use crate::memory::span::{MemSpan, Spans};
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, ResponderState, Srq};
use crate::queues::address::DatagramAddress;
use crate::queues::wqe::Wqe;
use crate::reason::WcReason;

/// A request on its way.
pub(crate) struct InboundRequest<'a> {
    pub(crate) wqe: &'a Wqe,
    pub(crate) from_qpn: u32,
    pub(crate) psn: u32,
    /// Packets of the request or of its response.
    pub(crate) packets: u32,
    pub(crate) len: u64,
    /// The requester's memory: source, or landing place of a response.
    pub(crate) local: &'a [MemSpan<'a>],
    /// Some of that memory may have gone.
    pub(crate) on_demand: bool,
    /// The pages of on-demand memory at the destination, if this thread does not wait for them.
    pub(crate) pages: Option<&'a RequestPages>,
    /// For a datagram: its destination, and the Q_Key that it carries.
    pub(crate) to: Option<&'a (DatagramAddress, u32)>,
}

impl<'a> InboundRequest<'a> {
    /// A message of one packet, from memory that stays, of this queue pair with this PSN.
    #[inline]
    pub(crate) fn new(
        wqe: &'a Wqe,
        (from_qpn, psn): (u32, u32),
        (local, len): (&'a [MemSpan<'a>], u64),
        to: Option<&'a (DatagramAddress, u32)>,
    ) -> InboundRequest<'a> {
        InboundRequest {
            wqe,
            from_qpn,
            psn,
            packets: 1,
            len,
            local,
            on_demand: false,
            pages: None,
            to,
        }
    }
}

/// One request at its destination. `XRC` is 1 for a request over XRC, and else 0: so the code for
/// others has no part of it.
pub(super) struct RequestDelivery<'d, 'a, const XRC: usize> {
    pub(super) peer: &'a Arc<Qp>,
    /// The shared receive queue that a request over XRC names, if the domain has it.
    pub(super) named: [Option<&'d Arc<Srq>>; XRC],
    pub(super) responder: &'d mut ResponderState,
    /// The buffers that a message is for.
    pub(super) room: Spans<'d>,
    pub(super) message: &'d InboundRequest<'d>,
    pub(super) writer: &'d mut CqWriter<'a>,
    pub(super) deferred: &'d mut DeferredWork,
    pub(super) data: PayloadState,
}

/// Treatment of a message's data before it takes a receive request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadState {
    /// Nothing: they are copied afterwards.
    AtHand,
    /// They are not there yet: no receive request is taken that has room for them.
    Unread,
    /// They may be gone: they are copied before, so that none is taken for a message without data.
    MayBeGone,
}

/// Result of the checks of a request that may proceed.
pub(super) struct Begun<'d> {
    /// The receive request that was taken.
    pub(super) wr_id: Option<u64>,
    /// The memory that the request names.
    pub(super) target: Option<MemSpan<'d>>,
}

/// Reason why a request may not proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryRefusal {
    /// It is not for this queue pair, or not in this state, or not in its turn.
    Unexpected,
    /// No receive request is posted that a message could take.
    NotReady,
    /// The receive request that it has taken is not fit for it.
    Unfit { wr_id: u64, unfit: Unfit },
    /// The queue pair or the memory does not permit the operation.
    Denied(WcReason),
    /// Pages have to be brought first. Nothing has changed.
    Later,
    /// The requester's own memory has gone. Nothing has changed here, but for bytes of a buffer
    /// that the device may write to.
    Lost,
}

/// The reason of a receive request that does not fit, and of the requester's failure.
pub(super) type Unfit = (WcReason, WcReason);

/// The pages of the buffers are gone.
pub(super) const BUFFERS_GONE: Unfit = (WcReason::LocalGone, WcReason::PeerReceiveBuffer);

/// Says of a message that its sender has lost its data. No receive request ends so.
pub(super) const SENDER_LOST: Unfit = (WcReason::LocalGone, WcReason::LocalGone);

/// Says of a message that the pages of its buffers have to be brought first. No receive request
/// ends so.
pub(super) const LATER: Unfit = (WcReason::NoResponse, WcReason::NoResponse);
