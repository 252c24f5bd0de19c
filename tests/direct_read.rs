//! Direct Read: all ways to acknowledge, refusals, windows, parts, many peers.
//!
//! Shows: one protocol.

mod support;

use std::time::Duration;

use rdma_conn::device::Device;
use rdma_conn::direct_read::{
    AckMode, Buffer, BufferConfig, CloseReason, Config, FrozenBuffer, Full, NotReadReason,
    OfferError, Outcome, ReadError, Receiver, RecvError, Refusal, SendError, Sender, SignalAt,
    join, pair, receiver, receiver_shared,
};
use rdma_conn::{Arm, Common, OfferedMessage, WaitStrategy, ZeroCopyRecv, ZeroCopySend};
use support::{NEVER, bounded, content, device};

const READABLE: BufferConfig = BufferConfig { peers_read: true, signal: true };

fn buffer(device: &Device, bytes: usize) -> Buffer {
    device.pd().register_buffer(bytes, BufferConfig::default()).unwrap()
}

fn message(device: &Device, stream: u64, number: u64, bytes: usize) -> Buffer {
    let mut buffer = device.pd().register_buffer(bytes, READABLE).unwrap();
    buffer.copy_from_slice(&content(stream, number, bytes));
    buffer
}

/// Every way to acknowledge, with every way to wait.
fn ways() -> impl Iterator<Item = (AckMode, WaitStrategy)> {
    let waits = [WaitStrategy::Spin, WaitStrategy::Block];
    waits.into_iter().flat_map(|wait| AckMode::ALL.into_iter().map(move |ack| (ack, wait)))
}

/// All of them, with both places for signals.
fn configs() -> Vec<Config> {
    let mut all = Vec::new();
    for (ack, wait) in ways() {
        for signal_at in [SignalAt::Separate, SignalAt::Tail] {
            // A keepalive would hide a lost wake-up.
            let base = Config {
                common: Common { keepalive: NEVER, ..support::common() },
                window: 4,
                ..support::config::<Config>()
            };
            all.push(Config { ack, signal_at, common: Common { wait, ..base.common }, ..base });
        }
    }
    all
}

/// Sends `count` messages of `bytes` bytes from one thread, four at a time.
fn send_all<S>(device: &Device, mut sender: S, count: u64, bytes: usize)
where
    S: ZeroCopySend<Buffer = Buffer>,
{
    let mut tickets = std::collections::VecDeque::new();
    for number in 0..count {
        if tickets.len() == 4 {
            let sent = sender.wait_sent(tickets.pop_front().unwrap()).unwrap();
            assert_eq!(sent.outcome, Outcome::Read);
        }
        let buffer = message(device, 7, number, bytes);
        tickets.push_back(sender.offer(buffer, &number.to_le_bytes()).unwrap());
    }
    assert_eq!(sender.close_and_take().unwrap().len(), tickets.len());
}

/// Receives until the end, four at a time; returns the number of messages.
fn receive_all<R: ZeroCopyRecv>(device: &Device, receiver: &mut R, bytes: usize) -> u64 {
    let (mut readings, mut received) = (std::collections::VecDeque::new(), 0);
    let mut take = |receiver: &mut R, reading| {
        let message = receiver.wait(reading).unwrap();
        support::assert_content(&message, 7, received, bytes);
        received += 1;
    };
    loop {
        if readings.len() == 4 {
            take(receiver, readings.pop_front().unwrap());
        }
        match receiver.next_request() {
            Ok(request) => {
                assert_eq!(request.bytes(), bytes as u64);
                readings.push_back(request.read_into(buffer(device, bytes + 3)).unwrap());
            }
            Err(RecvError::Closed) => break,
            Err(e) => panic!("{e}"),
        }
    }
    readings.into_iter().for_each(|reading| take(receiver, reading));
    received
}

