//! The states of a queue pair.

use std::fmt;

use verbs_sys::{ibv_qp_state, qp_state_name};

/// A queue pair's state.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpState(pub(crate) ibv_qp_state);

impl QpState {
    /// New, or emptied.
    pub const RESET: QpState = QpState(ibv_qp_state::IBV_QPS_RESET);
    /// Receives can be posted.
    pub const INIT: QpState = QpState(ibv_qp_state::IBV_QPS_INIT);
    /// Ready to receive.
    pub const RTR: QpState = QpState(ibv_qp_state::IBV_QPS_RTR);
    /// Ready to send, too.
    pub const RTS: QpState = QpState(ibv_qp_state::IBV_QPS_RTS);
    /// The send queue drains.
    pub const SQD: QpState = QpState(ibv_qp_state::IBV_QPS_SQD);
    /// A send has failed, and those behind it are flushed; receiving continues. Only
    /// unreliable queue pairs stop here: see
    /// [`resume_sends`](crate::QpControl::resume_sends).
    pub const SQE: QpState = QpState(ibv_qp_state::IBV_QPS_SQE);
    /// Failed: all requests are flushed.
    pub const ERR: QpState = QpState(ibv_qp_state::IBV_QPS_ERR);

    /// The specification's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        qp_state_name(self.0)
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
