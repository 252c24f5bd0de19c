//! The mode without flow control, which is there for measuring: a receiver that is
//! not ready is found out, and the sender hears it in the end.
//!
//! Alone on rxe0: counters of the device are compared, and no other test has packets under way.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::Common;
use std::time::Duration;

use rdma_conn::send_recv::{CloseReason, Config, RecvError, SendError, Transport};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{RecvHalf, SendHalf, SendRecv, pair};
use support::{
    assert_content, bounded, can_count, content, counters, device, mortal, rnr_since, small,
};

fn free_running(rnr_retry: u8, min_rnr_timer: u8) -> Config {
    let config = small(2);
    let transport = Transport { rnr_retry, min_rnr_timer, ..mortal() };
    // A receiver hears of a sender that has failed when it asks.
    let keepalive = Duration::from_millis(20);
    Config {
        credits: false,
        unacked: 64,
        common: Common { keepalive, transport, ..config.common },
        ..config
    }
}

#[test]
fn a_receiver_that_never_looks_ends_the_sender_with_the_reason() {
    bounded(|| {
        let device = device();
        let before = counters(&device);
        let (mut left, mut right) =
            // About retries: they are used up.
            pair::<SendRecv>(&device, &device, &free_running(2, 1)).unwrap();
        let error = loop {
            if let Err(e) = left.sender.send_acked(b"unasked for") {
                break e;
            }
        };
        let SendError::Ended(CloseReason::PeerLost(error)) = error else { panic!("{error:?}") };
        assert_eq!(error.cause.status, WcStatus::RNR_RETRY_EXC);
        if can_count(&device, "RNR events of an unready receiver") {
            assert!(rnr_since(&device, &before) > 0);
        }
        // What had arrived is handed out: k, and the one kept for the goodbye.
        for _ in 0..3 {
            assert_eq!(*right.receiver.recv().unwrap(), *b"unasked for");
        }
        assert_eq!(right.receiver.try_recv().unwrap_err(), RecvError::Empty);
    });
}

#[test]
fn a_receiver_that_is_late_costs_retries_and_no_message() {
    const MESSAGES: u64 = 12;
    bounded(|| {
        let device = device();
        let before = counters(&device);
        // About retries: the most there are, 6 after 0.49 s each.
        let (left, mut right) = pair::<SendRecv>(&device, &device, &free_running(6, 31)).unwrap();
        let mut sender = left.sender;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    sender.send(&content(0, number, 16)).unwrap();
                }
                sender.close().unwrap();
            });
            if can_count(&device, "RNR events of a receiver that is late") {
                while rnr_since(&device, &before) == 0 {
                    std::thread::yield_now();
                }
            }
            for number in 0..MESSAGES {
                assert_content(&right.receiver.recv().unwrap(), 0, number, 16);
            }
            assert_eq!(right.receiver.recv().unwrap_err(), RecvError::Closed);
        });
    });
}
