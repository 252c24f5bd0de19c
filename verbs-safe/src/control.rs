//! A queue pair's state: connecting it, and taking it down.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use verbs_sys::{
    ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_attr_mask as bits,
    ibv_qp_init_attr, ibv_qp_state, ibv_wr_opcode,
};

use crate::attr::{LinkLayer, Mtu, PortAttr};
use crate::context::{Context, ProtectionDomain};
use crate::errno::Errno;
use crate::error::{ModifyQpError, QueryPortError, QueryQpError};
use crate::gid::Gid;
use crate::qp::{QpInner, QpState, init_transition};
use crate::shared::RemoteAccess;

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
    /// How often to try again when the peer does not answer (3 bits).
    pub retry_cnt: u8,
    /// How long to wait for an answer: 4.096 µs · 2^timeout, 0 is for ever (5 bits).
    pub timeout: u8,
    /// READs and atomics of ours in flight, at most.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer in flight, at most.
    pub max_dest_rd_atomic: u8,
    /// The first packet sequence number of what we send: as in our [`Endpoint`].
    pub local_psn: u32,
}

impl ConnectAttr {
    /// Port 1, MTU 1024, an RNR timer of 0.64 ms with 6 retries, 7 retries after
    /// 67 ms each without an answer, one READ or atomic at a time.
    #[must_use]
    pub fn new(gid_index: u8, local_psn: u32) -> ConnectAttr {
        ConnectAttr {
            port: 1,
            gid_index,
            mtu: Mtu::B1024,
            min_rnr_timer: 12,
            rnr_retry: 6,
            retry_cnt: 7,
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

const PSN_MASK: u32 = 0xff_ffff;

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
        let attr = self.query_raw(RTR_MASK | RTS_MASK)?;
        Ok(QpAttr {
            state: QpState(attr.qp_state),
            mtu: Mtu::from_raw(attr.path_mtu),
            dest_qp_num: attr.dest_qp_num,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
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
    /// state before it.
    pub fn connect(&self, remote: &Endpoint, attr: &ConnectAttr) -> Result<(), ModifyQpError> {
        if let Some(detail) = attr.complaint() {
            let error = self.modify_error(ibv_qp_state::IBV_QPS_RTR, Errno::EINVAL);
            return Err(ModifyQpError { detail, ..error });
        }
        let is_global = self.needs_global_route(remote, attr);
        self.modify(rtr_attr(remote, attr, is_global), RTR_MASK)?;
        self.modify(rts_attr(attr), RTS_MASK)
    }

    /// Takes the queue pair down: everything outstanding is flushed, and completes
    /// with [`WR_FLUSH`](crate::WcStatus::WR_FLUSH).
    ///
    /// # Errors
    /// [`ModifyQpError`] with the system's reason.
    pub fn to_error(&self) -> Result<(), ModifyQpError> {
        let attr = ibv_qp_attr { qp_state: ibv_qp_state::IBV_QPS_ERR, ..ibv_qp_attr::default() };
        self.modify(attr, bits::IBV_QP_STATE.0)
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
        let (attr, mask) = init_transition(port, access);
        self.modify(attr, mask)
    }

    fn modify(&self, mut attr: ibv_qp_attr, mask: u32) -> Result<(), ModifyQpError> {
        let modify = self.inner.context().table.modify_qp;
        // SAFETY: the queue pair is alive. No transition goes to RESET, so that what is
        // posted always completes.
        let result = unsafe { modify(self.inner.raw(), &mut attr, mask as i32) };
        Errno::check(result).map_err(|errno| self.modify_error(attr.qp_state, errno))
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

    /// Whether packets need a global route header: always on Ethernet; on InfiniBand
    /// where the subnet demands it, or the peer is in another one.
    fn needs_global_route(&self, remote: &Endpoint, attr: &ConnectAttr) -> bool {
        let context = self.context();
        // A port that cannot be queried makes the transition fail, and that says why.
        let Ok(port) = context.port(attr.port) else { return true };
        let local = context.gid_entry(attr.port, attr.gid_index.into()).map(|e| e.gid);
        is_global(&port, local, remote)
    }
}

fn is_global(port: &PortAttr, local: Option<[u8; 16]>, remote: &Endpoint) -> bool {
    let same_subnet = local.is_none_or(|gid| gid[..8] == remote.gid[..8]);
    port.link_layer == LinkLayer::Ethernet
        || port.grh_required
        || remote.lid == 0
        || !(same_subnet || remote.gid == [0; 16])
}

const RTR_MASK: u32 = bits::IBV_QP_STATE.0
    | bits::IBV_QP_AV.0
    | bits::IBV_QP_PATH_MTU.0
    | bits::IBV_QP_DEST_QPN.0
    | bits::IBV_QP_RQ_PSN.0
    | bits::IBV_QP_MAX_DEST_RD_ATOMIC.0
    | bits::IBV_QP_MIN_RNR_TIMER.0;

const RTS_MASK: u32 = bits::IBV_QP_STATE.0
    | bits::IBV_QP_TIMEOUT.0
    | bits::IBV_QP_RETRY_CNT.0
    | bits::IBV_QP_RNR_RETRY.0
    | bits::IBV_QP_SQ_PSN.0
    | bits::IBV_QP_MAX_QP_RD_ATOMIC.0;

fn rtr_attr(remote: &Endpoint, attr: &ConnectAttr, is_global: bool) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: ibv_qp_state::IBV_QPS_RTR,
        path_mtu: attr.mtu.to_raw(),
        dest_qp_num: remote.qp_num,
        rq_psn: remote.psn & PSN_MASK,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        ah_attr: address(remote, attr, is_global),
        ..ibv_qp_attr::default()
    }
}

fn rts_attr(attr: &ConnectAttr) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: ibv_qp_state::IBV_QPS_RTS,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        sq_psn: attr.local_psn,
        max_rd_atomic: attr.max_rd_atomic,
        ..ibv_qp_attr::default()
    }
}

fn address(remote: &Endpoint, attr: &ConnectAttr, is_global: bool) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: remote.gid },
            sgid_index: attr.gid_index,
            hop_limit: 64,
            ..ibv_global_route::default()
        },
        dlid: remote.lid,
        is_global: is_global.into(),
        port_num: attr.port,
        ..ibv_ah_attr::default()
    }
}

impl fmt::Debug for QpControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpControl").field("qp_num", &self.qp_num()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(link_layer: LinkLayer, grh_required: bool) -> PortAttr {
        let raw = verbs_sys::ibv_port_attr::default();
        PortAttr { link_layer, grh_required, ..PortAttr::new(1, &raw) }
    }

    #[test]
    fn a_global_route_is_used_where_it_is_needed() {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        let near = Endpoint { qp_num: 1, psn: 0, lid: 7, gid };
        let far = Endpoint { gid: [9; 16], ..near };
        let ib = port(LinkLayer::InfiniBand, false);
        assert!(is_global(&port(LinkLayer::Ethernet, false), Some(gid), &near));
        assert!(is_global(&port(LinkLayer::InfiniBand, true), Some(gid), &near));
        assert!(!is_global(&ib, Some(gid), &near));
        assert!(is_global(&ib, Some(gid), &far), "another subnet");
        assert!(is_global(&ib, Some(gid), &Endpoint { lid: 0, ..near }), "no LID");
        assert!(!is_global(&ib, Some(gid), &Endpoint { gid: [0; 16], ..near }), "LID only");
    }

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
