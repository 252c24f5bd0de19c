//! Limits, the accounting of the send queue, dependencies, and nonsense.
//!
//! Not on apart, distant: a completion is there when its post returns.

mod common;

use core::ptr::null_mut;

use common::*;
use verbs_sys::*;

const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;

fn device_attr(net: &Net) -> ibv_device_attr {
    let mut attr = ibv_device_attr::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_device)(net.ctx, &mut attr) }, 0);
    attr
}

#[test]
fn what_exceeds_a_limit_is_refused() {
    let net = Net::new();
    let limit = device_attr(&net);
    let cq = net.cq(16);
    type Change = fn(&mut ibv_qp_cap, &ibv_device_attr);
    let changes: [Change; 4] = [
        |cap, limit| cap.max_send_wr = limit.max_qp_wr as u32 + 1,
        |cap, limit| cap.max_recv_wr = limit.max_qp_wr as u32 + 1,
        |cap, limit| cap.max_send_sge = limit.max_sge as u32 + 1,
        |cap, limit| cap.max_recv_sge = limit.max_sge as u32 + 1,
    ];
    for change in changes {
        let mut attr = net.init_attr(cq);
        change(&mut attr.cap, &limit);
        // SAFETY: the attributes' objects are alive.
        assert!(unsafe { (net.v.create_qp)(net.pd, &mut attr) }.is_null());
    }
    // SAFETY: the context is open.
    unsafe {
        for cqe in [0, -1, limit.max_cqe + 1] {
            let cq = (net.v.create_cq)(net.ctx, cqe, null_mut(), null_mut(), 0);
            assert!(cq.is_null(), "{cqe}");
            assert_eq!(errno(), EINVAL);
        }
        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        for max_wr in [limit.max_srq_wr as u32 + 1, u32::MAX] {
            attr.attr.max_wr = max_wr;
            assert!((net.v.create_srq)(net.pd, &mut attr).is_null());
            assert_eq!(errno(), EINVAL);
        }
    }
    net.destroy_cq(cq);
    net.close();
}

/// In a process of its own, which may not have much memory.
#[test]
fn inline_data_that_there_is_no_memory_for_are_refused() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const LIMITED: &str = "SOFT_RNIC_LIMITED";
    if !is_soft() {
        return;
    }
    if std::env::var_os(LIMITED).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "inline_data_that_there_is_no_memory_for_are_refused"]);
        let ended = again.env(LIMITED, "1").output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let net = Net::new();
    let cq = net.cq(16);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let most = pages * rustix::param::page_size() as u64 + (256 << 20);
    let before = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(most), ..before }).unwrap();
    let mut attr = net.init_attr(cq);
    attr.cap.max_send_wr = device_attr(&net).max_qp_wr as u32;
    attr.cap.max_inline_data = 32 << 10;
    // SAFETY: the attributes' objects are alive.
    assert!(unsafe { (net.v.create_qp)(net.pd, &mut attr) }.is_null());
    assert_eq!(errno(), ENOMEM);
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn access_flags_that_do_not_go_together_are_refused() {
    let net = Net::new();
    let mut bytes = vec![0_u8; 4096];
    let reg = |addr: *mut u8, len: usize, access: i32| {
        // SAFETY: whatever it is, the device has to find out.
        unsafe { (net.v.reg_mr)(net.pd, addr.cast(), len, access) }
    };
    for access in [0x2, 0x8, 0xa] {
        assert!(reg(bytes.as_mut_ptr(), 4096, access).is_null(), "{access:#x}");
        assert_eq!(errno(), EINVAL);
    }
    if is_soft() {
        assert!(reg(usize::MAX as *mut u8, 16, 1).is_null());
        assert!(reg(0x1000 as *mut u8, 4096, 1).is_null(), "nothing is mapped there");
        assert_eq!(errno(), 14);
    }
    net.close();
}