#[test]
fn messages_arrive_and_buffers_return_in_every_ack_mode() {
    for config in configs() {
        bounded(move || {
            let device = device();
            let (sender, mut receiver) = pair(&device, &device, &config).unwrap();
            let sending = std::thread::spawn({
                let device = device.clone();
                move || send_all(&device, sender, 25, 10_000)
            });
            assert_eq!(receive_all(&device, &mut receiver, 10_000), 25, "{config:?}");
            sending.join().unwrap();
        });
    }
}

#[test]
fn no_byte_is_copied_but_by_the_device() {
    bounded(|| {
        // A device of the test's own, which counts all that it moves.
        let simulation = soft_rnic::Simulation::new(1, soft_rnic::Faults::default());
        let device = rdma_conn::device::open(Some(simulation.name())).unwrap();
        let config = Config {
            common: Common { wait: WaitStrategy::Spin, keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        };
        let (mut sender, mut receiver) = pair(&device, &device, &config).unwrap();
        let before = simulation.stats().bytes;
        let bytes = 1 << 20;
        for number in 0..4 {
            let (ours, theirs) = (message(&device, 1, number, bytes), buffer(&device, bytes));
            let (from, to) = (ours.as_ptr(), theirs.as_ptr());
            let ticket = sender.offer(ours, b"").unwrap();
            let reading = receiver.read_next_into(theirs).unwrap();
            let got = receiver.wait(reading).unwrap().into_buffer();
            let sent = sender.wait_sent(ticket).unwrap().buffer;
            // The very same memory at both ends ...
            assert_eq!((sent.as_ptr(), got.as_ptr()), (from, to));
            assert!(sent[..] == got[..]);
        }
        // ... and the device has moved each byte once: besides, there were 4 requests and
        // 4 signals.
        let (moved, payload) = (simulation.stats().bytes - before, 4 * bytes as u64);
        assert!((payload..payload + 4 * (40 + 8)).contains(&moved), "{moved} bytes moved");
    });
}

#[test]
fn a_refused_message_is_learnt_by_its_sender_in_order() {
    for config in configs() {
        bounded(move || {
            let device = device();
            let (mut sender, mut receiver) = pair(&device, &device, &config).unwrap();
            let receiving = std::thread::spawn({
                let device = device.clone();
                move || {
                    let mut readings = Vec::new();
                    for number in 0..8u8 {
                        let request = receiver.next_request().unwrap();
                        assert_eq!(request.app(), [number]);
                        match number % 3 {
                            0 => request.refuse(),
                            1 => request.refuse_with(Refusal::TooLong),
                            _ => readings.push(request.read_into(buffer(&device, 100)).unwrap()),
                        }
                    }
                    for reading in readings {
                        receiver.wait(reading).unwrap();
                    }
                    assert!(matches!(receiver.next_request(), Err(RecvError::Closed)));
                    receiver.stats()
                }
            });
            let mut tickets = Vec::new();
            for number in 0..8u8 {
                let buffer = message(&device, 1, number.into(), 100);
                tickets.push(sender.offer(buffer, &[number]).unwrap());
            }
            for (number, ticket) in tickets.into_iter().enumerate() {
                let expected = match number % 3 {
                    0 => Outcome::Refused(Refusal::NotWanted),
                    1 => Outcome::Refused(Refusal::TooLong),
                    _ => Outcome::Read,
                };
                assert_eq!(sender.wait_sent(ticket).unwrap().outcome, expected, "{config:?}");
            }
            let stats = sender.stats();
            assert_eq!((stats.messages, stats.read, stats.refused), (8, 2, 6));
            assert!(sender.close_and_take().unwrap().is_empty());
            let stats = receiving.join().unwrap();
            assert_eq!((stats.messages, stats.refused), (2, 6));
        });
    }
}

/// Requests that a receiver posts at most to acknowledge `messages`, besides the READs.
///
/// Each message is acknowledged separately, or several by one count; a sender that pulls
/// gets no acknowledgement. If acknowledgements wake no thread, a sender that sleeps asks
/// for a wakeup, one at a time, for the message that it waits for: on a slow device, for
/// each of them.
fn acknowledgements(ack: AckMode, wait: WaitStrategy, messages: u64) -> (u64, u64) {
    let wakeups = match wait {
        WaitStrategy::Spin => 0,
        _ if ack.notifies() => 0,
        _ => messages,
    };
    match ack {
        AckMode::FencedWrite | AckMode::Write => (messages, messages + wakeups),
        AckMode::Send | AckMode::Cumulative => (1, messages + wakeups),
        AckMode::Pull => (0, wakeups),
    }
}

#[test]
fn long_messages_are_read_in_parts_and_empty_ones_not_at_all() {
    for (ack, wait) in ways() {
        bounded(move || {
            let device = device();
            let base = Config {
                ack,
                common: Common { wait, keepalive: NEVER, ..support::common() },
                ..support::config::<Config>()
            };
            let config = Config { max_read_bytes: 1000, reads: 3, ..base };
            for bytes in [0, 1, 999, 1000, 1001, 12_345] {
                let (sender, mut receiver) = pair(&device, &device, &config).unwrap();
                let sending = std::thread::spawn({
                    let device = device.clone();
                    move || send_all(&device, sender, 9, bytes)
                });
                assert_eq!(receive_all(&device, &mut receiver, bytes), 9, "{ack:?} {bytes}");
                let requests = receiver.stats().work_requests;
                let reads = 9 * bytes.div_ceil(1000) as u64;
                let (least, most) = acknowledgements(ack, wait, 9);
                assert!(
                    (reads + least..=reads + most).contains(&requests),
                    "{ack:?} {wait:?}, {bytes} bytes: {requests}"
                );
                sending.join().unwrap();
            }
        });
    }
}

#[test]
fn a_message_longer_than_its_buffer_leaves_the_buffer_alone() {
    bounded(|| {
        let device = device();
        let (mut sender, mut receiver) =
            pair(&device, &device, &support::config::<Config>()).unwrap();
        let first = sender.offer(message(&device, 1, 0, 101), b"first").unwrap();
        let second = sender.offer(message(&device, 1, 1, 100), b"second").unwrap();
        let not_read =
            receiver.next_request().unwrap().read_into(buffer(&device, 100)).unwrap_err();
        assert_eq!(not_read.error, NotReadReason::BufferTooShort { len: 101, room: 100 });
        assert!(not_read.buffer.iter().all(|byte| *byte == 0));
        // Nothing is decided: it is still the oldest one.
        let place = not_read.buffer;
        assert_eq!(not_read.request.unwrap().app(), b"first");
        let Err(ReadError::BufferTooShort { buffer: place, len: 101 }) =
            receiver.read_next_into(place)
        else {
            panic!("it was read");
        };
        let reading = receiver.read_next_into(place).unwrap();
        support::assert_content(&receiver.wait(reading).unwrap(), 1, 1, 100);
        let refused = Outcome::Refused(Refusal::TooLong);
        assert_eq!(sender.wait_sent(first).unwrap().outcome, refused);
        assert_eq!(sender.wait_sent(second).unwrap().outcome, Outcome::Read);
    });
}

/// A file without a name, in memory where there is such a place: every device takes those.
fn file(bytes: u64) -> std::fs::File {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let shm = std::path::Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let path = place.join(format!("direct-read-{}-{number}", std::process::id()));
    let mut options = std::fs::File::options();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(bytes).unwrap();
    file
}

#[test]
fn messages_with_a_short_read_are_not_read_into_files() {
    bounded(|| {
        let device = device();
        let config = Config { max_read_bytes: 8192, ..support::config::<Config>() };
        let (mut sender, mut receiver) = pair(&device, &device, &config).unwrap();
        for (number, bytes) in [20_500, 4095, 8192 + 4095, 30_000].into_iter().enumerate() {
            sender.offer(message(&device, 1, number as u64, bytes), b"").unwrap();
        }
        let file = file(1 << 16);
        let region = device.pd().register_file(&file, 4096, 20_500).unwrap();
        let reading = receiver.next_request().unwrap().read_into_file(region).unwrap();
        let mut region = receiver.wait_file(reading).unwrap();
        assert!(matches!(receiver.wait_file(reading), Err(ReadError::UnknownReading)));
        let mut found = vec![0; 20_500];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 4096).unwrap();
        support::assert_content(&found, 1, 0, 20_500);
        for (number, len) in [(1, 4095), (2, 8192 + 4095)] {
            let request = receiver.next_request().unwrap();
            let not_read = request.read_into_file(region).unwrap_err();
            assert_eq!(not_read.error, NotReadReason::NotForFiles { len });
            region = not_read.region;
            let place = buffer(&device, len as usize);
            let reading = not_read.request.read_into(place).unwrap();
            support::assert_content(&receiver.wait(reading).unwrap(), 1, number, len as usize);
        }
        let not_read = receiver.next_request().unwrap().read_into_file(region).unwrap_err();
        assert_eq!(not_read.error, NotReadReason::BufferTooShort { len: 30_000, room: 20_500 });
        not_read.request.refuse();
        assert_eq!(receiver.stats().bytes, 20_500 + 4095 + 8192 + 4095);
        sender.close_and_take().unwrap();
    });
}

