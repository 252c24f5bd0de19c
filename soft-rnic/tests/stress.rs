//! Destroying and deregistering while others are at work.
//!
//! Shows: load.

mod common;

use core::sync::atomic::{AtomicBool, Ordering};

use common::*;
use host::sync::SetOnDrop;
use verbs_sys::*;

/// Something of verbs, lent to another thread.
#[derive(Clone, Copy)]
struct Lent<T>(T);

// SAFETY: the tests lend objects of verbs alone, which live until their scope ends, and which any
// thread may use.
unsafe impl<T> Send for Lent<T> {}
// SAFETY: as said above, several threads may use these objects at once.
unsafe impl<T> Sync for Lent<T> {}

impl<T: Copy> Lent<T> {
    fn get(&self) -> T {
        self.0
    }
}

#[test]
fn nothing_is_written_after_a_deregistration_has_returned() {
    const ROUNDS: usize = 40;
    // Long enough for a deregistration to happen in the middle of a write.
    const LEN: usize = 4 << 20;
    const TAIL: usize = LEN - 4096;
    let p = QpPair::new();
    let mut data = vec![0x55_u8; LEN];
    let source = p.net.mr(&mut data, RW);
    let stop = AtomicBool::new(false);
    let completed = core::sync::atomic::AtomicU64::new(0);
    let mut target = vec![0_u8; LEN];
    // Where the writer may write: the current key, and its region's address.
    let key = core::sync::atomic::AtomicU64::new(0);
    let addr = target.as_mut_ptr() as u64;
    let lent = Lent((&p, source));
    std::thread::scope(|scope| {
        let (stop, key, completed, lent) = (&stop, &key, &completed, &lent);
        let writer = scope.spawn(move || {
            let (p, source) = lent.get();
            let mut refused = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut sges = [sge(source, 0, LEN as u32)];
                let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                let mut wr = send_wr(1, opcode, &mut sges, SIGNALED);
                let rkey = key.load(Ordering::Relaxed) as u32;
                wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: addr, rkey };
                assert_eq!(post_send(p.qp[0], &mut wr), 0);
                let status = p.net.poll(p.cq[0], 1)[0].status;
                completed.fetch_add(1, Ordering::SeqCst);
                match status {
                    "SUCCESS" => {}
                    "REM_ACCESS" => {
                        refused += 1;
                        reconnect(p);
                    }
                    other => panic!("{other}"),
                }
            }
            refused
        });
        let over = SetOnDrop(stop);
        for round in 0..ROUNDS {
            let mr = lent.get().0.net.mr(&mut target, RW);
            // SAFETY: the region is alive.
            key.store(u64::from(unsafe { (*mr).rkey }), Ordering::Relaxed);
            for _ in 0..20 {
                std::thread::yield_now();
            }
            lent.get().0.net.dereg(mr);
            // The memory is ours again. A write that is still under way ends there,
            // and has ended when the writer has seen two more completions.
            target[TAIL..].fill(0xaa);
            let seen = completed.load(Ordering::SeqCst);
            while completed.load(Ordering::SeqCst) < seen + 2 {
                std::thread::yield_now();
            }
            let intact = target[TAIL..].iter().all(|&b| b == 0xaa);
            assert!(intact, "written after round {round}");
        }
        drop(over);
        assert!(writer.join().unwrap() > 0, "the writer met invalid keys");
    });
    p.net.dereg(source);
    p.close();
}

fn reconnect(p: &QpPair) {
    for end in 0..2 {
        assert_eq!(p.net.to_state(p.qp[end], ibv_qp_state::IBV_QPS_RESET), 0);
    }
    p.net.connect(p.qp[0], p.num(1), ConnectConfig::default());
    p.net.connect(p.qp[1], p.num(0), ConnectConfig::default());
}

