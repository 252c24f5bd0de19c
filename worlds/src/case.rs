//! Cases: what happens in a world, drawn from a seed, shrunk, and replayed.

use std::fmt;
use std::time::Duration;

use host::random::Random;
use serde::{Deserialize, Serialize};

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
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

impl Connection {
    /// All of them.
    pub const ALL: [Connection; 7] = [
        Connection::SendRecv,
        Connection::BufferedRead,
        Connection::BufferedWrite,
        Connection::DirectRead,
        Connection::DirectWrite,
        Connection::SharedWrite,
        Connection::Multicast,
    ];
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
pub enum Place {
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

impl Place {
    /// All of them.
    pub const ALL: [Place; 6] =
        [Place::Near, Place::Distant, Place::Card, Place::Faulty, Place::Wired, Place::Process];
}

/// Wait strategy of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Polls.
    Spin,
    /// Sleeps.
    Block,
    /// Polls first, then sleeps.
    Adaptive,
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
    pub wait: Wait,
    /// Milliseconds.
    pub keepalive_ms: u64,
    /// Milliseconds.
    pub linger_ms: u64,
    /// A request is sent again after 4.096 µs times 2 to this.
    #[serde(default = "timeout")]
    pub timeout: u8,
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
    /// Frees one of them on another thread.
    FreeElsewhere(u32),
    /// Frees all of them.
    FreeAll,
    /// Sleeps for so many microseconds.
    Sleep(u64),
}

/// End of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Closes, and expects the receiver to have everything.
    Close,
    /// Is dropped: the receiver learns it.
    Drop,
}

/// Rates of faults, in thousandths. See [`soft_rnic::Faults`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
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
}

/// The network of [`Place::Wired`]: how often which fault strikes a packet, in thousandths, and the
/// rest of [`soft_rnic::NetworkNature`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
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
    /// For how long; 0 is never.
    pub partition_us: u64,
}

