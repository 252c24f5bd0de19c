//! A queue pair's state: connecting it, and taking it down.

use std::sync::Arc;

use verbs_sys::{
    ibv_qp_attr, ibv_qp_attr_mask as bits, ibv_qp_init_attr, ibv_qp_state, ibv_wr_opcode,
};

use crate::attr::Mtu;
use crate::errno::Errno;
use crate::error::{AsyncEventError, ModifyQpError, QueryPortError, QueryQpError};
use crate::object::ah::{AhAttr, address, needs_global_route};
use crate::object::context::{Context, ProtectionDomain};
use crate::object::endpoint::Endpoint;
use crate::object::gid::Gid;
use crate::queue::connect::{ConnectAttr, PSN_MASK};
use crate::queue::qp::QpInner;
use crate::queue::transition::{self, Transition};
use crate::region::shared::RemoteAccess;
use crate::state::QpState;
use crate::transport::Transport;

/// Attributes of a queue pair, as the device reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpAttr {
    /// Its state.
    pub state: QpState,
    /// The path's MTU.
    pub mtu: Mtu,
    /// The peer's queue pair.
    pub dest_qp_num: u32,
    /// The next packet sequence number expected.
    pub rq_psn: u32,
    /// The next packet sequence number sent.
    pub sq_psn: u32,
    /// Retries when the peer does not answer.
    pub retry_cnt: u8,
    /// Retries when the peer has no receive posted.
    pub rnr_retry: u8,
    /// The key of datagrams.
    pub qkey: u32,
    /// The RNR timer's index.
    pub min_rnr_timer: u8,
    /// The timeout's exponent.
    pub timeout: u8,
    /// READs and atomics of ours in flight, at most.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer in flight, at most.
    pub max_dest_rd_atomic: u8,
}

/// A handle of a queue pair's state. It can be cloned, and used by any thread while
/// others post.
#[derive(Clone)]
pub struct QpControl {
    inner: Arc<QpInner>,
}

impl QpControl {
    pub(crate) fn new(inner: Arc<QpInner>) -> QpControl {
        QpControl { inner }
    }

