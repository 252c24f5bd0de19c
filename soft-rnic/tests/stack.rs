//! A thread with little stack calls verbs: docs/soft-device.md says how much a call needs.
//!
//! Not on rxe0: rdma-core's calls need what they need.

mod common;

use common::*;
use verbs_sys::*;

/// Bytes of stack for a call, and for the test around it.
const STACK: usize = 128 << 10;

#[test]
fn calls_need_little_stack() {
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(lifetimes_and_transfers).unwrap().join().unwrap();
}

/// Each kind of object, and messages that are short, long, and gathered.
fn lifetimes_and_transfers() {
    let mut p = QpPair::new();
    for len in [0, 16, 4096, 1 << 16] {
        let mut to = [sge(p.mr[1], 0, 1 << 16)];
        assert_eq!(post_recv(p.qp[1], 1, &mut to), 0);
        let mut from = [sge(p.mr[0], 0, len / 2), sge(p.mr[0], len as usize / 2, len - len / 2)];
        let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[1], 1)[0].len, len);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        for opcode in [ibv_wr_opcode::IBV_WR_RDMA_WRITE, ibv_wr_opcode::IBV_WR_RDMA_READ] {
            let mut local = [sge(p.mr[0], 0, len)];
            let mut wr = send_wr(3, opcode, &mut local, SIGNALED);
            let (remote_addr, rkey) = (p.addr(1), p.key(1));
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
            assert_eq!(post_send(p.qp[0], &mut wr), 0);
            assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        }
    }
    p.buf[0][0] = 1;
    let ah = p.net.ah();
    p.net.destroy_ah(ah);
    p.close();
}
