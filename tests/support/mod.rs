//! Helpers that the integration tests share. The device is chosen in one place: `soft0`, or the one
//! that `RDMA_CONN_DEVICE` names.
#![allow(dead_code, unreachable_pub, reason = "each test crate uses a part of it")]

/// Makes a test of each function for each protocol.
#[allow(unused_macros, reason = "each test crate uses a part of it")]
macro_rules! over_every_protocol {
    ($($test:ident),+ $(,)?) => {
        over_every_protocol! { @ send_recv rdma_conn::SendRecv, $($test)+ }
        over_every_protocol! { @ buffered_read rdma_conn::BufferedRead, $($test)+ }
        over_every_protocol! { @ buffered_write rdma_conn::BufferedWrite, $($test)+ }
        over_every_protocol! { @ direct_read rdma_conn::DirectRead, $($test)+ }
        over_every_protocol! { @ direct_write rdma_conn::DirectWrite, $($test)+ }
        over_every_protocol! { @ shared_write rdma_conn::SharedWrite, $($test)+ }
    };
    (@ $module:ident $protocol:path, $($test:ident)+) => {
        mod $module {
            $(#[test]
            fn $test() {
                crate::support::bounded(super::$test::<$protocol>);
            })+
        }
    };
}

pub mod budget;
pub mod extents;
pub mod raw;
pub mod read;
pub mod read_liar;
pub mod slots;
pub mod tally;
pub mod write;

use budget::Budget;
use rdma_conn::raw::Link;
use rdma_conn::{Common, multicast};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rdma_conn::device::{self, Counters, Device, Provider};
use rdma_conn::send_recv::{Config, Message, Receiver, RecvError, Sender, Transport};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{RecvHalf, SendHalf};

pub use budget::PATIENCE;

/// Time after which a member of a group that lives is suspected.
pub const SUSPICION: Duration = Duration::from_secs(20);

/// A time in which nothing is to be woken by a keepalive.
pub const NEVER: Duration = Duration::from_secs(86_400);

/// The device that everything runs on.
pub fn device() -> Device {
    let device =
        device::of_environment().expect("the device that RDMA_CONN_DEVICE names, or soft0");
    tally::took(device.name());
    device
}

/// The variable that names the device at the other end, if that is to be another one.
pub const OTHER_DEVICE: &str = "RDMA_CONN_OTHER_DEVICE";

/// The devices of two ends: [`device`], and the one that [`OTHER_DEVICE`] names, or the same again.
pub fn devices() -> [Device; 2] {
    let one = device();
    let other = std::env::var(OTHER_DEVICE).map_or_else(
        |_| one.clone(),
        |name| device::open(Some(&name)).expect("the device that RDMA_CONN_OTHER_DEVICE names"),
    );
    [one, other]
}

/// Reports whether the device's counters are the test's own: all processes share those of a card,
/// unless the test runs alone on it.
pub fn can_count(device: &Device, case: &str) -> bool {
    let can = device.provider() == Provider::Soft || tally::is_alone();
    if !can {
        tally::skipped(&format!("{case}: other processes share {}'s counters", device.name()));
    }
    can
}

/// Returns the status with which a device completes a receive of a message that is longer than its
/// buffer.
///
/// | device | status | because |
/// |---|---|---|
/// | soft0, cards | `LOC_LEN` | the specification: a local length error |
/// | the kernel's rxe | `LOC_QP_OP` | it takes a list that is too short for a broken one |
pub fn too_long() -> WcStatus {
    if device().name().starts_with("rxe") { WcStatus::LOC_QP_OP } else { WcStatus::LOC_LEN }
}

/// Time that the kernel gives out what it has once seen of a device's counters, and a little more.
const COUNTERS_LIVE: Duration = Duration::from_millis(15);

/// Counters of the device, for a look at what has changed.
pub fn counters(device: &Device) -> Counters {
    if device.provider() == Provider::RdmaCore {
        std::thread::sleep(COUNTERS_LIVE);
    }
    device.counters().expect("counters")
}

/// Counters of a device that has nothing more under way: they stand still.
pub fn settled_counters(device: &Device) -> Counters {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = counters(device);
    loop {
        let now = counters(device);
        if now == seen || Instant::now() > deadline {
            return now;
        }
        seen = now;
    }
}

/// Receiver-not-ready events since `before`; 0 where they are not counted, which leaves
/// that part of a test out.
pub fn rnr_since(device: &Device, before: &Counters) -> u64 {
    counters(device).since(before).rnr_events.unwrap_or_else(|| {
        tally::skipped(&format!("{} counts no receiver-not-ready events", device.name()));
        0
    })
}

