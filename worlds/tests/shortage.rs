//! A device that has no memory for what is posted is tried again for a minute, and then ends the connection.
//!
//! Only on soft0: worlds make devices of their own.

use std::time::Duration;

use host::time;
use host::world::{self, Limits, Nature};
use rdma_conn::error::{CloseReason, RecvError, SendError};
use rdma_conn::{
    BufferedWrite, Protocol, RecvHalf, SendHalf, SendRecv, buffered_write, device, join, receiver,
    send_recv,
};
use soft_rnic::{WorldDevice, WorldKind};

/// `BACKPRESSURE_LIMIT` of `src/doorbell.rs`.
const LIMIT: Duration = Duration::from_secs(60);
/// Time that calls take besides.
const SLACK: Duration = Duration::from_secs(1);

/// Plays with both ends of a connection on one device, of which a message has arrived.
fn with_ends<P: Protocol>(
    config: P::Config,
    play: impl FnOnce(P::Sender, P::Receiver) + Send + 'static,
) {
    let (_, ended) = world::run(0, Nature::default(), Limits::default(), move || {
        let device = WorldDevice::new(WorldKind::Near);
        let opened = device::open(Some(device.name())).expect("a device");
        let mut inbox = receiver::<P>(&opened, &config, 1).expect("a receiver");
        let mut sender = join::<P>(&mut inbox, &opened, &opened, &config).expect("a sender");
        sender.send_acked(b"the first").expect("a peer");
        assert_eq!(&*inbox.recv().expect("a message"), b"the first");
        play(sender, inbox);
    });
    if let Err(failure) = ended {
        panic!("{failure}");
    }
}

/// Refuses all posts during a call, which gives up after the limit, and not before.
fn refused<T>(call: impl FnOnce() -> T) -> T {
    let refuse_posts = |one_in| world::here(|here| here.refuse_posts(one_in));
    refuse_posts(1);
    let start = time::now();
    let done = call();
    let took = time::since(start);
    refuse_posts(0);
    assert!((LIMIT..=LIMIT + SLACK).contains(&took), "it took {took:?}");
    done
}

#[test]
fn a_send_is_tried_for_a_minute_before_it_ends_the_sender() {
    with_ends::<SendRecv>(send_recv::Config::default(), |mut sender, _receiver| {
        let ended = refused(|| sender.try_send(b"more")).expect_err("no memory");
        assert!(matches!(ended, SendError::Ended(CloseReason::Device(_))), "{ended}");
    });
}

/// It goes out of the caller's memory.
#[test]
fn an_inline_write_is_tried_for_a_minute_before_it_fails() {
    let tail = buffered_write::Tail::Written;
    let config = buffered_write::Config { tail, ..buffered_write::Config::default() };
    with_ends::<BufferedWrite>(config, |mut sender, _receiver| {
        let ended = refused(|| sender.try_send(b"more")).expect_err("no memory");
        assert!(matches!(ended, SendError::Ended(CloseReason::Device(_))), "{ended}");
    });
}

/// The buffer of the first message is to be posted again.
#[test]
fn a_receive_is_tried_for_a_minute_before_it_ends_the_peer() {
    with_ends::<SendRecv>(send_recv::Config::default(), |_sender, mut receiver| {
        let ended = refused(|| receiver.try_recv()).expect_err("no memory");
        let is_devices = matches!(ended, RecvError::Peer { reason: CloseReason::Device(_), .. });
        assert!(is_devices, "{ended}");
    });
}