#[test]
fn memory_that_cannot_be_written_is_not_registered_to_be() {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
    let net = Net::new();
    let (len, prot) = (2 * rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping, which stays as long as the process; what the device finds out.
    unsafe {
        let at = mmap_anonymous(null_mut(), len, prot, MapFlags::PRIVATE).unwrap();
        for read_only in [at, at.byte_add(len / 2)] {
            mprotect(read_only, len / 2, MprotectFlags::READ).unwrap();
            assert!((net.v.reg_mr)(net.pd, at, len, 1).is_null());
            assert_eq!(errno(), 14);
            net.dereg((net.v.reg_mr)(net.pd, at, len, 4));
            mprotect(read_only, len / 2, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
        }
        net.dereg((net.v.reg_mr)(net.pd, at, len, 1));
    }
    net.close();
}

#[test]
fn send_slots_are_free_after_a_later_completion_is_polled() {
    let p = QpPair::new();
    let depth = u64::from(p.net.query(p.qp[0]).cap.max_send_wr);
    let post = |id: u64, flags| {
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], flags);
        post_send(p.qp[0], &mut wr)
    };
    for id in 0..depth {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
        let flags = if id == depth / 2 - 1 { SIGNALED } else { UNSIGNALED };
        assert_eq!(post(id, flags), 0);
    }
    assert_eq!(p.net.poll(p.cq[1], depth as usize).len(), depth as usize);
    if is_rxe() {
        // What is acknowledged has left its queue, whatever was polled.
        assert_eq!(p.net.poll(p.cq[0], 1)[0].id, depth / 2 - 1);
        assert_eq!(post_recv(p.qp[1], depth, &mut []), 0);
        assert_eq!(post(depth, SIGNALED), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].id, depth);
        return p.close();
    }
    // All are done, and still count.
    assert_eq!(post(depth, SIGNALED), ENOMEM);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, depth / 2 - 1);
    for id in 0..depth / 2 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
        assert_eq!(post(depth + id, UNSIGNALED), 0, "half of them are free");
    }
    assert_eq!(post(2 * depth, SIGNALED), ENOMEM);
    p.close();
}

#[test]
fn a_list_stops_at_the_first_request_that_cannot_be_posted() {
    let p = QpPair::new();
    for id in 0..4 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
    }
    let mut wrs: Vec<_> =
        (0..4).map(|id| send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED)).collect();
    let mut too_many = [sge(p.mr[0], 0, 1); 99];
    (wrs[2].sg_list, wrs[2].num_sge) = (too_many.as_mut_ptr(), 99);
    for i in 0..3 {
        wrs[i].next = &raw mut wrs[i + 1];
    }
    let mut bad = null_mut();
    // SAFETY: the list is alive.
    let error = unsafe { ibv_post_send(p.qp[0], wrs.as_mut_ptr(), &mut bad) };
    assert_ne!(error, 0);
    assert_eq!(bad, &raw mut wrs[2]);
    let ids: Vec<u64> = p.net.poll(p.cq[0], 2).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [0, 1]);
    p.close();
}

#[test]
fn receive_lists_and_queues_have_their_limits() {
    let p = QpPair::new();
    let cap = p.net.query(p.qp[1]).cap;
    let mut sges = vec![sge(p.mr[1], 0, 1); cap.max_recv_sge as usize + 1];
    assert_ne!(post_recv(p.qp[1], 0, &mut sges), 0);
    for id in 0..cap.max_recv_wr {
        assert_eq!(post_recv(p.qp[1], u64::from(id), &mut []), 0);
    }
    assert_eq!(post_recv(p.qp[1], 0, &mut []), ENOMEM);
    p.close();
}

#[test]
fn inline_data_have_a_limit_and_reads_cannot_be_inline() {
    let p = QpPair::new();
    let cap = p.net.query(p.qp[0]).cap;
    assert!(cap.max_inline_data >= 64);
    let mut data = vec![0_u8; cap.max_inline_data as usize + 1];
    let inline = SIGNALED | ibv_send_flags::IBV_SEND_INLINE;
    let mut sges = [ibv_sge { addr: data.as_mut_ptr() as u64, length: data.len() as u32, lkey: 0 }];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut sges, inline);
    assert_ne!(post_send(p.qp[0], &mut wr), 0);
    sges[0].length -= 1;
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 1024)]), 0);
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut sges, inline);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    if is_soft() {
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut sges, inline);
        assert_eq!(post_send(p.qp[0], &mut wr), EINVAL);
    }
    p.close();
}

#[test]
fn what_is_still_in_use_cannot_be_destroyed() {
    let net = Net::new();
    // SAFETY: the objects are alive; what is refused stays so.
    unsafe {
        let channel = (net.v.create_comp_channel)(net.ctx);
        let cq = net.cq_with(16, channel);
        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        attr.attr.max_wr = 4;
        let srq = (net.v.create_srq)(net.pd, &mut attr);
        let mut init = net.init_attr(cq);
        init.srq = srq;
        let qp = net.qp_with(init);
        assert_eq!((net.v.destroy_cq)(cq), EBUSY);
        assert_eq!((net.v.destroy_srq)(srq), EBUSY);
        assert_eq!((net.v.dealloc_pd)(net.pd), EBUSY);
        assert_eq!((net.v.destroy_comp_channel)(channel), EBUSY);
        net.destroy_qp(qp);
        assert_eq!((net.v.dealloc_pd)(net.pd), EBUSY, "the shared queue is in it");
        assert_eq!((net.v.destroy_srq)(srq), 0);
        net.destroy_cq(cq);
        assert_eq!((net.v.destroy_comp_channel)(channel), 0);
    }
    net.close();
}

