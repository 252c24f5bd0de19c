//! A queue pair's state: connecting it, and taking it down.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use verbs_sys::{
    ibv_qp_attr, ibv_qp_attr_mask as bits, ibv_qp_init_attr, ibv_qp_state, ibv_wr_opcode,
};

use crate::ah::{AhAttr, address, needs_global_route};
use crate::attr::Mtu;
use crate::context::{Context, ProtectionDomain};
use crate::errno::Errno;
use crate::error::{ModifyQpError, QueryPortError, QueryQpError};
use crate::gid::Gid;
use crate::qp::{QpInner, QpState};
use crate::shared::RemoteAccess;
use crate::transition::{self, Transition};
use crate::transport::Transport;

/// One end of a connection: what its peer has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The queue pair's number (24 bits).
    pub qp_num: u32,
    /// The first packet sequence number of what it sends (24 bits).
    pub psn: u32,
    /// The port's LID; 0 on Ethernet.
    pub lid: u16,
    /// The port's GID, as on the wire.
    pub gid: [u8; 16],
}

/// The attributes of a connection. All that the verbs would otherwise leave at 0 is
/// set: a `min_rnr_timer` of 0, for instance, means 655 ms.
///
/// An unreliable connection has no use for timers, retries and READs: it ignores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectAttr {
    /// The local port, from 1.
    pub port: u8,
    /// The index of the local GID.
    pub gid_index: u8,
    /// The path's MTU: at most the smaller of both ports' active ones.
    pub mtu: Mtu,
    /// How long the peer waits after finding no receive posted here: an index into
    /// the specification's table, 12 is 0.64 ms (5 bits).
    pub min_rnr_timer: u8,
    /// How often to try again when the peer has no receive posted; 7 is for ever (3 bits).
    pub rnr_retry: u8,
    /// How often to try again when the peer does not answer (3 bits). Not every device
    /// takes 7 for a number: to the kernel's rxe it is for ever, and a peer that has gone
    /// is never missed.
    pub retry_cnt: u8,
    /// How long to wait for an answer: 4.096 µs · 2^timeout, 0 is for ever (5 bits).
    pub timeout: u8,
    /// READs and atomics of ours in flight, at most: as many as the device
    /// ([`DeviceAttr::max_qp_init_rd_atom`](crate::DeviceAttr::max_qp_init_rd_atom)) and
    /// the peer's `max_dest_rd_atomic` permit. More may be posted; they wait.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer in flight, at most
    /// ([`DeviceAttr::max_qp_rd_atom`](crate::DeviceAttr::max_qp_rd_atom)).
    pub max_dest_rd_atomic: u8,
    /// The first packet sequence number of what we send: as in our [`Endpoint`].
    pub local_psn: u32,
}

impl ConnectAttr {
    /// Port 1, MTU 1024, an RNR timer of 0.64 ms with 6 retries, 6 retries after
    /// 67 ms each without an answer, one READ or atomic at a time.
    #[must_use]
    pub fn new(gid_index: u8, local_psn: u32) -> ConnectAttr {
        ConnectAttr {
            port: 1,
            gid_index,
            mtu: Mtu::B1024,
            min_rnr_timer: 12,
            rnr_retry: 6,
            retry_cnt: 6,
            timeout: 14,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            local_psn,
        }
    }

    /// What the device would cut off: the fields are that narrow.
    fn complaint(&self) -> Option<&'static str> {
        match self {
            a if a.min_rnr_timer > 31 => Some("min_rnr_timer has 5 bits"),
            a if a.timeout > 31 => Some("timeout has 5 bits"),
            a if a.rnr_retry > 7 => Some("rnr_retry has 3 bits"),
            a if a.retry_cnt > 7 => Some("retry_cnt has 3 bits"),
            a if a.local_psn > PSN_MASK => Some("local_psn has 24 bits"),
            a if a.mtu.bytes() == 0 => Some("there is no such MTU"),
            _ => None,
        }
    }
}

pub(crate) const PSN_MASK: u32 = 0xff_ffff;

/// A packet sequence number to begin with. Random ones keep late packets of an
/// earlier connection between the same queue pairs from being taken for this one's.
///
/// ```
/// assert!(verbs_safe::random_psn() < 1 << 24);
/// ```
#[must_use]
pub fn random_psn() -> u32 {
    let hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.finish() as u32 & PSN_MASK
}

