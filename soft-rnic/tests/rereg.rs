//! Regions that are registered again, within the process.
//!
//! Not on apart, distant: a completion is there when its post returns.

mod common;

use core::ffi::c_int;
use core::ptr::null_mut;

use common::*;
use verbs_sys::*;

const TRANSLATION: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0 as c_int;
const PD: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0 as c_int;
const ACCESS: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as c_int;
const INPUT: c_int = ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT.0;
const NEW_MEMORY: c_int = ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DONT_FORK_NEW.0;

/// Changes the region of the pair's second end.
fn rereg(p: &QpPair, flags: c_int, pd: *mut ibv_pd, to: Option<&mut [u8]>, access: u32) -> c_int {
    let (addr, len) = to.map_or((null_mut(), 0), |to| (to.as_mut_ptr(), to.len()));
    let f = p.net.v.rereg_mr.expect("every rdma-core has it");
    // SAFETY: the tests keep the memory until the region is gone.
    unsafe { f(p.mr[1], flags, pd, addr.cast(), len, access as c_int) }
}

/// The status of a WRITE of 8 bytes to an address, by the key that the region has always had.
fn write_to(p: &QpPair, addr: u64) -> &'static str {
    let mut from = [sge(p.mr[0], 0, 8)];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut from, SIGNALED);
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: addr, rkey: p.key(1) };
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    p.net.poll(p.cq[0], 1)[0].status
}

#[test]
fn the_old_key_leads_to_the_new_memory_and_no_more_to_the_old() {
    if !is_softs_own("keys stay") {
        return;
    }
    let mut p = QpPair::new();
    p.buf[0][..8].copy_from_slice(b"new data");
    let (key, old) = (p.key(1), p.addr(1));
    let mut other = vec![0_u8; 4096];
    let at = other.as_ptr() as u64;
    assert_eq!(rereg(&p, TRANSLATION, null_mut(), Some(&mut other), 0), 0);
    // SAFETY: the region is alive.
    let mr = unsafe { *p.mr[1] };
    assert_eq!((mr.lkey, mr.rkey, mr.addr as u64, mr.length), (key, key, at, 4096));
    assert_eq!(write_to(&p, at + 4088), "SUCCESS");
    assert_eq!(&other[4088..], b"new data");
    assert_eq!(write_to(&p, old), "REM_ACCESS");
    p.close();
}

#[test]
fn access_and_domain_are_those_of_the_last_registration() {
    if !is_softs_own("keys stay") {
        return;
    }
    let p = QpPair::new();
    assert_eq!(rereg(&p, ACCESS, null_mut(), None, 0x1), 0);
    assert_eq!(write_to(&p, p.addr(1)), "REM_ACCESS");
    p.close();
    let p = QpPair::new();
    // SAFETY: the context is open.
    let pd = unsafe { (p.net.v.alloc_pd)(p.net.ctx) };
    assert_eq!(rereg(&p, PD, pd, None, 0), 0);
    // SAFETY: both are alive.
    unsafe {
        assert_eq!((*p.mr[1]).pd, pd);
        assert_eq!((p.net.v.dealloc_pd)(pd), 16, "it is in use now");
    }
    assert_eq!(write_to(&p, p.addr(1)), "REM_ACCESS");
    let (v, first) = (p.net.v, p.net.pd);
    assert_eq!(rereg(&p, PD | ACCESS, first, None, RW), 0);
    // SAFETY: nothing is in it.
    assert_eq!(unsafe { (v.dealloc_pd)(pd) }, 0);
    p.close();
}

#[test]
fn what_is_refused_leaves_the_region_as_it_was() {
    if !is_softs_own("its own codes") {
        return;
    }
    let p = QpPair::new();
    let errno = || std::io::Error::last_os_error().raw_os_error();
    let mut other = vec![0_u8; 64];
    for (flags, access) in [(0, 0), (8, 0), (TRANSLATION, RW), (ACCESS, 0x2), (PD, 0)] {
        assert_eq!(rereg(&p, flags, null_mut(), Some(&mut other), access), INPUT, "{flags}");
        assert_eq!(errno(), Some(22));
    }
    assert_eq!(rereg(&p, TRANSLATION, null_mut(), None, 0), INPUT);
    let f = p.net.v.rereg_mr.unwrap();
    // SAFETY: nothing is mapped there, which the device has to find out.
    let code = unsafe { f(p.mr[1], TRANSLATION, null_mut(), 0x1000 as *mut _, 4096, 0) };
    assert_eq!((code, errno()), (NEW_MEMORY, Some(14)));
    // SAFETY: as documented.
    assert_eq!(unsafe { f(null_mut(), ACCESS, null_mut(), null_mut(), 0, 1) }, INPUT);
    assert_eq!(write_to(&p, p.addr(1)), "SUCCESS");
    p.close();
}
