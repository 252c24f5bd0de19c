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
pub(crate) struct Path {
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
const _: () = assert!(size_of::<Path>() == 64);

impl KernelAh {
    /// Field by field: padding is not written.
    fn copy_to(&self, to: &mut ibv_ah_attr) {
        to.grh.dgid.raw = self.dgid;
        to.grh.flow_label = self.flow_label;
        to.grh.sgid_index = self.sgid_index;
        to.grh.hop_limit = self.hop_limit;
        to.grh.traffic_class = self.traffic_class;
        to.dlid = self.dlid;
        to.sl = self.sl;
        to.src_path_bits = self.src_path_bits;
        to.static_rate = self.static_rate;
        to.is_global = self.is_global;
        to.port_num = self.port_num;
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
    to.qkey = from.qkey;
    to.rq_psn = from.rq_psn;
    to.sq_psn = from.sq_psn;
    to.dest_qp_num = from.dest_qp_num;
    to.qp_access_flags = from.qp_access_flags;
    to.cap = ibv_qp_cap {
        max_send_wr: from.max_send_wr,
        max_recv_wr: from.max_recv_wr,
        max_send_sge: from.max_send_sge,
        max_recv_sge: from.max_recv_sge,
        max_inline_data: from.max_inline_data,
    };
    from.ah_attr.copy_to(&mut to.ah_attr);
    from.alt_ah_attr.copy_to(&mut to.alt_ah_attr);
    to.pkey_index = from.pkey_index;
    to.alt_pkey_index = from.alt_pkey_index;
    to.en_sqd_async_notify = from.en_sqd_async_notify;
    to.sq_draining = from.sq_draining;
    to.max_rd_atomic = from.max_rd_atomic;
    to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    to.min_rnr_timer = from.min_rnr_timer;
    to.port_num = from.port_num;
    to.timeout = from.timeout;
    to.retry_cnt = from.retry_cnt;
    to.rnr_retry = from.rnr_retry;
    to.alt_port_num = from.alt_port_num;
    to.alt_timeout = from.alt_timeout;
}

pub(crate) unsafe extern "C" fn copy_path_rec_from_kern(to: *mut Path, from: *const KernelPath) {
    // SAFETY: the caller's structs.
    let (to, from) = unsafe { (&mut *to, &*from) };
    to.dgid = ibv_gid { raw: from.dgid };
    to.sgid = ibv_gid { raw: from.sgid };
    to.dlid = from.dlid;
    to.slid = from.slid;
    to.raw_traffic = from.raw_traffic as i32;
    to.flow_label = from.flow_label;
    to.hop_limit = from.hop_limit;
    to.traffic_class = from.traffic_class;
    to.reversible = from.reversible as i32;
    to.numb_path = from.numb_path;
    to.pkey = from.pkey;
    to.sl = from.sl;
    to.mtu_selector = from.mtu_selector;
    to.mtu = from.mtu as u8;
    to.rate_selector = from.rate_selector;
    to.rate = from.rate;
    to.packet_life_time_selector = from.packet_life_time_selector;
    to.packet_life_time = from.packet_life_time;
    to.preference = from.preference;
}

pub(crate) unsafe extern "C" fn copy_path_rec_to_kern(to: *mut KernelPath, from: *const Path) {
    // SAFETY: the caller's structs; the members of the unions are bytes.
    let (to, from, dgid, sgid) = unsafe { (&mut *to, &*from, (*from).dgid.raw, (*from).sgid.raw) };
    to.dgid = dgid;
    to.sgid = sgid;
    to.dlid = from.dlid;
    to.slid = from.slid;
    to.raw_traffic = from.raw_traffic as u32;
    to.flow_label = from.flow_label;
    to.reversible = from.reversible as u32;
    to.mtu = from.mtu.into();
    to.pkey = from.pkey;
    to.hop_limit = from.hop_limit;
    to.traffic_class = from.traffic_class;
    to.numb_path = from.numb_path;
    to.sl = from.sl;
    to.mtu_selector = from.mtu_selector;
    to.rate_selector = from.rate_selector;
    to.rate = from.rate;
    to.packet_life_time_selector = from.packet_life_time_selector;
    to.packet_life_time = from.packet_life_time;
    to.preference = from.preference;
}