/// A message that has landed in a file, and is not waited for, delays no later message.
#[test]
fn what_landed_in_a_file_leaves_the_way_free_for_buffers() {
    bounded(|| {
        let device = device();
        let (mut sender, mut receiver) =
            pair(&device, &device, &support::config::<Config>()).unwrap();
        let first = sender.offer(message(&device, 1, 0, 5000), b"").unwrap();
        sender.offer(message(&device, 1, 1, 100), b"").unwrap();
        let region = device.pd().register_file(file(5000), 0, 5000).unwrap();
        let in_file = receiver.next_request().unwrap().read_into_file(region).unwrap();
        // Until it is there: its sender has no more to wait for then.
        while !sender.is_acked(first).unwrap() {
            receiver.progress().unwrap();
        }
        let reading = receiver.read_next_into(buffer(&device, 100)).unwrap();
        let taken = loop {
            if let Some(taken) = receiver.try_take().unwrap() {
                break taken;
            }
        };
        assert_eq!(taken.0, reading);
        support::assert_content(&taken.1, 1, 1, 100);
        receiver.wait_file(in_file).unwrap();
    });
}

/// A ticket of another receiver, with a number that this one has given out, too.
#[test]
fn a_ticket_of_another_receiver_takes_nothing_away() {
    bounded(|| {
        let device = device();
        let ends = || pair(&device, &device, &support::config::<Config>()).unwrap();
        let ((mut sender, mut receiver), (mut others, mut other)) = (ends(), ends());
        sender.offer(message(&device, 1, 0, 5000), b"").unwrap();
        sender.offer(message(&device, 1, 1, 100), b"").unwrap();
        others.offer(message(&device, 2, 0, 100), b"").unwrap();
        others.offer(message(&device, 2, 1, 5000), b"").unwrap();
        let region = || device.pd().register_file(file(5000), 0, 5000).unwrap();
        let in_file = receiver.next_request().unwrap().read_into_file(region()).unwrap();
        let in_buffer = receiver.read_next_into(buffer(&device, 100)).unwrap();
        let first = other.read_next_into(buffer(&device, 100)).unwrap();
        let second = other.next_request().unwrap().read_into_file(region()).unwrap();
        assert!(matches!(receiver.wait(first), Err(ReadError::UnknownReading)), "a file's");
        assert!(matches!(receiver.wait_file(second), Err(ReadError::UnknownReading)));
        assert!(matches!(other.wait(in_buffer), Err(ReadError::UnknownReading)));
        assert!(matches!(receiver.is_done(first), Err(ReadError::UnknownReading)));
        assert!(matches!(receiver.is_file_done(second), Err(ReadError::UnknownReading)));
        while !receiver.is_file_done(in_file).unwrap() || !receiver.is_done(in_buffer).unwrap() {}
        receiver.wait_file(in_file).unwrap();
        assert!(matches!(receiver.is_file_done(in_file), Err(ReadError::UnknownReading)));
        support::assert_content(&receiver.wait(in_buffer).unwrap(), 1, 1, 100);
        support::assert_content(&other.wait(first).unwrap(), 2, 0, 100);
        other.wait_file(second).unwrap();
    });
}