/// What a queue pair says about itself.
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
        self.inner.qp_num()
    }

    /// Its service.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.inner.transport()
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

    /// What the peer has to know to connect to this end: `gid` is the one that
    /// [`Context::choose_gid`] gave, `psn` the one that [`ConnectAttr`] is given, too.
    ///
    /// # Errors
    /// [`QueryPortError`]: the port's LID cannot be had.
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
            return Err(self.mistake(detail));
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
            return Err(self.mistake(detail));
        }
        self.modify(transition::datagram_rtr())?;
        self.modify(transition::datagram_rts(local_psn))
    }

    /// Goes on sending after an error: SQE to RTS. Only unreliable queue pairs stop
    /// there; they go on receiving meanwhile. What was posted behind the request that
    /// failed has been flushed.
    ///
    /// # Errors
    /// [`ModifyQpError`]: it is not in [`SQE`](QpState::SQE), or the device refused.
    pub fn resume_sends(&self) -> Result<(), ModifyQpError> {
        let from = self.state().unwrap_or(QpState(ibv_qp_state::IBV_QPS_UNKNOWN));
        if from != QpState::SQE {
            let (to, errno) = (QpState::RTS, Errno::EINVAL);
            return Err(ModifyQpError { from, to, errno, detail: "its sends have not stopped" });
        }
        self.modify(transition::resume())
    }

    /// Takes the queue pair down: everything outstanding is flushed, and completes
    /// with [`WR_FLUSH`](crate::WcStatus::WR_FLUSH).
    ///
    /// # Errors
    /// [`ModifyQpError`] with the system's reason.
    pub fn to_error(&self) -> Result<(), ModifyQpError> {
        self.modify(transition::error())
    }

    /// Whether the device promises to write the bytes of a peer's WRITE in order, so
    /// that the last of them may be polled. Where the library cannot tell, it does not.
    #[must_use]
    pub fn data_in_order(&self) -> bool {
        let query = self.inner.context().table.query_qp_data_in_order;
        let write = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        // SAFETY: the queue pair is alive.
        query.is_some_and(|query| unsafe { query(self.inner.raw(), write, 0) } == 1)
    }

    /// The context that it was made from.
    #[must_use]
    pub fn context(&self) -> Context {
        Context { inner: self.inner.context().clone() }
    }

    /// The protection domain that it was made in: what memory for it is registered in.
    #[must_use]
    pub fn protection_domain(&self) -> ProtectionDomain {
        ProtectionDomain { inner: self.inner.pd().clone() }
    }

    pub(crate) fn to_init(&self, port: u8, access: RemoteAccess) -> Result<(), ModifyQpError> {
        self.modify(transition::init(self.transport(), port, access))
    }

    fn modify(&self, (mut attr, mask): Transition) -> Result<(), ModifyQpError> {
        let modify = self.inner.context().table.modify_qp;
        // SAFETY: the queue pair is alive. No transition goes to RESET, so that what is
        // posted always completes.
        let result = unsafe { modify(self.inner.raw(), &mut attr, mask.0 as i32) };
        Errno::check(result).map_err(|errno| self.modify_error(attr.qp_state, errno))
    }

    /// What was asked for cannot be, whatever the device.
    #[cold]
    fn mistake(&self, detail: &'static str) -> ModifyQpError {
        let error = self.modify_error(ibv_qp_state::IBV_QPS_RTR, Errno::EINVAL);
        ModifyQpError { detail, ..error }
    }

    #[cold]
    fn modify_error(&self, to: ibv_qp_state, errno: Errno) -> ModifyQpError {
        let from = self.state().unwrap_or(QpState(ibv_qp_state::IBV_QPS_UNKNOWN));
        ModifyQpError { from, to: QpState(to), errno, detail: "" }
    }

    fn query_raw(&self, mask: u32) -> Result<ibv_qp_attr, QueryQpError> {
        let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
        let query = self.inner.context().table.query_qp;
        // SAFETY: the queue pair is alive, both structs are writable.
        let result = unsafe { query(self.inner.raw(), &mut attr, mask as i32, &mut init) };
        Errno::check(result).map_err(|errno| QueryQpError { errno })?;
        Ok(attr)
    }
}

/// What [`QpControl::query`] asks for.
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

impl fmt::Debug for QpControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpControl").field("qp_num", &self.qp_num()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_the_device_would_cut_off_are_refused() {
        let good = ConnectAttr::new(0, 5);
        assert_eq!(good.complaint(), None);
        assert!(ConnectAttr { retry_cnt: 100, ..good }.complaint().is_some());
        assert!(ConnectAttr { rnr_retry: 8, ..good }.complaint().is_some());
        assert!(ConnectAttr { min_rnr_timer: 32, ..good }.complaint().is_some());
        assert!(ConnectAttr { timeout: 32, ..good }.complaint().is_some());
        assert!(ConnectAttr { local_psn: 1 << 24, ..good }.complaint().is_some());
    }
}
