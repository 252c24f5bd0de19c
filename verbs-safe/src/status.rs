//! Status of a work request that has ended.

use std::fmt;

use thiserror::Error;
use verbs_sys::{ibv_wc_status, wc_status_name};

/// A completion's status.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WcStatus(ibv_wc_status);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $raw:ident;)*) => {
        impl WcStatus {
            $($(#[$doc])* pub const $name: WcStatus = WcStatus(ibv_wc_status::$raw);)*
        }
    };
}

statuses! {
    /// The request has been executed.
    SUCCESS = IBV_WC_SUCCESS;
    /// A message over the limit, or (at the receiver) over the buffer.
    LOC_LEN = IBV_WC_LOC_LEN_ERR;
    /// A request that the queue pair cannot execute.
    LOC_QP_OP = IBV_WC_LOC_QP_OP_ERR;
    /// Local memory that the request may not touch.
    LOC_PROT = IBV_WC_LOC_PROT_ERR;
    /// The queue pair is in ERR: the request was not executed.
    WR_FLUSH = IBV_WC_WR_FLUSH_ERR;
    /// Local memory that an inbound write may not touch.
    LOC_ACCESS = IBV_WC_LOC_ACCESS_ERR;
    /// The peer could not make sense of the request.
    REM_INV_REQ = IBV_WC_REM_INV_REQ_ERR;
    /// The peer does not permit the access.
    REM_ACCESS = IBV_WC_REM_ACCESS_ERR;
    /// The peer could not complete the operation.
    REM_OP = IBV_WC_REM_OP_ERR;
    /// The peer does not answer.
    RETRY_EXC = IBV_WC_RETRY_EXC_ERR;
    /// The peer had no receive buffer, time and again.
    RNR_RETRY_EXC = IBV_WC_RNR_RETRY_EXC_ERR;
}

impl WcStatus {
    /// The specification's name, `"unknown"` for a value that rdma-core 44 does not know.
    ///
    /// ```
    /// assert_eq!(verbs_safe::WcStatus::RNR_RETRY_EXC.name(), "RNR_RETRY_EXC");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        wc_status_name(self.0)
    }

    #[inline]
    pub(crate) fn from_raw(raw: ibv_wc_status) -> WcStatus {
        WcStatus(raw)
    }

    /// The number in verbs.h.
    #[must_use]
    pub fn raw(self) -> u32 {
        self.0.0
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.raw())
    }
}

/// Fields of a failed completion; its other ones are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("queue pair {qp_num}: {status} (vendor error {vendor_err:#x})")]
pub struct WcError {
    /// The status of the failed completion.
    pub status: WcStatus,
    /// The vendor's number for it.
    pub vendor_err: u32,
    /// The queue pair.
    pub qp_num: u32,
}
