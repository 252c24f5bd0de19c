//! Device memory: allocated, copied to and from, and registered.
//!
//! Not on distant: one of its ends is another process.
//! Not on rxe0: rxe has no device memory.

mod common;

use core::ffi::c_int;
use core::ptr::null_mut;
use std::sync::RwLock;

use common::other::*;
use common::*;
use verbs_sys::*;

/// The memory is the device's: a test that takes all of it has to run alone.
static ALL_OF_IT: RwLock<()> = RwLock::new(());

const ALL: u32 = RW | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;

fn alloc(net: &Net, length: usize, log_align_req: u32) -> *mut ibv_dm {
    let mut attr = ibv_alloc_dm_attr { length, log_align_req, comp_mask: 0 };
    // SAFETY: the context is one of the software device, which has the operation.
    unsafe { later(net.ctx).alloc_dm.unwrap()(net.ctx, &mut attr) }
}

fn free(net: &Net, dm: *mut ibv_dm) -> c_int {
    // SAFETY: `net.ctx` is of the software device, which has the operation; `dm` is not used once
    // it is freed.
    unsafe { later(net.ctx).free_dm.unwrap()(dm) }
}

fn register(net: &Net, dm: *mut ibv_dm, offset: u64, length: usize, access: u32) -> *mut ibv_mr {
    // SAFETY: `net.ctx` is of the software device, which has the operation.
    unsafe { later(net.ctx).reg_dm_mr.unwrap()(net.pd, dm, offset, length, access) }
}

fn put(dm: *mut ibv_dm, offset: u64, bytes: &[u8]) -> c_int {
    // SAFETY: the memory is alive.
    unsafe { (*dm).memcpy_to_dm.unwrap()(dm, offset, bytes.as_ptr().cast(), bytes.len()) }
}

fn get(dm: *mut ibv_dm, offset: u64, length: usize) -> Result<Vec<u8>, c_int> {
    let mut bytes = vec![0xee; length];
    // SAFETY: the memory is alive.
    let error =
        unsafe { (*dm).memcpy_from_dm.unwrap()(bytes.as_mut_ptr().cast(), dm, offset, length) };
    if error == 0 { Ok(bytes) } else { Err(error) }
}

/// Returns the errno of an `alloc` that fails.
fn refused(net: &Net, length: usize, log_align: u32) -> c_int {
    assert!(alloc(net, length, log_align).is_null());
    errno()
}

