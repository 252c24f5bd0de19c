//! Speed of the device alone: posts, polls and reposts by hand.
//!
//! ```text
//! cargo run --release -p soft-rnic --example raw_loop [-- MILLISECONDS [LOOP]]
//! soft-rnic/examples/instructions.sh
//! ```
//!
//! LOOP, 0 to 3, runs one of the small ones alone; `instructions.sh` counts what a request takes
//! within one thread (`raw_loop count`). Three loops: 16-byte sends within one thread and between two (postlists of 8,
//! at most 256 unacknowledged, 32 completions a poll, reposts of 32); the same
//! one message at a time, each 16th signalled; 64 KiB between two threads, beside
//! what `memcpy` gives for blocks of that size in the same run.

mod common;

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use common::{ACCESS, connect};
use verbs_sys::*;

const DEPTH: usize = 512;
const UNACKED: u64 = 256;

/// One end: a queue pair with its completion queue and its ring of buffers.
struct LoopEnd {
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    lkey: u32,
    rkey: u32,
    ring: *mut u8,
    size: u32,
}

// SAFETY: verbs may be called from any thread; each end is used by one.
unsafe impl Send for LoopEnd {}

/// Two connected ends with buffers of `size` bytes. Nothing is torn down: the
/// process ends after the measurement.
fn pair(size: u32) -> [LoopEnd; 2] {
    let verbs = soft_rnic::table();
    // SAFETY: the calls of a program that sets a connection up, in their order.
    unsafe {
        let list = (verbs.get_device_list)(null_mut());
        let ctx = (verbs.open_device)(*list);
        (verbs.free_device_list)(list);
        let pd = (verbs.alloc_pd)(ctx);
        let mut gid = ibv_gid::default();
        (verbs.query_gid)(ctx, 1, 0, &mut gid);
        let ends = [(); 2].map(|()| {
            let cq = (verbs.create_cq)(ctx, DEPTH as i32, null_mut(), null_mut(), 0);
            let mut attr: ibv_qp_init_attr = core::mem::zeroed();
            (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, ibv_qp_type::IBV_QPT_RC);
            let (max_send_wr, max_recv_wr) = (DEPTH as u32, DEPTH as u32);
            let (max_send_sge, max_recv_sge) = (1, 1);
            attr.cap = ibv_qp_cap {
                max_send_wr,
                max_recv_wr,
                max_send_sge,
                max_recv_sge,
                max_inline_data: 0,
            };
            let qp = (verbs.create_qp)(pd, &mut attr);
            let stride = size.next_multiple_of(64) as usize;
            let bytes = vec![1_u8; DEPTH * stride].leak();
            let mr = (verbs.reg_mr)(pd, bytes.as_mut_ptr().cast(), bytes.len(), ACCESS);
            let (lkey, rkey) = ((*mr).lkey, (*mr).rkey);
            LoopEnd { cq, qp, lkey, rkey, ring: bytes.as_mut_ptr(), size }
        });
        for (end, to) in [(0, 1), (1, 0)] {
            connect(&verbs, ends[end].qp, (*ends[to].qp).qp_num, gid);
        }
        ends
    }
}

/// Posts receive requests `from .. from + n`.
fn repost(end: &LoopEnd, from: u64, n: usize) {
    let mut sges = [ibv_sge { addr: 0, length: end.size, lkey: end.lkey }; 32];
    let blank = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 1 };
    let mut wrs = [blank; 32];
    let stride = end.size.next_multiple_of(64) as usize;
    for i in 0..n {
        let slot = (from as usize + i) % DEPTH;
        sges[i].addr = end.ring as u64 + (slot * stride) as u64;
        wrs[i].wr_id = slot as u64;
        wrs[i].sg_list = &mut sges[i];
        wrs[i].next = if i + 1 < n { &mut wrs[i + 1] } else { null_mut() };
    }
    // SAFETY: the buffers are this end's, and not posted already.
    assert_eq!(unsafe { ibv_post_recv(end.qp, wrs.as_mut_ptr(), &mut null_mut()) }, 0);
}

/// The sending side of a loop.
struct LoopSender {
    end: LoopEnd,
    batch: usize,
    /// One in this number of requests is signalled.
    signal: u64,
    posted: u64,
    acked: u64,
    opcode: ibv_wr_opcode,
    /// Of the peer's ring, for WRITEs and READs.
    remote: (u64, u32),
    sges: [ibv_sge; 8],
    wrs: Box<[ibv_send_wr; 8]>,
    wc: [ibv_wc; 32],
}

impl LoopSender {
    fn new(end: LoopEnd, batch: usize, signal: u64) -> LoopSender {
        // SAFETY: zero is a valid value of every field.
        let wrs: Box<[ibv_send_wr; 8]> = Box::new(unsafe { core::mem::zeroed() });
        let sges = [ibv_sge { addr: 0, length: end.size, lkey: end.lkey }; 8];
        let (opcode, remote) = (ibv_wr_opcode::IBV_WR_SEND, (0, 0));
        let wc = [ibv_wc::default(); 32];
        LoopSender { end, batch, signal, posted: 0, acked: 0, opcode, remote, sges, wrs, wc }
    }

