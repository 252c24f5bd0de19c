//! Datagrams for which the ring has no room: they wait for a process that reads, and are
//! dropped while one reads nothing.

use super::*;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::peers::process::ring::REQUESTS;
use crate::queues::outcome::WaitCause;

/// A made-up peer with this slot, which has been met, and a queue pair for datagrams to it.
struct Datagrams {
    peer: Wild,
    qp: Arc<Qp>,
    ah: *mut ibv_ah,
    _process: Sleeper,
}

impl Datagrams {
    fn to(slot: u32) -> Datagrams {
        let process = Sleeper::new();
        let peer = Wild::at_slot(slot, process.pid());
        peer.met();
        let qp = connected_to(ibv_qp_type::IBV_QPT_UD, far(slot));
        let mut attr = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
        attr.grh.dgid.raw = qp.pd.context.device.gid();
        // SAFETY: the domain is alive, and so are the attributes.
        let ah = unsafe { (crate::table().create_ah)((*qp.as_abi()).pd, &mut attr) };
        assert!(!ah.is_null());
        Datagrams { peer, qp, ah, _process: process }
    }

    /// Posts one; false if the send queue is full.
    fn post(&self) -> bool {
        // SAFETY: a request without a list, on a queue pair that is alive.
        unsafe {
            let mut wr: ibv_send_wr = core::mem::zeroed();
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
            wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let (ah, remote_qpn) = (self.ah, far(self.peer.pair.slot));
            wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey: 1 };
            ibv_post_send(self.qp.as_abi(), &mut wr, &mut null_mut()) == 0
        }
    }

    /// Posts until nothing completes any more; returns how many were sent.
    fn fill(&self) -> u32 {
        let mut sent = 0;
        while sent <= REQUESTS && self.post() {
            sent += self.completed();
        }
        sent
    }

    /// Returns the number of messages that have completed since, all of them well.
    fn completed(&self) -> u32 {
        let mut count = 0;
        loop {
            let statuses = statuses(&self.qp);
            if statuses.is_empty() {
                return count;
            }
            assert!(statuses.iter().all(|status| *status == SUCCESS), "{statuses:?}");
            count += statuses.len() as u32;
        }
    }

    /// The peer has read so far, and this process has looked.
    fn read(&self, requests: u32) {
        self.peer.rings.requests_read.store(requests, Ordering::Relaxed);
        let (device, mut deferred) =
            (crate::objects::device::default_device(), DeferredWork::default());
        // Another test's thread may be at it: it is waited for.
        device.peers.as_ref().unwrap().progress.lock().run(&device, &mut deferred);
        deferred.run();
    }

    fn expire(&self) {
        expire(&self.qp);
    }

    fn waits(&self) -> bool {
        matches!(self.qp.sq.lock().requester.waits, Some((WaitCause::Room, _)))
    }

    fn dropped(&self) -> u64 {
        self.qp.sq.lock().counters.dropped
    }
}

/// Expires the deadline of the full ring that a queue pair waits for.
pub(super) fn expire(qp: &Arc<Qp>) {
    let deadline = qp.sq.lock().requester.backpressure.deadline();
    let mut deferred = DeferredWork::default();
    qp.expired(deadline.expect("one is armed"), &mut deferred);
    deferred.run();
}

/// Depth of the send queues of these tests.
const DEPTH: u32 = 64;

#[test]
fn datagrams_wait_until_their_process_has_read() {
    let net = Datagrams::to(slot(91));
    assert_eq!(net.fill(), REQUESTS);
    assert!(net.waits());
    // A little room does not wake the queue pair that waits.
    net.read(1);
    assert_eq!(net.completed(), 0);
    net.read(REQUESTS);
    assert_eq!((net.completed(), net.dropped(), net.waits()), (DEPTH, 0, false));
}

#[test]
fn datagrams_to_a_stalled_process_are_dropped_until_it_reads() {
    let net = Datagrams::to(slot(92));
    assert_eq!(net.fill(), REQUESTS);
    net.expire();
    assert_eq!((net.completed(), net.dropped(), net.waits()), (DEPTH, DEPTH.into(), false));
    // No message waits for it again.
    assert!(net.post());
    assert_eq!((net.completed(), net.dropped()), (1, u64::from(DEPTH) + 1));
    net.read(1);
    assert_eq!((net.fill(), net.dropped(), net.waits()), (1, u64::from(DEPTH) + 1, true));
}

#[test]
fn datagrams_wait_for_a_process_that_reads_slowly() {
    let net = Datagrams::to(slot(93));
    assert_eq!(net.fill(), REQUESTS);
    // It has read something by each deadline.
    for read in 1..10 {
        net.peer.rings.requests_read.store(read, Ordering::Relaxed);
        net.expire();
        assert_eq!((net.completed(), net.dropped(), net.waits()), (1, 0, true));
    }
}
