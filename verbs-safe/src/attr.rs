//! Attributes of devices and ports, in plain values.

use std::ffi::{CStr, c_char, c_int};

use verbs_sys::*;

/// Limits and capabilities of a device. A limit that a device reports as negative
/// is 0 here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// The firmware's version, as the vendor writes it.
    pub fw_ver: String,
    /// The vendor's IEEE number.
    pub vendor_id: u32,
    /// The vendor's number of the part.
    pub vendor_part_id: u32,
    /// Physical ports; they are counted from 1.
    pub ports: u8,
    /// Bytes in one memory region.
    pub max_mr_bytes: u64,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests in one send or receive queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of one work request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Shared receive queues; 0 where there are none.
    pub max_srq: u32,
    /// Work requests in one shared receive queue.
    pub max_srq_wr: u32,
    /// READs and atomics that a queue pair may have in flight as their target.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that a queue pair may have in flight as their initiator.
    pub max_qp_init_rd_atom: u32,
    /// Atomics that the device offers, if any.
    pub atomics: Atomics,
    /// Completion vectors: interrupts that completion queues can be spread over.
    pub comp_vectors: u32,
    /// On-demand paging.
    pub odp: OdpCaps,
}

/// Accesses against which a device's atomics are atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// The device has none.
    None,
    /// Against other atomics through the same device only.
    Device,
    /// Against the processors too.
    Global,
}

/// On-demand paging: registration without pinning. RC only, so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OdpCaps {
    /// True if the device offers on-demand paging.
    pub supported: bool,
    /// A region may cover the whole address space.
    pub implicit: bool,
    /// Memory that is the source of SENDs may be paged.
    pub send: bool,
    /// Memory that messages land in may be paged.
    pub recv: bool,
    /// Memory of WRITEs may be paged.
    pub write: bool,
    /// Memory of READs may be paged.
    pub read: bool,
    /// Memory of atomics may be paged.
    pub atomic: bool,
    /// Memory posted to a shared receive queue may be paged.
    pub srq_recv: bool,
}

impl DeviceAttr {
    pub(crate) fn new(attr: &ibv_device_attr_ex, comp_vectors: c_int) -> DeviceAttr {
        let a = &attr.orig_attr;
        DeviceAttr {
            fw_ver: text(&a.fw_ver),
            vendor_id: a.vendor_id,
            vendor_part_id: a.vendor_part_id,
            ports: a.phys_port_cnt,
            max_mr_bytes: a.max_mr_size,
            max_mr: limit(a.max_mr),
            max_pd: limit(a.max_pd),
            max_qp: limit(a.max_qp),
            max_qp_wr: limit(a.max_qp_wr),
            max_sge: limit(a.max_sge),
            max_cq: limit(a.max_cq),
            max_cqe: limit(a.max_cqe),
            max_srq: limit(a.max_srq),
            max_srq_wr: limit(a.max_srq_wr),
            max_qp_rd_atom: limit(a.max_qp_rd_atom),
            max_qp_init_rd_atom: limit(a.max_qp_init_rd_atom),
            atomics: Atomics::new(a.atomic_cap),
            comp_vectors: limit(comp_vectors),
            odp: OdpCaps::new(&attr.odp_caps),
        }
    }
}

impl Atomics {
    fn new(cap: ibv_atomic_cap) -> Atomics {
        match cap {
            ibv_atomic_cap::IBV_ATOMIC_GLOB => Atomics::Global,
            ibv_atomic_cap::IBV_ATOMIC_HCA => Atomics::Device,
            _ => Atomics::None,
        }
    }
}

impl OdpCaps {
    fn new(caps: &ibv_odp_caps) -> OdpCaps {
        use verbs_sys::{ibv_odp_general_caps as general, ibv_odp_transport_cap_bits as rc};
        let has = |bit: rc| caps.per_transport_caps.rc_odp_caps & bit.0 != 0;
        OdpCaps {
            supported: caps.general_caps & u64::from(general::IBV_ODP_SUPPORT.0) != 0,
            implicit: caps.general_caps & u64::from(general::IBV_ODP_SUPPORT_IMPLICIT.0) != 0,
            send: has(rc::IBV_ODP_SUPPORT_SEND),
            recv: has(rc::IBV_ODP_SUPPORT_RECV),
            write: has(rc::IBV_ODP_SUPPORT_WRITE),
            read: has(rc::IBV_ODP_SUPPORT_READ),
            atomic: has(rc::IBV_ODP_SUPPORT_ATOMIC),
            srq_recv: has(rc::IBV_ODP_SUPPORT_SRQ_RECV),
        }
    }
}