#[test]
fn the_smaller_window_holds_and_a_full_one_is_an_error() {
    for (ours, theirs) in [(3, 8), (8, 3)] {
        bounded(move || {
            let device = device();
            let config = |window| Config { window, ..support::config::<Config>() };
            let mut end = receiver(&device, &config(theirs), 1).unwrap();
            let mut sender: Sender = join(&mut end, &device, &device, &config(ours)).unwrap();
            for number in 0..3 {
                sender.try_offer_part(message(&device, 1, number, 8), 0..8, b"").unwrap();
            }
            let full = sender.try_offer_part(message(&device, 1, 3, 8), 0..8, b"").unwrap_err();
            assert_eq!((full.error, full.buffer.len()), (SendError::Full(Full::Window).into(), 8));
            let reading = end.read_next_into(buffer(&device, 8)).unwrap();
            end.wait(reading).unwrap();
            // Until the acknowledgement is here, of which there is one.
            let mut next = Some(full.buffer);
            while let Some(buffer) = next.take() {
                next = sender.try_offer_part(buffer, 0..8, b"").err().map(|full| full.buffer);
            }
            // The others stay undecided: the receiver goes, and says so.
            drop(end);
            let missing = CloseReason::PeerClosed { unacked: 3 };
            assert_eq!(sender.wait_all(), Err(SendError::Ended(missing)));
        });
    }
}

