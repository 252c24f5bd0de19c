//! Buffered Write and Direct Write: messages that are read where they lie, against messages that
//! are copied out of the ring, or of the buffer, first.

use std::time::Instant;

use rdma_conn::buffered_write::{Config, Peer, Receiver, RecvError};
use rdma_conn::device::{self, Device};
use rdma_conn::ring::RingShape;
use rdma_conn::{BufferedWrite, DirectWrite, RecvHalf, SendHalf, direct_write, pair};

use super::{Target, in_turn, line, rate};

/// Bytes sent in one measurement.
const BYTES: usize = 64 << 20;

/// Part of a message that a receiver reads.
#[derive(Clone, Copy)]
enum Reads {
    FirstWord,
    All,
}

pub(crate) fn run() {
    println!("Buffered Write, two threads, GB/s: read in place against copied out of the ring");
    let device = device::soft().expect("soft0 opens");
    for size in [512, 8 << 10, 64 << 10] {
        // To read all of it in place takes loads of one word at a time.
        let ways = [
            (Reads::FirstWord, "its first word", Target::AtLeast(1.0)),
            (Reads::All, "all of it", Target::None),
        ];
        for (reads, name, target) in ways {
            let (ours, theirs) = in_turn(
                || run_with(&device, size, |receiver| in_place(receiver, reads)),
                || run_with(&device, size, |receiver| copied(receiver, reads)),
            );
            line(&format!("{size} B, {name} is read"), ours, theirs, "GB/s", target);
        }
    }
    direct_write_part(&device);
}

/// Direct Write: the buffer is lent, and the first word is read.
fn direct_write_part(device: &Device) {
    println!("Direct Write, two threads, GB/s: lent buffers against copied messages");
    for size in [512, 8 << 10, 64 << 10] {
        let (ours, theirs) = in_turn(
            || direct_write_with(device, size, true),
            || direct_write_with(device, size, false),
        );
        let target = Target::AtLeast(if size == 64 << 10 { 1.3 } else { 1.0 });
        line(&format!("{size} B, its first word is read"), ours, theirs, "GB/s", target);
    }
}

fn direct_write_with(device: &Device, size: usize, lends: bool) -> f64 {
    let config = direct_write::Config { message_bytes: size as u32, ..Default::default() };
    let (a, b) = pair::<DirectWrite>(device, device, &config).expect("a pair");
    let (sender, mut receiver) = (a.sender, b.receiver);
    let drain = || {
        if lends {
            let message = receiver.try_recv_in_place()?;
            let mut word = [0; 8];
            message.read(0, &mut word).expect("it is longer");
            check(Reads::FirstWord, message.len(), [u64::from_ne_bytes(word)].into_iter());
            return Ok(1);
        }
        receiver.try_recv_each(|_, message| check(Reads::FirstWord, message.len(), words(message)))
    };
    until_all(sender, size, drain)
}

/// A thread sends, and this one receives, until all has arrived.
fn run_with(
    device: &Device,
    size: usize,
    mut drain: impl FnMut(&mut Receiver) -> Result<usize, RecvError>,
) -> f64 {
    let ring =
        RingShape { ring_bytes: 1 << 20, message_bytes: size as u32, ..RingShape::default() };
    let (a, b) = pair::<BufferedWrite>(device, device, &Config { ring, ..Config::default() })
        .expect("a pair");
    let (sender, mut receiver) = (a.sender, b.receiver);
    until_all(sender, size, || drain(&mut receiver))
}

/// Sends messages from a thread, and receives all of them in this one; bytes a nanosecond.
fn until_all(
    mut sender: impl SendHalf,
    size: usize,
    mut drain: impl FnMut() -> Result<usize, RecvError>,
) -> f64 {
    let messages = BYTES / size;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let message = vec![7; size];
            for _ in 0..messages {
                sender.send(&message).expect("sent");
            }
            sender.close().expect("closed");
        });
        let (start, mut received) = (Instant::now(), 0);
        while received < messages {
            match drain() {
                Ok(count) => received += count,
                Err(RecvError::Empty) => std::hint::spin_loop(),
                Err(e) => panic!("{e}"),
            }
        }
        rate((messages * size) as u64, start.elapsed()) / 1e9
    })
}

/// The words of a message.
fn words(message: &[u8]) -> impl Iterator<Item = u64> {
    message.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

fn in_place(receiver: &mut Receiver, reads: Reads) -> Result<usize, RecvError> {
    receiver.try_recv_in_place(|_, message| {
        let words = message.words().map(u64::from_ne_bytes);
        check(reads, message.len(), words);
        1
    })
}

fn copied(receiver: &mut Receiver, reads: Reads) -> Result<usize, RecvError> {
    receiver.try_recv_each(|_: Peer, message| {
        check(reads, message.len(), words(message));
    })
}

fn check(reads: Reads, bytes: usize, mut words: impl Iterator<Item = u64>) {
    const WORD: u64 = 0x0707_0707_0707_0707;
    match reads {
        Reads::FirstWord => assert_eq!(words.next(), Some(WORD)),
        Reads::All => {
            let sum = words.fold(0, u64::wrapping_add);
            assert_eq!(sum, WORD.wrapping_mul(bytes as u64 / 8));
        }
    }
}
