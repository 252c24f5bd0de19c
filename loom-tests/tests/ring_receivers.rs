//! Several receivers out of a ring: each record is taken once, after it has landed, and
//! not written again before it has been freed.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::ring::free::RecordSlot;
use conn_core::ring::shared::{Receivers, Taking};
use conn_core::ring::{Geometry, Producer};
use loom::{cell::Cell, sync::Arc, thread};

/// Bytes of a record with 8 bytes of payload.
const RECORD: u64 = 16;

/// A ring of two records from which threads receive.
struct Receiving {
    ring: Receivers<Vec<RecordSlot>>,
    memory: [Cell<u64>; 2],
    headers: [u64; 2],
}

impl Receiving {
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

    /// What was freed is written again.
    fn overwrite(&self) {
        for at in 0..self.ring.head() / RECORD {
            self.memory[at as usize].set(7);
        }
    }

    /// What the next record holds, which is then freed.
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
        let shared = Receiving::new();
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
fn a_record_is_taken_after_it_has_landed_and_overwritten_after_it_was_freed() {
    loom::model(|| {
        let shared = Receiving::new();
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
