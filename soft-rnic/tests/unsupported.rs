//! The errors of what the device does not have: those of a kernel's device without the feature.
//!
//! Only on soft0: it is about errors of soft0.

mod common;

use common::*;
use libc::{EINVAL, EOPNOTSUPP};
use verbs_sys::*;

/// The headers' functions answer with `EOPNOTSUPP` where a context has no operation.
#[test]
fn a_context_has_no_operation_of_what_the_device_does_not_have() {
    if !is_softs_own("what a context has") {
        return;
    }
    let net = Net::new();
    let has = later(net.ctx);
    let flows = has.ibv_create_flow.is_some() || has.ibv_destroy_flow.is_some();
    let actions = has.create_flow_action_esp.is_some()
        || has.modify_flow_action_esp.is_some()
        || has.destroy_flow_action.is_some();
    let counters = has.create_counters.is_some()
        || has.destroy_counters.is_some()
        || has.attach_counters_point_flow.is_some()
        || has.read_counters.is_some();
    let work_queues =
        has.create_wq.is_some() || has.modify_wq.is_some() || has.destroy_wq.is_some();
    let hashes = has.create_rwq_ind_table.is_some() || has.destroy_rwq_ind_table.is_some();
    let others = has.post_srq_ops.is_some() || has.modify_qp_rate_limit.is_some();
    assert_eq!([flows, actions, counters, work_queues, hashes, others], [false; 6]);
    net.close();
}

#[test]
fn queue_pairs_of_other_kinds_are_not_supported() {
    if !is_softs_own("queue pairs that it does not have") {
        return;
    }
    use ibv_qp_init_attr_mask as Mask;
    let net = Net::new();
    let cq = net.cq(16);
    let plain = net.init_attr(cq);
    // Raw packets, dynamically connected ones, and what has no name.
    let kinds = [ibv_qp_type::IBV_QPT_RAW_PACKET, ibv_qp_type::IBV_QPT_DRIVER, ibv_qp_type(1)];
    let masks = [
        Mask::IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
        Mask::IBV_QP_INIT_ATTR_IND_TABLE,
        Mask::IBV_QP_INIT_ATTR_RX_HASH,
    ];
    let extended = |qp_type, mask: u32| ibv_qp_init_attr_ex {
        send_cq: cq,
        recv_cq: cq,
        cap: plain.cap,
        qp_type,
        comp_mask: Mask::IBV_QP_INIT_ATTR_PD.0 | mask,
        pd: net.pd,
        ..ibv_qp_init_attr_ex::default()
    };
    let rc = ibv_qp_type::IBV_QPT_RC;
    let all = kinds.map(|kind| extended(kind, 0)).into_iter();
    // SAFETY: the context is open, and the attributes' objects are alive.
    unsafe {
        for mut attr in all.chain(masks.map(|mask| extended(rc, mask.0))) {
            assert!(later(net.ctx).create_qp_ex.unwrap()(net.ctx, &mut attr).is_null());
            assert_eq!(errno(), EOPNOTSUPP);
        }
        for qp_type in kinds {
            let mut attr = ibv_qp_init_attr { qp_type, ..plain };
            assert!((net.v.create_qp)(net.pd, &mut attr).is_null());
            assert_eq!(errno(), EOPNOTSUPP);
        }
    }
    net.destroy_cq(cq);
    net.close();
}

/// The kernel's order: what is wrong for any device is checked before what this one does not have.
#[test]
fn access_flags_are_judged_as_the_kernel_does() {
    if !is_softs_own("on-demand paging of some memory") {
        return;
    }
    let net = Net::new();
    let mut bytes = vec![0_u8; 4_096];
    let (write, read, atomic, on_demand) = (2, 4, 8, 64);
    let cases = [
        (0, 0),
        (1, 0),
        (read, 0),
        (16, 0),
        (32, 0),
        (128, 0),
        (1 | write | read | atomic | 16 | 32 | 128, 0),
        (1 | ACCESS_OPTIONAL_RANGE, 0),
        (write, EINVAL),
        (atomic, EINVAL),
        (1 << 8, EINVAL),
        (1 << 9 | 1, EINVAL),
        (1 << 30 | 1, EINVAL),
        (1 << 31 | 1, EINVAL),
        (on_demand | write, EINVAL),
        (on_demand | 1 << 8 | 1, EINVAL),
        (on_demand | 1 | write, 0),
        (on_demand | 1 | read, 0),
        (on_demand | 1 | 16, 0),
        (on_demand, 0),
    ];
    for (access, expected) in cases {
        let at = bytes.as_mut_ptr();
        let reg = net.v.reg_mr_iova2.unwrap();
        // SAFETY: the memory is alive as long as the region.
        let mr = unsafe { reg(net.pd, at.cast(), 4_096, at as u64, access) };
        assert_eq!(mr.is_null(), expected != 0, "{access:#x}");
        if mr.is_null() {
            assert_eq!(errno(), expected, "{access:#x}");
        } else {
            net.dereg(mr);
        }
    }
    net.close();
}

