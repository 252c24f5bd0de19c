//! Cases: what happens in a world, drawn from a seed, shrunk, and replayed.

mod draw;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CaseProtocol {
    /// Send/Receive.
    SendRecv,
    /// Buffered Read.
    BufferedRead,
    /// Buffered Write.
    BufferedWrite,
    /// Direct Read.
    DirectRead,
    /// Direct Write.
    DirectWrite,
    /// Shared Write.
    SharedWrite,
    /// A group: each sender is a member, and one more only receives.
    Multicast,
}

/// Payload of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Messages of any number of senders.
    #[default]
    Messages,
    /// The bytes of a stream, from the first sender.
    Bytes,
    /// Messages, of ends that are futures.
    Futures,
}

/// A device that a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Executes inside the post.
    Near,
    /// Executes a round trip later.
    Distant,
    /// Executes when a card would.
    Card,
    /// Executes step by step, with faults.
    Faulty,
    /// Speaks RoCE over a network of the world.
    Wired,
    /// The receiver, and the senders, on devices of other processes than each other.
    Process,
}

/// Wait strategy of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// Polls.
    Spin,
    /// Sleeps.
    Block,
    /// Polls first, then sleeps.
    Adaptive,
}

/// Receive buffers of Send/Receive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BufferKind {
    /// Each connection has its own, and the sender has credits for them.
    #[default]
    Own,
    /// The receiver's connections share a pool, which lends them.
    Pool,
    /// Each connection has its own, without credits: a slow receiver loses its sender.
    Uncontrolled,
}

/// Settings of both ends. Sizes are of messages, as each protocol counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Messages that may be under way.
    pub window: u32,
    /// The longest message.
    pub message_bytes: u32,
    /// Requests of one doorbell, or bytes that are gathered; 1 is none.
    pub batch: u32,
    /// Requests from one signal to the next; 0 is the protocol's choice.
    pub signal_every: u32,
    /// The protocol's other way of telling is used: a written tail, polling, acknowledgements in
    /// SENDs.
    pub other_way: bool,
    /// Wait strategy.
    pub wait: WaitKind,
    /// Milliseconds.
    pub keepalive_ms: u64,
    /// Milliseconds.
    pub linger_ms: u64,
    /// A request is sent again after 4.096 µs times 2 to this.
    #[serde(default = "timeout")]
    pub timeout: u8,
    /// Receive buffers of Send/Receive.
    #[serde(default)]
    pub buffers: BufferKind,
}

/// One action of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendStep {
    /// Sends, waiting for room.
    Send(u32),
    /// Sends if there is room.
    TrySend(u32),
    /// Sends, waiting for room for so many microseconds.
    SendWithin(u32, u64),
    /// Sends that many in a batch.
    Batch(u32, u32),
    /// Fills a reserved message; or gives it back, if the second is false.
    Reserve(u32, bool),
    /// Flushes.
    Flush,
    /// Asks whether the last message is acknowledged.
    Ask,
    /// Waits for all acknowledgements, for so many microseconds.
    WaitAll(u64),
    /// Sleeps for so many microseconds.
    Sleep(u64),
}

/// One action of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecvStep {
    /// Takes a message, waiting for it for so many microseconds.
    Recv(u64),
    /// Takes a message that is there.
    TryRecv,
    /// Looks at each message that is there.
    Each,
    /// Frees one of the messages that are held.
    Free(u32),
    /// Frees one of them on another thread, some time later.
    FreeElsewhere(u32),
    /// Frees all of them.
    FreeAll,
    /// Sleeps for so many microseconds.
    Sleep(u64),
}

/// End of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SenderEnding {
    /// Closes, and expects the receiver to have everything.
    Close,
    /// Is dropped: the receiver learns it.
    Drop,
}

/// Rates of faults, in thousandths. See [`soft_rnic::Faults`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaseFaults {
    /// A request waits first.
    pub delay: u16,
    /// The responder claims to have no receive request.
    pub rnr: u16,
    /// A request, or only its response, is lost.
    pub lost_response: u16,
    /// A request overtakes a READ.
    pub late_read: u16,
    /// A queue pair goes to the error state.
    pub qp_death: u16,
    /// The responder refuses a request's key.
    pub access: u16,
}

