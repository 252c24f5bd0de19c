//! Runs that are held back while a connection is at work.

use core::sync::atomic::Ordering;

use super::super::packets::HOLDS_FROM;
use super::super::progress::take_own;
use super::*;

impl Rig {
    /// Packets that have come to the peer since.
    fn came(&self) -> usize {
        self.peer.set_nonblocking(true).unwrap();
        (0..).take_while(|_| self.peer.recv(&mut [0; 2_048]).is_ok()).count()
    }

    /// The oldest message, of that number, is acknowledged, and another one posted.
    fn go_on(&self, oldest: u32) {
        self.take(&self.ack(oldest));
        assert_eq!(self.completed().len(), 1);
        self.post_send(100);
    }

    /// What a poll does, or another thread.
    fn look(&self, rx: &mut Rx, may_defer: bool) {
        let mut deferred = DeferredWork::default();
        let shared = (&mut Answering::new(), &mut deferred);
        take_own(&self.device, self.device.wire().unwrap(), rx, may_defer, shared);
        deferred.run();
    }
}

#[test]
fn the_last_run_of_a_connection_at_work_goes_with_the_second_poll() {
    let rig = Rig::new("127.0.0.141", "127.0.0.142");
    let mut rx = alone(&rig.device);
    let wire = rig.device.wire().unwrap();
    wire.is_watched.store(true, Ordering::Relaxed);
    for id in 1..HOLDS_FROM {
        rig.post_send(id);
        assert_eq!(rig.came(), 1, "{id} in flight");
    }
    rig.post_send(HOLDS_FROM);
    rig.look(&mut rx, true);
    assert_eq!(rig.came(), 0, "another post may come");
    rig.look(&mut rx, true);
    assert_eq!(rig.came(), 1, "none has come");
    // Posts keep it back.
    for nth in 0..5 {
        rig.go_on(nth);
        rig.look(&mut rx, true);
        assert_eq!(rig.came(), 0);
    }
    rig.look(&mut rx, true);
    assert_eq!(rig.came(), 5);
    // The device's thread waits for nothing.
    rig.go_on(5);
    rig.look(&mut rx, false);
    assert_eq!(rig.came(), 1);
    rig.go_on(6);
    assert_eq!(rig.came(), 0);
    // Without the thread nothing is held.
    wire.is_watched.store(false, Ordering::Relaxed);
    rig.go_on(7);
    assert_eq!(rig.came(), 2);
}

/// An acknowledgement does not wait for the program's next message.
#[test]
fn an_answer_takes_what_is_held_along() {
    let rig = Rig::new("127.0.0.143", "127.0.0.144");
    let mut rx = alone(&rig.device);
    let wire = rig.device.wire().unwrap();
    wire.is_watched.store(true, Ordering::Relaxed);
    (0..HOLDS_FROM).for_each(|id| rig.post_send(id));
    assert_eq!(rig.came(), HOLDS_FROM as usize - 1);
    rig.post_recv(1);
    rig.take(&rig.send(0));
    rx.answering.push(rig.object.num);
    rig.look(&mut rx, true);
    assert_eq!(rig.came(), 2, "the message, and the acknowledgement");
}
