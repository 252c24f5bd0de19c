//! Properties of the embedded device alone: its exact limits, its tolerance of null pointers, its
//! simulated clock.
//!
//! Only on soft0: it is about limits and the simulated clock of soft0.

mod common;

use core::ffi::CStr;
use core::ptr::null_mut;

use common::*;
use verbs_sys::*;

const EINVAL: i32 = 22;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn device_attr(net: &Net) -> ibv_device_attr {
    let mut attr = ibv_device_attr::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_device)(net.ctx, &mut attr) }, 0);
    attr
}

#[test]
fn the_device_and_its_port_are_what_the_documentation_says() {
    let net = Net::on(soft_rnic::table(), "soft0");
    let attr = device_attr(&net);
    assert_eq!((attr.phys_port_cnt, attr.max_pkeys, attr.max_sge), (1, 1, 32));
    assert_eq!((attr.max_qp_wr, attr.max_cqe), (32_768, 4 << 20));
    let mut ex: ibv_device_attr_ex = ibv_device_attr_ex::default();
    let mut port = ibv_port_attr::default();
    // SAFETY: the context is open.
    unsafe {
        assert_eq!(ibv_query_device_ex(&net.v, net.ctx, &mut ex), 0);
        assert_eq!(ibv_query_port(&net.v, net.ctx, 1, &mut port), 0);
    }
    assert_eq!(ex.orig_attr.max_qp, attr.max_qp);
    assert_eq!((port.state, port.lid), (ibv_port_state::IBV_PORT_ACTIVE, 0));
    assert_eq!(u32::from(port.link_layer), IBV_LINK_LAYER_ETHERNET.0);
    assert_eq!((port.active_mtu, port.max_msg_sz), (ibv_mtu::IBV_MTU_4096, 1 << 30));
    // SAFETY: bytes.
    let gid = unsafe { net.gid.raw };
    assert_eq!(gid[..13], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127], "a loopback address");
    assert!((64..128).contains(&gid[13]), "of a quarter of those");
    let mut pkey = 0;
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_pkey)(net.ctx, 1, 0, &mut pkey) }, 0);
    assert_eq!(pkey, 0xffff);
    net.close();
}

#[test]
fn writes_into_callers_structs_are_bounded_by_their_size() {
    let net = Net::on(soft_rnic::table(), "soft0");
    // SAFETY: each call gets memory of the size that it is called with.
    unsafe {
        let mut short = [0xee_u8; 64];
        assert_eq!((net.v.query_port)(net.ctx, 1, short.as_mut_ptr().cast()), 0);
        assert_eq!(short[48..], [0xee; 16], "the exported function knows 48 bytes");
        let mut entry = [0xee_u8; 48];
        let query = net.v.query_gid_ex.unwrap();
        assert_eq!(query(net.ctx, 1, 0, entry.as_mut_ptr().cast(), 0, 20), 22, "it does not fit");
        assert_eq!(entry, [0xee; 48]);
        assert_eq!(query(net.ctx, 1, 0, entry.as_mut_ptr().cast(), 0, 32), 0);
        assert_eq!(entry[32..], [0xee; 16]);
    }
    net.close();
}