#[test]
fn a_queue_pair_can_go_while_its_peer_sends() {
    let rounds = if is_wired() { 20 } else { 300 };
    let net = Net::new();
    for _ in 0..rounds {
        let cq = [net.cq(256), net.cq(256)];
        let qp = [net.qp(cq[0]), net.qp(cq[1])];
        // SAFETY: the queue pairs are alive.
        let num = unsafe { [(*qp[0]).qp_num, (*qp[1]).qp_num] };
        let mut buf = vec![0_u8; 4096];
        let mr = net.mr(&mut buf, RW);
        // The peer goes at once: each request ends, and it does not matter how.
        net.connect(qp[0], num[1], ConnectConfig::DEAD);
        net.connect(qp[1], num[0], ConnectConfig::DEAD);
        for id in 0..64 {
            assert_eq!(post_recv(qp[1], id, &mut [sge(mr, 2048, 2048)]), 0);
        }
        let (net, lent) = (&net, Lent((qp, cq, mr)));
        std::thread::scope(|scope| {
            let lent = &lent;
            scope.spawn(move || {
                let (qp, cq, mr) = lent.get();
                for id in 0..64 {
                    let mut sges = [sge(mr, 0, 1024)];
                    let opcode = ibv_wr_opcode::IBV_WR_SEND;
                    let mut wr = send_wr(id, opcode, &mut sges, SIGNALED);
                    assert_eq!(post_send(qp[0], &mut wr), 0);
                }
                let all = net.poll(cq[0], 64);
                assert!(all.iter().map(|wc| wc.id).eq(0..64), "each once, in order");
            });
            std::thread::yield_now();
            let (qp, cq, _) = lent.get();
            net.destroy_qp(qp[1]);
            // On rxe they stay.
            let stay = |wc: &Wc| is_rxe() && wc.qp == num[1];
            assert!(net.poll_now(cq[1]).iter().all(stay), "its completions are gone");
            net.destroy_cq(cq[1]);
        });
        net.destroy_qp(qp[0]);
        net.destroy_cq(cq[0]);
        net.dereg(mr);
    }
    net.close();
}

#[test]
fn errors_of_both_ends_at_once_end_in_two_flushed_ends() {
    for _ in 0..100 {
        let p = QpPair::new();
        let lent = Lent(&p);
        std::thread::scope(|scope| {
            for end in 0..2 {
                let lent = &lent;
                scope.spawn(move || {
                    let p = lent.get();
                    // A write to nowhere: takes the other end along.
                    let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                    let mut sges = [sge(p.mr[end], 0, 8)];
                    let mut wr = send_wr(1, opcode, &mut sges, SIGNALED);
                    assert_eq!(post_recv(p.qp[end], 2, &mut []), 0);
                    assert_eq!(post_send(p.qp[end], &mut wr), 0);
                });
            }
        });
        for end in 0..2 {
            if is_rxe() {
                // A receive request that was posted after the error is seen when the state
                // is entered again.
                assert!(p.net.reaches(p.qp[end], ibv_qp_state::IBV_QPS_ERR));
                assert_eq!(p.net.to_state(p.qp[end], ibv_qp_state::IBV_QPS_ERR), 0);
            }
            let mut all = p.net.poll(p.cq[end], 2);
            all.sort_by_key(|wc| wc.id);
            assert_ne!(all[0].status, "SUCCESS");
            assert_eq!(all[1].status, "WR_FLUSH");
        }
        p.net.async_events();
        p.close();
    }
}