#[test]
fn what_cannot_be_offered_comes_back_at_once() {
    let device = device();
    let config = Config { app_bytes: 10, ..support::config::<Config>() };
    let (mut sender, _receiver) = pair(&device, &device, &config).unwrap();
    let long = sender.offer(message(&device, 1, 0, 8), &[0; 11]).unwrap_err();
    assert_eq!(long.error, OfferError::AppTooLong { bytes: 11, limit: 10 });
    let hidden = sender.offer(buffer(&device, 8), b"").unwrap_err();
    assert!(matches!(hidden.error, OfferError::Memory(_)));
    let outside = sender.offer_part(message(&device, 1, 0, 8), 4..9, b"").unwrap_err();
    assert!(matches!(outside.error, OfferError::Memory(_)));
    let config = Config { signal_at: SignalAt::Tail, ..config };
    let (mut sender, _receiver) = pair(&device, &device, &config).unwrap();
    let plain = device.pd().register_buffer(8, BufferConfig::READABLE).unwrap();
    assert_eq!(sender.offer(plain, b"").unwrap_err().error, OfferError::NoSignal);
    let (mut other, _kept) = pair::<Buffer>(&device, &device, &config).unwrap();
    let ticket = other.offer(message(&device, 1, 0, 8), b"").unwrap();
    assert_eq!(sender.is_acked(ticket), Err(SendError::UnknownTicket));
    assert_eq!(sender.stats().messages, 0);
}

/// Bytes of what is replicated.
const COPY: usize = 100_000;

#[test]
fn one_buffer_is_offered_to_many_receivers_at_a_time() {
    bounded(|| {
        let device = device();
        let mut ends: Vec<(Sender<FrozenBuffer>, Receiver)> =
            (0..3).map(|_| pair(&device, &device, &support::config::<Config>()).unwrap()).collect();
        let frozen = message(&device, 9, 0, COPY).freeze();
        let mut tickets = Vec::new();
        for (sender, _) in &mut ends {
            tickets.push(sender.offer(frozen.clone(), b"replica").unwrap());
        }
        let frozen = frozen.thaw().expect_err("the senders have it");
        for ((sender, receiver), ticket) in ends.iter_mut().zip(tickets) {
            let reading = receiver.read_next_into(buffer(&device, COPY)).unwrap();
            support::assert_content(&receiver.wait(reading).unwrap(), 9, 0, COPY);
            assert_eq!(sender.wait_sent(ticket).unwrap().outcome, Outcome::Read);
        }
        assert!(frozen.thaw().is_ok(), "all of them have given it back");
    });
}

