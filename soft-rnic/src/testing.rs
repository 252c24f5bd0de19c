//! Objects that unit tests set up.

pub(crate) mod unfilled;

use core::ptr::null_mut;
use std::sync::Arc;

use verbs_sys::*;

use crate::objects::device::default_device;
use crate::objects::state::Device;

/// A queue pair in RESET, of a context of `soft0` and a domain of its own. Nothing is taken down
/// again, unless the test does it.
pub(crate) fn queue_pair() -> *mut ibv_qp {
    queue_pair_on(&default_device())
}

/// As [`queue_pair`], of another device.
pub(crate) fn queue_pair_on(device: &Arc<Device>) -> *mut ibv_qp {
    queue_pair_of(device, ibv_qp_type::IBV_QPT_RC)
}

/// As [`queue_pair_on`], of another transport.
pub(crate) fn queue_pair_of(device: &Arc<Device>, qp_type: ibv_qp_type) -> *mut ibv_qp {
    queue_pair_with(device, qp_type, 0)
}

/// As [`queue_pair_of`], with room for as many requests in the send queue.
pub(crate) fn queue_pair_with(
    device: &Arc<Device>,
    qp_type: ibv_qp_type,
    max_send_wr: u32,
) -> *mut ibv_qp {
    let v = crate::table();
    // SAFETY: the verbs are used as their manual pages say.
    unsafe {
        let context = (v.open_device)(device.as_abi());
        let pd = (v.alloc_pd)(context);
        let cq = (v.create_cq)(context, 1, null_mut(), null_mut(), 0);
        let mut attr: ibv_qp_init_attr = core::mem::zeroed();
        (attr.send_cq, attr.recv_cq) = (cq, cq);
        (attr.qp_type, attr.cap.max_send_wr) = (qp_type, max_send_wr);
        (v.create_qp)(pd, &mut attr)
    }
}
