//! A message through a ring in the memory of one process: conn-core's, and the crates
//! that one would take instead. All take messages of up to 8 KiB. Each message is of a
//! length that is known at run time only, is copied in, handed out as one slice, looked
//! at, and freed.
//!
//! `cargo bench -p verbs-safe --bench ring` measures times, in one thread and between
//! two. `… --bench ring -- count WAY RING SIZE MESSAGES` only passes messages: that is
//! what `instructions.sh` counts, beside this file.

mod ours;
mod peers;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};

/// Bytes of each ring.
const CAPACITY: usize = 1 << 16;
/// Bytes of the longest message.
const LONGEST: usize = 8192;
/// Message sizes, in bytes.
const SIZES: [usize; 3] = [16, 512, LONGEST];

/// One way of passing messages of at most `MOST` bytes.
trait BenchRing<const MOST: usize> {
    const NAME: &'static str;
    type Sender: BenchSender;
    type Receiver: BenchReceiver;
    fn new() -> (Self::Sender, Self::Receiver);
}

trait BenchSender: Send {
    /// Sends a message; false when there is no room.
    fn send(&mut self, message: &[u8]) -> bool;
}

trait BenchReceiver: Send {
    /// Shows the next message to `look` and frees it; false when there is none.
    fn receive(&mut self, look: impl FnMut(&[u8])) -> bool;
}

/// Reads a message as an application does: it wants bytes, and looks at the first and the last.
#[inline(always)]
fn look(message: &[u8]) {
    let message = black_box(message);
    black_box((message[0], message[message.len() - 1]));
}

/// Bytes of which the compiler knows nothing: it would set them where they are copied.
fn message() -> Vec<u8> {
    black_box(vec![7; LONGEST])
}

/// Passes as many messages of a size.
type Pass<S, R> = fn(&mut (S, R), usize, u64);

/// A name, and how it passes them.
type NamedPass<S, R> = (&'static str, Pass<S, R>);

/// One message in, one out, and so on.
#[inline(never)]
fn one_by_one<S: BenchSender, R: BenchReceiver>(
    (sender, receiver): &mut (S, R),
    size: usize,
    messages: u64,
) {
    let message = message();
    for _ in 0..messages {
        let sent = sender.send(&message[..black_box(size)]);
        let received = receiver.receive(look);
        assert!(sent && received, "it holds one message");
    }
}

/// As many in as a sixteenth of the ring holds, then as many out.
#[inline(never)]
fn in_runs<S: BenchSender, R: BenchReceiver>(
    (sender, receiver): &mut (S, R),
    size: usize,
    messages: u64,
) {
    let message = message();
    let run = (CAPACITY / 16 / size).clamp(2, 32) as u64;
    for _ in 0..messages.div_ceil(run) {
        for _ in 0..run {
            assert!(sender.send(&message[..black_box(size)]), "it holds a run");
        }
        for _ in 0..run {
            assert!(receiver.receive(look), "it holds a run");
        }
    }
}

/// A thread that sends, and one that receives; the time from when both are there.
fn between_threads<S: BenchSender, R: BenchReceiver>(
    (mut sender, mut receiver): (S, R),
    size: usize,
    messages: u64,
) -> Duration {
    let both = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let message = message();
            both.wait();
            for _ in 0..messages {
                while !sender.send(&message[..black_box(size)]) {
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

/// Work to be done with each ring at each size.
trait Visit {
    fn visit<const MOST: usize, R: BenchRing<MOST>>(&mut self, size: usize);
}

fn each_ring(size: usize, visitor: &mut impl Visit) {
    visitor.visit::<LONGEST, ours::PlainRing>(size);
    visitor.visit::<LONGEST, ours::MirroredRing>(size);
    visitor.visit::<LONGEST, ours::AnyOrderRing>(size);
    visitor.visit::<LONGEST, peers::Bbqueue>(size);
    visitor.visit::<LONGEST, peers::Rtrb>(size);
    visitor.visit::<LONGEST, peers::Ringbuf>(size);
    visitor.visit::<LONGEST, peers::Heapless>(size);
    // Beside the contest: it takes no messages that are longer.
    match size {
        16 => visitor.visit::<16, peers::HeaplessOfSize>(size),
        512 => visitor.visit::<512, peers::HeaplessOfSize>(size),
        _ => visitor.visit::<LONGEST, peers::HeaplessOfSize>(size),
    }
}

/// Criterion's measurements.
struct Measure(Criterion);

impl Measure {
    fn measure(
        &mut self,
        way: &str,
        ring: &str,
        size: usize,
        mut pass: impl FnMut(u64) -> Duration,
    ) {
        let mut group = self.0.benchmark_group(format!("{way}, {size} B"));
        group.bench_function(BenchmarkId::from_parameter(ring), |b| b.iter_custom(&mut pass));
        group.finish();
    }
}

impl Visit for Measure {
    fn visit<const MOST: usize, R: BenchRing<MOST>>(&mut self, size: usize) {
        let ways: [NamedPass<R::Sender, R::Receiver>; 2] =
            [("one by one", one_by_one), ("in runs", in_runs)];
        for (way, pass) in ways {
            let mut ring = R::new();
            self.measure(way, R::NAME, size, |messages| {
                let start = Instant::now();
                pass(&mut ring, size, messages);
                start.elapsed()
            });
        }
        self.measure("between threads", R::NAME, size, |messages| {
            between_threads(R::new(), size, messages)
        });
    }
}

/// Passes messages and does nothing else.
struct Count<'a> {
    way: &'a str,
    ring: &'a str,
    messages: u64,
    is_found: bool,
}

impl Visit for Count<'_> {
    fn visit<const MOST: usize, R: BenchRing<MOST>>(&mut self, size: usize) {
        if R::NAME == self.ring {
            self.is_found = true;
            let pass = if self.way == "one-by-one" { one_by_one } else { in_runs };
            pass(&mut R::new(), size, self.messages);
        }
    }
}

/// Prints the names of the rings.
struct PrintNames;

impl Visit for PrintNames {
    fn visit<const MOST: usize, R: BenchRing<MOST>>(&mut self, _: usize) {
        println!("{}", R::NAME);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["count", way @ ("one-by-one" | "in-runs"), ring, size, messages, ..] => {
            let (size, messages) =
                (size.parse().expect("bytes"), messages.parse().expect("a count"));
            let mut count = Count { way, ring, messages, is_found: false };
            each_ring(size, &mut count);
            assert!(count.is_found, "no ring is called {ring}");
        }
        ["names", ..] => each_ring(LONGEST, &mut PrintNames),
        _ => {
            let criterion = Criterion::default()
                .sample_size(10)
                .warm_up_time(Duration::from_millis(100))
                .measurement_time(Duration::from_millis(300))
                .configure_from_args();
            let mut measure = Measure(criterion);
            SIZES.into_iter().for_each(|size| each_ring(size, &mut measure));
            measure.0.final_summary();
        }
    }
}
