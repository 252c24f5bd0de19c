//! Writes, reads and atomics, and what threads see of them.

mod common;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use common::*;
use host::sync::SetOnDrop;
use verbs_sys::*;

fn rdma(
    p: &QpPair,
    id: u64,
    opcode: ibv_wr_opcode,
    sges: &mut [ibv_sge],
    remote: u64,
) -> ibv_send_wr {
    let mut wr = send_wr(id, opcode, sges, SIGNALED);
    let (remote_addr, rkey) = (p.addr(1) + remote, p.key(1));
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    wr
}

fn atomic(
    p: &QpPair,
    opcode: ibv_wr_opcode,
    sges: &mut [ibv_sge],
    compare_add: u64,
    swap: u64,
) -> ibv_send_wr {
    let mut wr = send_wr(1, opcode, sges, SIGNALED);
    let (remote_addr, rkey) = (p.addr(1), p.key(1));
    wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
    wr
}

fn done(p: &QpPair) -> Wc {
    let wc = p.net.poll(p.cq[0], 1)[0];
    assert_eq!(wc.status, "SUCCESS");
    wc
}

#[test]
fn a_write_and_a_read_move_the_bytes() {
    for len in [1, 7, 8, 63, 64, 100, 4096, 30_000] {
        let mut p = QpPair::new();
        for (i, byte) in p.buf[0].iter_mut().enumerate() {
            *byte = (i % 251) as u8;
        }
        let mut from = [sge(p.mr[0], 3, len / 2), sge(p.mr[0], 40_000, len - len / 2)];
        let mut wr = rdma(&p, 1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut from, 5);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(done(&p).opcode, "RDMA_WRITE");
        let (half, len) = (len as usize / 2, len as usize);
        assert_eq!(p.buf[1][5..5 + half], p.buf[0][3..3 + half]);
        assert_eq!(p.buf[1][5 + half..5 + len], p.buf[0][40_000..40_000 + len - half]);
        assert_eq!((p.buf[1][4], p.buf[1][5 + len]), (0, 0));
        let expected = p.buf[1][5..5 + len].to_vec();
        p.buf[0][..len].fill(0);
        let mut to = [sge(p.mr[0], 0, len as u32)];
        let mut wr = rdma(&p, 1, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut to, 5);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(done(&p).opcode, "RDMA_READ");
        assert_eq!(p.buf[0][..len], expected);
        p.close();
    }
}

#[test]
fn a_write_with_immediate_leaves_the_receive_buffer_unchanged() {
    let mut p = QpPair::new();
    p.buf[0][..8].copy_from_slice(b"new data");
    assert_eq!(post_recv(p.qp[1], 9, &mut [sge(p.mr[1], 1000, 8)]), 0);
    let mut from = [sge(p.mr[0], 0, 8)];
    let mut wr = rdma(&p, 1, ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, &mut from, 0);
    wr.__bindgen_anon_1.imm_data = 77_u32.to_be();
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    let wc = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((wc.id, wc.opcode, wc.imm, wc.len), (9, "RECV_RDMA_WITH_IMM", Some(77), 8));
    assert_eq!(&p.buf[1][..8], b"new data");
    assert_eq!(p.buf[1][1000..1008], [0; 8]);
    done(&p);
    p.close();
}

#[test]
fn a_region_can_have_addresses_of_its_own() {
    let p = QpPair::new();
    let mut memory = vec![0_u8; 64];
    let reg = p.net.v.reg_mr_iova2.expect("rdma-core 27 or later");
    // The kernel asks for the same place in the page.
    let start = 0x1000 + memory.as_ptr() as u64 % 4096;
    // SAFETY: the memory outlives the region.
    let mr = unsafe { reg(p.net.pd, memory.as_mut_ptr().cast(), 64, start, RW) };
    assert!(!mr.is_null());
    let mut from = [sge(p.mr[0], 0, 8)];
    // SAFETY: the region is alive.
    let rkey = unsafe { (*mr).rkey };
    for (addr, status) in [(start + 56, "SUCCESS"), (start - 1, "REM_ACCESS")] {
        let mut wr = rdma(&p, 1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut from, 0);
        wr.wr.rdma.remote_addr = addr;
        wr.wr.rdma.rkey = rkey;
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, status);
    }
    p.net.dereg(mr);
    p.close();
}

#[test]
fn atomics_return_what_was_there() {
    let mut p = QpPair::new();
    p.buf[1][..8].copy_from_slice(&40_u64.to_ne_bytes());
    let word = |p: &QpPair| u64::from_ne_bytes(p.buf[1][..8].try_into().unwrap());
    let old = |p: &QpPair| u64::from_ne_bytes(p.buf[0][16..24].try_into().unwrap());
    let mut to = [sge(p.mr[0], 16, 8)];
    let add = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
    let swap = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
    for (opcode, compare_add, swap, before, after) in
        [(add, 2, 0, 40, 42), (swap, 41, 1, 42, 42), (swap, 42, 1, 42, 1), (add, u64::MAX, 0, 1, 0)]
    {
        let mut wr = atomic(&p, opcode, &mut to, compare_add, swap);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        done(&p);
        assert_eq!((old(&p), word(&p)), (before, after));
    }
    p.close();
}

