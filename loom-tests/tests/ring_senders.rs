//! Several senders into a ring: records do not overlap, are published in order and written
//! before they are, and are not written again before they have been freed.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::ring::Geometry;
use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::Senders;
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;

/// Bytes of a record with 8 bytes of payload.
const RECORD: u64 = 16;

fn slots(count: usize) -> Vec<RecordSlot> {
    (0..count).map(|_| RecordSlot::new()).collect()
}

/// A ring of two records, and its memory: loom panics when accesses to a cell by
/// different threads are not ordered.
struct SendersRing {
    ring: Senders<Vec<RecordSlot>>,
    memory: [Cell<u64>; 2],
    /// The tail that the receiver sees.
    tail: AtomicU64,
}

impl SendersRing {
    fn new() -> Arc<Self> {
        let geometry = Geometry::mirrored(2 * RECORD, 8).expect("a ring");
        let ring = Senders::new(geometry, slots(2)).expect("slots");
        let memory = [Cell::new(0), Cell::new(0)];
        Arc::new(Self { ring, memory, tail: AtomicU64::new(0) })
    }

    fn cell(&self, offset: u64) -> &Cell<u64> {
        &self.memory[(offset / RECORD) as usize]
    }

    /// Sends a record if there is room, and reports whether there was.
    fn send(&self, what: u64) -> bool {
        let Ok(grant) = self.ring.reserve(8) else { return false };
        self.cell(grant.payload().offset).set(what);
        self.ring.publish(grant, |tail| self.tail.store(tail, Release));
        true
    }

    /// Reads what is published from `from` on, and adds it up.
    fn receive(&self, from: &mut u64, sum: &mut u64) {
        let tail = self.tail.load(Acquire);
        while *from < tail {
            *sum += self.cell(*from % (2 * RECORD)).get();
            *from += RECORD;
        }
    }
}

#[test]
fn two_senders_publish_in_order() {
    loom::model(|| {
        let shared = SendersRing::new();
        let threads = [1, 10].map(|what| {
            let shared = shared.clone();
            thread::spawn(move || assert!(shared.send(what)))
        });
        let (mut from, mut sum) = (0, 0);
        thread::yield_now();
        shared.receive(&mut from, &mut sum);
        threads.into_iter().for_each(|thread| thread.join().expect("a sender"));
        shared.receive(&mut from, &mut sum);
        assert_eq!((from, sum), (2 * RECORD, 11));
        assert!(!shared.send(100), "the ring is full");
    });
}

#[test]
fn a_record_is_not_overwritten_before_it_is_freed() {
    loom::model(|| {
        let shared = SendersRing::new();
        assert!(shared.send(1) && shared.send(10));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                thread::yield_now();
                shared.send(100)
            })
        };
        let (mut from, mut sum) = (0, 0);
        shared.receive(&mut from, &mut sum);
        assert!(shared.ring.on_head(RECORD).expect("a head"));
        let was_sent = sender.join().expect("a sender");
        if !was_sent {
            assert!(shared.send(100), "there is room");
        }
        shared.receive(&mut from, &mut sum);
        assert_eq!((from, sum), (3 * RECORD, 111));
    });
}