#[test]
fn what_remains_of_a_closed_device_works_and_can_be_destroyed() {
    if !is_softs_own("closing a device before what was made of it") {
        return;
    }
    let p = QpPair::new();
    // SAFETY: closed once; what was made of it is alive.
    assert_eq!(unsafe { (p.net.v.close_device)(p.net.ctx) }, 0);
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 16)]), 0);
    let mut sges = [sge(p.mr[0], 0, 16)];
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 2);
    assert_eq!(p.net.poll(p.cq[1], 1)[0].id, 1);
    // SAFETY: each is destroyed once, what uses another before that one.
    unsafe {
        let v = &p.net.v;
        for i in 0..2 {
            assert_eq!((v.destroy_qp)(p.qp[i]), 0);
            assert_eq!((v.destroy_cq)(p.cq[i]), 0);
            assert_eq!((v.dereg_mr)(p.mr[i]), 0);
        }
        assert_eq!((v.dealloc_pd)(p.net.pd), 0);
    }
}

#[test]
fn a_context_descriptor_names_it_and_can_be_duplicated() {
    use std::io::Read;
    use std::os::fd::BorrowedFd;
    if !is_softs_own("what the descriptor says") {
        return;
    }
    let (one, two) = (Net::new(), Net::new());
    let said = |net: &Net| {
        // SAFETY: the context is open, and so is its descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw((*net.ctx).cmd_fd) };
        let copy = fd.try_clone_to_owned().unwrap();
        assert!(rustix::io::write(&copy, b"x").is_err(), "nobody can change it");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&copy));
        let mut text = String::new();
        std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    let (first, second) = (said(&one), said(&two));
    assert!(first.starts_with(&format!("{} {} ", provider().1, std::process::id())), "{first}");
    assert_ne!(first, second);
    one.close();
    two.close();
}

#[test]
fn the_vendor_is_a_locally_administered_number() {
    let net = Net::new();
    let vendor = device_attr(&net).vendor_id;
    assert!(if is_soft() { vendor == 0x02_005a } else { vendor != 0 });
    net.close();
}

#[test]
fn a_queue_pair_takes_access_flags_that_it_has_no_use_for() {
    let net = Net::new();
    let cq = net.cq(16);
    let qp = net.qp(cq);
    // SAFETY: the queue pair is alive.
    let num = unsafe { (*qp).qp_num };
    let access = RW | ibv_access_flags::IBV_ACCESS_MW_BIND.0 | 0x10_0000;
    let (init, ..) = net.steps(num, ConnectConfig { access, ..ConnectConfig::default() });
    assert_eq!(net.modify(qp, init.0, init.1), 0);
    if is_soft() {
        assert_eq!(net.query(qp).qp_access_flags, access);
    }
    net.destroy_qp(qp);
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn a_stale_key_is_refused_even_when_its_slot_is_used_again() {
    let p = QpPair::new();
    let mut other = vec![0; 64];
    let stale = {
        let mr = p.net.mr(&mut other, RW);
        // SAFETY: the region is alive.
        let key = unsafe { (*mr).lkey };
        p.net.dereg(mr);
        key
    };
    for _ in 0..32 {
        let mr = p.net.mr(&mut other, RW);
        // SAFETY: the region is alive.
        assert_ne!(unsafe { (*mr).lkey }, stale);
        p.net.dereg(mr);
    }
    let mut sges = [ibv_sge { addr: other.as_ptr() as u64, length: 8, lkey: stale }];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    // To rxe a request with a key that it does not find is a malformed one.
    let status = if is_rxe() { "LOC_QP_OP" } else { "LOC_PROT" };
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, status);
    p.close();
}

#[test]
fn a_completion_queue_can_be_resized_around_what_is_in_it() {
    let p = QpPair::new();
    for id in 0..10 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    // Over UDP fewer than nine may have arrived yet.
    if is_soft() && !is_wired() {
        // SAFETY: the queue is alive.
        unsafe {
            assert_eq!((p.net.v.resize_cq)(p.cq[1], 8), EINVAL);
            assert_eq!((p.net.v.resize_cq)(p.cq[1], 16), 0);
            assert_eq!((*p.cq[1]).cqe, 16);
        }
    }
    for id in 10..16 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    let ids: Vec<u64> = p.net.poll(p.cq[1], 16).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, (0..16).collect::<Vec<u64>>());
    p.close();
}

/// Windows have keys of their own.
#[test]
fn as_many_regions_exist_as_the_device_says() {
    if !is_softs_own("all regions at once") {
        return;
    }
    let net = Net::new();
    let most = device_attr(&net).max_mr as usize;
    let mut bytes = [0_u8; 8];
    let mut all = Vec::new();
    loop {
        // SAFETY: `bytes` owns the memory, and lives until all regions are deregistered.
        let mr = unsafe { (net.v.reg_mr)(net.pd, bytes.as_mut_ptr().cast(), 8, RW as i32) };
        if mr.is_null() {
            break;
        }
        all.push(mr);
    }
    assert_eq!((all.len(), errno()), (most, ENOMEM));
    all.into_iter().for_each(|mr| net.dereg(mr));
    net.close();
}
