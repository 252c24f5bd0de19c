//! What a message costs when many queue pairs send to one receiver, all of them in one
//! thread, so that instructions can be counted.
//!
//! ```text
//! SOFT_RNIC_APART=1 valgrind --tool=callgrind \
//!     target/release/examples/many QUEUE_PAIRS MESSAGES [LIST [WINDOW [BYTES]]]
//! ```
//!
//! Each queue pair in turn posts lists of LIST messages while no more than WINDOW of its
//! own are unacknowledged; one completion queue takes what arrives at all of them. The
//! counts of two runs that differ in MESSAGES only, subtracted, are what messages cost
//! (`--cache-sim=yes` counts what misses the caches, too). Processes meet by pidfd_open,
//! which valgrind has to know.

mod common;

use core::ptr::null_mut;
use std::time::Instant;

use common::{ACCESS, connect};
use verbs_sys::*;

/// A queue pair that sends, and the one that receives from it.
struct Lane {
    sender: *mut ibv_qp,
    receiver: *mut ibv_qp,
    posted: u64,
    acked: u64,
    /// Received, and not posted to receive again.
    taken: u32,
}

struct Many {
    lanes: Vec<Lane>,
    /// Of the senders, and of the receivers.
    cqs: [*mut ibv_cq; 2],
    /// The index of the lane of a queue pair, by number; numbers follow each other.
    first: u32,
    key: u32,
    bytes: *mut u8,
    size: u32,
    list: u32,
    window: u32,
}

const REPOST: u32 = 8;

impl Many {
    fn new(n: usize, size: u32, list: u32, window: u32) -> Many {
        let verbs = soft_rnic::table();
        // SAFETY: the calls of a program that sets connections up, in their order.
        unsafe {
            let devices = (verbs.get_device_list)(null_mut());
            let ctx = (verbs.open_device)(*devices);
            (verbs.free_device_list)(devices);
            let pd = (verbs.alloc_pd)(ctx);
            let mut gid = ibv_gid::default();
            (verbs.query_gid)(ctx, 1, 0, &mut gid);
            let entries = (n as u32 * window * 2).min(1 << 17) as i32;
            let cqs = [(); 2].map(|()| (verbs.create_cq)(ctx, entries, null_mut(), null_mut(), 0));
            let bytes = vec![1_u8; (size as usize).next_multiple_of(64) * 2].leak();
            let mr = (verbs.reg_mr)(pd, bytes.as_mut_ptr().cast(), bytes.len(), ACCESS);
            let qp = |cq| {
                let mut attr: ibv_qp_init_attr = core::mem::zeroed();
                (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, ibv_qp_type::IBV_QPT_RC);
                (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (window, 2 * window);
                (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
                let qp = (verbs.create_qp)(pd, &mut attr);
                assert!(!qp.is_null());
                qp
            };
            let lanes: Vec<Lane> = (0..n)
                .map(|_| {
                    let (sender, receiver) = (qp(cqs[0]), qp(cqs[1]));
                    connect(&verbs, sender, (*receiver).qp_num, gid);
                    connect(&verbs, receiver, (*sender).qp_num, gid);
                    Lane { sender, receiver, posted: 0, acked: 0, taken: 2 * window }
                })
                .collect();
            let first = (*lanes[0].sender).qp_num;
            let bytes = bytes.as_mut_ptr();
            Many { lanes, cqs, first, key: (*mr).lkey, bytes, size, list, window }
        }
    }

    /// Posts lists wherever there is room; returns the number of messages.
    fn post(&mut self, most: u64) -> u64 {
        let mut sge = ibv_sge { addr: self.bytes as u64, length: self.size, lkey: self.key };
        // SAFETY: zero is a valid value of every field.
        let mut wrs: [ibv_send_wr; 32] = unsafe { core::mem::zeroed() };
        let mut posted = 0;
        for lane in &mut self.lanes {
            if posted >= most
                || lane.posted - lane.acked + u64::from(self.list) > u64::from(self.window)
            {
                continue;
            }
            for i in 0..self.list as usize {
                lane.posted += 1;
                let is_last = i + 1 == self.list as usize;
                let next = if is_last { null_mut() } else { &raw mut wrs[i + 1] };
                let wr = &mut wrs[i];
                (wr.wr_id, wr.sg_list, wr.num_sge, wr.next) = (lane.posted, &mut sge, 1, next);
                wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
                let signals = lane.posted.is_multiple_of(u64::from(self.window / 2).max(1));
                wr.send_flags = if signals { 2 } else { 0 };
            }
            posted += u64::from(self.list);
            // SAFETY: the bytes that are sent are never written.
            let posted = unsafe { ibv_post_send(lane.sender, wrs.as_mut_ptr(), &mut null_mut()) };
            assert_eq!(posted, 0);
        }
        posted
    }

    fn lane(&mut self, qp_num: u32) -> &mut Lane {
        &mut self.lanes[(qp_num - self.first) as usize / 2]
    }

    fn poll(&mut self, which: usize) -> u64 {
        let mut wc = [ibv_wc::default(); 32];
        // SAFETY: there is room for 32.
        let n = unsafe { ibv_poll_cq(self.cqs[which], 32, wc.as_mut_ptr()) };
        for wc in &wc[..n as usize] {
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            let (size, lane) = (self.size, self.lane(wc.qp_num));
            if which == 0 {
                lane.acked = wc.wr_id;
                continue;
            }
            assert_eq!(wc.byte_len, size);
            lane.taken += 1;
            if lane.taken == REPOST {
                let lane = core::ptr::from_mut(lane);
                // SAFETY: `repost` reaches the lane by this reference only.
                self.repost(unsafe { &mut *lane });
            }
        }
        n as u64
    }

    fn repost(&self, lane: &mut Lane) {
        let stride = u64::from(self.size.next_multiple_of(64));
        let addr = self.bytes as u64 + stride;
        let mut sge = ibv_sge { addr, length: self.size, lkey: self.key };
        let mut wrs =
            [ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: &mut sge, num_sge: 1 }; 8];
        for i in 0..REPOST as usize - 1 {
            wrs[i].next = &raw mut wrs[i + 1];
        }
        // SAFETY: messages may overwrite each other: they are never read.
        unsafe { assert_eq!(ibv_post_recv(lane.receiver, wrs.as_mut_ptr(), &mut null_mut()), 0) };
        lane.taken -= REPOST;
    }

    fn run(&mut self, messages: u64) {
        let (mut sent, mut received) = (0, 0);
        while received < messages {
            sent += self.post(messages - sent);
            while self.poll(0) > 0 {}
            loop {
                let n = self.poll(1);
                received += n;
                if n == 0 {
                    break;
                }
            }
        }
    }
}

fn main() {
    let args: Vec<u64> =
        std::env::args().skip(1).map(|arg| arg.parse().expect("a number")).collect();
    let arg = |i: usize, otherwise| args.get(i).copied().unwrap_or(otherwise);
    let (n, messages) = (arg(0, 1) as usize, arg(1, 100_000));
    let (list, window, size) = (arg(2, 1) as u32, arg(3, 16) as u32, arg(4, 16) as u32);
    let mut many = Many::new(n, size, list, window);
    let mut lanes = core::mem::take(&mut many.lanes);
    for lane in &mut lanes {
        while lane.taken >= REPOST {
            many.repost(lane);
        }
    }
    many.lanes = lanes;
    let start = Instant::now();
    many.run(messages);
    let ns = start.elapsed().as_nanos() as f64 / messages as f64;
    println!(
        "{n} queue pairs, lists of {list}, windows of {window}, {size} B: {ns:.1} ns a message"
    );
}
