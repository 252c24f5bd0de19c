//! The kernel's structs of addresses, queue pairs and paths, to and from the library's:
//! librdmacm gets them from the kernel.

use verbs_sys::*;

/// `ib_uverbs_ah_attr` with its `ib_uverbs_global_route`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelAh {
    dgid: [u8; 16],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    _reserved: u8,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
    _reserved2: u8,
}
const _: () = assert!(size_of::<KernelAh>() == 32);

/// `ib_uverbs_qp_attr`.
#[repr(C)]
pub(crate) struct KernelQp {
    _qp_attr_mask: u32,
    _qp_state: u32,
    cur_qp_state: u32,
    path_mtu: u32,
    path_mig_state: u32,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: u32,
    ah_attr: KernelAh,
    alt_ah_attr: KernelAh,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    _reserved: [u8; 5],
}
const _: () = assert!(size_of::<KernelQp>() == 144);

/// `ib_user_path_rec`.
#[repr(C)]
pub(crate) struct KernelPath {
    dgid: [u8; 16],
    sgid: [u8; 16],
    dlid: u16,
    slid: u16,
    raw_traffic: u32,
    flow_label: u32,
    reversible: u32,
    mtu: u32,
    pkey: u16,
    hop_limit: u8,
    traffic_class: u8,
    numb_path: u8,
    sl: u8,
    mtu_selector: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}
const _: () = assert!(size_of::<KernelPath>() == 64);

/// `ibv_sa_path_rec` of `infiniband/sa.h`.
#[repr(C)]
pub(crate) struct SaPathRec {
    dgid: ibv_gid,
    sgid: ibv_gid,
    dlid: u16,
    slid: u16,
    raw_traffic: i32,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    reversible: i32,
    numb_path: u8,
    pkey: u16,
    sl: u8,
    mtu_selector: u8,
    mtu: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}
const _: () = assert!(size_of::<SaPathRec>() == 64);

/// Copies fields, each by itself: padding is not written. Integers may have another width, or sign.
macro_rules! copy {
    ($from:expr => $to:expr; $($field:ident)*) => { $($to.$field = $from.$field as _;)* };
}

/// Copies the integers of a path in either direction.
macro_rules! copy_path {
    ($from:ident => $to:ident) => {
        copy! { $from => $to;
            dlid slid raw_traffic flow_label reversible mtu pkey hop_limit traffic_class numb_path
            sl mtu_selector rate_selector rate packet_life_time_selector packet_life_time preference
        }
    };
}

impl KernelAh {
    fn copy_to(&self, to: &mut ibv_ah_attr) {
        to.grh.dgid.raw = self.dgid;
        copy! { self => to.grh; flow_label sgid_index hop_limit traffic_class }
        copy! { self => to; dlid sl src_path_bits static_rate is_global port_num }
    }
}

pub(crate) unsafe extern "C" fn copy_ah_attr_from_kern(
    to: *mut ibv_ah_attr,
    from: *const KernelAh,
) {
    // SAFETY: the caller's structs.
    unsafe { (*from).copy_to(&mut *to) };
}

pub(crate) unsafe extern "C" fn copy_qp_attr_from_kern(
    to: *mut ibv_qp_attr,
    from: *const KernelQp,
) {
    // SAFETY: the caller's structs. `qp_state` stays unchanged, as with rdma-core.
    let (to, from) = unsafe { (&mut *to, &*from) };
    to.cur_qp_state = ibv_qp_state(from.cur_qp_state);
    to.path_mtu = ibv_mtu(from.path_mtu);
    to.path_mig_state = ibv_mig_state(from.path_mig_state);
    copy! { from => to.cap; max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data }
    from.ah_attr.copy_to(&mut to.ah_attr);
    from.alt_ah_attr.copy_to(&mut to.alt_ah_attr);
    copy! { from => to;
        qkey rq_psn sq_psn dest_qp_num qp_access_flags pkey_index alt_pkey_index
        en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num
        timeout retry_cnt rnr_retry alt_port_num alt_timeout
    }
}

pub(crate) unsafe extern "C" fn copy_path_rec_from_kern(
    to: *mut SaPathRec,
    from: *const KernelPath,
) {
    // SAFETY: the caller's structs.
    let (to, from) = unsafe { (&mut *to, &*from) };
    (to.dgid.raw, to.sgid.raw) = (from.dgid, from.sgid);
    copy_path!(from => to);
}

pub(crate) unsafe extern "C" fn copy_path_rec_to_kern(to: *mut KernelPath, from: *const SaPathRec) {
    // SAFETY: the caller's structs; the members of the unions are bytes.
    let (to, from, dgid, sgid) = unsafe { (&mut *to, &*from, (*from).dgid.raw, (*from).sgid.raw) };
    (to.dgid, to.sgid) = (dgid, sgid);
    copy_path!(from => to);
}
