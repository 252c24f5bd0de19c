//! The names that the specification and rdma-core's headers use, for messages.

use crate::*;

macro_rules! names {
    ($(#[$doc:meta])* $fn:ident($ty:ident) { $($value:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[must_use]
        pub fn $fn(value: $ty) -> &'static str {
            match value {
                $( $ty::$value => $text, )*
                _ => "unknown",
            }
        }
    };
}

names! {
    /// `IBV_WC_RNR_RETRY_EXC_ERR` → `RNR_RETRY_EXC`.
    wc_status_name(ibv_wc_status) {
        IBV_WC_SUCCESS => "SUCCESS",
        IBV_WC_LOC_LEN_ERR => "LOC_LEN",
        IBV_WC_LOC_QP_OP_ERR => "LOC_QP_OP",
        IBV_WC_LOC_EEC_OP_ERR => "LOC_EEC_OP",
        IBV_WC_LOC_PROT_ERR => "LOC_PROT",
        IBV_WC_WR_FLUSH_ERR => "WR_FLUSH",
        IBV_WC_MW_BIND_ERR => "MW_BIND",
        IBV_WC_BAD_RESP_ERR => "BAD_RESP",
        IBV_WC_LOC_ACCESS_ERR => "LOC_ACCESS",
        IBV_WC_REM_INV_REQ_ERR => "REM_INV_REQ",
        IBV_WC_REM_ACCESS_ERR => "REM_ACCESS",
        IBV_WC_REM_OP_ERR => "REM_OP",
        IBV_WC_RETRY_EXC_ERR => "RETRY_EXC",
        IBV_WC_RNR_RETRY_EXC_ERR => "RNR_RETRY_EXC",
        IBV_WC_LOC_RDD_VIOL_ERR => "LOC_RDD_VIOL",
        IBV_WC_REM_INV_RD_REQ_ERR => "REM_INV_RD_REQ",
        IBV_WC_REM_ABORT_ERR => "REM_ABORT",
        IBV_WC_INV_EECN_ERR => "INV_EECN",
        IBV_WC_INV_EEC_STATE_ERR => "INV_EEC_STATE",
        IBV_WC_FATAL_ERR => "FATAL",
        IBV_WC_RESP_TIMEOUT_ERR => "RESP_TIMEOUT",
        IBV_WC_GENERAL_ERR => "GENERAL",
        IBV_WC_TM_ERR => "TM",
        IBV_WC_TM_RNDV_INCOMPLETE => "TM_RNDV_INCOMPLETE",
    }
}

names! {
    /// `IBV_WC_RECV_RDMA_WITH_IMM` → `RECV_RDMA_WITH_IMM`.
    wc_opcode_name(ibv_wc_opcode) {
        IBV_WC_SEND => "SEND",
        IBV_WC_RDMA_WRITE => "RDMA_WRITE",
        IBV_WC_RDMA_READ => "RDMA_READ",
        IBV_WC_COMP_SWAP => "COMP_SWAP",
        IBV_WC_FETCH_ADD => "FETCH_ADD",
        IBV_WC_BIND_MW => "BIND_MW",
        IBV_WC_LOCAL_INV => "LOCAL_INV",
        IBV_WC_TSO => "TSO",
        IBV_WC_ATOMIC_WRITE => "ATOMIC_WRITE",
        IBV_WC_RECV => "RECV",
        IBV_WC_RECV_RDMA_WITH_IMM => "RECV_RDMA_WITH_IMM",
    }
}

names! {
    /// `IBV_QPS_RTS` → `RTS`.
    qp_state_name(ibv_qp_state) {
        IBV_QPS_RESET => "RESET",
        IBV_QPS_INIT => "INIT",
        IBV_QPS_RTR => "RTR",
        IBV_QPS_RTS => "RTS",
        IBV_QPS_SQD => "SQD",
        IBV_QPS_SQE => "SQE",
        IBV_QPS_ERR => "ERR",
    }
}

names! {
    /// `IBV_PORT_ACTIVE` → `ACTIVE`.
    port_state_name(ibv_port_state) {
        IBV_PORT_NOP => "NOP",
        IBV_PORT_DOWN => "DOWN",
        IBV_PORT_INIT => "INIT",
        IBV_PORT_ARMED => "ARMED",
        IBV_PORT_ACTIVE => "ACTIVE",
        IBV_PORT_ACTIVE_DEFER => "ACTIVE_DEFER",
    }
}

names! {
    /// `IBV_EVENT_SRQ_LIMIT_REACHED` → `SRQ_LIMIT_REACHED`.
    async_event_name(ibv_event_type) {
        IBV_EVENT_CQ_ERR => "CQ_ERR",
        IBV_EVENT_QP_FATAL => "QP_FATAL",
        IBV_EVENT_QP_REQ_ERR => "QP_REQ_ERR",
        IBV_EVENT_QP_ACCESS_ERR => "QP_ACCESS_ERR",
        IBV_EVENT_COMM_EST => "COMM_EST",
        IBV_EVENT_SQ_DRAINED => "SQ_DRAINED",
        IBV_EVENT_PATH_MIG => "PATH_MIG",
        IBV_EVENT_PATH_MIG_ERR => "PATH_MIG_ERR",
        IBV_EVENT_DEVICE_FATAL => "DEVICE_FATAL",
        IBV_EVENT_PORT_ACTIVE => "PORT_ACTIVE",
        IBV_EVENT_PORT_ERR => "PORT_ERR",
        IBV_EVENT_LID_CHANGE => "LID_CHANGE",
        IBV_EVENT_PKEY_CHANGE => "PKEY_CHANGE",
        IBV_EVENT_SM_CHANGE => "SM_CHANGE",
        IBV_EVENT_SRQ_ERR => "SRQ_ERR",
        IBV_EVENT_SRQ_LIMIT_REACHED => "SRQ_LIMIT_REACHED",
        IBV_EVENT_QP_LAST_WQE_REACHED => "QP_LAST_WQE_REACHED",
        IBV_EVENT_CLIENT_REREGISTER => "CLIENT_REREGISTER",
        IBV_EVENT_GID_CHANGE => "GID_CHANGE",
    }
}
