//! A receiver of Buffered Read that sleeps, and a sender that waits until it has read all: the
//! sender sees the request to be woken, or the receiver what was published.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::buffered_read::wake::{LOOKS, Sleep, Waker};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::*, fence};
use loom::thread;

/// The tail and the request, in the sender's control block.
type SenderBlock = [AtomicU64; 2];

/// Publishes a message, looks at the request as on the way of each message, and then as a
/// sender that waits; returns how many wake-ups it sends.
fn send([tail, request]: &SenderBlock) -> u32 {
    let mut waker = Waker::default();
    tail.store(8, Release);
    let mut wake_ups = u32::from(waker.answer(request.load(Relaxed)));
    Waker::barrier();
    wake_ups += u32::from(waker.answer(request.load(Relaxed)));
    wake_ups
}

#[test]
fn no_receiver_sleeps_through_a_message_that_is_waited_for() {
    loom::model(|| {
        let block = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let sender = thread::spawn({
            let block = block.clone();
            move || send(&block)
        });
        let [tail, request] = &*block;
        let mut sleep = Sleep::new();
        sleep.prepare();
        request.store(sleep.request().expect("it is the first one"), Relaxed);
        // The queue pair executes the WRITE before the READs behind it.
        fence(SeqCst);
        for _ in 0..LOOKS {
            match tail.load(Relaxed) {
                0 => sleep.on_vain_look(),
                _ => sleep.on_news(),
            }
        }
        let wake_ups = sender.join().expect("it ends");
        assert!(wake_ups <= 1, "one wake-up for a request");
        assert!(!sleep.is_ready() || wake_ups == 1, "it sleeps through the message");
    });
}