    /// Posts one list, if the window permits.
    fn post(&mut self) -> bool {
        if self.posted - self.acked + self.batch as u64 > UNACKED {
            return false;
        }
        let stride = self.end.size.next_multiple_of(64) as usize;
        for i in 0..self.batch {
            self.posted += 1;
            let slot = self.posted as usize % DEPTH;
            self.sges[i].addr = self.end.ring as u64 + (slot * stride) as u64;
            let next = if i + 1 < self.batch { &raw mut self.wrs[i + 1] } else { null_mut() };
            let wr = &mut self.wrs[i];
            wr.wr_id = self.posted;
            wr.sg_list = &mut self.sges[i];
            wr.num_sge = 1;
            wr.opcode = self.opcode;
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = self.remote;
            wr.send_flags = if self.posted.is_multiple_of(self.signal) { 2 } else { 0 };
            wr.next = next;
        }
        let mut bad = null_mut();
        // SAFETY: the buffers are not written until they are acknowledged.
        assert_eq!(unsafe { ibv_post_send(self.end.qp, self.wrs.as_mut_ptr(), &mut bad) }, 0);
        true
    }

    fn reap(&mut self) {
        // SAFETY: there is room for 32.
        let n = unsafe { ibv_poll_cq(self.end.cq, 32, self.wc.as_mut_ptr()) };
        for wc in &self.wc[..n as usize] {
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            self.acked = wc.wr_id;
        }
    }
}

/// The receiving side of a loop.
struct LoopReceiver {
    end: LoopEnd,
    received: u64,
    reposted: u64,
    wc: [ibv_wc; 32],
}

impl LoopReceiver {
    fn new(end: LoopEnd) -> LoopReceiver {
        for from in (0..DEPTH as u64).step_by(32) {
            repost(&end, from, 32);
        }
        LoopReceiver { end, received: 0, reposted: 0, wc: [ibv_wc::default(); 32] }
    }

    fn poll(&mut self) {
        // SAFETY: there is room for 32.
        let n = unsafe { ibv_poll_cq(self.end.cq, 32, self.wc.as_mut_ptr()) };
        for wc in &self.wc[..n as usize] {
            assert_eq!(wc.byte_len, self.end.size);
        }
        self.received += n as u64;
        while self.received - self.reposted >= 32 {
            repost(&self.end, self.reposted, 32);
            self.reposted += 32;
        }
    }
}

/// The rate of the best slice of a run: what the code can do while no other program
/// wants the processors. (An average would measure those programs, too.)
struct Best {
    since: Instant,
    done: u64,
    rate: f64,
}

impl Best {
    const SLICE: Duration = Duration::from_millis(10);

    fn new() -> Best {
        Best { since: Instant::now(), done: 0, rate: 0.0 }
    }

    /// `done` things have been done by now.
    fn sample(&mut self, done: u64) {
        let elapsed = self.since.elapsed();
        if elapsed >= Self::SLICE {
            self.rate = self.rate.max((done - self.done) as f64 / elapsed.as_secs_f64());
            (self.since, self.done) = (Instant::now(), done);
        }
    }
}

/// Messages a second within one thread.
fn one_thread(size: u32, batch: usize, signal: u64, time: Duration) -> f64 {
    let [a, b] = pair(size);
    let (mut sender, mut receiver) = (LoopSender::new(a, batch, signal), LoopReceiver::new(b));
    let (start, mut best) = (Instant::now(), Best::new());
    while start.elapsed() < time {
        for _ in 0..64 {
            for _ in 0..32 / batch {
                sender.post();
            }
            receiver.poll();
            sender.reap();
        }
        best.sample(receiver.received);
    }
    best.rate
}

/// Does `requests` requests of the operation within one thread, in lists, for their instructions to
/// be counted.
fn counted(opcode: ibv_wr_opcode, batch: usize, size: u32, requests: u64) {
    let [a, b] = pair(size);
    let (mut sender, mut receiver) = (LoopSender::new(a, batch, 8), LoopReceiver::new(b));
    (sender.opcode, sender.remote) = (opcode, (receiver.end.ring as u64, receiver.end.rkey));
    while sender.acked < requests {
        for _ in 0..32 / batch {
            sender.post();
        }
        if opcode == ibv_wr_opcode::IBV_WR_SEND {
            receiver.poll();
        }
        sender.reap();
    }
}

/// On a cache line of its own.
#[repr(align(128))]
struct Alone<T>(T);

