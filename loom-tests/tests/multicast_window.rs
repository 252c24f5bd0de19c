//! Threads of a member that send: the window lets them begin, the slot ring takes their
//! records, and the thread that drives the member frees what was delivered.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::multicast::SendWindow;
use conn_core::ring::Geometry;
use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::Senders;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;

const RECORD: u64 = 16;

/// A ring that holds a window of one message.
struct WindowedRing {
    ring: Senders<Vec<RecordSlot>>,
    window: SendWindow,
    tail: AtomicU64,
}

impl WindowedRing {
    fn new() -> Arc<Self> {
        let geometry = Geometry::mirrored(RECORD, 8).expect("a ring");
        let slots = (0..2).map(|_| RecordSlot::new()).collect();
        let ring = Senders::new(geometry, slots).expect("slots");
        Arc::new(Self { ring, window: SendWindow::new(1), tail: AtomicU64::new(0) })
    }

    /// Sends if there is room in the window, and reports whether there was. Room in the window
    /// implies room in the ring.
    fn send(&self) -> bool {
        if !self.window.try_take(1) {
            return false;
        }
        let grant = self.ring.reserve(8).expect("the ring holds a window");
        self.ring.publish(grant, |tail| self.tail.store(tail, Release));
        true
    }

    fn free(&self, messages: u64) {
        self.ring.on_head(messages * RECORD).expect("what was published");
        self.window.raise(messages + 1);
    }
}

#[test]
fn a_sender_with_a_turn_has_room() {
    loom::model(|| {
        let shared = WindowedRing::new();
        assert!(shared.send());
        let threads = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || u64::from(shared.send()))
        });
        shared.free(1);
        let sent: u64 = threads.into_iter().map(|thread| thread.join().expect("a sender")).sum();
        assert!(sent <= 1, "one window, one message");
        assert_eq!(shared.tail.load(Acquire), (1 + sent) * RECORD);
    });
}

#[test]
fn a_closed_window_has_said_how_many_there_are() {
    loom::model(|| {
        let shared = WindowedRing::new();
        let thread = {
            let shared = shared.clone();
            thread::spawn(move || u64::from(shared.send()))
        };
        shared.window.close();
        let turns = shared.window.closed_at().expect("it is closed");
        assert_eq!(thread.join().expect("a sender"), turns, "none begins later");
        assert!(!shared.send());
    });
}