#[test]
fn other_transports_are_not_there() {
    let net = Net::on(soft_rnic::table(), "soft0");
    let cq = net.cq(16);
    for qp_type in [ibv_qp_type::IBV_QPT_RAW_PACKET, ibv_qp_type::IBV_QPT_DRIVER, ibv_qp_type(99)] {
        let mut attr = net.init_attr(cq);
        attr.qp_type = qp_type;
        // SAFETY: the attributes' objects are alive.
        assert!(unsafe { (net.v.create_qp)(net.pd, &mut attr) }.is_null());
        assert_eq!(errno(), 95);
    }
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn nonsense_is_answered_with_an_error() {
    let net = Net::on(soft_rnic::table(), "soft0");
    let v = net.v;
    let cq = net.cq(16);
    // SAFETY: null pointers, which the device tolerates.
    unsafe {
        assert!((v.open_device)(null_mut()).is_null());
        assert!((v.get_device_name)(null_mut()).is_null());
        assert_eq!((v.close_device)(null_mut()), EINVAL);
        assert_eq!((v.query_device)(net.ctx, null_mut()), EINVAL);
        assert_eq!((v.query_port)(net.ctx, 2, &mut ibv_port_attr::default()), EINVAL);
        assert_eq!((v.query_gid)(net.ctx, 1, 7, &mut ibv_gid::default()), -1);
        assert!((v.alloc_pd)(null_mut()).is_null());
        assert_eq!((v.dealloc_pd)(null_mut()), EINVAL);
        assert!((v.reg_mr)(null_mut(), null_mut(), 1, 0).is_null());
        assert_eq!((v.dereg_mr)(null_mut()), EINVAL);
        assert!((v.create_cq)(net.ctx, 1, null_mut(), null_mut(), 7).is_null());
        assert_eq!((v.destroy_cq)(null_mut()), EINVAL);
        assert_eq!((v.resize_cq)(cq, 0), EINVAL);
        assert!((v.create_qp)(net.pd, null_mut()).is_null());
        assert!((v.create_qp)(net.pd, &mut core::mem::zeroed()).is_null());
        assert_eq!((v.destroy_qp)(null_mut()), EINVAL);
        assert_eq!((v.modify_qp)(null_mut(), null_mut(), 0), EINVAL);
        assert!((v.create_srq)(net.pd, null_mut()).is_null());
        assert_eq!((v.destroy_srq)(null_mut()), EINVAL);
        assert_eq!((v.destroy_comp_channel)(null_mut()), EINVAL);
        assert_eq!((v.get_cq_event)(null_mut(), null_mut(), null_mut()), -1);
        assert_eq!((v.get_async_event)(net.ctx, null_mut()), -1);
        (v.ack_async_event)(null_mut());
        (v.ack_cq_events)(null_mut(), 1);
        (v.free_device_list)(null_mut());
        let ops = (*net.ctx).ops;
        assert_eq!(ops.post_send.unwrap()(null_mut(), null_mut(), null_mut()), EINVAL);
        assert_eq!(ops.post_recv.unwrap()(null_mut(), null_mut(), null_mut()), EINVAL);
        assert_eq!(ops.post_srq_recv.unwrap()(null_mut(), null_mut(), null_mut()), EINVAL);
        assert!(ops.poll_cq.unwrap()(cq, -1, null_mut()) < 0);
        assert_eq!(ops.req_notify_cq.unwrap()(null_mut(), 0), EINVAL);
    }
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn the_list_of_devices_names_them() {
    let v = soft_rnic::table();
    // SAFETY: the list is freed once.
    unsafe {
        let list = (v.get_device_list)(null_mut());
        assert_eq!(CStr::from_ptr((v.get_device_name)(*list)), c"soft0");
        assert_ne!((v.get_device_guid)(*list), 0);
        (v.free_device_list)(list);
    }
}

#[test]
fn an_address_handle_needs_a_route_and_a_valid_port_and_gid() {
    let net = Net::on(soft_rnic::table(), "soft0");
    let bad: [fn(&mut ibv_ah_attr); 6] = [
        |a| a.is_global = 0,
        |a| a.port_num = 2,
        |a| a.port_num = 0,
        |a| a.grh.sgid_index = 1,
        |a| a.grh.dgid.raw = [0; 16],
        |a| a.grh.dgid.raw = std::net::Ipv4Addr::BROADCAST.to_ipv6_mapped().octets(),
    ];
    for spoil in bad {
        let mut attr = net.ah_attr();
        spoil(&mut attr);
        // SAFETY: the domain is alive.
        assert!(unsafe { (net.v.create_ah)(net.pd, &mut attr) }.is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    }
    // SAFETY: null pointers, which the device tolerates.
    unsafe {
        assert!((net.v.create_ah)(net.pd, core::ptr::null_mut()).is_null());
        assert!((net.v.create_ah)(core::ptr::null_mut(), &mut net.ah_attr()).is_null());
        assert_eq!((net.v.destroy_ah)(core::ptr::null_mut()), libc::EINVAL);
    }
    net.close();
}

#[test]
fn a_connection_has_one_port_as_its_peer() {
    let mapped = |ip: [u8; 4]| std::net::Ipv4Addr::from(ip).to_ipv6_mapped().octets();
    let net = Net::on(soft_rnic::table(), "soft0");
    let cq = net.cq(16);
    // None, all, and groups.
    let bad = [[0; 16], mapped([0; 4]), mapped([255; 4]), mapped([224, 0, 0, 1]), [0xff; 16]];
    for kind in [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_UC] {
        let qp = net.qp_of(kind, cq);
        let (init, mut rtr, _) = net.steps_of(kind, 9, ConnectConfig::default());
        assert_eq!(net.modify(qp, init.0, init.1), 0);
        for gid in bad {
            rtr.0.ah_attr.grh.dgid.raw = gid;
            assert_eq!(net.modify(qp, rtr.0, rtr.1), libc::EINVAL, "{gid:?}");
        }
        rtr.0.ah_attr.grh.dgid = net.gid;
        assert_eq!(net.modify(qp, rtr.0, rtr.1), 0);
        net.destroy_qp(qp);
    }
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn a_list_is_posted_up_to_the_request_without_a_handle() {
    let net = Net::on(soft_rnic::table(), "soft0");
    let p = QpPair::connect(UD, net, ConnectConfig::default(), ConnectConfig::default());
    let ah = p.net.ah();
    let no_ah = (core::ptr::null_mut(), p.num(1), QKEY);
    let mut second = datagram_wr(2, &mut [], SIGNALED, no_ah);
    let mut first = datagram_wr(1, &mut [], SIGNALED, (ah, p.num(1), QKEY));
    first.next = &mut second;
    let mut bad = core::ptr::null_mut();
    // SAFETY: the list lives until the call returns.
    assert_eq!(unsafe { ibv_post_send(p.qp[0], &mut first, &mut bad) }, libc::EINVAL);
    assert!(core::ptr::eq(bad, &second));
    let ids: Vec<_> = p.net.poll(p.cq[0], 1).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [1]);
    p.net.destroy_ah(ah);
    p.close();
}

#[test]
fn an_overrun_kills_the_queue_and_those_who_use_it() {
    let net = Net::on(soft_rnic::table(), "soft0");
    let (big, small) = (net.cq(64), net.cq(4));
    let qp = [net.qp(big), net.qp(small)];
    let mut buf = [vec![0; 64], vec![0; 64]];
    let mr = [net.mr(&mut buf[0], RW), net.mr(&mut buf[1], RW)];
    let p = QpPair { net, cq: [big, small], qp, mr, buf };
    p.net.connect(p.qp[0], p.num(1), ConnectConfig::default());
    p.net.connect(p.qp[1], p.num(0), ConnectConfig::default());
    for id in 0..6 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
    }
    for id in 0..5 {
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    let events: Vec<_> = p.net.async_events().into_iter().map(async_event_name).collect();
    assert_eq!(events, ["CQ_ERR", "QP_FATAL"]);
    assert_eq!(p.net.state(p.qp[1]), ibv_qp_state::IBV_QPS_ERR);
    let ids: Vec<u64> = p.net.poll(p.cq[1], 4).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [0, 1, 2, 3], "what was there can be polled");
    let mut wc = ibv_wc::default();
    // SAFETY: room for one.
    assert!(unsafe { ibv_poll_cq(p.cq[1], 1, &mut wc) } < 0, "then it is an error");
    p.close();
}

#[test]
fn rnr_retries_are_counted_and_then_it_fails() {
    for retries in [0_u8, 1, 3, 6] {
        let simulation = soft_rnic::Simulation::new(1, soft_rnic::Faults::default());
        let net = Net::on(soft_rnic::table(), simulation.name());
        // About retries, in virtual time.
        let config =
            ConnectConfig { rnr_retry: retries, min_rnr_timer: 12, ..ConnectConfig::default() };
        let p = QpPair::with(net, config, config);
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "RNR_RETRY_EXC");
        assert_eq!(simulation.stats().rnr_naks, u64::from(retries) + 1);
        // Each retry waits for the responder's timer: code 12 is 0.64 ms.
        let waited = u64::from(retries) * 640_000;
        assert!(simulation.now_ns() >= waited, "{} ns", simulation.now_ns());
        assert!(simulation.now_ns() < waited + 640_000);
        p.close();
    }
}

#[test]
fn missed_responses_are_retried_and_then_it_fails() {
    for retries in [0_u8, 2, 7] {
        let simulation = soft_rnic::Simulation::new(1, soft_rnic::Faults::default());
        let net = Net::on(soft_rnic::table(), simulation.name());
        // About retries, in virtual time.
        let config = ConnectConfig { retry_cnt: retries, timeout: 10, ..ConnectConfig::default() };
        let p = QpPair::with(net, config, config);
        assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_RESET), 0);
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "RETRY_EXC");
        assert_eq!(simulation.stats().retries, u64::from(retries));
        // Code 10 is 4.096 µs · 2^10.
        assert!(simulation.now_ns() >= (u64::from(retries) + 1) * 4_194_304);
        p.close();
    }
}