/// Messages a second between two threads. Credits go by a shared counter, so that
/// no message meets a receiver that is not ready.
fn two_threads(size: u32, batch: usize, signal: u64, time: Duration) -> f64 {
    let [a, b] = pair(size);
    let (mut sender, receiver) = (LoopSender::new(a, batch, signal), LoopReceiver::new(b));
    let (credit, stop) = (Alone(AtomicU64::new(DEPTH as u64)), AtomicBool::new(false));
    let pinned = Barrier::new(2);
    let before = soft_rnic::counters().rnr_naks;
    let rate = std::thread::scope(|scope| {
        let (credit, stop, pinned) = (&credit, &stop, &pinned);
        let receiving = scope.spawn(move || {
            pin(&[1]);
            pinned.wait();
            let mut receiver = receiver;
            let mut best = Best::new();
            // Relaxed: only says when to end.
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..64 {
                    let before = receiver.reposted;
                    receiver.poll();
                    if receiver.reposted != before {
                        // Release: the reposts precede it.
                        credit.0.store(receiver.reposted + DEPTH as u64, Ordering::Release);
                    }
                }
                best.sample(receiver.received);
            }
            best.rate
        });
        pinned.wait();
        pin(&[0]);
        let start = Instant::now();
        let mut granted = DEPTH as u64;
        while start.elapsed() < time {
            for _ in 0..64 {
                if sender.posted + batch as u64 > granted {
                    granted = credit.0.load(Ordering::Acquire);
                } else {
                    sender.post();
                }
                if sender.posted - sender.acked >= UNACKED / 2 {
                    sender.reap();
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        pin(&[0, 1]);
        receiving.join().expect("the receiver's assertions hold")
    });
    assert_eq!(soft_rnic::counters().rnr_naks, before, "credits prevent RNR");
    rate
}

/// Binds the calling thread to processors: two spinning threads that the kernel
/// puts on one make progress by its time slices only.
fn pin(processors: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    // On a machine with one processor there is nothing to choose.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Bytes a second that `memcpy` moves, block by block through the same rings.
/// With a second thread that polls, as the receiver does, it is what two threads
/// can be compared with: on many machines they share a core's resources.
fn memcpy_rate(size: usize, time: Duration, with_poller: bool) -> f64 {
    let (from, mut to) = (vec![1_u8; DEPTH * size], vec![2_u8; DEPTH * size]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if with_poller {
            scope.spawn(|| {
                pin(&[1]);
                while !stop.load(Ordering::Relaxed) {
                    core::hint::black_box(&stop);
                }
            });
        }
        let (start, mut blocks, mut best) = (Instant::now(), 0, Best::new());
        while start.elapsed() < time {
            for _ in 0..16 {
                let at = blocks % DEPTH * size;
                to[at..at + size].copy_from_slice(&from[at..at + size]);
                core::hint::black_box(&mut to[at]);
                blocks += 1;
            }
            best.sample(blocks as u64);
        }
        stop.store(true, Ordering::Relaxed);
        best.rate * size as f64
    })
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [count, opcode, numbers @ ..] = &args[..]
        && count == "count"
    {
        let opcode = match &**opcode {
            "send" => ibv_wr_opcode::IBV_WR_SEND,
            "write" => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            other => panic!("{other}: send or write"),
        };
        let numbers: Vec<u64> = numbers.iter().map(|n| n.parse().expect("a number")).collect();
        let [batch, size, requests] = numbers[..] else { panic!("count OP LIST BYTES REQUESTS") };
        return counted(opcode, batch as usize, size as u32, requests);
    }
    let ms = std::env::args().nth(1).and_then(|ms| ms.parse().ok()).unwrap_or(500);
    let time = Duration::from_millis(ms);
    let show = |what: &str, rate: f64| {
        println!("{what:<44}{:8.2} M msg/s {:8.1} ns", rate / 1e6, 1e9 / rate);
    };
    type Loop = fn(u32, usize, u64, Duration) -> f64;
    let loops: [(&str, Loop, usize, u64); 4] = [
        ("16 B, one thread, lists of 8", one_thread, 8, 8),
        ("16 B, one thread, one at a time", one_thread, 1, 16),
        ("16 B, two threads, lists of 8", two_threads, 8, 8),
        ("16 B, two threads, one at a time", two_threads, 1, 16),
    ];
    let only: Option<usize> = std::env::args().nth(2).and_then(|n| n.parse().ok());
    for (i, (what, run, batch, signal)) in loops.into_iter().enumerate() {
        if only.is_none_or(|only| only == i) {
            show(what, run(16, batch, signal, time));
        }
    }
    if only.is_some() {
        return;
    }
    let big = 64 * 1024;
    let row = |what: &str, memcpy: f64, rate: f64| {
        println!(
            "64 KiB, {what}: {:.2} GB/s, memcpy {:.2} GB/s ({:.0} %)",
            rate / 1e9,
            memcpy / 1e9,
            100.0 * rate / memcpy
        );
    };
    let memcpy = memcpy_rate(big, time, false);
    row("one thread", memcpy, one_thread(big as u32, 8, 8, time) * big as f64);
    let memcpy = memcpy_rate(big, time, true);
    row("two threads", memcpy, two_threads(big as u32, 8, 8, time) * big as f64);
}
