//! Checked processes: what they report, and two ends that make mistakes.

use std::process::Output;

use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

use super::*;

/// Memory that peers do not reach.
pub const LOCAL: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;

/// Returns the lines that a process has reported, without its number.
pub fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let line = |line: &str| {
        let (_, line) = line.strip_prefix("rdma-conn check ")?.split_once(": ")?;
        Some(line.to_owned())
    };
    text.lines().filter_map(line).collect()
}

/// Two ends with memory that peers do not reach.
pub struct CheckedEnds {
    pub net: Net,
    pub cq: [*mut ibv_cq; 2],
    pub qp: [*mut ibv_qp; 2],
    pub mr: [*mut ibv_mr; 2],
    pub buf: [Vec<u8>; 2],
}

impl CheckedEnds {
    pub fn new() -> CheckedEnds {
        CheckedEnds::connect(ibv_qp_type::IBV_QPT_RC, &provider().1, 16)
    }

    /// Creates ends that send again half a second after a refusal: not before the test has gone on.
    pub fn patient() -> CheckedEnds {
        let config = ConnectConfig { min_rnr_timer: 31, ..ConnectConfig::PATIENT };
        CheckedEnds::with(ibv_qp_type::IBV_QPT_RC, &provider().1, 16, config)
    }

    pub fn connect(kind: ibv_qp_type, device: &str, cqe: i32) -> CheckedEnds {
        let config = ConnectConfig::PATIENT;
        CheckedEnds::with(kind, device, cqe, config)
    }

    pub fn with(kind: ibv_qp_type, device: &str, cqe: i32, config: ConnectConfig) -> CheckedEnds {
        let net = Net::on(soft_rnic::table(), device);
        let cq = [net.cq(cqe), net.cq(cqe)];
        let qp = cq.map(|cq| net.qp_of(kind, cq));
        for (end, other) in [(0, 1), (1, 0)] {
            // SAFETY: both are alive.
            net.connect(qp[end], unsafe { (*qp[other]).qp_num }, config);
        }
        let mut buf = [vec![1; 4096], vec![2; 4096]];
        let mr = [net.mr(&mut buf[0], LOCAL), net.mr(&mut buf[1], LOCAL)];
        CheckedEnds { net, cq, qp, mr, buf }
    }

    /// Entries of either completion queue.
    pub fn cqe(&self) -> u64 {
        // SAFETY: it is alive.
        unsafe { (*self.cq[1]).cqe as u64 }
    }

    pub fn send(&self, id: u64, len: u32, flags: ibv_send_flags) {
        let mut sges = [sge(self.mr[0], 0, len)];
        assert_eq!(post_send(self.qp[0], &mut send_wr(id, W::IBV_WR_SEND, &mut sges, flags)), 0);
    }

    pub fn receive(&self, id: u64, offset: usize, len: u32) {
        assert_eq!(post_recv(self.qp[1], id, &mut [sge(self.mr[1], offset, len)]), 0);
    }

    /// Takes one completion, and no more.
    pub fn poll(&self, end: usize) -> Wc {
        let mut wc = ibv_wc::default();
        // SAFETY: the queue is alive; there is room for one.
        while unsafe { ibv_poll_cq(self.cq[end], 1, &mut wc) } == 0 {
            std::thread::yield_now();
        }
        Wc::from(&wc)
    }

    /// Changes a byte as a program does that has its own ideas of when it may.
    pub fn change(&self, end: usize, at: usize) {
        let byte = self.buf[end].as_ptr().wrapping_add(at).cast_mut();
        // SAFETY: memory of this test, which the device looks at by copies of its own.
        unsafe { byte.write_volatile(byte.read_volatile() ^ 0x55) };
    }

    pub fn close(self) {
        for end in [0, 1] {
            self.net.destroy_qp(self.qp[end]);
            self.net.destroy_cq(self.cq[end]);
            self.net.dereg(self.mr[end]);
        }
        self.net.close();
    }
}

#[track_caller]
pub fn assert_line(line: &str, begins: &str, ends: &str) {
    assert!(line.starts_with(begins) && line.contains(ends), "{line}");
}
