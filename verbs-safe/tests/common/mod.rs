//! Code that the integration tests share. The device is chosen in one place: soft0, or the one that
//! `RDMA_CONN_DEVICE` names.
#![allow(dead_code, unreachable_pub, reason = "each test crate uses a part of it")]

#[path = "../../../tests/support/budget.rs"]
pub mod budget;
#[path = "../../../tests/support/tally.rs"]
pub mod tally;

use std::time::Instant;

use budget::Budget;
use verbs_safe::*;

pub use budget::PATIENCE;

pub fn context() -> Context {
    let wanted = std::env::var("RDMA_CONN_DEVICE").unwrap_or_else(|_| "soft0".into());
    tally::took(&wanted);
    let table = |name: &str| match name {
        "soft0" => Some(soft_rnic::table()),
        _ => verbs_sys::load().ok(),
    };
    let table = table(&wanted).expect("libibverbs, for the device that RDMA_CONN_DEVICE names");
    let devices = devices(table).expect("a list of devices");
    let device = devices.iter().find(|d| d.name() == wanted);
    device.unwrap_or_else(|| panic!("no device {wanted}")).open().expect("a context")
}

/// Parameters of both ends of a pair.
#[derive(Clone, Copy)]
pub struct PairConfig {
    pub transport: Transport,
    pub sends: u32,
    pub send_slots: u32,
    pub recv_slots: u32,
    pub slot_bytes: usize,
    pub max_inline: u32,
    pub max_parts: u32,
    pub access: RemoteAccess,
    pub rnr_retry: u8,
    /// READs and atomics in flight.
    pub rd_atomic: u8,
    pub budget: Budget,
}

impl Default for PairConfig {
    fn default() -> PairConfig {
        PairConfig {
            transport: Transport::Rc,
            sends: 16,
            send_slots: 8,
            recv_slots: 16,
            slot_bytes: 256,
            max_inline: 0,
            max_parts: 1,
            access: RemoteAccess::ALL,
            rnr_retry: 0, // a receive that is posted too late is an error of the test
            rd_atomic: 4,
            budget: budget::LIVING,
        }
    }
}

/// One end: a queue pair with completion queues of its own.
pub struct TestEnd<R: Recycle = ()> {
    pub send_cq: CompletionQueue,
    pub recv_cq: CompletionQueue,
    pub control: QpControl,
    pub send: SendQueue,
    pub recv: RecvQueue<R>,
}

pub fn end<R: Recycle>(pd: &ProtectionDomain, shape: PairConfig, recycler: R) -> TestEnd<R> {
    let cq = |entries| pd.context().create_cq(CqConfig::new(entries)).unwrap();
    end_on(pd, (&cq(shape.sends), &cq(shape.recv_slots)), shape, recycler)
}

pub fn end_on<R: Recycle>(
    pd: &ProtectionDomain,
    cqs: (&CompletionQueue, &CompletionQueue),
    shape: PairConfig,
    recycler: R,
) -> TestEnd<R> {
    let qp = pd.create_qp(&config(cqs, shape), recycler).unwrap();
    let recv = qp.recv.expect("a receive queue of its own");
    let (send_cq, recv_cq) = (cqs.0.clone(), cqs.1.clone());
    TestEnd { send_cq, recv_cq, control: qp.control, send: qp.send, recv }
}

pub fn config<'a>(
    (send_cq, recv_cq): (&'a CompletionQueue, &'a CompletionQueue),
    shape: PairConfig,
) -> QueuePairConfig<'a> {
    QueuePairConfig {
        transport: shape.transport,
        access: shape.access,
        max_send_wr: shape.sends,
        send_slots: shape.send_slots,
        send_slot_bytes: shape.slot_bytes,
        max_inline: shape.max_inline,
        max_parts: shape.max_parts,
        recv: RecvSide::Own { slots: shape.recv_slots, slot_bytes: shape.slot_bytes },
        ..QueuePairConfig::new(send_cq, recv_cq)
    }
}

pub fn connect_controls(a: &QpControl, b: &QpControl, rnr_retry: u8) {
    connect_with(a, b, PairConfig { rnr_retry, ..PairConfig::default() });
}

