//! Ends, with a goodbye or without one. Threads that wait get a typed error, and messages
//! that had arrived are handed out first.
//!
//! Shows: death.

mod support;

use rdma_conn::Common;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    CloseReason, Config, Full, Preset, Receiver, RecvError, SendError, Sender,
};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{
    Connection, Listener, RecvHalf, SendHalf, SendRecv, WaitStrategy, connect_sender_over, join,
    pair, receiver,
};
use support::raw::{HandMadeEnd, Shape, receiver_for, sender_to};
use support::{assert_content, at_once, bounded, content, device, mortal, small};

const WINDOW: u32 = 4;
const WAYS: [WaitStrategy; 3] = [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive];

/// Asks after a silent peer soon, and does not wait long for the answer.
fn vigilant(wait: WaitStrategy) -> Config {
    let keepalive = Duration::from_millis(20);
    Config {
        common: Common { wait, keepalive, transport: mortal(), ..small(WINDOW).common },
        ..small(WINDOW)
    }
}

fn connected(config: &Config) -> (Sender, Receiver) {
    let device = device();
    let (left, right) = pair::<SendRecv>(&device, &device, config).unwrap();
    (left.sender, right.receiver)
}

/// Way in which a peer dies.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// Its queue pair is destroyed without a word, as when its process is killed.
    Destroyed,
    /// Its queue pair fails under it.
    Failed,
}

impl Death {
    const ALL: [Death; 2] = [Death::Destroyed, Death::Failed];

    fn strikes(self, raw: HandMadeEnd) -> Option<HandMadeEnd> {
        match self {
            Death::Destroyed => None,
            Death::Failed => {
                raw.control.to_error().unwrap();
                Some(raw)
            }
        }
    }
}

fn deaths_and_ways() -> impl Iterator<Item = (Death, WaitStrategy)> {
    Death::ALL.into_iter().flat_map(|death| WAYS.map(|wait| (death, wait)))
}

fn raw_sender(victim: &mut Receiver, device: &Device, config: &Config) -> HandMadeEnd {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| sender_to(address, device, Shape::default()));
        listener.next().unwrap().accept_into(victim, device, config).unwrap();
        raw.join().unwrap()
    })
}

fn assert_lost(error: RecvError) -> CloseReason {
    let RecvError::Peer { reason: CloseReason::PeerLost(error), .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(error.cause.status, WcStatus::RETRY_EXC);
    CloseReason::PeerLost(error)
}

/// The only peer of a receiver is lost, and that stays the reason.
fn assert_only_one_lost(receiver: &mut Receiver) {
    let reason = assert_lost(receiver.recv().unwrap_err());
    assert_eq!(receiver.recv().unwrap_err(), RecvError::Ended(reason));
}

#[test]
fn a_receiver_that_waits_hears_of_a_dead_sender() {
    // Credits go back after 2, 4 …: those that were acknowledged long ago must
    // not keep the receiver from asking.
    let cases = deaths_and_ways().flat_map(|case| (0..=10u64).map(move |n| (case, n)));
    at_once(cases, |((death, wait), messages)| {
        let (config, device) = (vigilant(wait), device());
        let mut victim = receiver::<SendRecv>(&device, &config, 1).unwrap();
        let mut raw = raw_sender(&mut victim, &device, &config);
        for number in 0..messages {
            raw.send(&content(0, number, 12));
            raw.drain();
            assert_content(&victim.recv().unwrap(), 0, number, 12);
        }
        let _remains = std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_only_one_lost(&mut victim);
            });
            death.strikes(raw)
        });
    });
}

#[test]
fn what_a_dead_sender_has_sent_is_handed_out_first() {
    at_once(Death::ALL, |death| {
        let (config, device) = (vigilant(WaitStrategy::Adaptive), device());
        let mut victim = receiver::<SendRecv>(&device, &config, 1).unwrap();
        let mut raw = raw_sender(&mut victim, &device, &config);
        for number in 0..u64::from(WINDOW) {
            raw.send(&content(0, number, 12));
        }
        raw.drain();
        let _remains = death.strikes(raw);
        let held: Vec<_> = (0..WINDOW).map(|_| victim.recv().unwrap()).collect();
        assert_only_one_lost(&mut victim);
        drop(victim);
        for (number, message) in (0..).zip(&held) {
            assert_content(message, 0, number, 12);
        }
    });
}

