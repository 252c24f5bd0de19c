//! The transports and states of queue pairs.

use verbs_sys::*;

/// The transport services that a queue pair can offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpTransport {
    /// Reliable connection: what is sent is acknowledged, or repeated.
    Rc,
    /// The sending end of an extended reliable connection: each request names a shared receive
    /// queue at the other end.
    XrcSend,
    /// Its receiving end.
    XrcRecv,
    /// Unreliable connection: one peer, and no replies.
    Uc,
    /// Unreliable datagrams: each request names its destination.
    Ud,
}

impl QpTransport {
    pub(crate) fn from_abi(kind: ibv_qp_type) -> Option<QpTransport> {
        let all = [Self::Rc, Self::XrcSend, Self::XrcRecv, Self::Uc, Self::Ud];
        all.into_iter().find(|transport| transport.abi() == kind)
    }

    pub(crate) fn abi(self) -> ibv_qp_type {
        match self {
            QpTransport::Rc => ibv_qp_type::IBV_QPT_RC,
            QpTransport::Uc => ibv_qp_type::IBV_QPT_UC,
            QpTransport::Ud => ibv_qp_type::IBV_QPT_UD,
            QpTransport::XrcSend => ibv_qp_type::IBV_QPT_XRC_SEND,
            QpTransport::XrcRecv => ibv_qp_type::IBV_QPT_XRC_RECV,
        }
    }

    /// The transport at the other end.
    pub(crate) fn far_end(self) -> QpTransport {
        match self {
            QpTransport::XrcSend => QpTransport::XrcRecv,
            QpTransport::XrcRecv => QpTransport::XrcSend,
            same => same,
        }
    }

    /// Reports whether each request names its destination: a queue pair, or a shared receive queue.
    pub(crate) fn is_addressed(self) -> bool {
        matches!(self, QpTransport::Ud | QpTransport::XrcSend)
    }

    /// Reports whether a requester learns what became of a message.
    #[inline]
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, QpTransport::Rc | QpTransport::XrcSend | QpTransport::XrcRecv)
    }
}

/// States of a queue pair, and one for what is left when it is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QueuePairState {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    /// A request of an unreliable transport failed here: the send queue flushes,
    /// the receive queue works on.
    Sqe,
    Err,
    Destroyed,
}

impl QueuePairState {
    pub(crate) const ALL: [QueuePairState; 8] = [
        QueuePairState::Reset,
        QueuePairState::Init,
        QueuePairState::Rtr,
        QueuePairState::Rts,
        QueuePairState::Sqd,
        QueuePairState::Sqe,
        QueuePairState::Err,
        QueuePairState::Destroyed,
    ];

    pub(crate) fn from_abi(state: ibv_qp_state) -> Option<QueuePairState> {
        // The first one of those that a program sees as RESET.
        QueuePairState::ALL.into_iter().find(|known| known.abi() == state)
    }

    pub(crate) fn abi(self) -> ibv_qp_state {
        match self {
            QueuePairState::Reset | QueuePairState::Destroyed => ibv_qp_state::IBV_QPS_RESET,
            QueuePairState::Init => ibv_qp_state::IBV_QPS_INIT,
            QueuePairState::Rtr => ibv_qp_state::IBV_QPS_RTR,
            QueuePairState::Rts => ibv_qp_state::IBV_QPS_RTS,
            QueuePairState::Sqd => ibv_qp_state::IBV_QPS_SQD,
            QueuePairState::Sqe => ibv_qp_state::IBV_QPS_SQE,
            QueuePairState::Err => ibv_qp_state::IBV_QPS_ERR,
        }
    }

    /// Reports whether requests in the send queue complete with a flush error.
    #[inline]
    pub(crate) fn flushes_sends(self) -> bool {
        matches!(self, QueuePairState::Sqe | QueuePairState::Err)
    }

    /// Reports whether requests of the peer are answered.
    #[inline]
    pub(crate) fn receives(self) -> bool {
        matches!(
            self,
            QueuePairState::Rtr | QueuePairState::Rts | QueuePairState::Sqd | QueuePairState::Sqe
        )
    }

    /// Reports whether nothing can be posted to the send queue.
    #[inline]
    pub(crate) fn refuses_sends(self) -> bool {
        matches!(
            self,
            QueuePairState::Reset
                | QueuePairState::Init
                | QueuePairState::Rtr
                | QueuePairState::Destroyed
        )
    }
}
