//! Several receivers out of a ring: each record is taken once, after it has landed, and
//! not written again before it has been freed.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::{Receivers, Taking};
use conn_core::ring::{Geometry, Producer};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::{cell::Cell, thread};

/// Bytes of a record with 8 bytes of payload.
const RECORD: u64 = 16;

/// A ring of two records from which threads receive.
struct ReceiversRing {
    ring: Receivers<Vec<RecordSlot>>,
    memory: [Cell<u64>; 2],
    headers: [u64; 2],
}

impl ReceiversRing {
    fn new() -> Arc<Self> {
        let geometry = Geometry::mirrored(2 * RECORD, 8).expect("a ring");
        let mut sender = Producer::new(geometry);
        let headers = [0, 1].map(|_| {
            let grant = sender.reserve(8).expect("room");
            sender.commit(grant, 8).expect("a record").header.word
        });
        let ring =
            Receivers::new(geometry, (0..2).map(|_| RecordSlot::new()).collect()).expect("slots");
        Arc::new(Self { ring, memory: [Cell::new(0), Cell::new(0)], headers })
    }

    /// Both records arrive.
    fn land(&self) {
        self.memory[0].set(1);
        self.memory[1].set(10);
        self.ring.on_landed(2 * RECORD, 2 * RECORD);
    }

    /// Overwrites the records that were freed.
    fn overwrite(&self) {
        for at in 0..self.ring.head() / RECORD {
            self.memory[at as usize].set(7);
        }
    }

    /// Takes the next record, frees it, and returns its contents.
    fn take(&self) -> Option<u64> {
        let at = |offset: u64| (offset / RECORD) as usize;
        match self.ring.take(|offset| self.headers[at(offset)]).expect("records") {
            Taking::Record(record, claimed) => {
                let what = self.memory[at(record.payload.offset)].replace(0);
                self.ring.free(claimed);
                Some(what)
            }
            Taking::Nothing => None,
            Taking::Crowded => panic!("there are as many slots as records"),
        }
    }
}

#[test]
fn two_receivers_take_each_record_once() {
    loom::model(|| {
        let shared = ReceiversRing::new();
        shared.land();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.take().expect("one of the two"))
        };
        let sum = shared.take().expect("one of the two") + other.join().expect("a receiver");
        assert_eq!((sum, shared.take()), (11, None));
        assert_eq!(shared.ring.head(), 2 * RECORD);
    });
}

#[test]
fn a_record_is_taken_after_landing_and_reused_after_freeing() {
    loom::model(|| {
        let shared = ReceiversRing::new();
        let receiver = {
            let shared = shared.clone();
            thread::spawn(move || {
                thread::yield_now();
                shared.take().unwrap_or(0)
            })
        };
        shared.land();
        thread::yield_now();
        shared.overwrite();
        let mut sum = receiver.join().expect("a receiver");
        while let Some(what) = shared.take() {
            sum += what;
        }
        assert_eq!((sum, shared.ring.head()), (11, 2 * RECORD));
    });
}

/// A ring of two records, three of which are sent; so the third lands where the first was.
/// A thread that finds nothing to claim lets the next one land, if no other is doing so.
struct Combining {
    ring: Receivers<Vec<RecordSlot>>,
    /// Memory in which records land, read while others may let something land there.
    headers: [AtomicU64; 2],
    payloads: [Cell<u64>; 2],
    /// Number of records that have landed.
    device: Mutex<u64>,
    sent: [u64; 3],
}

impl Combining {
    fn new() -> Arc<Self> {
        let geometry = Geometry::mirrored(2 * RECORD, 8).expect("a ring");
        let mut sender = Producer::new(geometry);
        let sent = [0, 0, RECORD].map(|head| {
            sender.on_head(head).expect("an honest receiver");
            let grant = sender.reserve(8).expect("room");
            sender.commit(grant, 8).expect("a record").header.word
        });
        let slots = (0..2).map(|_| RecordSlot::new()).collect();
        Arc::new(Self {
            ring: Receivers::new(geometry, slots).expect("slots"),
            headers: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
            payloads: [Cell::new(0), Cell::new(0)],
            device: Mutex::new(0),
            sent,
        })
    }

    /// Lets the next record land, first its header, where there is room.
    fn drive(&self) {
        let Ok(mut landed) = self.device.try_lock() else { return };
        let (at, end) = ((*landed % 2) as usize, (*landed + 1) * RECORD);
        if *landed < 3 && end <= self.ring.head() + 2 * RECORD {
            self.headers[at].store(self.sent[*landed as usize], Ordering::Release);
            self.ring.on_landed(end - 8, end);
            self.payloads[at].set(10_u64.pow(*landed as u32));
            self.ring.on_landed(end, end);
            *landed += 1;
        }
    }

    fn claim(&self) -> Option<u64> {
        let header = |offset| self.headers[(offset / RECORD) as usize].load(Ordering::Acquire);
        match self.ring.take(header).expect("records") {
            Taking::Record(record, claimed) => {
                let what = self.payloads[(record.payload.offset / RECORD) as usize].replace(0);
                self.ring.free(claimed);
                Some(what)
            }
            Taking::Nothing => None,
            Taking::Crowded => None,
        }
    }

    fn receive(&self) -> Option<u64> {
        self.claim().or_else(|| {
            self.drive();
            self.claim()
        })
    }
}

#[test]
fn records_landed_by_any_receiver_are_taken_exactly_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let shared = Combining::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.receive())
        };
        let own = [shared.receive(), shared.receive()];
        let all = own.into_iter().chain([other.join().expect("a receiver")]);
        let mut sum: u64 = all.flatten().sum();
        // One alone gets all that is left.
        while let Some(what) = shared.receive() {
            sum += what;
        }
        assert_eq!((sum, shared.ring.head()), (111, 3 * RECORD));
    });
}