#[test]
fn one_receiver_serves_many_direct_read_senders() {
    for shared in [false, true] {
        bounded(move || {
            const SENDERS: u64 = 5;
            let device = device();
            let config = Config {
                window: 4,
                common: Common { keepalive: NEVER, ..support::common() },
                ..support::config::<Config>()
            };
            let mut end = match shared {
                true => receiver_shared(&device, &config, 6, 5 * 8).unwrap(),
                false => receiver(&device, &config, 5).unwrap(),
            };
            let senders: Vec<Sender> =
                (0..SENDERS).map(|_| join(&mut end, &device, &device, &config).unwrap()).collect();
            assert!(join::<Buffer>(&mut end, &device, &device, &config).is_err(), "no room");
            let threads: Vec<_> = senders
                .into_iter()
                .zip(0..)
                .map(|(mut sender, stream)| {
                    let device = device.clone();
                    std::thread::spawn(move || {
                        for number in 0..40 {
                            let buffer = message(&device, stream, number, 500);
                            let ticket = sender.offer(buffer, b"").unwrap();
                            assert_eq!(sender.wait_sent(ticket).unwrap().outcome, Outcome::Read);
                        }
                        sender.close_and_take().unwrap();
                    })
                })
                .collect();
            let mut seen = [0; SENDERS as usize];
            loop {
                match end.read_next_into(buffer(&device, 500)) {
                    Ok(reading) => {
                        let message = end.wait(reading).unwrap();
                        let stream = message.peer().0;
                        let number = &mut seen[stream as usize];
                        support::assert_content(&message, stream.into(), *number, 500);
                        *number += 1;
                    }
                    Err(ReadError::Recv(RecvError::Closed)) => break,
                    Err(e) => panic!("{e}"),
                }
            }
            assert_eq!(seen, [40; SENDERS as usize]);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // Places of peers that have gone are free again.
            assert!(join::<Buffer>(&mut end, &device, &device, &config).is_ok());
        });
    }
}

/// The device has work of the sender that has closed for two milliseconds more.
#[test]
fn a_sender_joins_in_the_place_that_another_has_just_left() {
    for (ack, shared) in AckMode::ALL.into_iter().flat_map(|ack| [(ack, false), (ack, true)]) {
        bounded(move || {
            let device = rdma_conn::device::open(Some("soft0@2000us")).unwrap();
            let config = Config { ack, window: 4, ..support::config::<Config>() };
            let mut end = match shared {
                true => receiver_shared(&device, &config, 1, 8).unwrap(),
                false => receiver(&device, &config, 1).unwrap(),
            };
            for number in 0..4 {
                let sender = join(&mut end, &device, &device, &config).unwrap();
                let there = device.clone();
                let sending = std::thread::spawn(move || send_all(&there, sender, 1, 50));
                let reading = end.read_next_into(buffer(&device, 50)).unwrap();
                support::assert_content(&end.wait(reading).unwrap(), 7, 0, 50);
                let none = end.next_request().map(drop);
                assert!(matches!(none, Err(RecvError::Closed)), "{none:?} {ack:?} {number}");
                sending.join().unwrap();
            }
        });
    }
}

#[test]
fn a_message_without_bytes_needs_no_buffer() {
    for ack in AckMode::ALL {
        bounded(move || {
            let device = device();
            let config = Config { ack, ..support::config::<Config>() };
            let (mut sender, mut receiver) = pair(&device, &device, &config).unwrap();
            let empty = sender.offer(message(&device, 1, 0, 0), b"a word").unwrap();
            let full = sender.offer(message(&device, 1, 1, 1), b"").unwrap();
            let request = receiver.next_request().unwrap();
            assert_eq!(request.app(), b"a word");
            request.take_empty().unwrap();
            let refused = receiver.next_request().unwrap().take_empty().unwrap_err();
            assert_eq!(refused.bytes(), 1, "it has bytes");
            refused.refuse();
            assert_eq!(sender.wait_sent(empty).unwrap().outcome, Outcome::Read);
            let refused = Outcome::Refused(Refusal::NotWanted);
            assert_eq!(sender.wait_sent(full).unwrap().outcome, refused);
        });
    }
}