/// For a peer that lives: what a test has, unless it says otherwise.
pub fn living() -> Transport {
    with(budget::LIVING)
}

/// For a peer that lives until the test ends it.
pub fn mortal() -> Transport {
    with(budget::mortal())
}

fn with(budget: Budget) -> Transport {
    let Budget { timeout, retry_count } = budget;
    Transport { timeout, retry_count, ..Transport::default() }
}

/// The defaults, for a peer that lives.
pub fn common() -> Common {
    Common { transport: living(), ..Common::default() }
}

/// The defaults of a protocol, with those of [`common`].
pub fn config<C: Default + AsMut<Common>>() -> C {
    let mut config = C::default();
    *config.as_mut() = common();
    config
}

/// The defaults of a group, for members that live. Its links give up before a member is suspected.
pub fn group() -> multicast::Config {
    let link = link(budget::LIVING);
    multicast::Config { suspect_after: SUSPICION, link, ..multicast::Config::default() }
}

/// Returns the attributes with which a queue pair without a protocol reaches its peer.
pub fn link(budget: Budget) -> Link {
    let Budget { timeout, retry_count } = budget;
    Link { timeout, retry_count, ..Link::default() }
}

/// Small, and without a keepalive that could hide a lost wake-up.
pub fn small(window: u32) -> Config {
    Config {
        message_bytes: 64,
        unacked: window,
        batch: 1,
        recv_depth: window,
        common: Common { keepalive: NEVER, ..common() },
        ..config()
    }
}

/// Reports whether the tests run on a device of the kernel: in the virtual machine, which has an
/// emulated processor, everything takes many times as long; or over UDP, where others answer.
fn is_emulated() -> bool {
    std::env::var("RDMA_CONN_DEVICE").is_ok_and(|name| !name.starts_with("soft"))
}

/// Rounds or messages of a test that repeats itself: `times`, or a fourth of them where each takes
/// many times as long.
pub fn repeated(times: u64) -> u64 {
    if is_emulated() { times.div_ceil(4) } else { times }
}

/// Runs `body`, and fails if it does not end.
pub fn bounded<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        // The receiver is gone once the test has failed.
        let _ = done.send(());
        result
    });
    let limit = 5 * PATIENCE;
    if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(limit) {
        panic!("still waiting after {limit:?}");
    }
    match thread.join() {
        Ok(Ok(value)) => value,
        Ok(Err(panic)) | Err(panic) => resume_unwind(panic),
    }
}

/// Runs `body` for all cases at the same time: peers that die are waited for together.
pub fn at_once<C: Send + 'static>(
    cases: impl IntoIterator<Item = C>,
    body: impl Fn(C) + Clone + Send + 'static,
) {
    let start = |case| {
        let body = body.clone();
        std::thread::spawn(move || bounded(move || body(case)))
    };
    let all: Vec<_> = cases.into_iter().map(start).collect();
    all.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
}

/// Numbers from a seed (SplitMix64, by Steele, Lea and Flood).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// The seed of a random test: `RDMA_CONN_SEED`, or a fixed one. Print it in failures.
pub fn seed(default: u64) -> u64 {
    let given = std::env::var("RDMA_CONN_SEED").ok();
    given.map_or(default, |text| text.parse().expect("RDMA_CONN_SEED is a number"))
}

/// The bytes of message `number` of `stream`: any two messages differ, and so does a
/// message whose bytes are shifted.
pub fn content(stream: u64, number: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(stream.rotate_left(32) ^ number);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Fails unless `message` is number `number` of `stream`.
#[track_caller]
pub fn assert_content(message: &[u8], stream: u64, number: u64, bytes: usize) {
    assert_eq!(message.len(), bytes, "length of message {number} of stream {stream}");
    assert!(message == content(stream, number, bytes), "message {number} of stream {stream}");
}

/// Has `count` messages of `sender` held at the same time, whatever of them it may send before
/// the receiver looks: credits of a shared pool are lent as they are asked for.
pub fn hold(sender: &mut Sender, inbox: &mut Receiver, count: u64, stream: u64) -> Vec<Message> {
    let (mut sent, mut held) = (0, Vec::new());
    while (held.len() as u64) < count {
        if sent < count && sender.try_send(&content(stream, sent, 12)).is_ok() {
            sent += 1;
            sender.flush().unwrap();
        }
        match inbox.try_recv() {
            Ok(message) => held.push(message),
            Err(RecvError::Empty) => {}
            Err(e) => panic!("{e}"),
        }
    }
    for (number, message) in (0..).zip(&held) {
        assert_content(message, stream, number, 12);
    }
    // A message arrives before its acknowledgement does.
    sender.wait_all_timeout(PATIENCE).unwrap();
    held
}
