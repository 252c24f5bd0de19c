//! A message through the connection against the same message by raw verbs.

use std::time::Instant;

use rdma_conn::device::{self, Device};
use rdma_conn::send_recv::{Config, Preset, Receiver, RecvError, SendError, Sender};
use rdma_conn::verbs_safe::baseline::{RawLoop, RawLoopConfig};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, join, receiver};

use super::{Target, in_turn, line, rate};

const SIZE: usize = 16;
const MESSAGES: u64 = 2_000_000;

pub(crate) fn run() {
    println!(
        "One 16 B message: connection against raw verbs, nanoseconds (both copy the payload in)"
    );
    let device = device::soft().expect("soft0 opens");
    for preset in [Preset::Unbatched, Preset::Batched] {
        let config = Config { message_bytes: SIZE as u32, ..Config::preset(preset) };
        let raw = raw_config(&config);
        let mut baseline = RawLoop::new(device.context(), raw).expect("a raw loop");
        let (mut near, mut far) = ends(&device, &config);
        let ways: [(&str, Drain); 2] = [("one by one", one_by_one), ("try_recv_each", each)];
        for (way, drain) in ways {
            let (ours, theirs) = in_turn(
                || nanoseconds(one_thread(&mut near, &mut far, drain)),
                || nanoseconds(rate(MESSAGES, baseline.run(MESSAGES).expect("the raw loop runs"))),
            );
            let what = format!("{}, one thread, received {way}", preset.name());
            line(&what, ours, theirs, "ns", Target::AtMost(1.3));
        }
        let (ours, theirs) = in_turn(
            || nanoseconds(two_threads(&device, &config)),
            || nanoseconds(rate(MESSAGES, baseline.run_two_threads(MESSAGES).expect("it runs"))),
        );
        line(&format!("{}, two threads", preset.name()), ours, theirs, "ns", Target::AtMost(1.3));
    }
}

fn nanoseconds(rate: f64) -> f64 {
    1e9 / rate
}

/// The raw loop with the settings of the connection.
fn raw_config(config: &Config) -> RawLoopConfig {
    RawLoopConfig {
        size: SIZE as u32,
        batch: config.batch,
        unacked: config.unacked,
        signal_every: (config.unacked / 4).clamp(1, 64),
        poll_batch: 32,
        repost_batch: 32,
        slots: config.recv_depth,
        inline: true,
    }
}

fn ends(device: &Device, config: &Config) -> (Sender, Receiver) {
    let mut far = receiver::<SendRecv>(device, config, 1).expect("a receiver");
    let near = join::<SendRecv>(&mut far, device, device, config).expect("a sender");
    (near, far)
}

/// A way of receiving all available messages, which returns their number.
type Drain = fn(&mut Receiver) -> u64;

/// Sends until there is no room, receives until there is nothing.
fn one_thread(near: &mut Sender, far: &mut Receiver, drain: Drain) -> f64 {
    let message = [7; SIZE];
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < MESSAGES {
        while sent < MESSAGES {
            match near.try_send(&message) {
                Ok(_) => sent += 1,
                Err(SendError::Full(_)) => break,
                Err(e) => panic!("{e}"),
            }
        }
        if sent == MESSAGES {
            near.flush().expect("posted");
        }
        received += drain(far);
    }
    rate(MESSAGES, start.elapsed())
}

fn each(far: &mut Receiver) -> u64 {
    let mut count = 0;
    loop {
        match far.try_recv_each(|_, message| assert_eq!(message[0], 7)) {
            Ok(received) => count += received as u64,
            Err(RecvError::Empty) => return count,
            Err(e) => panic!("{e}"),
        }
    }
}

fn one_by_one(far: &mut Receiver) -> u64 {
    let mut count = 0;
    loop {
        match far.try_recv() {
            Ok(message) => {
                assert_eq!(message[0], 7);
                far.free(message);
                count += 1;
            }
            Err(RecvError::Empty) => return count,
            Err(e) => panic!("{e}"),
        }
    }
}

pub(crate) fn two_threads(device: &Device, config: &Config) -> f64 {
    let (mut near, mut far) = ends(device, config);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let message = [7; SIZE];
            for _ in 0..MESSAGES {
                near.send(&message).expect("sent");
            }
            near.close().expect("closed");
        });
        let start = Instant::now();
        for _ in 0..MESSAGES {
            let message = far.recv().expect("received");
            far.free(message);
        }
        rate(MESSAGES, start.elapsed())
    })
}