/// The receiver is never idle, nor alone with the dead, until it has heard.
#[test]
fn other_senders_go_on_after_one_has_died() {
    at_once([false, true], |polls| {
        let (config, device) = (vigilant(WaitStrategy::Adaptive), device());
        let mut victim = receiver::<SendRecv>(&device, &config, 2).unwrap();
        let mut raw = raw_sender(&mut victim, &device, &config);
        let mut good = join::<SendRecv>(&mut victim, &device, &device, &config).unwrap();
        raw.send(b"last words");
        raw.drain();
        drop(raw);
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut number = 0;
                while let Err(std::sync::mpsc::TryRecvError::Empty) = stopped.try_recv() {
                    good.send(&content(5, number, 12)).unwrap();
                    number += 1;
                }
                good.close().unwrap();
            });
            let (mut heard, mut number, mut stop) = (0, 0, Some(stop));
            loop {
                match if polls { victim.try_recv() } else { victim.recv() } {
                    Ok(message) if message.peer().0 == 0 => {
                        assert_eq!(*message, *b"last words");
                    }
                    Ok(message) => {
                        assert_content(&message, 5, number, 12);
                        number += 1;
                    }
                    Err(RecvError::Empty) => {}
                    Err(RecvError::Closed) => break,
                    Err(e) => {
                        assert_lost(e);
                        heard += 1;
                        stop = None;
                    }
                }
            }
            drop(stop);
            assert_eq!(heard, 1);
        });
    });
}

/// A sender of the library, and a hand-made receiver.
fn victim_sender(config: &Config, buffers: u32) -> (Sender, HandMadeEnd) {
    let device = device();
    let shape = Shape { buffers, claimed_window: WINDOW, min_rnr_timer: 31, ..Shape::default() };
    let (mut near, mut far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| receiver_for(&mut far, &device, shape));
        let sender = connect_sender_over::<SendRecv, _>(&mut near, &device, config, b"").unwrap();
        (sender, raw.join().unwrap())
    })
}

#[test]
fn a_sender_that_waits_hears_of_a_dead_receiver() {
    at_once(deaths_and_ways(), |(death, wait)| {
        let (mut victim, mut raw) = victim_sender(&vigilant(wait), WINDOW);
        for _ in 0..WINDOW {
            victim.send(b"message").unwrap();
        }
        victim.wait_all().unwrap();
        (0..WINDOW).for_each(|_| drop(raw.receive()));
        let _remains = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Waits for credits that will not be granted.
                let error = victim.send(b"one more").unwrap_err();
                let SendError::Ended(CloseReason::PeerLost(lost)) = &error else {
                    panic!("{error:?}");
                };
                assert_eq!(lost.cause.status, WcStatus::RETRY_EXC);
                assert_eq!(victim.try_send(b"more").unwrap_err(), error);
                assert_eq!(victim.wait_for_room(1).unwrap_err(), error);
            });
            death.strikes(raw)
        });
        assert!(matches!(victim.close().unwrap_err(), SendError::Ended(_)));
    });
}

#[test]
fn a_sender_that_only_tries_hears_of_a_dead_receiver() {
    at_once(Death::ALL, |death| {
        let (mut victim, mut raw) = victim_sender(&vigilant(WaitStrategy::Spin), WINDOW);
        for _ in 0..WINDOW {
            victim.send(b"message").unwrap();
        }
        victim.wait_all().unwrap();
        (0..WINDOW).for_each(|_| drop(raw.receive()));
        let _remains = death.strikes(raw);
        let error = loop {
            match victim.try_send(b"for a credit that never comes") {
                Err(SendError::Full(Full::Credits)) => {}
                other => break other.unwrap_err(),
            }
        };
        assert!(matches!(error, SendError::Ended(CloseReason::PeerLost(_))), "{error:?}");
    });
}

#[test]
fn a_sender_that_waits_for_a_ticket_hears_of_a_dead_receiver() {
    let cases = Death::ALL.into_iter().flat_map(|death| [(death, false), (death, true)]);
    at_once(cases, |(death, closes)| {
        // No buffer: the message is tried again after 0.5 s.
        let (mut victim, raw) = victim_sender(&vigilant(WaitStrategy::Adaptive), 0);
        let ticket = victim.send(b"message").unwrap();
        let _remains = std::thread::scope(|scope| {
            scope.spawn(move || {
                let error = match closes {
                    true => victim.close().unwrap_err(),
                    false => victim.wait_acked(ticket).unwrap_err(),
                };
                assert!(matches!(error, SendError::Ended(CloseReason::PeerLost(_))), "{error:?}");
            });
            death.strikes(raw)
        });
    });
}

#[test]
fn a_dropped_receiver_ends_a_sender_that_waits() {
    for wait in WAYS {
        bounded(move || {
            let (mut sender, receiver) = connected(&Config {
                common: Common { wait, ..small(WINDOW).common },
                ..small(WINDOW)
            });
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let error = loop {
                        if let Err(e) = sender.send(b"message") {
                            break e;
                        }
                    };
                    let SendError::Ended(ended) = error else { panic!("{error:?}") };
                    assert!(ended.is_close(), "{ended:?}");
                });
                drop(receiver);
            });
        });
    }
}

#[test]
fn a_dropped_sender_ends_a_receiver_that_waits() {
    for wait in WAYS {
        bounded(move || {
            let (sender, mut receiver) = connected(&Config {
                common: Common { wait, ..small(WINDOW).common },
                ..small(WINDOW)
            });
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
                    assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
                });
                drop(sender);
            });
        });
    }
}