pub fn connect_with(a: &QpControl, b: &QpControl, shape: PairConfig) {
    let context = a.context();
    let gid = context.choose_gid(1, None).unwrap();
    let (psn_a, psn_b) = (random_psn(), random_psn());
    let attr = |psn| ConnectAttr {
        rnr_retry: shape.rnr_retry,
        retry_cnt: shape.budget.retry_count,
        timeout: shape.budget.timeout,
        min_rnr_timer: 1, // 0.01 ms
        max_rd_atomic: shape.rd_atomic,
        max_dest_rd_atomic: shape.rd_atomic,
        ..ConnectAttr::new(gid.index as u8, psn)
    };
    let (end_a, end_b) = (a.endpoint(1, gid, psn_a).unwrap(), b.endpoint(1, gid, psn_b).unwrap());
    a.connect(&end_b, &attr(psn_a)).unwrap();
    b.connect(&end_a, &attr(psn_b)).unwrap();
}

/// Two connected ends, all receives posted at both.
pub fn pair(shape: PairConfig) -> (TestEnd, TestEnd) {
    let pd = context().alloc_pd().unwrap();
    pair_on(&pd, shape)
}

pub fn pair_on(pd: &ProtectionDomain, shape: PairConfig) -> (TestEnd, TestEnd) {
    let (mut a, mut b) = (end(pd, shape, ()), end(pd, shape, ()));
    connect_with(&a.control, &b.control, shape);
    a.post_all();
    b.post_all();
    (a, b)
}

impl<R: Recycle> TestEnd<R> {
    pub fn post_all(&mut self) {
        let slots: Vec<u32> = (0..self.recv.pool().slots()).collect();
        self.recv.post(&slots).unwrap();
    }

    /// Stages and posts one signalled SEND.
    pub fn send(&mut self, bytes: &[u8]) {
        let slot = self.send.next_slot().expect("a free slot");
        slot[..bytes.len()].copy_from_slice(bytes);
        self.send.stage(SendOp::Send { len: bytes.len() as u32 }, true).unwrap();
        self.send.post().unwrap();
    }

    /// Waits for the completions of `wanted` sends.
    pub fn sends(&mut self, wanted: usize, mut f: impl FnMut(&mut SendQueue, Completion<'_>)) {
        completions(&self.send_cq, wanted, |completion| f(&mut self.send, completion));
    }

    /// Waits for the completions of `wanted` receives.
    pub fn recvs(&mut self, wanted: usize, mut f: impl FnMut(&mut RecvQueue<R>, Completion<'_>)) {
        completions(&self.recv_cq, wanted, |completion| f(&mut self.recv, completion));
    }

    /// Waits for one successful send.
    pub fn sent(&mut self) {
        self.sends(1, |send, completion| {
            assert_eq!(completion.status(), WcStatus::SUCCESS);
            send.retire(&completion).unwrap();
        });
    }

    /// Waits for one send, and retires it: its status.
    pub fn status_of_one(&mut self) -> WcStatus {
        let mut status = None;
        self.sends(1, |send, completion| {
            status = Some(completion.status());
            send.retire(&completion).unwrap();
        });
        status.unwrap()
    }

    /// Writes to all of `remote`: how that ended.
    pub fn write(&mut self, remote: RemoteSpan) -> WcStatus {
        self.send.stage(SendOp::Write { len: remote.len as u32, remote }, true).unwrap();
        self.send.post().unwrap();
        self.status_of_one()
    }

    /// Waits for one message.
    pub fn receive(&mut self) -> RecvBuf<R> {
        let mut message = None;
        self.recvs(1, |recv, completion| message = Some(recv.take(completion).unwrap()));
        message.unwrap()
    }

    /// Reports whether nothing has completed.
    pub fn is_quiet(&self) -> bool {
        let mut batch = CompletionBatch::new(1);
        [&self.send_cq, &self.recv_cq].iter().all(|cq| cq.poll(&mut batch).unwrap() == 0)
    }
}

/// Polls until `wanted` completions were seen by `f`; no more than these are taken.
pub fn completions(cq: &CompletionQueue, wanted: usize, mut f: impl FnMut(Completion<'_>)) {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = 0;
    while seen < wanted {
        assert!(Instant::now() < deadline, "{seen} of {wanted} completions arrived");
        let mut batch = CompletionBatch::new(wanted - seen);
        match cq.poll(&mut batch).unwrap() {
            0 => std::thread::yield_now(), // the peer may need this processor
            n => seen += n,
        }
        batch.drain().for_each(&mut f);
    }
}
