//! Limits and capabilities that the device reports, all of them enforced.
//!
//! The numbers are of the order that cards report (ConnectX, and the kernel's
//! rxe), so that a program which fits one fits the other. Queue depths and
//! completion queues are powers of two, because the rings are.

use verbs_sys::*;

/// All numbers of queue pairs that a process has, without the reserved ones.
pub(crate) const MAX_QP: usize = (1 << 14) - 0x40;
pub(crate) const MAX_QP_WR: u32 = 32_768;
pub(crate) const MAX_SGE: u32 = 32;
/// More than cards take: a request is mostly carried out within the call that posts it, so that
/// bytes which need not be registered are copied once, to where they go. What waits is copied
/// into the queue, whose memory costs nothing until then.
pub(crate) const MAX_INLINE: u32 = 32 << 10;
pub(crate) const MAX_CQ: usize = 65_536;
pub(crate) const MAX_CQE: u32 = 4_194_304;
/// Completions for which an event is held back, and for how many microseconds, as ConnectX has it.
pub(crate) const MAX_CQ_COUNT: u16 = 0x7fff;
pub(crate) const MAX_CQ_PERIOD_US: u16 = 0xfff;
/// Keys at a time: those of regions, and of memory windows.
pub(crate) const MAX_KEYS: usize = 1 << 18;
/// Keys of memory windows, of those above.
pub(crate) const MAX_MW: usize = 1 << 16;
/// Keys of regions: the others.
pub(crate) const MAX_MR: usize = MAX_KEYS - MAX_MW;
pub(crate) const MAX_PD: usize = 65_536;
pub(crate) const MAX_SRQ: usize = 65_536;
/// XRC receive queues, which are published to other processes.
pub(crate) const MAX_XRC_SRQ: usize = 1 << 14;
pub(crate) const MAX_XRCD: usize = 65_536;
pub(crate) const MAX_AH: usize = 65_536;
/// Multicast groups, as many as rxe has.
pub(crate) const MAX_MCAST_GRP: usize = 8_192;
/// Queue pairs of one group, which each message to it is copied to: as many as ConnectX takes.
pub(crate) const MAX_MCAST_QP_ATTACH: usize = 240;
/// Multicast groups that a process joins on a network device: a socket each.
pub(crate) const MAX_WIRE_GROUPS: usize = 64;
/// Attachments of one queue pair.
pub(crate) const MAX_ATTACH_PER_QP: usize = 1_024;
/// Attachments of all queue pairs.
pub(crate) const MAX_TOTAL_MCAST_QP_ATTACH: usize = MAX_MCAST_GRP * MAX_MCAST_QP_ATTACH;
const _: () = assert!(MAX_TOTAL_MCAST_QP_ATTACH <= MAX_QP * MAX_ATTACH_PER_QP);
pub(crate) const MAX_SRQ_WR: u32 = 32_768;
/// Device memory of a process, in bytes, all pieces together.
pub(crate) const MAX_DM: usize = 1 << 20;
/// Its largest alignment: a page.
pub(crate) const MAX_DM_LOG_ALIGN: u32 = 12;
/// Reads and atomics that a queue pair may have under way, either way.
pub(crate) const MAX_RD_ATOMIC: u8 = 128;
/// Longest message of a connected queue pair, in bytes: 1 GiB.
pub(crate) const MAX_MESSAGE: u64 = 1 << 30;
/// MTU of the port of a device that is not on the network, and so the longest datagram, in bytes.
pub(crate) const MTU: u64 = 4_096;
pub(crate) const PORT: u8 = 1;
/// The default partition, full membership.
pub(crate) const PKEY: u16 = 0xffff;
/// Node GUID: locally administered, and the number of the device in its kind.
pub(crate) const GUID_BASE: u64 = 0x0200_5aff_fe00_0000;
/// The first three bytes of the GUID, as with any vendor: locally administered, so that it is
/// no vendor's. Programs take 0 for a device that they cannot tell.
const VENDOR_ID: u32 = (GUID_BASE >> 40) as u32;

