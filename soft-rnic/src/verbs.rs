//! The table: which function is which verb.

pub(crate) mod asynchronous;
mod bind_mw;
pub(crate) mod channel;
mod context;
mod cq;
mod cq_ex;
mod destroy_qp;
mod domain;
pub(crate) mod import;
pub(crate) mod modify_qp;
mod multicast;
mod new_send;
mod ops;
pub(crate) mod post;
pub(crate) mod qp_ex;

use verbs_sys::{Table, Verbs};

use crate::objects::{ah, device, mr, qp, rereg, srq};

static VERBS: Verbs = Verbs {
    get_device_list: device::get_device_list,
    free_device_list: device::free_device_list,
    get_device_name: device::get_device_name,
    get_device_guid: device::get_device_guid,
    open_device: context::open_device,
    close_device: context::close_device,
    query_device: context::query_device,
    query_port: context::query_port,
    query_gid: context::query_gid,
    query_pkey: context::query_pkey,
    alloc_pd: mr::alloc_pd,
    dealloc_pd: domain::dealloc_pd,
    reg_mr: mr::reg_mr,
    dereg_mr: mr::dereg_mr,
    create_comp_channel: channel::create_comp_channel,
    destroy_comp_channel: channel::destroy_comp_channel,
    create_cq: cq::create_cq,
    resize_cq: cq::resize_cq,
    destroy_cq: cq::destroy_cq,
    get_cq_event: channel::get_cq_event,
    ack_cq_events: channel::ack_cq_events,
    create_srq: srq::create_srq,
    modify_srq: srq::modify_srq,
    query_srq: srq::query_srq,
    destroy_srq: srq::destroy_srq,
    create_qp: qp::create_qp,
    query_qp: modify_qp::query_qp,
    modify_qp: modify_qp::modify_qp,
    destroy_qp: destroy_qp::destroy_qp,
    create_ah: ah::create_ah,
    destroy_ah: ah::destroy_ah,
    attach_mcast: multicast::attach_mcast,
    detach_mcast: multicast::detach_mcast,
    get_async_event: asynchronous::get_async_event,
    ack_async_event: asynchronous::ack_async_event,
    reg_mr_iova2: Some(mr::reg_mr_iova2),
    query_gid_ex: Some(context::query_gid_ex),
    query_qp_data_in_order: Some(modify_qp::query_qp_data_in_order),
    rereg_mr: Some(rereg::rereg_mr),
};

/// The verbs of the software device: `soft0`, and every simulation that is alive.
///
/// ```
/// let verbs = soft_rnic::table();
/// let mut n = 0;
/// // SAFETY: the list is freed with the same table, and not used afterwards.
/// unsafe {
///     let list = (verbs.get_device_list)(&mut n);
///     let name = (verbs.get_device_name)(*list);
///     assert_eq!(core::ffi::CStr::from_ptr(name).to_str(), Ok("soft0"));
///     (verbs.free_device_list)(list);
/// }
/// assert!(n >= 1);
/// ```
#[must_use]
pub fn table() -> Table {
    // SAFETY: the functions keep what their manual pages say; see the crate.
    unsafe { Table::new(&VERBS) }
}