/// The network of [`DeviceKind::Wired`]: how often which fault strikes a packet, in thousandths,
/// and the rest of [`soft_rnic::NetworkNature`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaseNetwork {
    /// From one end to the other, at least; at most twice as long.
    pub delay_us: u64,
    /// Lost.
    pub loss: u16,
    /// Come twice.
    pub repeat: u16,
    /// Overtaken by later ones.
    pub reorder: u16,
    /// Come with a wrong bit.
    pub corrupt: u16,
    /// Marked as having met congestion.
    pub congestion: u16,
    /// Bytes of the longest IP packet.
    pub mtu: usize,
    /// Capacity of a device's receive queue for packets.
    pub queue_kib: usize,
    /// Time at which the ends stop reaching each other, in microseconds from the begin.
    pub partition_at_us: u64,
    /// For how long; 0 is never, and [`FOREVER_US`] for as long as the world lasts.
    pub partition_us: u64,
}

/// A partition that no world outlasts: a day.
pub const FOREVER_US: u64 = 86_400_000_000;

impl Default for CaseNetwork {
    /// Without faults.
    fn default() -> CaseNetwork {
        CaseNetwork {
            delay_us: 5,
            loss: 0,
            repeat: 0,
            reorder: 0,
            corrupt: 0,
            congestion: 0,
            mtu: 1500,
            queue_kib: 208,
            partition_at_us: 0,
            partition_us: 0,
        }
    }
}

/// The timeout where the peer's device answers at once.
fn timeout() -> u8 {
    8
}

/// Tries of a request after the first one.
pub const RETRIES: u8 = 6;

/// Thousandths of packets that may be lost so that [`RETRIES`] are as good as always enough.
const GENTLE: u16 = 20;

/// The same of requests of [`DeviceKind::Faulty`] that are lost, and of those that are refused as if
/// the receiver were not ready. A request is struck so seven times in a row once in some 10^10, and a world has
/// hundreds of requests.
const MILD: u16 = 50;

/// The death of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessKill {
    /// The receiver's is 0, those of senders follow.
    pub process: usize,
    /// Time of the kill, in microseconds.
    pub at_us: u64,
}

/// A process that is stopped for a while, as by SIGSTOP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStop {
    /// The receiver's is 0, those of senders follow.
    pub process: usize,
    /// Time of the stop, in microseconds.
    pub at_us: u64,
    /// For how long, in microseconds.
    pub for_us: u64,
}

/// Connections to a listener from which no whole Hello comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strangers {
    /// Number of them.
    pub count: usize,
    /// They are refused, when their time is up, before a sender connects.
    pub are_awaited: bool,
}

/// One world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldCase {
    /// Decides the order of threads, and the faults.
    pub seed: u64,
    /// The protocol.
    pub connection: CaseProtocol,
    /// Payload.
    #[serde(default)]
    pub form: Form,
    /// The device.
    pub place: DeviceKind,
    /// At one of so many points another thread runs.
    pub switch_one_in: u64,
    /// One of so many threads that are woken has no processor for a while; 0 is none.
    pub stall_one_in: u64,
    /// Microseconds.
    pub stall_us: u64,
    /// At one of so many points the clock jumps forward; 0 is none.
    #[serde(default)]
    pub jump_one_in: u64,
    /// By at most so many microseconds.
    #[serde(default)]
    pub jump_us: u64,
    /// One of so many calls that need memory, a descriptor or a thread gets none; 0 is none.
    #[serde(default)]
    pub short_one_in: u64,
    /// Also when the ends are set up.
    #[serde(default)]
    pub short_to_the_end: bool,
    /// The same of posts to queues, which a connection does again.
    #[serde(default)]
    pub short_posts_one_in: u64,
    /// One of so many waits for descriptors is interrupted, and one of so many parks ends early.
    #[serde(default)]
    pub spurious_one_in: u64,
    /// Faults of requests.
    pub faults: CaseFaults,
    /// Faults of packets on the network of [`DeviceKind::Wired`].
    #[serde(default)]
    pub network: CaseNetwork,
    /// Settings of both ends.
    pub settings: Settings,
    /// Each sender's steps.
    pub senders: Vec<Vec<SendStep>>,
    /// Each sender's end.
    pub ends: Vec<SenderEnding>,
    /// The receiver's steps.
    pub receiver: Vec<RecvStep>,
    /// The receiver is dropped after its steps; else it takes all there is to come.
    pub receiver_is_dropped: bool,
    /// Processes that senders are in.
    #[serde(default)]
    pub sender_processes: usize,
    /// The process that is killed.
    #[serde(default)]
    pub kill: Option<ProcessKill>,
    /// The process that is stopped.
    #[serde(default)]
    pub stop: Option<ProcessStop>,
    /// Ends meet over a listener, to which these connect first.
    #[serde(default)]
    pub strangers: Option<Strangers>,
}