impl Default for Network {
    /// Without faults.
    fn default() -> Network {
        Network {
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

/// The death of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The receiver's is 0, those of senders follow.
    pub process: usize,
    /// Time of the kill, in microseconds.
    pub at_us: u64,
}

/// A process that is stopped for a while, as by SIGSTOP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
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
pub struct Case {
    /// Decides the order of threads, and the faults.
    pub seed: u64,
    /// The protocol.
    pub connection: Connection,
    /// Payload.
    #[serde(default)]
    pub form: Form,
    /// The device.
    pub place: Place,
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
    /// One of so many calls that need memory or a descriptor gets none; 0 is none.
    #[serde(default)]
    pub short_one_in: u64,
    /// The same of posts to queues, which a connection does again.
    #[serde(default)]
    pub short_posts_one_in: u64,
    /// Faults of requests.
    pub faults: Faults,
    /// Faults of packets on the network of [`Place::Wired`].
    #[serde(default)]
    pub network: Network,
    /// Settings of both ends.
    pub settings: Settings,
    /// Each sender's steps.
    pub senders: Vec<Vec<SendStep>>,
    /// Each sender's end.
    pub ends: Vec<End>,
    /// The receiver's steps.
    pub receiver: Vec<RecvStep>,
    /// The receiver is dropped after its steps; else it takes all there is to come.
    pub receiver_is_dropped: bool,
    /// Processes that senders are in.
    #[serde(default)]
    pub sender_processes: usize,
    /// The process that is killed.
    #[serde(default)]
    pub kill: Option<Kill>,
    /// The process that is stopped.
    #[serde(default)]
    pub stop: Option<Stop>,
    /// Ends meet over a listener, to which these connect first.
    #[serde(default)]
    pub strangers: Option<Strangers>,
}

impl Case {
    /// The case of a seed; of one connection and one place, if they are given.
    pub fn draw(seed: u64, connection: Option<Connection>, place: Option<Place>) -> Case {
        let mut random = Random::new(seed ^ 0x05ee_d0fa_ca5e);
        let connection = connection.unwrap_or_else(|| random.pick(&Connection::ALL));
        let place = place.unwrap_or_else(|| random.pick(&Place::ALL));
        let mut settings = settings(&mut random);
        let faults = if place == Place::Faulty { faults(&mut random) } else { Faults::default() };
        let is_wired = place == Place::Wired;
        if is_wired {
            // The shortest one that the device takes.
            settings.timeout = 14;
        }
        let network = if is_wired { network(&mut random, &settings) } else { Network::default() };
        let senders = 1 + random.below(3) as usize;
        let steps = 1 + random.below(24);
        let mut case = Case {
            seed,
            connection,
            form: Form::Messages,
            place,
            switch_one_in: random.pick(&[1, 2, 4, 16, 64]),
            stall_one_in: random.pick(&[0, 0, 0, 8, 32]),
            stall_us: random.pick(&[10, 1_000, 50_000]),
            jump_one_in: 0,
            jump_us: 0,
            short_one_in: 0,
            short_posts_one_in: 0,
            faults,
            network,
            settings,
            senders: (0..senders)
                .map(|_| (0..steps).map(|_| send_step(&mut random, &settings)).collect())
                .collect(),
            ends: (0..senders)
                .map(|_| if random.one_in(5) { End::Drop } else { End::Close })
                .collect(),
            receiver: (0..2 * steps).map(|_| recv_step(&mut random, &settings)).collect(),
            receiver_is_dropped: random.one_in(8),
            sender_processes: 0,
            kill: None,
            stop: None,
            strangers: None,
        };
        if place == Place::Process {
            case.sender_processes = 1 + random.below(senders as u64) as usize;
            let processes = 1 + case.sender_processes as u64;
            let some_of_them = |random: &mut Random| {
                let latest = random.pick(&[50, 1_000, 20_000, 1_000_000]);
                (random.below(processes) as usize, 1 + random.below(latest))
            };
            if random.one_in(4) {
                let (process, at_us) = some_of_them(&mut random);
                case.kill = Some(Kill { process, at_us });
            }
            if random.one_in(4) {
                let (process, at_us) = some_of_them(&mut random);
                case.stop =
                    Some(Stop { process, at_us, for_us: random.pick(&[100, 10_000, 300_000]) });
            }
        }
        if random.one_in(8) {
            // Shorter than the shortest timeout of a device.
            (case.jump_one_in, case.jump_us) =
                (random.pick(&[500, 5_000]), random.pick(&[10, 100, 500]));
        }
        if connection == Connection::Multicast {
            // All members are of one process.
            case.stop = None;
        } else {
            case.form = match random.below(8) {
                0 => Form::Bytes,
                1 => Form::Futures,
                _ => Form::Messages,
            };
        }
        if case.form == Form::Bytes {
            case.senders.truncate(1);
            case.ends.truncate(1);
        } else if connection != Connection::Multicast {
            if random.one_in(8) {
                case.short_one_in = random.pick(&[30, 100, 300, 1_000]);
            }
            if random.one_in(8) {
                case.short_posts_one_in = random.pick(&[2, 10, 30, 300]);
            }
            if random.one_in(8) {
                let (count, are_awaited) = (random.below(4) as usize, random.one_in(2));
                case.strangers = Some(Strangers { count, are_awaited });
            }
        }
        if case.stop.is_some() && case.strangers.is_none() {
            // Ends that meet within a process have their devices' threads there, too.
            case.strangers = Some(Strangers { count: 0, are_awaited: false });
        }
        if is_wired && case.short_one_in > 0 && case.settings.wait == Wait::Spin {
            // A request to an end that was given up is tried for half a second: many polls.
            case.settings.wait = Wait::Adaptive;
        }
        if is_wired || case.stall_one_in > 0 {
            // An end's last word is said within this: it may have to be sent again, or wait for a
            // processor.
            case.settings.linger_ms = case.settings.linger_ms.max(1000);
        }
        let closes = case.ends.iter().all(|end| *end == End::Close)
            && !case.receiver_is_dropped
            && case.kill.is_none()
            && case.short_one_in == 0;
        if matches!(case.place, Place::Faulty | Place::Wired) || !closes {
            // An end that could not be said within the linger is found by a probe alone.
            case.settings.keepalive_ms = case.settings.keepalive_ms.min(LONG_MS);
        }
        case
    }

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
        let Network { loss, corrupt, partition_us, .. } = self.network;
        let tries_us = self.settings.retry_time().as_micros() as u64;
        let is_harsh = loss + corrupt > 2 * GENTLE || partition_us > tries_us / 2;
        let faults = &self.faults;
        let is_faulty = faults.qp_death > 0 || faults.lost_response > 0 || faults.rnr > 0;
        is_faulty || is_harsh || self.short_one_in > 0
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Settings {
    /// The interval of probes.
    pub fn keepalive(&self) -> Duration {
        Duration::from_millis(self.keepalive_ms)
    }

    /// The longest time until a request at a peer that does not answer fails.
    pub fn retry_time(&self) -> Duration {
        Duration::from_nanos((4096 << self.timeout) * u64::from(RETRIES + 1))
    }
}

/// The longest keepalive interval that passes in a world: where threads poll, time takes steps.
const LONG_MS: u64 = 100;
/// A keepalive interval in which no world ends: nothing hides a lost wake-up.
const NEVER_MS: u64 = 86_400_000;

fn settings(random: &mut Random) -> Settings {
    let window = random.pick(&[1, 2, 3, 4, 7, 8, 16]);
    let wait = random.pick(&[Wait::Spin, Wait::Block, Wait::Block, Wait::Adaptive, Wait::Adaptive]);
    // Polling for a long time takes many steps.
    let keepalives: &[u64] =
        if wait == Wait::Spin { &[1, 10] } else { &[1, 10, LONG_MS, NEVER_MS] };
    Settings {
        window,
        message_bytes: random.pick(&[1, 8, 40, 64, 100, 1000, 4000]),
        batch: if random.one_in(2) { 1 } else { 1 + random.below(window.into()) as u32 },
        signal_every: if random.one_in(2) { 0 } else { 1 + random.below(3) as u32 },
        other_way: random.one_in(2),
        wait,
        keepalive_ms: random.pick(keepalives),
        linger_ms: random.pick(&[1, 50, 1000]),
        timeout: timeout(),
    }
}

/// A length at an edge: nothing, one byte, the longest message, what lies beside it.
fn length(random: &mut Random, settings: &Settings) -> u32 {
    let most = settings.message_bytes;
    match random.below(6) {
        0 => 0,
        1 => 1,
        2 => most,
        3 => most.saturating_sub(1),
        _ => random.below(u64::from(most) + 1) as u32,
    }
}

/// A time in microseconds: short ones, and some about that of a probe.
fn time_us(random: &mut Random, settings: &Settings) -> u64 {
    let keepalive = settings.keepalive_ms.min(LONG_MS) * 1000;
    random.pick(&[0, 1, 50, 300, 2_000, keepalive / 2, keepalive + 1, 3 * keepalive])
}

fn send_step(random: &mut Random, settings: &Settings) -> SendStep {
    let bytes = length(random, settings);
    match random.below(16) {
        0..5 => SendStep::Send(bytes),
        5..8 => SendStep::TrySend(bytes),
        8 => SendStep::SendWithin(bytes, time_us(random, settings)),
        9 => SendStep::Batch(bytes, 1 + random.below(u64::from(settings.window) + 2) as u32),
        10 => SendStep::Reserve(bytes, !random.one_in(4)),
        11 => SendStep::Flush,
        12 => SendStep::Ask,
        13 => SendStep::WaitAll(time_us(random, settings)),
        _ => SendStep::Sleep(time_us(random, settings)),
    }
}

fn recv_step(random: &mut Random, settings: &Settings) -> RecvStep {
    match random.below(16) {
        0..6 => RecvStep::Recv(time_us(random, settings)),
        6..9 => RecvStep::TryRecv,
        9 => RecvStep::Each,
        10 | 11 => RecvStep::Free(random.below(8) as u32),
        12 => RecvStep::FreeElsewhere(random.below(8) as u32),
        13 => RecvStep::FreeAll,
        _ => RecvStep::Sleep(time_us(random, settings)),
    }
}

fn faults(random: &mut Random) -> Faults {
    let mut rate = |most: u64, rare: bool| {
        let strikes = if rare { random.one_in(4) } else { random.one_in(2) };
        if strikes { random.below(most) as u16 } else { 0 }
    };
    Faults {
        delay: rate(200, false),
        rnr: rate(50, false),
        lost_response: rate(50, false),
        late_read: rate(200, false),
        qp_death: rate(4, true),
    }
}

/// A network: without faults one time in three, and one time in six such that requests may fail.
fn network(random: &mut Random, settings: &Settings) -> Network {
    let tries_us = settings.retry_time().as_micros() as u64;
    let calm = Network {
        delay_us: random.pick(&[0, 1, 20, 200]),
        mtu: random.pick(&[600, 1500, 1500, 9000]),
        queue_kib: random.pick(&[16, 208, 208]),
        ..Network::default()
    };
    let (most, cut_us) = match random.below(6) {
        0 | 1 => return calm,
        2 if settings.wait != Wait::Spin => (15 * GENTLE, 2 * tries_us),
        // Threads that poll take many steps to come to the end of a long outage.
        _ if settings.wait == Wait::Spin => (GENTLE, 20_000),
        _ => (GENTLE, tries_us / 4),
    };
    let mut rate = |most: u16| if random.one_in(2) { random.below(most.into()) as u16 } else { 0 };
    let (loss, corrupt) = (rate(most), rate(most));
    let (repeat, reorder, congestion) = (rate(200), rate(200), rate(200));
    let partition_us = if random.one_in(3) { random.below(cut_us) } else { 0 };
    let partition_at_us = random.pick(&[0, 100, 1_000, 10_000]);
    Network { loss, corrupt, repeat, reorder, congestion, partition_us, partition_at_us, ..calm }
}
