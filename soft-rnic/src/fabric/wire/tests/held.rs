//! Runs that are held back while a connection is at work.

use core::sync::atomic::Ordering;

use super::super::packets::HOLDS_FROM;
use super::super::progress::{before_waiting, take_own};
use super::*;
use crate::testing::queue_pair_with;

/// A connection at work on a device without a thread, which is said to look soon.
struct Busy {
    rig: Rig,
    posted: u64,
}

impl Busy {
    fn new(device: &str, peer: &str) -> Busy {
        let device = without_thread(device);
        let qp = queue_pair_with(&device, ibv_qp_type::IBV_QPT_RC, 128);
        let peer: IpAddr = peer.parse().unwrap();
        connect(qp, peer);
        // SAFETY: the queue pair is alive.
        let object = unsafe { Qp::from_abi(qp) }.unwrap().keep();
        let mut busy = Busy { rig: Rig { device, object, peer: socket(peer) }, posted: 0 };
        busy.watch(true);
        // What there is to do is not enough to hold anything back.
        for _ in 0..HOLDS_FROM {
            busy.post(ibv_wr_opcode::IBV_WR_SEND);
            busy.expect(1);
        }
        busy.watch(false);
        (0..40).for_each(|_| busy.post(ibv_wr_opcode::IBV_WR_SEND));
        busy.expect(40);
        busy.watch(true);
        busy
    }

    fn watch(&self, is_watched: bool) {
        self.rig.device.wire().unwrap().is_watched.store(is_watched, Ordering::Relaxed);
    }

    fn post(&mut self, opcode: ibv_wr_opcode) {
        self.posted += 1;
        // SAFETY: a request without memory, and a live queue pair.
        unsafe {
            let mut wr = ibv_send_wr { wr_id: self.posted, opcode, ..zeroed() };
            assert_eq!(post_send(self.rig.object.as_abi(), &mut wr, &mut null_mut()), 0);
        }
    }

    /// Posts as many messages.
    fn send(&mut self, n: usize) {
        (0..n).for_each(|_| self.post(ibv_wr_opcode::IBV_WR_SEND));
    }

    /// Looks for packets, as a poll does, or another thread.
    fn look(&self, may_defer: bool) {
        let (wire, mut deferred) = (self.rig.device.wire().unwrap(), DeferredWork::default());
        let shared = (&mut Answering::new(), &mut deferred);
        take_own(&self.rig.device, wire, &mut wire.rx.lock(), may_defer, shared);
        deferred.run();
    }

    /// Expects `n` packets at the peer, and no more.
    #[track_caller]
    fn expect(&self, n: usize) {
        let peer = &self.rig.peer;
        peer.set_nonblocking(false).unwrap();
        for _ in 0..n {
            let _ = peer.recv(&mut [0; 2_048]).unwrap();
        }
        peer.set_nonblocking(true).unwrap();
        let more = (0..).take_while(|_| peer.recv(&mut [0; 2_048]).is_ok()).count();
        assert_eq!(more, 0, "behind {n}");
    }
}

#[test]
fn a_held_run_of_a_busy_connection_goes_with_the_second_poll() {
    let mut busy = Busy::new("127.0.0.141", "127.0.0.142");
    busy.send(3);
    busy.expect(0);
    busy.look(true);
    busy.expect(0);
    busy.look(true);
    busy.expect(3);
    // A post does not keep it back for longer.
    busy.send(1);
    busy.look(true);
    busy.send(1);
    busy.expect(0);
    busy.look(true);
    busy.expect(2);
}

#[test]
fn what_is_held_back_goes_when_nothing_may_follow() {
    let mut busy = Busy::new("127.0.0.143", "127.0.0.144");
    // The device's thread looks, or the program may begin to wait.
    busy.send(1);
    busy.look(false);
    busy.expect(1);
    busy.send(1);
    busy.expect(0);
    before_waiting(&busy.rig.device);
    busy.expect(1);
    // What was asked for takes its time.
    busy.send(1);
    busy.post(ibv_wr_opcode::IBV_WR_RDMA_READ);
    busy.expect(2);
    // No thread will look.
    busy.send(1);
    busy.watch(false);
    busy.send(1);
    busy.expect(2);
}

/// An acknowledgement does not wait for the program's next message.
#[test]
fn an_answer_takes_what_is_held_along() {
    let mut busy = Busy::new("127.0.0.145", "127.0.0.146");
    busy.send(1);
    busy.rig.post_recv(1);
    busy.rig.take(&busy.rig.send(0));
    let peer = busy.rig.peer.local_addr().unwrap().ip();
    busy.rig.device.wire().unwrap().rx.lock().answering.note(peer, busy.rig.object.num);
    busy.look(true);
    busy.expect(2);
}
