//! Cost of waking a receiver that is asleep in another process: a message is sent when the
//! receiver's thread has been seen to sleep, and the receiver reports when it was awake.

use rdma_conn::Common;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdma_conn::send_recv::{Config, Preset};
use rdma_conn::{
    Connection, Listener, RecvHalf, SendHalf, SendRecv, WaitStrategy, connect, device,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::{Target, in_turn, line, median};

/// Environment variable with the address at which the other end listens, or `PIPE` if it is at the
/// other end of a pipe.
const ROLE: &str = "RATIOS_SLEEPER";
const PIPE: &str = "pipe";
/// Messages in a round.
const WAKES: u64 = 1_000;
/// The core of the process that wakes, and that of the process that sleeps.
const CORES: [usize; 2] = [0, 1];
/// For which it has to be seen asleep.
const ASLEEP: Duration = Duration::from_micros(50);

pub(crate) fn run() {
    let before = sched_getaffinity(None).expect("a thread has its cores");
    let mut first = CpuSet::new();
    first.set(CORES[0]);
    sched_setaffinity(None, &first).expect("there is a first core");
    let (mut soft, mut pipe) = (Soft::start(), Pipe::start());
    let ids = [soft.child.id(), pipe.child.id()];
    let ours = || round(ids[0], || soft.connection.wake());
    let (ours, theirs) = in_turn(ours, || round(ids[1], || pipe.wake()));
    soft.end();
    pipe.end();
    sched_setaffinity(None, &before).expect("as it was");
    let what = "a receiver that sleeps, until it has the message : a pipe";
    line(what, ours, theirs, "µs", Target::AtMost(1.5));
}

/// Plays the sleeper if this program was started as that, and reports whether it was.
pub(crate) fn has_slept() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    if role == PIPE {
        sleep_at_pipe()
    } else {
        sleep_at_connection(&role)
    }
    true
}

/// Wakes a process again and again; the median, in µs.
fn round(pid: u32, mut wake: impl FnMut() -> [u64; 2]) -> f64 {
    let before = sleeps(pid);
    let times = (0..WAKES).map(|_| {
        until_asleep(pid);
        let [sent, awake] = wake();
        awake.saturating_sub(sent) as f64 / 1e3
    });
    let times = median(times.collect());
    assert!(sleeps(pid) - before >= WAKES, "it slept for each message");
    times
}

/// Waits until the first thread of a process has been asleep for a moment.
fn until_asleep(pid: u32) {
    let mut since = Instant::now();
    while since.elapsed() < ASLEEP {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat"));
        let stat = stat.expect("it lives");
        // Behind the name, which is in brackets.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
        if state != Some('S') {
            since = Instant::now();
        }
    }
}

/// Returns how often the first thread of a process has gone to sleep.
fn sleeps(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/status"));
    let status = status.expect("it lives");
    let field = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    field.and_then(|n| n.trim().parse().ok()).expect("the system counts them")
}

/// The time, in nanoseconds, as all processes have it.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn start(role: &str) -> Child {
    Command::new("taskset")
        .args(["-c", &CORES[1].to_string()])
        .arg(std::env::current_exe().expect("a program knows its path"))
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("taskset (util-linux) and this program start")
}

/// A connection over soft0 to a process that sleeps.
struct Soft {
    child: Child,
    connection: Connection<SendRecv>,
}

fn config(wait: WaitStrategy) -> Config {
    Config {
        message_bytes: 64,
        common: Common { wait, ..Config::preset(Preset::Unbatched).common },
        ..Config::preset(Preset::Unbatched)
    }
}

impl Soft {
    fn start() -> Soft {
        let device = device::soft().expect("soft0 opens");
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").expect("a free port");
        let child = start(&listener.local_addr().to_string());
        let incoming = listener.next().expect("it connects");
        let connection = incoming.accept(&device, &config(WaitStrategy::Spin)).expect("it fits");
        Soft { child, connection }
    }

    fn end(self) {
        let Soft { mut child, connection } = self;
        drop(connection);
        child.wait().expect("it ends");
    }
}

/// Sends a message to a sleeper, and returns the times at which it was sent and received.
trait Wake {
    fn wake(&mut self) -> [u64; 2];
}

impl Wake for Connection<SendRecv> {
    fn wake(&mut self) -> [u64; 2] {
        let sent = now();
        self.sender.send(&[7; 16]).expect("sent");
        self.sender.flush().expect("posted");
        let answer = self.receiver.recv().expect("it answers");
        [sent, u64::from_ne_bytes(answer[..8].try_into().expect("eight bytes"))]
    }
}

fn sleep_at_connection(address: &str) {
    let device = device::soft().expect("soft0 opens");
    let connection = connect::<SendRecv>(address, &device, &config(WaitStrategy::Block));
    let Connection { mut sender, mut receiver } = connection.expect("a listener");
    while let Ok(message) = receiver.recv() {
        let awake = now();
        receiver.free(message);
        sender.send(&awake.to_ne_bytes()).expect("sent");
        sender.flush().expect("posted");
    }
}

/// Two pipes, to a process that sleeps and from it.
struct Pipe {
    child: Child,
}

impl Pipe {
    fn start() -> Pipe {
        Pipe { child: start(PIPE) }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
    }
}

impl Wake for Pipe {
    fn wake(&mut self) -> [u64; 2] {
        let (to, from) = (self.child.stdin.as_mut(), self.child.stdout.as_mut());
        let sent = now();
        to.expect("piped").write_all(&[7; 16]).expect("it reads");
        let mut answer = [0; 8];
        from.expect("piped").read_exact(&mut answer).expect("it answers");
        [sent, u64::from_ne_bytes(answer)]
    }
}

fn sleep_at_pipe() {
    let (mut from, mut to, mut message) = (std::io::stdin(), std::io::stdout(), [0; 16]);
    while from.read_exact(&mut message).is_ok() {
        let awake = now();
        to.write_all(&awake.to_ne_bytes()).and_then(|()| to.flush()).expect("a reader");
    }
}