/// The update behind a message is the receiver's only request. If one is refused, signalled or not,
/// its link ends, and no completion tells of it.
#[test]
fn a_report_that_is_tried_for_a_minute_ends_the_peer_of_a_receiver_that_polls() {
    let refuse_posts = |one_in| world::here(|here| here.refuse_posts(one_in));
    for before in 0..8 {
        let tail = buffered_write::Tail::Written;
        let config = buffered_write::Config { tail, ..buffered_write::Config::default() };
        let rounds = LIMIT + 4 * config.common.keepalive;
        with_ends::<BufferedWrite>(config, move |mut sender, mut receiver| {
            let longest = vec![7; sender.max_message_bytes()];
            for _ in 0..before {
                sender.send(&longest).expect("a peer");
                let message = receiver.recv().expect("a message");
                receiver.free(message);
            }
            sender.send(&longest).expect("a peer");
            let held = receiver.recv().expect("a message");
            // The link has had its turn: what is due now is said in a look after all links.
            assert_eq!(receiver.try_recv().expect_err("no message"), RecvError::Empty);
            receiver.free(held);
            refuse_posts(1);
            let start = time::now();
            let ended = loop {
                match receiver.try_recv() {
                    Ok(_) => unreachable!("nothing was sent"),
                    Err(RecvError::Empty) => time::sleep(Duration::from_millis(10)),
                    Err(ended) => break ended,
                }
                assert!(time::since(start) < rounds, "no end is told, after {before} messages");
            };
            let took = time::since(start);
            assert!((LIMIT..rounds).contains(&took), "after {before} messages: {took:?}");
            refuse_posts(0);
            let is_devices =
                matches!(ended, RecvError::Peer { reason: CloseReason::Device(_), .. });
            assert!(is_devices, "after {before}: {ended}");
        });
    }
}

/// The send queue has no room for the report until completions are taken: the link has had its turn.
/// The report is signalled, and planned although it is refused: its completion never comes.
#[test]
fn a_signalled_report_that_is_refused_ends_the_peer() {
    /// Reports in flight, and the interval of signalled ones, as in `src/buffered_write/setup.rs`.
    const IN_FLIGHT: u64 = 14;
    const SIGNAL_EVERY: u64 = 4;

    fn pass(sender: &mut buffered_write::Sender, receiver: &mut buffered_write::Receiver) {
        sender.send_acked(b"more").expect("a peer");
        let message = receiver.try_recv().expect("a message");
        receiver.free(message);
    }

    fn poll_in_vain(receiver: &mut buffered_write::Receiver) {
        assert_eq!(receiver.try_recv().expect_err("no message"), RecvError::Empty);
        time::sleep(Duration::from_millis(10));
    }

    // Each message is reported.
    let config = buffered_write::Config {
        tail: buffered_write::Tail::Written,
        head_threshold: 1,
        ..buffered_write::Config::default()
    };
    let keepalive = config.common.keepalive;
    with_ends::<BufferedWrite>(config, move |mut sender, mut receiver| {
        let refuse_posts = |one_in| world::here(|here| here.refuse_posts(one_in));
        while receiver.stats().work_requests < SIGNAL_EVERY {
            pass(&mut sender, &mut receiver);
        }
        // A probe is signalled, too: its number is one more than a multiple of `SIGNAL_EVERY`.
        while receiver.stats().work_requests == SIGNAL_EVERY {
            poll_in_vain(&mut receiver);
        }
        // Its completion is taken, and the next round, after half of a keepalive, probes nothing.
        let probed = time::now();
        while time::since(probed) < 3 * keepalive / 4 {
            poll_in_vain(&mut receiver);
        }
        // Nothing is polled here: short messages are found beside their tails.
        for _ in 0..IN_FLIGHT {
            pass(&mut sender, &mut receiver);
        }
        let next = receiver.stats().work_requests + 1;
        assert_eq!(next, SIGNAL_EVERY + 1 + IN_FLIGHT + 1);
        assert!(next.is_multiple_of(SIGNAL_EVERY), "the report that is refused is signalled");
        sender.send_acked(b"the last").expect("a peer");
        refuse_posts(1);
        let start = time::now();
        let last = receiver.try_recv().expect("a message");
        assert!(time::since(start) >= LIMIT, "its report is refused");
        receiver.free(last);
        let ended = loop {
            match receiver.try_recv() {
                Ok(_) => unreachable!("nothing was sent"),
                Err(RecvError::Empty) => time::sleep(Duration::from_millis(10)),
                Err(ended) => break ended,
            }
            assert!(time::since(start) < LIMIT + 4 * keepalive, "no end is told");
        };
        refuse_posts(0);
        let is_devices = matches!(ended, RecvError::Peer { reason: CloseReason::Device(_), .. });
        assert!(is_devices, "{ended}");
    });
}
