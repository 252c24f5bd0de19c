//! Regions of no bytes, of the program's memory and of the device's, and requests that name them.
//!
//! Not on rxe0: there it depends on the address whether a region of no bytes is registered.

mod common;

use core::ffi::c_int;
use core::ptr::null_mut;

use common::*;
use libc::EINVAL;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;

/// A region of no bytes at an address.
fn register(net: &Net, addr: *mut u8, access: u32) -> *mut ibv_mr {
    // SAFETY: no memory is accessed by it.
    let mr = unsafe { (net.v.reg_mr)(net.pd, addr.cast(), 0, access as c_int) };
    assert!(!mr.is_null(), "{addr:?}, {access:#x}: {}", errno());
    mr
}

/// A region of no bytes of device memory, which begins there.
fn register_dm(net: &Net, dm: *mut ibv_dm, offset: u64) -> *mut ibv_mr {
    // SAFETY: the domain and the memory are alive.
    unsafe { later(net.ctx).reg_dm_mr.unwrap()(net.pd, dm, offset, 0, RW | ZERO_BASED) }
}

/// No bytes of a region.
fn nothing_of(mr: *mut ibv_mr) -> ibv_sge {
    sge(mr, 0, 0)
}

/// Posts a request of the first queue pair, which names these regions of the ends; its status.
fn run(p: &QpPair, opcode: W, local: ibv_sge, there: *mut ibv_mr) -> &'static str {
    let mut sges = [local];
    let mut wr = send_wr(1, opcode, &mut sges, SIGNALED);
    // SAFETY: the region is alive.
    let (remote_addr, rkey) = unsafe { ((*there).addr as u64, (*there).rkey) };
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    p.net.poll(p.cq[0], 1)[0].status
}

/// All requests without data, over regions of no bytes at both ends.
fn exchange(p: &QpPair, kind: ibv_qp_type, mr: *mut ibv_mr) {
    assert_eq!(run(p, W::IBV_WR_RDMA_WRITE, nothing_of(mr), mr), "SUCCESS");
    for opcode in [W::IBV_WR_SEND, W::IBV_WR_SEND_WITH_IMM, W::IBV_WR_RDMA_WRITE_WITH_IMM] {
        assert_eq!(post_recv(p.qp[1], 2, &mut [nothing_of(mr)]), 0);
        assert_eq!(run(p, opcode, nothing_of(mr), mr), "SUCCESS", "{opcode:?}");
        let got = p.net.poll(p.cq[1], 1)[0];
        assert_eq!((got.status, got.len), ("SUCCESS", 0), "{opcode:?}");
    }
    if kind == RC {
        assert_eq!(run(p, W::IBV_WR_RDMA_READ, nothing_of(mr), mr), "SUCCESS");
    }
}

#[test]
fn requests_without_data_name_regions_without_bytes() {
    if !is_softs_own("regions of no bytes") {
        return;
    }
    let mut byte = 0_u8;
    let places = [null_mut(), &raw mut byte, 0x1000 as *mut u8, usize::MAX as *mut u8];
    for kind in [RC, UC] {
        let p =
            QpPair::connect(kind, Net::new(), ConnectConfig::default(), ConnectConfig::default());
        for access in [RW, RW | ZERO_BASED, RW | ON_DEMAND] {
            for place in places {
                let mr = register(&p.net, place, access);
                // SAFETY: the region is alive.
                assert_eq!(unsafe { (*mr).length }, 0);
                exchange(&p, kind, mr);
                p.net.dereg(mr);
            }
        }
        p.close();
    }
}

#[test]
fn a_datagram_without_data_leaves_its_header_alone() {
    if !is_softs_own("regions of no bytes") {
        return;
    }
    const GRH: u32 = 40;
    let p = QpPair::connect(UD, Net::new(), ConnectConfig::default(), ConnectConfig::default());
    let (mr, ah) = (register(&p.net, null_mut(), 1), p.net.ah());
    let mut room = [sge(p.mr[1], 0, GRH), nothing_of(mr)];
    assert_eq!(post_recv(p.qp[1], 2, &mut room), 0);
    let mut sges = [nothing_of(mr)];
    let mut wr = datagram_wr(1, &mut sges, SIGNALED, (ah, p.num(1), QKEY));
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    let got = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((got.status, got.len), ("SUCCESS", GRH));
    p.net.destroy_ah(ah);
    p.net.dereg(mr);
    p.close();
}

/// The memory around a region of no bytes is not in it.
#[test]
fn one_byte_is_not_in_a_region_without_bytes() {
    if !is_softs_own("regions of no bytes") {
        return;
    }
    for (access, opcode, status) in [
        (RW, W::IBV_WR_RDMA_WRITE, "REM_ACCESS"),
        (RW | ON_DEMAND, W::IBV_WR_RDMA_WRITE, "REM_ACCESS"),
        (RW, W::IBV_WR_RDMA_READ, "REM_ACCESS"),
        (RW, W::IBV_WR_SEND, "LOC_PROT"),
        (RW | ON_DEMAND, W::IBV_WR_SEND, "LOC_PROT"),
    ] {
        let mut p = QpPair::new();
        let mr = register(&p.net, p.buf[1].as_mut_ptr(), access);
        let is_local = opcode == W::IBV_WR_SEND;
        let local = if is_local { sge(mr, 0, 1) } else { sge(p.mr[0], 0, 1) };
        assert_eq!(run(&p, opcode, local, mr), status, "{opcode:?}");
        assert_eq!(p.buf[1][0], 0);
        p.net.dereg(mr);
        p.close();
    }
}

#[test]
fn a_region_without_bytes_gets_other_rights() {
    if !is_softs_own("regions of no bytes") {
        return;
    }
    let p = QpPair::new();
    let mr = register(&p.net, null_mut(), 1);
    let change = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as c_int;
    let rereg = p.net.v.rereg_mr.unwrap();
    // SAFETY: the region is alive.
    assert_eq!(unsafe { rereg(mr, change, null_mut(), null_mut(), 0, RW as c_int) }, 0);
    exchange(&p, RC, mr);
    p.net.dereg(mr);
    p.close();
}

#[test]
fn device_memory_has_regions_without_bytes() {
    if !is_softs_own("device memory") {
        return;
    }
    let p = QpPair::new();
    let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
    // SAFETY: the context is open.
    let dm = unsafe { later(p.net.ctx).alloc_dm.unwrap()(p.net.ctx, &mut attr) };
    assert!(!dm.is_null());
    for offset in [0, 1, 64] {
        let mr = register_dm(&p.net, dm, offset);
        assert!(!mr.is_null(), "{offset}: {}", errno());
        exchange(&p, RC, mr);
        p.net.dereg(mr);
    }
    assert!(register_dm(&p.net, dm, 65).is_null());
    assert_eq!(errno(), EINVAL);
    // SAFETY: no region of it is left.
    assert_eq!(unsafe { later(p.net.ctx).free_dm.unwrap()(dm) }, 0);
    p.close();
}
