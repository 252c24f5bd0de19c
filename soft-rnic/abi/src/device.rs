//! Functions of the device: each is that of `soft_rnic`'s table.
//!
//! A function that the table gains is added to `forward!`, and takes the place of `unsupported` in
//! `exports`. The waits for events ([`events`](crate::events)) are cancellation points, and no
//! other function is.

use core::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use soft_rnic::Uncancelled;
use verbs_sys::*;

/// Functions that call the table's of the same name, with the same arguments.
macro_rules! forward {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => { $(
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            let _uncancelled = Uncancelled::new();
            // SAFETY: the table's function has the contract of this one.
            unsafe { (soft_rnic::table().$name)($($arg),*) }
        }
    )* };
}

/// Functions that call the one of the same name that `soft_rnic` has besides its table.
macro_rules! forward_besides {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => { $(
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            let _uncancelled = Uncancelled::new();
            // SAFETY: the function has the contract of this one.
            unsafe { soft_rnic::$name($($arg),*) }
        }
    )* };
}

/// The address of a device that speaks RoCE v2 and is to be listed.
const ROCE: &str = "RDMA_CONN_ROCE";

/// Lists the device that the environment names, if it names one.
fn list_roce() {
    let Ok(text) = std::env::var(ROCE) else { return };
    let roce: Result<soft_rnic::Roce, _> = text.parse();
    let listed = roce.map_err(|e| e.to_string());
    soft_rnic::report_peer_unreached();
    if let Err(reason) = listed.and_then(|roce| roce.list().map_err(|e| e.to_string())) {
        eprintln!("{ROCE}: {reason}");
    }
}

#[expect(clippy::disallowed_types, reason = "it is of no world")]
pub(crate) unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    static FIRST: std::sync::Once = std::sync::Once::new();
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    let _uncancelled = Uncancelled::new();
    let process = std::process::id();
    FIRST.call_once(|| {
        PROCESS.store(process, Ordering::Relaxed);
        list_roce();
    });
    // Relaxed: a child of fork, which has none of its parent's devices, has one thread.
    if PROCESS.swap(process, Ordering::Relaxed) != process {
        list_roce();
    }
    // SAFETY: the table's function has the contract of this one.
    unsafe { (soft_rnic::table().get_device_list)(num_devices) }
}

forward! {
    free_device_list(list: *mut *mut ibv_device);
    get_device_name(device: *mut ibv_device) -> *const c_char;
    get_device_guid(device: *mut ibv_device) -> __be64;
    open_device(device: *mut ibv_device) -> *mut ibv_context;
    close_device(context: *mut ibv_context) -> c_int;
    ack_async_event(event: *mut ibv_async_event);
    query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    // Writes 48 bytes: callers of the symbol may know that shorter struct. Other callers use
    // the context's own operation.
    query_port(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int;
    query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int;
    alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    dealloc_pd(pd: *mut ibv_pd) -> c_int;
    reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    dereg_mr(mr: *mut ibv_mr) -> c_int;
    create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    create_cq(
        context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void,
        channel: *mut ibv_comp_channel, comp_vector: c_int
    ) -> *mut ibv_cq;
    resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    destroy_cq(cq: *mut ibv_cq) -> c_int;
    ack_cq_events(cq: *mut ibv_cq, nevents: u32);
    create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
    destroy_srq(srq: *mut ibv_srq) -> c_int;
    create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    query_qp(
        qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr
    ) -> c_int;
    modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    destroy_qp(qp: *mut ibv_qp) -> c_int;
    create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah(ah: *mut ibv_ah) -> c_int;
    attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
}

/// Functions that not every provider has. `soft_rnic` has these.
macro_rules! forward_optional {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, else $without:expr;)*) => { $(
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            let _uncancelled = Uncancelled::new();
            match soft_rnic::table().$name {
                // SAFETY: the table's function has the contract of this one.
                Some(function) => unsafe { function($($arg),*) },
                None => $without,
            }
        }
    )* };
}

forward_optional! {
    reg_mr_iova2(
        pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: u32
    ) -> *mut ibv_mr, else super::unsupported::object().cast();
    query_gid_ex(
        context: *mut ibv_context, port_num: u32, index: u32, entry: *mut ibv_gid_entry,
        flags: u32, entry_size: usize
    ) -> c_int, else super::unsupported::code();
    query_qp_data_in_order(
        qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32
    ) -> c_int, else 0;
    rereg_mr(
        mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize,
        access: c_int
    ) -> c_int, else super::unsupported::code();
}

forward_besides! {
    import_device(cmd_fd: c_int) -> *mut ibv_context;
    import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm;
    import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr;
    import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd;
    qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    unimport_dm(dm: *mut ibv_dm);
    unimport_mr(mr: *mut ibv_mr);
    unimport_pd(pd: *mut ibv_pd);
}

pub(crate) unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the same function, with one argument of another type.
    unsafe { reg_mr_iova2(pd, addr, length, iova, access as u32) }
}

/// The kernel's number of the device: it does not know this one.
pub(crate) unsafe extern "C" fn get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}
