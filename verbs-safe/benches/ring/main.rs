//! A message through a ring in the memory of one process: conn-core's, and the crates
//! that one would take instead. Each message is of a length that is known at run time
//! only, is copied in, handed out as one slice, looked at, and freed.
//!
//! `cargo bench -p verbs-safe --bench ring` measures times, in one thread and between
//! two. `… --bench ring -- count RING SIZE MESSAGES` only passes messages: that is what
//! `instructions.sh` counts.

mod ours;
mod peers;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};

/// Bytes of each ring.
const CAPACITY: usize = 1 << 16;
/// Message sizes, in bytes.
const SIZES: [usize; 3] = [16, 512, 8192];

/// One way of passing messages of at most `MOST` bytes.
trait Ring<const MOST: usize> {
    const NAME: &'static str;
    type Sender: Sender;
    type Receiver: Receiver;
    fn new() -> (Self::Sender, Self::Receiver);
}

trait Sender: Send {
    /// Sends a message; false when there is no room.
    fn send(&mut self, message: &[u8]) -> bool;
}

trait Receiver: Send {
    /// Shows the next message to `look` and frees it; false when there is none.
    fn receive(&mut self, look: impl FnMut(&[u8])) -> bool;
}

/// What the application does with a message: it wants it as bytes, and reads some.
#[inline(always)]
fn look(message: &[u8]) {
    let message = black_box(message);
    black_box((message[0], message[message.len() - 1]));
}

/// One message in, one out, and so on.
#[inline(never)]
fn alternate<const MOST: usize, R: Ring<MOST>>(
    (sender, receiver): &mut (R::Sender, R::Receiver),
    messages: u64,
) {
    let message = [7; MOST];
    for _ in 0..messages {
        let sent = sender.send(&message[..black_box(MOST)]);
        let received = receiver.receive(look);
        assert!(sent && received, "{} holds one message", R::NAME);
    }
}

/// As many in as a sixteenth of the ring holds, then as many out.
#[inline(never)]
fn in_runs<const MOST: usize, R: Ring<MOST>>(
    (sender, receiver): &mut (R::Sender, R::Receiver),
    messages: u64,
) {
    let message = [7; MOST];
    let run = (CAPACITY / 16 / MOST).clamp(2, 32) as u64;
    for _ in 0..messages.div_ceil(run) {
        for _ in 0..run {
            assert!(sender.send(&message[..black_box(MOST)]), "{} holds a run", R::NAME);
        }
        for _ in 0..run {
            assert!(receiver.receive(look), "{} holds a run", R::NAME);
        }
    }
}

/// A thread that sends, and one that receives; the time from when both are there.
fn between_threads<const MOST: usize, R: Ring<MOST>>(messages: u64) -> Duration {
    let (mut sender, mut receiver) = R::new();
    let both = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let message = [7; MOST];
            both.wait();
            for _ in 0..messages {
                while !sender.send(&message[..black_box(MOST)]) {
                    std::hint::spin_loop();
                }
            }
        });
        both.wait();
        let start = Instant::now();
        for _ in 0..messages {
            while !receiver.receive(look) {
                std::hint::spin_loop();
            }
        }
        start.elapsed()
    })
}

/// What is done with each ring at each size.
trait Visit {
    fn visit<const MOST: usize, R: Ring<MOST>>(&mut self);
}

fn each_ring<const MOST: usize>(visitor: &mut impl Visit) {
    visitor.visit::<MOST, ours::Plain>();
    visitor.visit::<MOST, ours::Mirrored>();
    visitor.visit::<MOST, ours::AnyOrder>();
    visitor.visit::<MOST, peers::Bbqueue>();
    visitor.visit::<MOST, peers::Rtrb>();
    visitor.visit::<MOST, peers::Ringbuf>();
    visitor.visit::<MOST, peers::Heapless>();
}

fn each_size(visitor: &mut impl Visit) {
    each_ring::<16>(visitor);
    each_ring::<512>(visitor);
    each_ring::<8192>(visitor);
}

/// Criterion's measurements.
struct Measure(Criterion);

impl Visit for Measure {
    fn visit<const MOST: usize, R: Ring<MOST>>(&mut self) {
        let mut measure = |way: &str, mut pass: Box<dyn FnMut(u64) -> Duration>| {
            let mut group = self.0.benchmark_group(format!("{way}, {MOST} B"));
            group.bench_function(BenchmarkId::from_parameter(R::NAME), |b| {
                b.iter_custom(&mut pass);
            });
            group.finish();
        };
        let timed = |pass: fn(&mut (R::Sender, R::Receiver), u64)| {
            let mut ring = R::new();
            move |messages| {
                let start = Instant::now();
                pass(&mut ring, messages);
                start.elapsed()
            }
        };
        measure("one by one", Box::new(timed(alternate::<MOST, R>)));
        measure("in runs", Box::new(timed(in_runs::<MOST, R>)));
        measure("between threads", Box::new(between_threads::<MOST, R>));
    }
}

/// Passes messages and does nothing else.
struct Count<'a> {
    ring: &'a str,
    size: usize,
    messages: u64,
    is_found: bool,
}

impl Visit for Count<'_> {
    fn visit<const MOST: usize, R: Ring<MOST>>(&mut self) {
        if R::NAME == self.ring && MOST == self.size {
            self.is_found = true;
            alternate::<MOST, R>(&mut R::new(), self.messages);
        }
    }
}

/// Prints the names of the rings.
struct Names;

impl Visit for Names {
    fn visit<const MOST: usize, R: Ring<MOST>>(&mut self) {
        println!("{}", R::NAME);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["count", ring, size, messages, ..] => {
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let (size, messages) = (number(size) as usize, number(messages));
            let mut count = Count { ring, size, messages, is_found: false };
            each_size(&mut count);
            assert!(count.is_found, "no ring {ring}, or not one of {SIZES:?} bytes");
        }
        ["names", ..] => each_ring::<16>(&mut Names),
        _ => {
            let criterion = Criterion::default()
                .sample_size(10)
                .warm_up_time(Duration::from_millis(100))
                .measurement_time(Duration::from_millis(400))
                .configure_from_args();
            let mut measure = Measure(criterion);
            each_size(&mut measure);
            measure.0.final_summary();
        }
    }
}