impl WorldCase {
    /// The process of a sender.
    pub fn process_of(&self, sender: usize) -> usize {
        1 + sender % self.sender_processes.max(1)
    }

    /// Reports whether a sender, or its peer, may die.
    pub fn may_die(&self, sender: usize) -> bool {
        self.kill.is_some_and(|kill| kill.process == 0 || kill.process == self.process_of(sender))
    }

    /// Steps of all threads.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.senders.iter().map(Vec::len).sum::<usize>() + self.receiver.len()
    }

    /// Reports whether requests may fail, so that an end may fail for other reasons than its
    /// peer's.
    pub fn may_fail(&self) -> bool {
        let faults = &self.faults;
        let is_faulty = faults.lost_response > 0 || faults.rnr > 0;
        is_faulty || self.requests_may_fail() || self.short_one_in > 0
    }

    /// Reports whether requests of a connection may fail: a queue pair fails by itself, faults last
    /// longer than the retries, or nothing keeps a sender from a receiver that is not ready.
    pub fn requests_may_fail(&self) -> bool {
        let CaseNetwork { loss, corrupt, partition_us, .. } = self.network;
        let tries_us = self.settings.retry_time().as_micros() as u64;
        let is_harsh = loss + corrupt > 2 * GENTLE || partition_us > tries_us / 2;
        let CaseFaults { qp_death, access, lost_response, rnr, .. } = self.faults;
        let is_uncontrolled = self.settings.buffers == BufferKind::Uncontrolled;
        let is_struck = qp_death > 0 || access > 0 || lost_response > MILD || rnr > MILD;
        is_harsh || is_struck || is_uncontrolled
    }

    /// Reports whether nothing keeps the ends from their orderly end, if the sender closes.
    pub fn is_orderly(&self) -> bool {
        let is_faulty = self.requests_may_fail() || self.short_one_in > 0 || self.kill.is_some();
        !is_faulty && !self.receiver_is_dropped
    }

    /// Reports whether threads are slow at times, so that a linger may be over before its end has had
    /// a turn.
    pub fn has_slow_threads(&self) -> bool {
        self.stall_one_in > 0 || self.stop.is_some()
    }

    /// Reports whether ends that are set up may get no memory or no descriptor.
    pub fn is_short_to_the_end(&self) -> bool {
        self.short_one_in > 0 && self.short_to_the_end
    }
}

impl fmt::Display for WorldCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Settings {
    /// The interval of probes.
    pub fn keepalive(&self) -> Duration {
        Duration::from_millis(self.keepalive_ms)
    }

    /// The longest wait of an end that is dropped.
    pub fn linger(&self) -> Duration {
        Duration::from_millis(self.linger_ms)
    }

    /// The longest time until a request at a peer that does not answer fails.
    pub fn retry_time(&self) -> Duration {
        Duration::from_nanos((4096 << self.timeout) * u64::from(RETRIES + 1))
    }
}
