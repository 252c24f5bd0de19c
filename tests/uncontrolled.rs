//! The mode without flow control, which is there for measuring: a receiver that is
//! not ready is found out, and the sender hears it in the end.

mod support;

use rdma_conn::Common;
use std::time::Duration;

use rdma_conn::send_recv::{CloseReason, Config, RecvError, SendError, Transport};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{RecvHalf, SendHalf, SendRecv, pair};
use support::{
    assert_content, bounded, can_count, content, counters, device, impatient, rnr_since, small,
};

fn free_running(rnr_retry: u8, min_rnr_timer: u8) -> Config {
    let config = small(2);
    let transport = Transport { rnr_retry, min_rnr_timer, ..impatient() };
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
            pair::<SendRecv>(&device, &device, &free_running(2, 1)).unwrap();
        let error = loop {
            if let Err(e) = left.sender.send_acked(b"unasked for") {
                break e;
            }
        };
        let SendError::Ended(CloseReason::PeerLost(error)) = error else { panic!("{error:?}") };
        assert_eq!(error.status, WcStatus::RNR_RETRY_EXC);
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
    // On a machine that is busy with something else, it may be too late: not each time.
    assert!((0..20).any(|_| bounded(late_receiver)), "each time, messages were lost");
}

/// Whether all arrived; if not, then because the receiver was not ready for long.
fn late_receiver() -> bool {
    let device = device();
    // 10.24 ms between tries, 6 of them: far more than the receiver needs.
    let (left, mut right) = pair::<SendRecv>(&device, &device, &free_running(6, 20)).unwrap();
    let mut sender = left.sender;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            for number in 0..500 {
                sender.send(&content(0, number, 16))?;
            }
            sender.close()
        });
        for number in 0.. {
            match right.receiver.recv() {
                Ok(message) => assert_content(&message, 0, number, 16),
                Err(RecvError::Closed) => {
                    assert_eq!((number, sending.join().unwrap()), (500, Ok(())));
                    return true;
                }
                Err(RecvError::Peer { reason: CloseReason::PeerLost(_), .. }) => break,
                Err(e) => panic!("{e}"),
            }
            std::thread::yield_now();
        }
        match sending.join().unwrap() {
            Err(SendError::Ended(CloseReason::PeerLost(e))) => {
                // The second one where the receiver has found the sender silent, and ended.
                let lost = [WcStatus::RNR_RETRY_EXC, WcStatus::RETRY_EXC];
                assert!(lost.contains(&e.status), "{e}");
            }
            other => panic!("the receiver was told that the sender is lost: {other:?}"),
        }
        false
    })
}