#[test]
fn copies_are_of_whole_words_within_it() {
    if !is_softs_own("device memory") {
        return;
    }
    let _shared = ALL_OF_IT.read();
    let net = Net::new();
    let dm = alloc(&net, 100, 0);
    assert_eq!(get(dm, 0, 100), Ok(vec![0; 100]), "it is zero at first");
    assert_eq!(put(dm, 92, &[1, 2, 3, 4, 5, 6, 7, 8]), 0);
    assert_eq!(get(dm, 88, 12), Ok(vec![0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!((put(dm, 0, &[]), get(dm, 100, 0)), (0, Ok(Vec::new())));
    for (offset, length) in [(1, 4), (2, 4), (0, 3), (4, 6)] {
        assert_eq!(put(dm, offset, &vec![9; length]), libc::EINVAL, "{offset}, {length}");
        assert_eq!(get(dm, offset, length), Err(libc::EINVAL), "{offset}, {length}");
    }
    for (offset, length) in [(100, 4), (96, 8), (0, 104), (u64::MAX - 3, 4)] {
        assert_eq!(put(dm, offset, &vec![9; length]), libc::EFAULT, "{offset}, {length}");
        assert_eq!(get(dm, offset, length), Err(libc::EFAULT), "{offset}, {length}");
    }
    assert_eq!(get(dm, 92, 8), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8]), "nothing was changed");
    assert_eq!(free(&net, dm), 0);
    net.close();
}

#[test]
fn it_has_a_limit_and_is_given_back() {
    if !is_softs_own("device memory") {
        return;
    }
    let _shared = ALL_OF_IT.write();
    // SAFETY: zero is a valid value of every field.
    let mut attr: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
    let (net, size) = (Net::new(), size_of::<ibv_device_attr_ex>());
    let query = later(net.ctx).query_device_ex.unwrap();
    // SAFETY: the struct is as long as it says.
    assert_eq!(unsafe { query(net.ctx, null_mut(), &mut attr, size) }, 0);
    let most = attr.max_dm_size as usize;
    assert_eq!(refused(&net, 0, 0), libc::EINVAL);
    assert_eq!(refused(&net, usize::MAX, 0), libc::EINVAL);
    assert_eq!(refused(&net, 64, 13), libc::EINVAL);
    assert_eq!(refused(&net, 64, u32::MAX), libc::EINVAL);
    assert_eq!(refused(&net, most + 1, 0), libc::ENOMEM);
    let half = [alloc(&net, most / 2, 12), alloc(&net, most / 2, 12)];
    if half.iter().all(|dm| !dm.is_null()) {
        assert_eq!(refused(&net, 1, 0), libc::ENOMEM);
        let mr = register(&net, half[0], 0, most / 2, ALL);
        assert_eq!(free(&net, half[0]), libc::EBUSY, "a region is registered");
        net.dereg(mr);
    }
    // (Tests of this program share the device's memory: one of them may have some of it.)
    for dm in half.into_iter().filter(|dm| !dm.is_null()) {
        assert_eq!(free(&net, dm), 0);
    }
    net.close();
}

#[test]
fn regions_are_zero_based_and_lie_within_it() {
    if !is_softs_own("device memory") {
        return;
    }
    let _shared = ALL_OF_IT.read();
    let net = Net::new();
    let dm = alloc(&net, 128, 6);
    let zero_based = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
    let on_demand = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
    let remote_write = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    for (offset, length, access) in [
        (0, 128, RW),
        (0, 128, zero_based | on_demand),
        (0, 128, zero_based | remote_write),
        (0, 129, ALL),
        (128, 1, ALL),
        (129, 0, ALL),
        (u64::MAX, 2, ALL),
    ] {
        assert!(register(&net, dm, offset, length, access).is_null(), "{offset}, {length}");
        assert_eq!(errno(), libc::EINVAL, "{offset}, {length}");
    }
    let mr = register(&net, dm, 64, 64, ALL);
    // SAFETY: the region is alive; what is refused changes nothing.
    let code = unsafe {
        assert_eq!(((*mr).addr, (*mr).length), (null_mut(), 64));
        net.v.rereg_mr.unwrap()(mr, 4, null_mut(), null_mut(), 0, 1)
    };
    assert_eq!(code, ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT.0);
    assert_eq!(free(&net, dm), libc::EBUSY);
    net.dereg(mr);
    assert_eq!(free(&net, dm), 0);
    net.close();
}

#[test]
fn it_is_sent_written_to_read_and_added_to() {
    if !is_softs_own("device memory") {
        return;
    }
    let _shared = ALL_OF_IT.read();
    let mut p = QpPair::new();
    let dm = alloc(&p.net, 256, 6);
    let mr = register(&p.net, dm, 64, 128, ALL);
    // SAFETY: the region is alive.
    let rkey = unsafe { (*mr).rkey };
    let run = |p: &QpPair, opcode, from: ibv_sge, remote_addr| {
        let mut sges = [from];
        let mut wr = send_wr(1, opcode, &mut sges, SIGNALED);
        if opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
            let (compare_add, swap) = (5, 0);
            wr.wr.atomic =
                ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
        } else {
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        }
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        p.net.poll(p.cq[0], 1)[0].status
    };
    p.buf[0][..8].copy_from_slice(&7_u64.to_le_bytes());
    let word = sge(p.mr[0], 0, 8);
    assert_eq!(run(&p, ibv_wr_opcode::IBV_WR_RDMA_WRITE, word, 120), "SUCCESS");
    assert_eq!(get(dm, 64 + 120, 8), Ok(7_u64.to_le_bytes().to_vec()));
    let added = run(&p, ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, sge(p.mr[0], 8, 8), 120);
    assert_eq!((added, p.buf[0][8]), ("SUCCESS", 7));
    assert_eq!(run(&p, ibv_wr_opcode::IBV_WR_RDMA_READ, sge(p.mr[0], 16, 8), 120), "SUCCESS");
    assert_eq!(p.buf[0][16], 12);
    // Out of it, and into it.
    assert_eq!(post_recv(p.qp[1], 2, &mut [sge(p.mr[1], 0, 8)]), 0);
    let mut from = [sge(mr, 120, 8)];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!((p.net.poll(p.cq[0], 1)[0].status, p.net.poll(p.cq[1], 1)[0].len), ("SUCCESS", 8));
    assert_eq!(p.buf[1][0], 12);
    // Behind its end.
    assert_eq!(run(&p, ibv_wr_opcode::IBV_WR_RDMA_WRITE, word, 121), "REM_ACCESS");
    p.net.dereg(mr);
    assert_eq!(free(&p.net, dm), 0);
    p.close();
}

const HERE: &[u8] = b"what the other process finds here.";

#[test]
fn the_other_process() {
    if role().is_none() {
        return;
    }
    let end = NearEnd::new(ibv_qp_type::IBV_QPT_RC);
    let dm = alloc(&end.net, 4_096, 12);
    assert_eq!(put(dm, 1_024, &HERE[..32]), 0);
    let mr = register(&end.net, dm, 1_024, 2_048, ALL);
    join_as_other(&end, ConnectConfig::default());
    // SAFETY: the region is alive.
    say(&unsafe { (*mr).rkey }.to_string());
    assert_eq!(hear().as_deref(), Some("look"));
    let found = get(dm, 1_024 + 1_000, 32).unwrap();
    say(&format!("{}", found == HERE[..32]));
    assert_eq!(hear(), None);
}

#[test]
fn another_process_reads_and_writes_it() {
    if !is_softs_own("device memory") {
        return;
    }
    let _shared = ALL_OF_IT.read();
    let mut other = Other::start("the_other_process", "any");
    let end = NearEnd::new(ibv_qp_type::IBV_QPT_RC);
    join(&end, &mut other, ConnectConfig::default());
    let rkey = other.hear().parse().unwrap();
    end.post_rdma(ibv_wr_opcode::IBV_WR_RDMA_READ, end.local(1, 0, 32), (0, rkey));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    assert_eq!(end.heap[..32], HERE[..32]);
    end.post_rdma(ibv_wr_opcode::IBV_WR_RDMA_WRITE, end.local(1, 0, 32), (1_000, rkey));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    other.say("look");
    assert_eq!(other.hear(), "true");
    drop(other);
    end.close();
}
