//! Offsets of fields that the ABI and the data path rely on, checked when this is compiled.

use core::mem::offset_of;
use std::sync::Arc;

use verbs_sys::*;

use super::{Cq, CqSlot, Qp, Slack, Srq};

const _: () = {
    assert!(size_of::<ibv_cq_ex>() == 288 && size_of::<ibv_qp_ex>() == 352);
    assert!(size_of::<Slack>() >= 64);
    assert!(offset_of!(Cq, abi) == 0 && offset_of!(Cq, slack) == size_of::<ibv_cq_ex>());
    assert!(offset_of!(Qp, abi) == 0 && offset_of!(Qp, slack) == size_of::<ibv_qp_ex>());
    assert!(offset_of!(Cq, context) == 384 && offset_of!(Qp, num) == 448);
    // One line has all that a post reads first.
    assert!(offset_of!(Qp, srq) + size_of::<Option<Arc<Srq>>>() <= 448 + 64);
    // `ibv_cq` and `ibv_qp` are the beginnings of the extended structs.
    assert!(offset_of!(ibv_cq_ex, comp_mask) == size_of::<ibv_cq>());
    assert!(offset_of!(ibv_qp_ex, qp_base) == 0);
};

const _: () = assert!(size_of::<CqSlot>() == 64 && size_of::<ibv_wc>() == 48);