/// The kernel's `IB_UVERBS_DEVICE_ATOMIC_WRITE`, which the headers of rdma-core 44 do not have.
pub(crate) const ATOMIC_WRITE: u64 = 1 << 40;

/// `device_cap_flags` of a device that lacks nothing.
pub(crate) const CAPABILITIES: u32 = ibv_device_cap_flags::IBV_DEVICE_SYS_IMAGE_GUID.0
    | ibv_device_cap_flags::IBV_DEVICE_RC_RNR_NAK_GEN.0
    | ibv_device_cap_flags::IBV_DEVICE_BAD_QKEY_CNTR.0
    | ibv_device_cap_flags::IBV_DEVICE_CURR_QP_STATE_MOD.0
    | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW.0
    | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0
    | ibv_device_cap_flags::IBV_DEVICE_XRC.0;

/// A limit as the structs of the ABI want it; all of them fit.
const fn int(limit: usize) -> core::ffi::c_int {
    limit as core::ffi::c_int
}

/// `ibv_query_device`'s answer.
pub(crate) fn device_attr(guid: u64, device_cap_flags: u32) -> ibv_device_attr {
    let mut fw_ver = [0; 64];
    for (to, from) in fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from as core::ffi::c_char;
    }
    ibv_device_attr {
        fw_ver,
        node_guid: guid.to_be(),
        sys_image_guid: guid.to_be(),
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR_ID,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: int(MAX_QP),
        max_qp_wr: int(MAX_QP_WR as usize),
        device_cap_flags,
        max_sge: int(MAX_SGE as usize),
        max_sge_rd: int(MAX_SGE as usize),
        max_cq: int(MAX_CQ),
        max_cqe: int(MAX_CQE as usize),
        max_mr: int(MAX_MR),
        max_pd: int(MAX_PD),
        max_qp_rd_atom: int(MAX_RD_ATOMIC as usize),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(MAX_RD_ATOMIC as usize * MAX_QP),
        max_qp_init_rd_atom: int(MAX_RD_ATOMIC as usize),
        max_ee_init_rd_atom: 0,
        // Real atomics of the processor: atomic with every other access to them.
        atomic_cap: ibv_atomic_cap::IBV_ATOMIC_GLOB,
        max_ee: 0,
        max_rdd: 0,
        max_mw: int(MAX_MW),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(MAX_MCAST_GRP),
        max_mcast_qp_attach: int(MAX_MCAST_QP_ATTACH),
        max_total_mcast_qp_attach: int(MAX_TOTAL_MCAST_QP_ATTACH),
        max_ah: int(MAX_AH),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(MAX_SRQ),
        max_srq_wr: int(MAX_SRQ_WR as usize),
        max_srq_sge: int(MAX_SGE as usize),
        max_pkeys: 1,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    }
}

/// `ibv_query_port`'s answer.
pub(crate) fn port_attr(is_down: bool) -> ibv_port_attr {
    // Disabled, as the kernel says of a port whose network device is down; LinkUp.
    let (disabled, link_up) = (3, 5);
    ibv_port_attr {
        state: if is_down {
            ibv_port_state::IBV_PORT_DOWN
        } else {
            ibv_port_state::IBV_PORT_ACTIVE
        },
        max_mtu: ibv_mtu::IBV_MTU_4096,
        active_mtu: ibv_mtu::IBV_MTU_4096,
        gid_tbl_len: 1,
        port_cap_flags: ibv_port_cap_flags::IBV_PORT_IP_BASED_GIDS.0,
        max_msg_sz: MAX_MESSAGE as u32,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        // 4 lanes of 25 Gbit/s, the nearest to what memory gives.
        active_width: 2,
        active_speed: 32,
        phys_state: if is_down { disabled } else { link_up },
        link_layer: IBV_LINK_LAYER_ETHERNET.0 as u8,
        flags: 0,
        port_cap_flags2: 0,
    }
}

/// Messages from this size on are copied without a lock that others may want.
pub(crate) const LONG: usize = 4_096;
