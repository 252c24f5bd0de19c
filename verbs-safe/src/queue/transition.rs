//! The attributes of each transition of a queue pair, by its transport: the tables of
//! the specification's "Modify Queue Pair".

use verbs_sys::{ibv_ah_attr, ibv_qp_attr, ibv_qp_attr_mask as bits, ibv_qp_state as state};

use crate::object::endpoint::Endpoint;
use crate::queue::connect::{ConnectAttr, PSN_MASK};
use crate::region::shared::RemoteAccess;
use crate::transport::Transport;

/// A transition: the attributes, and which of them are set.
pub(crate) type Transition = (ibv_qp_attr, bits);

fn attr_for(qp_state: state) -> ibv_qp_attr {
    ibv_qp_attr { qp_state, ..ibv_qp_attr::default() }
}

fn mask(parts: &[bits]) -> bits {
    parts.iter().fold(bits::IBV_QP_STATE, |all, part| bits(all.0 | part.0))
}

/// RESET to INIT.
pub(crate) fn init(transport: Transport, port: u8, access: RemoteAccess) -> Transition {
    let attr = ibv_qp_attr { port_num: port, ..attr_for(state::IBV_QPS_INIT) };
    let common = mask(&[bits::IBV_QP_PKEY_INDEX, bits::IBV_QP_PORT]);
    match transport {
        Transport::Ud { qkey } => {
            (ibv_qp_attr { qkey, ..attr }, mask(&[common, bits::IBV_QP_QKEY]))
        }
        Transport::Rc | Transport::Uc => {
            let attr = ibv_qp_attr { qp_access_flags: access.to_raw().0, ..attr };
            (attr, mask(&[common, bits::IBV_QP_ACCESS_FLAGS]))
        }
    }
}

/// INIT to RTR, of a queue pair that gets a peer. Attributes that an unreliable connection does not
/// use are left out.
pub(crate) fn rtr(
    transport: Transport,
    remote: &Endpoint,
    attr: &ConnectAttr,
    ah_attr: ibv_ah_attr,
) -> Transition {
    let raw = ibv_qp_attr {
        path_mtu: attr.mtu.to_raw(),
        dest_qp_num: remote.qp_num,
        rq_psn: remote.psn & PSN_MASK,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        ah_attr,
        ..attr_for(state::IBV_QPS_RTR)
    };
    let path = [bits::IBV_QP_AV, bits::IBV_QP_PATH_MTU, bits::IBV_QP_DEST_QPN, bits::IBV_QP_RQ_PSN];
    let reliable = [bits::IBV_QP_MAX_DEST_RD_ATOMIC, bits::IBV_QP_MIN_RNR_TIMER];
    (raw, connected(transport, mask(&path), &reliable))
}

/// RTR to RTS, of a queue pair that has a peer.
pub(crate) fn rts(transport: Transport, attr: &ConnectAttr) -> Transition {
    let raw = ibv_qp_attr {
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        sq_psn: attr.local_psn,
        max_rd_atomic: attr.max_rd_atomic,
        ..attr_for(state::IBV_QPS_RTS)
    };
    let reliable = [
        bits::IBV_QP_TIMEOUT,
        bits::IBV_QP_RETRY_CNT,
        bits::IBV_QP_RNR_RETRY,
        bits::IBV_QP_MAX_QP_RD_ATOMIC,
    ];
    (raw, connected(transport, mask(&[bits::IBV_QP_SQ_PSN]), &reliable))
}

fn connected(transport: Transport, every: bits, reliable: &[bits]) -> bits {
    match transport {
        Transport::Rc => mask(&[&[every], reliable].concat()),
        Transport::Uc | Transport::Ud { .. } => every,
    }
}

/// RTR to RTS, of a queue pair that sends to anyone.
pub(crate) fn datagram_rts(sq_psn: u32) -> Transition {
    (ibv_qp_attr { sq_psn, ..attr_for(state::IBV_QPS_RTS) }, mask(&[bits::IBV_QP_SQ_PSN]))
}

/// A transition that sets nothing else: INIT to RTR, of a queue pair that sends to anyone; SQE to
/// RTS; any state to ERR.
pub(crate) fn plain(to: state) -> Transition {
    (attr_for(to), mask(&[]))
}

#[cfg(test)]
mod tests;