#[test]
fn a_timeout_loses_nothing() {
    bounded(|| {
        let device = device();
        let (mut sender, mut receiver) =
            pair(&device, &device, &support::config::<Config>()).unwrap();
        let soon = Duration::from_millis(5);
        assert!(matches!(receiver.next_request_timeout(soon), Err(RecvError::TimedOut)));
        let ticket = sender.offer(message(&device, 1, 0, 64), b"").unwrap();
        assert_eq!(
            sender.wait_sent_timeout(ticket, soon).unwrap_err(),
            SendError::TimedOut { unflushed: 0 }
        );
        assert_eq!(sender.is_acked(ticket), Ok(false));
        assert!(sender.take_back(ticket).is_none(), "it is offered");
        let reading = receiver.read_next_into(buffer(&device, 64)).unwrap();
        receiver.wait(reading).unwrap();
        assert!(matches!(receiver.wait(reading), Err(ReadError::UnknownReading)));
        assert_eq!(sender.wait_sent(ticket).unwrap().outcome, Outcome::Read);
        assert_eq!(sender.wait_sent(ticket).unwrap_err(), SendError::UnknownTicket);
    });
}

#[test]
fn a_forgotten_sender_frees_nothing_that_is_on_offer() {
    bounded(|| {
        let device = device();
        let (mut sender, mut receiver) =
            pair(&device, &device, &support::config::<Config>()).unwrap();
        sender.offer(message(&device, 4, 0, 5000), b"").unwrap();
        std::mem::forget(sender);
        let reading = receiver.read_next_into(buffer(&device, 5000)).unwrap();
        support::assert_content(&receiver.wait(reading).unwrap(), 4, 0, 5000);
    });
}

/// An event loop for messages without copies wakes for what the program has not seen.
#[test]
fn an_armed_receiver_wakes_for_new_requests_and_finished_reads() {
    bounded(|| {
        let device = device();
        let common = Common { keepalive: NEVER, ..support::common() };
        let config = Config { common, ..support::config::<Config>() };
        let (mut sender, mut end) = pair(&device, &device, &config).unwrap();
        let sleeps = |end: &mut Receiver| !matches!(end.arm_requests().unwrap(), Arm::Ready);
        let wait_for = |end: &mut Receiver| while sleeps(end) {};
        assert!(sleeps(&mut end));
        let first = sender.offer(message(&device, 0, 0, 100), b"").unwrap();
        wait_for(&mut end);
        assert_eq!(end.try_next_request().unwrap().bytes(), 100); // seen, and not decided
        assert!(sleeps(&mut end), "a request that was seen");
        let second = sender.offer(message(&device, 0, 1, 100), b"").unwrap();
        wait_for(&mut end);
        let place = buffer(&device, 100);
        let reading = end.try_next_request().unwrap().read_into(place).unwrap();
        // The call that looks for the next request may see that the first one was read.
        end.try_next_request().unwrap().refuse();
        while !end.is_done(reading).unwrap() {}
        assert!(!sleeps(&mut end), "what was read");
        let (read, taken) = end.try_take().unwrap().unwrap();
        assert_eq!((read, &*taken), (reading, &content(0, 0, 100)[..]));
        while matches!(sender.arm_sent().unwrap(), Arm::Ready) {}
        assert_eq!(sender.wait_sent(first).unwrap().outcome, Outcome::Read);
        assert_eq!(sender.wait_sent(second).unwrap().outcome, Outcome::Refused(Refusal::NotWanted));
    });
}