#[test]
fn concurrent_atomics_lose_no_update() {
    const ROUNDS: u64 = 2_000;
    let mut word = vec![0_u64; 1];
    let at = word.as_mut_ptr();
    // SAFETY: aligned, and only accessed atomically while the threads run.
    let shared = unsafe { AtomicU64::from_ptr(at) };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                let p = QpPair::new();
                // SAFETY: the same memory, for each thread's own region.
                let bytes =
                    unsafe { core::slice::from_raw_parts_mut(shared.as_ptr().cast::<u8>(), 8) };
                let mr = p.net.mr(bytes, RW);
                let mut to = [sge(p.mr[0], 0, 8)];
                let add = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
                for _ in 0..ROUNDS {
                    let mut wr = atomic(&p, add, &mut to, 1, 0);
                    wr.wr.atomic.remote_addr = shared.as_ptr() as u64;
                    // SAFETY: the region is alive.
                    wr.wr.atomic.rkey = unsafe { (*mr).rkey };
                    assert_eq!(post_send(p.qp[0], &mut wr), 0);
                    done(&p);
                }
                p.net.dereg(mr);
                p.close();
            });
        }
        if is_soft() {
            for _ in 0..ROUNDS {
                shared.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let expected = if is_soft() { 4 * ROUNDS } else { 3 * ROUNDS };
    assert_eq!(shared.load(Ordering::Relaxed), expected);
}

#[test]
fn a_reader_that_sees_the_last_byte_sees_all_of_a_write() {
    let p = QpPair::new();
    // SAFETY: the queue pair is alive.
    let in_order =
        p.net.v.query_qp_data_in_order.is_some_and(|query| unsafe {
            query(p.qp[0], ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0) == 1
        });
    if !in_order {
        return p.close(); // the device promises nothing
    }
    for (offset, len) in [(0_usize, 16_usize), (5, 77), (8, 256), (3, 5000)] {
        observe(&p, offset, len);
    }
    p.close();
}

/// A writer counts up in all bytes of a range; a reader that sees a number in the
/// last byte must find it, or a later one, in every other.
fn observe(p: &QpPair, offset: usize, len: usize) {
    const ROUNDS: u8 = 200;
    let byte = |at: usize| {
        // SAFETY: the program accesses the range only atomically meanwhile.
        unsafe { AtomicU8::from_ptr(p.buf[1].as_ptr().add(at).cast_mut()) }
    };
    for at in 0..len {
        byte(offset + at).store(0, Ordering::Relaxed);
    }
    let stop = AtomicBool::new(false);
    let bytes: Vec<&AtomicU8> = (0..len).map(|at| byte(offset + at)).collect();
    std::thread::scope(|scope| {
        let (bytes, stop) = (&bytes, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let last = bytes[len - 1].load(Ordering::Acquire);
                for (i, byte) in bytes.iter().enumerate() {
                    let seen = byte.load(Ordering::Relaxed);
                    assert!(seen >= last, "byte {i} of {len} is {seen}, the last was {last}");
                }
                std::thread::yield_now();
            }
        });
        let _over = SetOnDrop(stop);
        for round in 1..=ROUNDS {
            // SAFETY: the requester's buffer is idle between the writes.
            unsafe { core::ptr::write_bytes(p.buf[0].as_ptr().cast_mut(), round, len) };
            let mut from = [sge(p.mr[0], 0, len as u32)];
            let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            let mut wr = rdma(p, 1, opcode, &mut from, offset as u64);
            assert_eq!(post_send(p.qp[0], &mut wr), 0);
            done(p);
        }
    });
}

/// Also where it waits for a receive, and where the peer, which cannot read the queue that it
/// waits in, is in another process.
#[test]
fn long_inline_data_are_the_programs_again_when_they_are_posted() {
    let long =
        if is_softs_own("32 KiB of inline data, elsewhere 256 bytes") { 32 << 10 } else { 256 };
    let net = Net::new();
    let (cq, mut buf) = (net.cq(64), vec![0_u8; 2 * long as usize]);
    let mr = net.mr(&mut buf, RW);
    let attr = || {
        let mut attr = net.init_attr(cq);
        attr.cap.max_inline_data = long;
        attr
    };
    let qp = [net.qp_with(attr()), net.qp_with(attr())];
    // SAFETY: the queue pairs are alive.
    let num = |end: usize| unsafe { (*qp[end]).qp_num };
    net.connect(qp[0], num(1), ConnectConfig::PATIENT);
    net.connect(qp[1], num(0), ConnectConfig::default());
    // SAFETY: the region is alive.
    let rkey = unsafe { (*mr).rkey };
    let inline = SIGNALED | ibv_send_flags::IBV_SEND_INLINE;
    let send = |opcode, fill: u8| {
        let mut data = vec![fill; long as usize];
        let mut sges = [ibv_sge { addr: data.as_mut_ptr() as u64, length: long, lkey: 0 }];
        let mut wr = send_wr(1, opcode, &mut sges, inline);
        wr.wr.rdma.remote_addr = buf.as_ptr() as u64;
        wr.wr.rdma.rkey = rkey;
        assert_eq!(post_send(qp[0], &mut wr), 0);
        data.fill(0xee);
    };
    send(ibv_wr_opcode::IBV_WR_SEND, 1);
    send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 2);
    assert_eq!(post_recv(qp[1], 1, &mut [sge(mr, long as usize, long)]), 0);
    let seen = net.poll(cq, 3);
    assert!(seen.iter().all(|completion| completion.status == "SUCCESS"));
    assert!(buf[..long as usize].iter().all(|byte| *byte == 2), "written");
    assert!(buf[long as usize..].iter().all(|byte| *byte == 1), "sent");
    send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 3);
    assert_eq!(net.poll(cq, 1)[0].status, "SUCCESS");
    assert!(buf[..long as usize].iter().all(|byte| *byte == 3), "at once");
}
