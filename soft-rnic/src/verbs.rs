//! The table: which function is which verb.

/// Puts functions into the fields of their names.
macro_rules! fill {
    ($to:expr; $($name:ident)*) => { $($to.$name = Some($name);)* };
}

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

/// The table of functions of these names, each in its module; those that not every provider has are
/// behind a `?`.
macro_rules! functions {
    ($($module:ident: $($name:ident)*;)* $(? $of:ident: $($other:ident)*;)*) => {
        Verbs { $($($name: $module::$name,)*)* $($($other: Some($of::$other),)*)* }
    };
}

static VERBS: Verbs = functions! {
    ah: create_ah destroy_ah;
    asynchronous: get_async_event ack_async_event;
    channel: create_comp_channel destroy_comp_channel get_cq_event ack_cq_events;
    context: open_device close_device query_device query_port query_gid query_pkey;
    cq: create_cq resize_cq destroy_cq;
    destroy_qp: destroy_qp;
    device: get_device_list free_device_list get_device_name get_device_guid;
    domain: dealloc_pd;
    modify_qp: query_qp modify_qp;
    mr: alloc_pd reg_mr dereg_mr;
    multicast: attach_mcast detach_mcast;
    qp: create_qp;
    srq: create_srq modify_srq query_srq destroy_srq;
    ? context: query_gid_ex;
    ? modify_qp: query_qp_data_in_order;
    ? mr: reg_mr_iova2;
    ? rereg: rereg_mr;
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
