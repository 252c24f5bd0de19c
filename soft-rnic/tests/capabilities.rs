//! Capabilities that the device reports (`unsupported.rs` asks for what it does not have).
//!
//! Not on rxe0: it asks for soft0's capabilities.

mod common;

use core::ffi::c_int;
use core::ptr::{null, null_mut};

use common::*;
use libc::EINVAL;
use verbs_sys::*;

const SIZE: usize = size_of::<ibv_device_attr_ex>();

/// The answer of `query_device_ex`, of which `size` bytes are asked for.
fn query(net: &Net, size: usize) -> Result<ibv_device_attr_ex, c_int> {
    // SAFETY: integers all; the struct has as many bytes at least.
    unsafe {
        let mut attr: ibv_device_attr_ex = core::mem::zeroed();
        core::ptr::from_mut(&mut attr).cast::<u8>().write_bytes(0xa5, SIZE);
        match later(net.ctx).query_device_ex.unwrap()(net.ctx, null(), &mut attr, size) {
            0 => Ok(attr),
            error => Err(error),
        }
    }
}

/// Reports whether a plain struct is all zero.
fn is_zero<T: Copy>(value: &T) -> bool {
    // SAFETY: a struct of integers without padding.
    let bytes = unsafe {
        core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
    };
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn the_device_says_what_it_has() {
    if !is_softs_own("its capabilities") {
        return;
    }
    let net = Net::new();
    let attr = query(&net, SIZE).unwrap();
    let mut plain = ibv_device_attr::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_device)(net.ctx, &mut plain) }, 0);
    assert_eq!(format!("{plain:?}"), format!("{:?}", attr.orig_attr));
    // What it has.
    assert_eq!(attr.device_cap_flags_ex, u64::from(plain.device_cap_flags) | 1 << 40);
    assert_eq!((attr.completion_timestamp_mask, attr.hca_core_clock), (u64::MAX, 1_000_000));
    assert_eq!((attr.max_dm_size, attr.phys_port_cnt_ex), (1 << 20, 1));
    assert_eq!(plain.atomic_cap, ibv_atomic_cap::IBV_ATOMIC_GLOB);
    assert_eq!((plain.phys_port_cnt, plain.max_pkeys), (1, 1));
    let moderation = attr.cq_mod_caps;
    assert_eq!((moderation.max_cq_count, moderation.max_cq_period), (32_767, 4_095));
    assert_eq!(attr.odp_caps.general_caps, 0b11); // `odp.rs` has the others
    // What it does not have.
    assert!(is_zero(&attr.tso_caps) && is_zero(&attr.rss_caps));
    assert!(is_zero(&attr.packet_pacing_caps) && is_zero(&attr.tm_caps));
    assert!(is_zero(&attr.pci_atomic_caps));
    assert_eq!((attr.comp_mask, attr.max_wq_type_rq, attr.raw_packet_caps), (0, 0, 0));
    assert_eq!((plain.max_raw_ethy_qp, plain.max_raw_ipv6_qp), (0, 0));
    let flags = [
        ibv_device_cap_flags::IBV_DEVICE_SRQ_RESIZE,
        ibv_device_cap_flags::IBV_DEVICE_RESIZE_MAX_WR,
        ibv_device_cap_flags::IBV_DEVICE_AUTO_PATH_MIG,
        ibv_device_cap_flags::IBV_DEVICE_RAW_MULTI,
        ibv_device_cap_flags::IBV_DEVICE_UD_IP_CSUM,
        ibv_device_cap_flags::IBV_DEVICE_RC_IP_CSUM,
        ibv_device_cap_flags::IBV_DEVICE_RAW_IP_CSUM,
        ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A,
        ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS,
        ibv_device_cap_flags::IBV_DEVICE_MANAGED_FLOW_STEERING,
    ];
    assert!(flags.iter().all(|flag| plain.device_cap_flags & flag.0 == 0));
    net.close();
}

/// A program may know a shorter struct, or a longer one.
#[test]
fn no_more_is_written_than_there_is_room_for() {
    if !is_softs_own("its capabilities") {
        return;
    }
    let net = Net::new();
    let short = size_of::<ibv_device_attr>();
    let attr = query(&net, short).unwrap();
    assert_eq!((attr.orig_attr.phys_port_cnt, attr.phys_port_cnt_ex), (1, 0xa5a5_a5a5));
    assert_eq!(query(&net, short - 1).err(), Some(EINVAL));
    let mut long = [0xa5_u8; SIZE + 8];
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    // SAFETY: there is as much room as is said.
    unsafe {
        let query = later(net.ctx).query_device_ex.unwrap();
        assert_eq!(query(net.ctx, null(), long.as_mut_ptr().cast(), SIZE + 8), 0);
        assert_eq!(long[SIZE..], [0; 8]);
        assert_eq!(query(net.ctx, &input, long.as_mut_ptr().cast(), SIZE), EINVAL);
        assert_eq!(query(net.ctx, null(), null_mut(), SIZE), EINVAL);
    }
    net.close();
}