    /// The queue pair's number. Devices use numbers again.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.inner.qp_num
    }

    /// Its service.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.inner.transport
    }

    /// The state that the device reports.
    ///
    /// # Errors
    /// [`QueryQpError`] with the system's reason.
    pub fn state(&self) -> Result<QpState, QueryQpError> {
        Ok(QpState(self.query_raw(bits::IBV_QP_STATE.0)?.qp_state))
    }

    /// Attributes and state.
    ///
    /// # Errors
    /// [`QueryQpError`] with the system's reason.
    pub fn query(&self) -> Result<QpAttr, QueryQpError> {
        let attr = self.query_raw(QUERIED)?;
        Ok(QpAttr {
            state: QpState(attr.qp_state),
            mtu: Mtu::from_raw(attr.path_mtu),
            dest_qp_num: attr.dest_qp_num,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            qkey: attr.qkey,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            min_rnr_timer: attr.min_rnr_timer,
            timeout: attr.timeout,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
        })
    }

    /// Returns the endpoint to send to the peer: `gid` is that of [`Context::choose_gid`], `psn`
    /// that of [`ConnectAttr`].
    ///
    /// # Errors
    /// [`QueryPortError`]: the port's LID cannot be queried.
    pub fn endpoint(&self, port: u8, gid: Gid, psn: u32) -> Result<Endpoint, QueryPortError> {
        let lid = self.context().port(port)?.lid;
        Ok(Endpoint { qp_num: self.qp_num(), psn, lid, gid: gid.gid })
    }

    /// Connects to `remote`: INIT to RTR to RTS.
    ///
    /// # Errors
    /// [`ModifyQpError`] names the transition that failed; the queue pair is in the
    /// state before it. Datagram queue pairs have no peer: see
    /// [`activate`](Self::activate).
    pub fn connect(&self, remote: &Endpoint, attr: &ConnectAttr) -> Result<(), ModifyQpError> {
        let datagrams = self.transport().is_datagram().then_some("it has no peer; activate it");
        if let Some(detail) = datagrams.or(attr.complaint()) {
            return Err(self.mistake(ibv_qp_state::IBV_QPS_RTR, detail));
        }
        let context = self.context();
        let is_global = needs_global_route(&context, remote, attr.port, attr.gid_index);
        let path = AhAttr { port: attr.port, ..AhAttr::new(attr.gid_index) };
        let address = address(remote, path, is_global);
        self.modify(transition::rtr(self.transport(), remote, attr, address))?;
        self.modify(transition::rts(self.transport(), attr))
    }

    /// Makes a datagram queue pair ready to receive from, and to send to, anyone: INIT
    /// to RTR to RTS. `local_psn` numbers its first packet.
    ///
    /// # Errors
    /// [`ModifyQpError`], as [`connect`](Self::connect), which is for all others.
    pub fn activate(&self, local_psn: u32) -> Result<(), ModifyQpError> {
        let connected = (!self.transport().is_datagram()).then_some("it needs a peer; connect it");
        let wide = (local_psn > PSN_MASK).then_some("local_psn has 24 bits");
        if let Some(detail) = connected.or(wide) {
            return Err(self.mistake(ibv_qp_state::IBV_QPS_RTR, detail));
        }
        self.modify(transition::plain(ibv_qp_state::IBV_QPS_RTR))?;
        self.modify(transition::datagram_rts(local_psn))
    }

    /// Resumes sending after an error: SQE to RTS. Only unreliable queue pairs enter SQE; they keep
    /// receiving meanwhile. Requests posted behind the failed one have been flushed.
    ///
    /// # Errors
    /// [`ModifyQpError`]: it is not in [`SQE`](QpState::SQE), or the device refused.
    pub fn resume_sends(&self) -> Result<(), ModifyQpError> {
        if self.state() != Ok(QpState::SQE) {
            return Err(self.mistake(ibv_qp_state::IBV_QPS_RTS, "its sends have not stopped"));
        }
        self.modify(transition::plain(ibv_qp_state::IBV_QPS_RTS))
    }

    /// Takes the queue pair down: everything outstanding is flushed, and completes
    /// with [`WR_FLUSH`](crate::WcStatus::WR_FLUSH).
    ///
    /// # Errors
    /// [`ModifyQpError`] with the system's reason.
    pub fn to_error(&self) -> Result<(), ModifyQpError> {
        self.modify(transition::plain(ibv_qp_state::IBV_QPS_ERR))
    }

    /// Reports whether the device has raised `QP_LAST_WQE_REACHED` for this queue pair in ERR: it
    /// takes no more requests from its shared receive queue. The requests that it had taken have
    /// completed by then; poll their completions before you drop the queue pair. Not every device
    /// raises the event (the kernel's rxe does not), so limit the time of the wait.
    ///
    /// Takes the pending events of the context; the next calls of [`Context::poll_async_event`]
    /// return them.
    ///
    /// # Errors
    /// [`AsyncEventError`] with the system's reason.
    pub fn has_reached_last_wqe(&self) -> Result<bool, AsyncEventError> {
        if self.inner.uses.tag.has_reached_last_wqe() {
            return Ok(true);
        }
        let device = || self.context().device_name().to_owned();
        let gathered = self.inner.uses.pd.context.gather_async_events();
        gathered.map_err(|errno| AsyncEventError { device: device(), errno })?;
        Ok(self.inner.uses.tag.has_reached_last_wqe())
    }

    /// Reports whether the device promises to write the bytes of a peer's WRITE in order, so that
    /// the last of them may be polled. Where the library cannot tell, it does not.
    #[must_use]
    pub fn data_in_order(&self) -> bool {
        let query = self.inner.uses.pd.context.table.query_qp_data_in_order;
        let write = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        // SAFETY: `self.inner` keeps the queue pair alive.
        query.is_some_and(|query| unsafe { query(self.inner.raw(), write, 0) } == 1)
    }

    /// The context that it was made from.
    #[must_use]
    pub fn context(&self) -> Context {
        Context { inner: self.inner.uses.pd.context.clone() }
    }

    /// The protection domain that it was made in: register memory for it there.
    #[must_use]
    pub fn protection_domain(&self) -> ProtectionDomain {
        ProtectionDomain { inner: self.inner.uses.pd.clone() }
    }

    pub(crate) fn to_init(&self, port: u8, access: RemoteAccess) -> Result<(), ModifyQpError> {
        self.modify(transition::init(self.transport(), port, access))
    }

    fn modify(&self, (mut attr, mask): Transition) -> Result<(), ModifyQpError> {
        let modify = self.inner.uses.pd.context.table.modify_qp;
        // SAFETY: `self.inner` keeps the queue pair alive. No transition goes to RESET, so posted
        // work always completes.
        let result = unsafe { modify(self.inner.raw(), &mut attr, mask.0 as i32) };
        Errno::check(result).map_err(|errno| self.modify_error(attr.qp_state, errno))
    }

    /// Makes the error of attributes that are impossible on any device.
    #[cold]
    fn mistake(&self, to: ibv_qp_state, detail: &'static str) -> ModifyQpError {
        ModifyQpError { detail, ..self.modify_error(to, Errno::EINVAL) }
    }

    #[cold]
    fn modify_error(&self, to: ibv_qp_state, errno: Errno) -> ModifyQpError {
        let from = self.state().unwrap_or(QpState(ibv_qp_state::IBV_QPS_UNKNOWN));
        ModifyQpError { from, to: QpState(to), errno, detail: "" }
    }

    fn query_raw(&self, mask: u32) -> Result<ibv_qp_attr, QueryQpError> {
        let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
        let query = self.inner.uses.pd.context.table.query_qp;
        // SAFETY: `self.inner` keeps the queue pair alive; both structs are writable.
        let result = unsafe { query(self.inner.raw(), &mut attr, mask as i32, &mut init) };
        Errno::check(result).map_err(|errno| QueryQpError { errno })?;
        Ok(attr)
    }
}

/// Mask of the attributes that [`QpControl::query`] asks for.
const QUERIED: u32 = bits::IBV_QP_STATE.0
    | bits::IBV_QP_AV.0
    | bits::IBV_QP_PATH_MTU.0
    | bits::IBV_QP_DEST_QPN.0
    | bits::IBV_QP_RQ_PSN.0
    | bits::IBV_QP_SQ_PSN.0
    | bits::IBV_QP_QKEY.0
    | bits::IBV_QP_MAX_DEST_RD_ATOMIC.0
    | bits::IBV_QP_MAX_QP_RD_ATOMIC.0
    | bits::IBV_QP_MIN_RNR_TIMER.0
    | bits::IBV_QP_TIMEOUT.0
    | bits::IBV_QP_RETRY_CNT.0
    | bits::IBV_QP_RNR_RETRY.0;

debug_shows!(QpControl: qp_num());