#[test]
fn many_senders_share_a_completion_queue_and_a_receive_queue() {
    const SENDERS: usize = 4;
    const MESSAGES: u64 = 500;
    let net = Net::new();
    let cq = net.cq(1024);
    let mut buf = vec![0_u8; 1 << 16];
    let mr = net.mr(&mut buf, RW);
    // SAFETY: zero is a valid value of every field; the domain is alive.
    let srq = unsafe {
        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        attr.attr.max_wr = 64;
        attr.attr.max_sge = 1;
        (net.v.create_srq)(net.pd, &mut attr)
    };
    let receivers: Vec<_> =
        (0..SENDERS).map(|_| net.qp_with(ibv_qp_init_attr { srq, ..net.init_attr(cq) })).collect();
    let forgiving = ConnectConfig::PATIENT;
    let ends: Vec<_> = receivers
        .iter()
        .map(|receiver| {
            let own = net.cq(64);
            let qp = net.qp(own);
            // SAFETY: the queue pairs are alive.
            unsafe {
                net.connect(qp, (**receiver).qp_num, forgiving);
                net.connect(*receiver, (*qp).qp_num, forgiving);
            }
            (qp, own)
        })
        .collect();
    let post = |id: u64| {
        let mut sges = [sge(mr, 1024 * (id as usize % 32) + 1024, 64)];
        let mut wr = ibv_recv_wr {
            wr_id: id,
            next: core::ptr::null_mut(),
            sg_list: sges.as_mut_ptr(),
            num_sge: 1,
        };
        // SAFETY: the buffer is not posted twice.
        assert_eq!(unsafe { ibv_post_srq_recv(srq, &mut wr, &mut core::ptr::null_mut()) }, 0);
    };
    (0..32).for_each(post);
    std::thread::scope(|scope| {
        for end in &ends {
            let (net, lent) = (&net, Lent((*end, mr)));
            scope.spawn(move || {
                let ((qp, own), mr) = lent.get();
                for id in 0..MESSAGES {
                    let mut sges = [sge(mr, 0, 16)];
                    let opcode = ibv_wr_opcode::IBV_WR_SEND;
                    let mut wr = send_wr(id, opcode, &mut sges, SIGNALED);
                    assert_eq!(post_send(qp, &mut wr), 0);
                    assert_eq!(net.poll(own, 1)[0].status, "SUCCESS");
                }
            });
        }
        let mut counts = std::collections::BTreeMap::new();
        let mut received = 0;
        while received < SENDERS as u64 * MESSAGES {
            for wc in net.poll(cq, 1) {
                assert_eq!((wc.status, wc.len), ("SUCCESS", 16));
                *counts.entry(wc.qp).or_insert(0) += 1;
                post(wc.id);
                received += 1;
            }
        }
        assert!(counts.values().all(|n| *n == MESSAGES), "{counts:?}");
    });
    for (receiver, (qp, own)) in receivers.iter().zip(&ends) {
        net.destroy_qp(*receiver);
        net.destroy_qp(*qp);
        net.destroy_cq(*own);
    }
    // SAFETY: no queue pair uses it.
    assert_eq!(unsafe { (net.v.destroy_srq)(srq) }, 0);
    net.destroy_cq(cq);
    net.dereg(mr);
    net.close();
}

#[test]
fn a_receive_slot_is_free_when_its_completion_is_seen() {
    const MESSAGES: u64 = 3_000;
    let forgiving = ConnectConfig::PATIENT;
    let p = QpPair::with(Net::new(), forgiving, forgiving);
    let depth = p.net.query(p.qp[1]).cap.max_recv_wr;
    for id in 0..depth {
        assert_eq!(post_recv(p.qp[1], u64::from(id), &mut [sge(p.mr[1], 0, 64)]), 0);
    }
    let lent = Lent(&p);
    std::thread::scope(|scope| {
        let lent = &lent;
        scope.spawn(move || {
            let p = lent.get();
            for id in 0..MESSAGES {
                let mut sges = [sge(p.mr[0], 0, 16)];
                let opcode = ibv_wr_opcode::IBV_WR_SEND;
                let mut wr = send_wr(id, opcode, &mut sges, SIGNALED);
                assert_eq!(post_send(p.qp[0], &mut wr), 0);
                assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
            }
        });
        let mut received = 0;
        while received < MESSAGES {
            for wc in p.net.poll(p.cq[1], 1) {
                // The queue was full: this is the only free slot.
                assert_eq!(post_recv(p.qp[1], wc.id, &mut [sge(p.mr[1], 0, 64)]), 0);
                received += 1;
            }
        }
    });
    p.close();
}
