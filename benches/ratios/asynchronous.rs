//! Halves on tokio, against the same halves on blocking threads, and against a Unix socket in the
//! same runtime.

use std::time::{Duration, Instant};

use rdma_conn::aio::{Connection, Receiver, Sender};
use rdma_conn::device::{self, Device};
use rdma_conn::error::RecvError;
use rdma_conn::protocol::Served;
use rdma_conn::{
    BufferedRead, BufferedWrite, DirectRead, DirectWrite, Protocol, RecvHalf, SendHalf, SendRecv,
    SharedWrite, Ticket, pair,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use super::{Target, in_turn, line, rate};

/// Messages of one measurement.
const MESSAGES: u64 = 200_000;
/// Messages on their way at most.
const IN_FLIGHT: usize = 64;
const BYTES: usize = 64;
/// Round trips of one measurement.
const TRIPS: u64 = 5_000;
/// Round trips of one measurement, each after a silence.
const LONE_TRIPS: u64 = 200;
const SILENCE: Duration = Duration::from_millis(1);
/// Round trips before them: each buffer has been used once.
const WARM_UP: u64 = 1_000;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Runs a part of the measurement for each of the protocols.
fn each(device: &Device, part: impl Fn(&Device, AsyncCase)) {
    part(device, AsyncCase::for_protocol::<SendRecv>());
    part(device, AsyncCase::for_protocol::<BufferedRead>());
    part(device, AsyncCase::for_protocol::<BufferedWrite>());
    part(device, AsyncCase::for_protocol::<DirectRead>());
    part(device, AsyncCase::for_protocol::<DirectWrite>());
    part(device, AsyncCase::for_protocol::<SharedWrite>());
}

/// One protocol's measurements.
struct AsyncCase {
    name: &'static str,
    tasks: fn(&Device) -> f64,
    threads: fn(&Device) -> f64,
    trips: fn(&Device, Trips) -> f64,
}

/// Round trips, each after a silence in which both tasks have fallen asleep, or one after the
/// other.
#[derive(Clone, Copy)]
struct Trips {
    number: u64,
    silence: Option<Duration>,
}

impl Trips {
    /// Sleeps for the silence, if there is one, and returns the time at which the trip begins;
    /// returns `None` at once for trips that warm up.
    async fn begin(self, trip: u64) -> Option<Instant> {
        if trip < WARM_UP {
            return None;
        }
        if let Some(silence) = self.silence {
            tokio::time::sleep(silence).await;
        }
        Some(Instant::now())
    }

    /// The mean in microseconds of all, which took `time`.
    fn mean(self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.number as f64
    }
}

impl AsyncCase {
    fn for_protocol<P: Protocol>() -> AsyncCase {
        AsyncCase { name: P::NAME, tasks: tasks::<P>, threads: threads::<P>, trips: trips::<P> }
    }
}

/// The last tickets, of which the oldest is waited for where there are too many.
#[derive(Default)]
struct Window(std::collections::VecDeque<Ticket>);

impl Window {
    fn oldest(&mut self, sent: Ticket) -> Option<Ticket> {
        self.0.push_back(sent);
        if self.0.len() > IN_FLIGHT { self.0.pop_front() } else { None }
    }
}

/// Messages per second from one thread to another.
fn threads<P: Protocol>(device: &Device) -> f64 {
    let (a, b) = pair::<P>(device, device, &P::Config::default()).expect("a pair");
    let (mut sender, mut receiver) = (a.sender, b.receiver);
    std::thread::scope(|scope| {
        let begin = Instant::now();
        scope.spawn(move || {
            let (message, mut window) = ([7; BYTES], Window::default());
            for _ in 0..MESSAGES {
                let ticket = sender.send(&message).expect("sent");
                if let Some(oldest) = window.oldest(ticket) {
                    sender.wait_acked(oldest).expect("acknowledged");
                }
            }
            sender.close().expect("closed");
        });
        (0..MESSAGES).for_each(|_| drop(receiver.recv().expect("a message")));
        let time = begin.elapsed();
        // Some receivers acknowledge in the calls that receive.
        assert_eq!(receiver.recv().map(drop), Err(RecvError::Closed));
        rate(MESSAGES, time)
    })
}

/// Messages per second from one task to another.
fn tasks<P: Protocol>(device: &Device) -> f64 {
    let (a, b) = pair::<P>(device, device, &P::Config::default()).expect("a pair");
    let (a, b): (Connection<P>, Connection<P>) = (a.into(), b.into());
    let (mut sender, mut receiver) = (a.sender, b.receiver);
    runtime().block_on(async move {
        let begin = Instant::now();
        let sending = tokio::spawn(async move {
            let (message, mut window) = ([7; BYTES], Window::default());
            for _ in 0..MESSAGES {
                let ticket = sender.send(&message).await.expect("sent");
                if let Some(oldest) = window.oldest(ticket) {
                    sender.wait_acked(oldest).await.expect("acknowledged");
                }
            }
            sender.close().await.expect("closed");
        });
        let receiving = tokio::spawn(async move {
            for _ in 0..MESSAGES {
                drop(receiver.recv().await.expect("a message"));
            }
            let time = begin.elapsed();
            assert_eq!(receiver.recv().await.map(drop), Err(RecvError::Closed));
            time
        });
        sending.await.expect("no panic");
        rate(MESSAGES, receiving.await.expect("no panic"))
    })
}

pub(crate) fn rates() {
    println!(
        "on tokio, two workers: messages of {BYTES} B, {IN_FLIGHT} in flight, M/s against threads"
    );
    each(&device::soft().expect("soft0 opens"), |device, case| {
        let (ours, theirs) = in_turn(|| (case.tasks)(device), || (case.threads)(device));
        line(case.name, ours / 1e6, theirs / 1e6, "M/s", Target::AtLeast(0.8));
    });
}

async fn echo<R, S>(mut receiver: Receiver<R>, mut sender: Sender<S>, trips: Trips)
where
    R: RecvHalf + 'static,
    S: SendHalf + 'static,
{
    for _ in 0..WARM_UP + trips.number {
        let message = receiver.recv().await.expect("a message");
        sender.send(&message).await.expect("sent");
    }
    let _ = receiver.recv().await;
}

/// Microseconds of a round trip between two tasks.
fn trips<P: Protocol>(device: &Device, trips: Trips) -> f64 {
    let (a, b) = pair::<P>(device, device, &P::Config::default()).expect("a pair");
    let (a, b): (Connection<P>, Connection<P>) = (a.into(), b.into());
    runtime().block_on(async move {
        let far = tokio::spawn(echo(b.receiver, b.sender, trips));
        let near = tokio::spawn(async move {
            let (mut sender, mut receiver) = (a.sender, a.receiver);
            let mut time = Duration::ZERO;
            for trip in 0..WARM_UP + trips.number {
                let begin = trips.begin(trip).await;
                sender.send(&[7; BYTES]).await.expect("sent");
                drop(receiver.recv().await.expect("an answer"));
                time += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
            }
            drop((sender, receiver));
            trips.mean(time)
        });
        let micros = near.await.expect("no panic");
        far.await.expect("no panic");
        micros
    })
}

/// The same between two tasks with a Unix socket.
fn socket_trips(trips: Trips) -> f64 {
    runtime().block_on(async move {
        let (mut near, mut far) = UnixStream::pair().expect("a socket");
        let echo = tokio::spawn(async move {
            let mut message = [0; BYTES];
            for _ in 0..WARM_UP + trips.number {
                far.read_exact(&mut message).await.expect("a message");
                far.write_all(&message).await.expect("sent");
            }
        });
        let near = tokio::spawn(async move {
            let (mut message, mut time) = ([7; BYTES], Duration::ZERO);
            for trip in 0..WARM_UP + trips.number {
                let begin = trips.begin(trip).await;
                near.write_all(&message).await.expect("sent");
                near.read_exact(&mut message).await.expect("an answer");
                time += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
            }
            trips.mean(time)
        });
        let micros = near.await.expect("no panic");
        echo.await.expect("no panic");
        micros
    })
}

pub(crate) fn wakes() {
    println!(
        "on tokio, two workers: round trips of {BYTES} B, one after the other, µs against a Unix socket"
    );
    let target = Target::AtMost(1.5);
    wakes_of(Trips { number: TRIPS, silence: None }, |_| target);
    println!("the same, each after {SILENCE:?} of silence: both tasks have fallen asleep");
    println!("(no event tells of a message of Shared Write; Buffered Read may miss its wake-up)");
    let polls = [BufferedRead::NAME, SharedWrite::NAME];
    let of = |name: &str| if polls.contains(&name) { Target::None } else { target };
    wakes_of(Trips { number: LONE_TRIPS, silence: Some(SILENCE) }, of);
}

fn wakes_of(trips: Trips, target: impl Fn(&str) -> Target) {
    each(&device::soft().expect("soft0 opens"), |device, case| {
        let (ours, theirs) = in_turn(|| (case.trips)(device, trips), || socket_trips(trips));
        line(case.name, ours, theirs, "µs", target(case.name));
    });
}