fn limit(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// A C string in a fixed array, which need not be terminated.
fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

/// The port flag by which a subnet demands global route headers (verbs.h,
/// `IBV_QPF_GRH_REQUIRED`; an anonymous enum there).
const QPF_GRH_REQUIRED: u8 = 1;

/// Link layer of a port, which carries its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: ends are addressed by LID, across subnets by GID.
    InfiniBand,
    /// Ethernet (RoCE): ends are addressed by GID.
    Ethernet,
    /// The device does not say; rdma-core treats that as InfiniBand.
    Unspecified,
}

/// A path MTU: the payload of one packet, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u32);

impl Mtu {
    /// 256 bytes.
    pub const B256: Mtu = Mtu(1);
    /// 512 bytes.
    pub const B512: Mtu = Mtu(2);
    /// 1024 bytes.
    pub const B1024: Mtu = Mtu(3);
    /// 2048 bytes.
    pub const B2048: Mtu = Mtu(4);
    /// 4096 bytes.
    pub const B4096: Mtu = Mtu(5);

    /// The size in bytes; 0 for a value that the verbs do not define.
    ///
    /// ```
    /// assert_eq!(verbs_safe::Mtu::B1024.bytes(), 1024);
    /// ```
    #[must_use]
    pub fn bytes(self) -> u32 {
        if (1..=5).contains(&self.0) { 128 << self.0 } else { 0 }
    }

    /// The largest MTU of at most `bytes`, `None` below 256.
    ///
    /// ```
    /// use verbs_safe::Mtu;
    /// assert_eq!(Mtu::from_bytes(1500), Some(Mtu::B1024));
    /// assert_eq!(Mtu::from_bytes(100), None);
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Mtu> {
        (1..=5).rev().map(Mtu).find(|mtu| mtu.bytes() <= bytes)
    }

    pub(crate) fn from_raw(raw: ibv_mtu) -> Mtu {
        Mtu(raw.0)
    }

    pub(crate) fn to_raw(self) -> ibv_mtu {
        ibv_mtu(self.0)
    }
}

/// Attributes of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// The port's number, from 1.
    pub port: u8,
    /// True if the port is active, so that packets can flow.
    pub is_active: bool,
    /// The state's name, as the specification writes it.
    pub state: &'static str,
    /// The largest MTU in use on the link.
    pub active_mtu: Mtu,
    /// The largest MTU that the port can have.
    pub max_mtu: Mtu,
    /// Bytes of the longest message.
    pub max_msg_bytes: u32,
    /// The local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The link layer.
    pub link_layer: LinkLayer,
    /// Entries of the GID table, empty ones included.
    pub gid_table_len: u32,
    /// True if the subnet demands a global route header in every packet.
    pub grh_required: bool,
}

impl PortAttr {
    pub(crate) fn new(port: u8, attr: &ibv_port_attr) -> PortAttr {
        PortAttr {
            port,
            is_active: attr.state == ibv_port_state::IBV_PORT_ACTIVE,
            state: port_state_name(attr.state),
            active_mtu: Mtu::from_raw(attr.active_mtu),
            max_mtu: Mtu::from_raw(attr.max_mtu),
            max_msg_bytes: attr.max_msg_sz,
            lid: attr.lid,
            link_layer: LinkLayer::new(attr.link_layer),
            gid_table_len: limit(attr.gid_tbl_len),
            grh_required: attr.flags & QPF_GRH_REQUIRED != 0,
        }
    }
}

impl LinkLayer {
    fn new(raw: u8) -> LinkLayer {
        match u32::from(raw) {
            x if x == IBV_LINK_LAYER_ETHERNET.0 => LinkLayer::Ethernet,
            x if x == IBV_LINK_LAYER_INFINIBAND.0 => LinkLayer::InfiniBand,
            _ => LinkLayer::Unspecified,
        }
    }
}
