//! Null regions: read as zeroes, written to no effect.
//!
//! Not on distant: a completion is there when its post returns.
//! Not on wired: what is posted has arrived when its post returns.

mod common;

use common::other::*;
use common::*;
use verbs_sys::*;

/// A null region of a domain.
fn null_mr(net: &Net) -> *mut ibv_mr {
    // SAFETY: the context is one of the software device, which has the operation.
    unsafe {
        let vctx = net.ctx.byte_sub(core::mem::offset_of!(verbs_context, context));
        let alloc = (*vctx.cast::<verbs_context>()).alloc_null_mr.unwrap();
        let mr = alloc(net.pd);
        assert!(!mr.is_null());
        mr
    }
}

/// Any address.
fn nowhere(mr: *mut ibv_mr, length: u32) -> ibv_sge {
    // SAFETY: the region is alive.
    ibv_sge { addr: 0xdead_beef_0000, length, lkey: unsafe { (*mr).lkey } }
}

const LENGTHS: [u32; 4] = [1, 32, 5_000, 1 << 16];

#[test]
fn what_is_read_is_zero_and_what_is_written_is_discarded() {
    if !is_softs_own("null regions") {
        return;
    }
    let mut p = QpPair::new();
    let mr = null_mr(&p.net);
    for len in LENGTHS {
        let status = |p: &QpPair, wr: &mut ibv_send_wr, n: usize| {
            assert_eq!(post_send(p.qp[0], wr), 0);
            assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
            assert_eq!(p.net.poll(p.cq[1], n).len(), n);
        };
        let remote = |p: &QpPair, wr: &mut ibv_send_wr| {
            let (remote_addr, rkey) = (p.addr(1), p.key(1));
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        };
        // Into it: a READ, and a SEND at its end.
        p.buf[1].fill(7);
        let mut to = [nowhere(mr, len)];
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut to, SIGNALED);
        remote(&p, &mut wr);
        status(&p, &mut wr, 0);
        assert_eq!(post_recv(p.qp[1], 2, &mut [nowhere(mr, len)]), 0);
        p.buf[0].fill(7);
        let mut from = [sge(p.mr[0], 0, len)];
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
        status(&p, &mut wr, 1);
        // Out of it: a WRITE, and a SEND, with what lies beside it.
        let mut from = [nowhere(mr, len)];
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut from, SIGNALED);
        remote(&p, &mut wr);
        status(&p, &mut wr, 0);
        assert!(p.buf[1][..len as usize].iter().all(|byte| *byte == 0), "{len}");
        p.buf[1].fill(7);
        assert_eq!(post_recv(p.qp[1], 2, &mut [sge(p.mr[1], 0, len)]), 0);
        let half = len / 2;
        let mut from = [nowhere(mr, half), sge(p.mr[0], 0, len - half)];
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
        status(&p, &mut wr, 1);
        let (zeroes, rest) = p.buf[1][..len as usize].split_at(half as usize);
        assert!(zeroes.iter().all(|byte| *byte == 0) && rest.iter().all(|byte| *byte == 7));
    }
    p.net.dereg(mr);
    p.close();
}

#[test]
fn it_is_its_domains_alone_and_no_peers() {
    if !is_softs_own("null regions") {
        return;
    }
    let p = QpPair::new();
    let mr = null_mr(&p.net);
    // SAFETY: the region is alive.
    let (lkey, v) = unsafe { ((*mr).lkey, p.net.v) };
    let mut from = [sge(p.mr[0], 0, 8)];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut from, SIGNALED);
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: 0, rkey: lkey };
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "REM_ACCESS");
    let q = QpPair::new();
    let mut from = [nowhere(mr, 8)];
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
    assert_eq!(post_send(q.qp[0], &mut wr), 0);
    assert_eq!(q.net.poll(q.cq[0], 1)[0].status, "LOC_PROT", "of another domain");
    q.close();
    // SAFETY: what is refused changes nothing.
    let code =
        unsafe { v.rereg_mr.unwrap()(mr, 4, core::ptr::null_mut(), core::ptr::null_mut(), 0, 1) };
    assert_eq!(code, ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT.0);
    p.net.dereg(mr);
    p.close();
}

#[test]
fn the_other_process() {
    if role().is_none() {
        return;
    }
    let end = NearEnd::new(ibv_qp_type::IBV_QPT_RC);
    end.shared.bytes.iter().for_each(|byte| assert_eq!(*byte, 0));
    let mr = null_mr(&end.net);
    for len in LENGTHS {
        assert_eq!(post_recv(end.qp, 1, &mut [nowhere(mr, len)]), 0);
    }
    join_as_other(&end, ConnectConfig::default());
    assert_eq!(end.net.poll(end.cq, LENGTHS.len()).len(), LENGTHS.len());
    for len in LENGTHS {
        end.send(nowhere(mr, len));
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    }
    assert_eq!(hear(), None);
}

#[test]
fn between_processes_it_is_the_same() {
    if !is_softs_own("null regions") {
        return;
    }
    let mut other = Other::start("the_other_process", "any");
    let mut end = NearEnd::new(ibv_qp_type::IBV_QPT_RC);
    end.heap.fill(7);
    for (nth, len) in LENGTHS.iter().enumerate() {
        let to = end.local(1, nth << 17, *len);
        assert_eq!(post_recv(end.qp, 1, &mut [to]), 0);
    }
    join(&end, &mut other, ConnectConfig::default());
    for len in LENGTHS {
        end.send(end.local(1, 0, len));
    }
    let all = end.net.poll(end.cq, 2 * LENGTHS.len());
    assert!(all.iter().all(|wc| wc.status == "SUCCESS"), "{all:?}");
    for (nth, len) in LENGTHS.iter().enumerate() {
        let at = &end.heap[nth << 17..][..*len as usize + 1];
        let (zeroes, behind) = at.split_at(*len as usize);
        assert!(zeroes.iter().all(|byte| *byte == 0) && behind == [7], "{len}");
    }
    drop(other);
    end.close();
}