#[test]
fn attributes_of_other_devices_queue_pairs_are_not_supported() {
    if !is_softs_own("attributes that only some devices have") {
        return;
    }
    let p = QpPair::new();
    let before = p.net.query(p.qp[0]);
    for mask in [ibv_qp_attr_mask::IBV_QP_RATE_LIMIT, ibv_qp_attr_mask(1 << 21)] {
        let attr = ibv_qp_attr { qp_state: ibv_qp_state::IBV_QPS_ERR, ..before };
        let mask = mask | ibv_qp_attr_mask::IBV_QP_STATE;
        assert_eq!(p.net.modify(p.qp[0], attr, mask), EOPNOTSUPP);
    }
    assert_eq!(p.net.state(p.qp[0]), ibv_qp_state::IBV_QPS_RTS);
    p.close();
}

#[test]
fn times_are_read_as_far_as_they_are_known() {
    if !is_softs_own("its clock") {
        return;
    }
    let net = Net::new();
    let read = |comp_mask| {
        let mut values = ibv_values_ex { comp_mask, ..ibv_values_ex::default() };
        // SAFETY: the context is open.
        let code = unsafe { later(net.ctx).query_rt_values.unwrap()(net.ctx, &mut values) };
        assert_eq!(code, 0);
        (values.comp_mask, values.raw_clock.tv_nsec)
    };
    let (first, second) = (read(1), read(3));
    assert_eq!((first.0, second.0), (1, 1));
    assert!(0 < first.1 && first.1 <= second.1);
    assert_eq!(read(2), (0, 0));
    assert_eq!(read(0), (0, 0));
    net.close();
}

#[test]
fn a_gid_is_one_of_the_ports() {
    if !is_softs_own("its table of GIDs") {
        return;
    }
    let net = Net::new();
    let query = net.v.query_gid_ex.unwrap();
    let size = size_of::<ibv_gid_entry>();
    let mut entry = ibv_gid_entry::default();
    // SAFETY: the context is open, and there is room for one entry.
    unsafe {
        assert_eq!(query(net.ctx, 1, 0, &mut entry, 0, size), 0);
        assert_eq!((entry.gid_index, entry.port_num), (0, 1));
        assert_eq!(entry.gid_type, ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0);
        let lo = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        assert_eq!(entry.ndev_ifindex.to_string(), lo.trim(), "it is the interface with 127.0.0.1");
        // The table has one entry, and so no holes, which would be ENODATA.
        assert_eq!(net.port().gid_tbl_len, 1);
        for (port, index, flags, size) in [
            (1, 1, 0, size),
            (0, 0, 0, size),
            (2, 0, 0, size),
            (1, 0, 1, size),
            (1, 0, 0, size - 1),
        ] {
            assert_eq!(query(net.ctx, port, index, &mut entry, flags, size), EINVAL);
        }
        let mut gid = ibv_gid { raw: [0; 16] };
        assert_eq!((net.v.query_gid)(net.ctx, 1, 1, &mut gid), -1);
        assert_eq!(errno(), EINVAL);
        let mut pkey = 0;
        assert_eq!((net.v.query_pkey)(net.ctx, 1, 1, &mut pkey), -1);
        assert_eq!(errno(), EINVAL);
        let mut port = ibv_port_attr::default();
        assert_eq!(ibv_query_port(&net.v, net.ctx, 2, &mut port), EINVAL);
    }
    net.close();
}
