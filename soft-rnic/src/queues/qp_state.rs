//! The transports and states of queue pairs.

use verbs_sys::*;

/// The transport services that a queue pair can offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
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

impl Transport {
    pub(crate) fn from_abi(kind: ibv_qp_type) -> Option<Transport> {
        let all = [Self::Rc, Self::XrcSend, Self::XrcRecv, Self::Uc, Self::Ud];
        all.into_iter().find(|transport| transport.abi() == kind)
    }

    pub(crate) fn abi(self) -> ibv_qp_type {
        match self {
            Transport::Rc => ibv_qp_type::IBV_QPT_RC,
            Transport::Uc => ibv_qp_type::IBV_QPT_UC,
            Transport::Ud => ibv_qp_type::IBV_QPT_UD,
            Transport::XrcSend => ibv_qp_type::IBV_QPT_XRC_SEND,
            Transport::XrcRecv => ibv_qp_type::IBV_QPT_XRC_RECV,
        }
    }

    /// The transport at the other end.
    pub(crate) fn far_end(self) -> Transport {
        match self {
            Transport::XrcSend => Transport::XrcRecv,
            Transport::XrcRecv => Transport::XrcSend,
            same => same,
        }
    }

    /// Reports whether each request names its destination: a queue pair, or a shared receive queue.
    pub(crate) fn is_addressed(self) -> bool {
        matches!(self, Transport::Ud | Transport::XrcSend)
    }

    /// Reports whether a requester learns what became of a message.
    #[inline]
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Transport::Rc | Transport::XrcSend | Transport::XrcRecv)
    }
}

/// States of a queue pair, and one for what is left when it is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
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

impl State {
    pub(crate) const ALL: [State; 8] = [
        State::Reset,
        State::Init,
        State::Rtr,
        State::Rts,
        State::Sqd,
        State::Sqe,
        State::Err,
        State::Destroyed,
    ];

    pub(crate) fn from_abi(state: ibv_qp_state) -> Option<State> {
        // The first one of those that a program sees as RESET.
        State::ALL.into_iter().find(|known| known.abi() == state)
    }

    pub(crate) fn abi(self) -> ibv_qp_state {
        match self {
            State::Reset | State::Destroyed => ibv_qp_state::IBV_QPS_RESET,
            State::Init => ibv_qp_state::IBV_QPS_INIT,
            State::Rtr => ibv_qp_state::IBV_QPS_RTR,
            State::Rts => ibv_qp_state::IBV_QPS_RTS,
            State::Sqd => ibv_qp_state::IBV_QPS_SQD,
            State::Sqe => ibv_qp_state::IBV_QPS_SQE,
            State::Err => ibv_qp_state::IBV_QPS_ERR,
        }
    }

    /// Reports whether requests in the send queue complete with a flush error.
    #[inline]
    pub(crate) fn flushes_sends(self) -> bool {
        matches!(self, State::Sqe | State::Err)
    }

    /// Reports whether requests of the peer are answered.
    #[inline]
    pub(crate) fn receives(self) -> bool {
        matches!(self, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }

    /// Reports whether nothing can be posted to the send queue.
    #[inline]
    pub(crate) fn refuses_sends(self) -> bool {
        matches!(self, State::Reset | State::Init | State::Rtr | State::Destroyed)
    }
}