fn goodbyes() -> Vec<Config> {
    let presets = Preset::ALL.into_iter().map(Config::preset);
    let packs = [0, 64, 4096];
    presets.flat_map(|c| packs.map(|pack_bytes| Config { pack_bytes, ..c })).collect()
}

#[test]
fn a_goodbye_loses_nothing_that_was_accepted() {
    for config in goodbyes() {
        // Whole and partial batches and packs, with and without room for more.
        for messages in [0, 1, 3, 8, 9, 63, 200] {
            for closes in [false, true] {
                bounded(move || {
                    let (mut sender, mut receiver) = connected(&config);
                    std::thread::scope(|scope| {
                        scope.spawn(move || {
                            for number in 0..messages {
                                sender.send(&content(0, number, 20)).unwrap();
                            }
                            if closes {
                                sender.close().unwrap();
                            }
                        });
                        for number in 0..messages {
                            assert_content(&receiver.recv().unwrap(), 0, number, 20);
                        }
                        assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
                    });
                });
            }
        }
    }
}

#[test]
fn closed_is_said_after_the_last_message_only() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&small(WINDOW));
        for number in 0..u64::from(WINDOW) {
            sender.send(&content(0, number, 12)).unwrap();
        }
        // The goodbye has a buffer of its own: it does not wait for credits.
        sender.close().unwrap();
        for number in 0..u64::from(WINDOW) {
            assert_content(&receiver.try_recv().unwrap(), 0, number, 12);
        }
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Closed);
    });
}

#[test]
fn messages_outlive_their_receiver_and_its_device() {
    bounded(|| {
        let held: Vec<_> = {
            let (mut sender, mut receiver) = connected(&small(WINDOW));
            for number in 0..3 {
                sender.send_acked(&content(0, number, 40)).unwrap();
            }
            (0..3).map(|_| receiver.recv().unwrap()).collect()
        };
        let thread = std::thread::spawn(move || {
            for (number, message) in (0..).zip(&held) {
                assert_content(message, 0, number, 40);
            }
        });
        thread.join().unwrap();
    });
}

#[test]
fn forgotten_messages_cost_their_buffers_and_nothing_else() {
    bounded(|| {
        let (mut sender, mut receiver) = connected(&small(WINDOW));
        for number in 0..100 {
            sender.send_acked(&content(0, number, 12)).unwrap();
            let message = receiver.recv().unwrap();
            assert_content(&message, 0, number, 12);
            match number < u64::from(WINDOW) - 1 {
                true => std::mem::forget(message),
                false => drop(message),
            }
            assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        }
        std::mem::forget({
            sender.send_acked(b"the last buffer").unwrap();
            receiver.recv().unwrap()
        });
        assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        let refused = sender.send_timeout(b"", Duration::from_millis(1));
        assert_eq!(refused.unwrap_err(), SendError::TimedOut { unflushed: 0 });
        drop(receiver);
        assert_eq!(sender.send(b"").unwrap_err(), SendError::Ended(CloseReason::Closed));
    });
}

#[test]
fn forgotten_ends_are_harmless() {
    bounded(|| {
        let soon = Duration::from_millis(1);
        let (mut sender, receiver) = connected(&small(WINDOW));
        std::mem::forget(receiver);
        // Its device still takes messages, as that of a process that hangs.
        (0..WINDOW).for_each(|_| sender.send_acked(b"message").unwrap());
        assert_eq!(
            sender.send_timeout(b"", soon).unwrap_err(),
            SendError::TimedOut { unflushed: 0 }
        );
        sender.close().unwrap();

        let (mut sender, mut receiver) = connected(&small(WINDOW));
        sender.try_send(b"message").unwrap();
        sender.flush().unwrap();
        std::mem::forget(sender);
        assert_eq!(*receiver.recv().unwrap(), *b"message");
        assert_eq!(receiver.recv_timeout(soon).unwrap_err(), RecvError::TimedOut);
    });
}

#[test]
fn ends_of_both_ways_end_apart() {
    bounded(|| {
        let device = device();
        let (left, right) = pair::<SendRecv>(&device, &device, &small(WINDOW)).unwrap();
        let Connection { mut sender, receiver } = left;
        drop(receiver);
        let Connection { sender: back, receiver: mut there } = right;
        sender.send_acked(b"still going").unwrap();
        assert_eq!(*there.recv().unwrap(), *b"still going");
        back.close().unwrap();
        drop(there);
        let ticket = sender.send(b"not heard").unwrap();
        let missing = SendError::Ended(CloseReason::PeerClosed { unacked: 1 });
        assert_eq!(sender.wait_acked(ticket).unwrap_err(), missing);
        assert_eq!(sender.close().unwrap_err(), missing);
    });
}
