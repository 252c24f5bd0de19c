//! Messages to send, and the numbers of senders and receivers.

use std::time::{Duration, Instant};

use base::signals;
use rdma_conn::send_recv::Reposting;
use serde::{Deserialize, Serialize};

use crate::cli::{BenchArgs, ProtocolKind, SenderRate};
use crate::measure::rounds;
use crate::settings::Flag;

/// Senders and receivers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LoadShape {
    pub(crate) senders: u32,
    pub(crate) receiving: ReceiverThreads,
    pub(crate) srq: Option<Reposting>,
    pub(crate) srq_buffers: Option<u32>,
}

/// Organisation of the receiving side.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiverThreads {
    /// A thread for each connection.
    ThreadEach,
    /// One thread that goes round all connections, each with a queue of its own.
    RoundRobin,
    /// One thread and one completion queue.
    SingleReceiver,
}

impl ReceiverThreads {
    /// Returns the organisation that was asked for; with one sender at this end, maybe none.
    pub(crate) fn asked(options: &BenchArgs) -> Option<ReceiverThreads> {
        match (options.single_receiver, options.senders, options.threads) {
            (true, ..) => Some(ReceiverThreads::SingleReceiver),
            (false, 1, 1) => None,
            (false, 1, _) => Some(ReceiverThreads::ThreadEach),
            (false, senders, _) => {
                Some(ReceiverThreads::chosen(options.connection.protocol(), senders))
            }
        }
    }

    /// The default for this number of senders.
    pub(crate) fn chosen(protocol: ProtocolKind, senders: u32) -> ReceiverThreads {
        match senders {
            1 => ReceiverThreads::ThreadEach,
            _ if protocol.shares_a_ring() => ReceiverThreads::SingleReceiver,
            _ => ReceiverThreads::RoundRobin,
        }
    }

    /// Flag that asks for it on the command line.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            ReceiverThreads::ThreadEach => "--threads",
            ReceiverThreads::RoundRobin => "--senders",
            ReceiverThreads::SingleReceiver => "--single-receiver",
        }
    }
}

impl LoadShape {
    pub(crate) const MAX_SENDERS: u32 = 1024;

    pub(crate) fn new(options: &BenchArgs) -> LoadShape {
        let senders = options.threads.max(options.senders);
        let chosen = ReceiverThreads::chosen(options.connection.protocol(), senders);
        LoadShape {
            senders,
            receiving: ReceiverThreads::asked(options).unwrap_or(chosen),
            srq: options.srq.map(|s| s.reposting()),
            srq_buffers: options.srq_buffers,
        }
    }

    /// Receivers that the senders are divided among.
    pub(crate) fn receivers(&self) -> u32 {
        match self.receiving {
            ReceiverThreads::ThreadEach | ReceiverThreads::RoundRobin => self.senders,
            ReceiverThreads::SingleReceiver => 1,
        }
    }

    /// Senders of each receiver.
    pub(crate) fn peers(&self) -> u32 {
        self.senders / self.receivers().max(1)
    }

    /// One sender, one receiver.
    pub(crate) const ONE: LoadShape = LoadShape {
        senders: 1,
        receiving: ReceiverThreads::ThreadEach,
        srq: None,
        srq_buffers: None,
    };
}

/// Messages of each sender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MessageLoad {
    pub(crate) size: u32,
    pub(crate) end: EndOfLoad,
    pub(crate) verify: bool,
    /// Messages per second of each sender.
    pub(crate) rate: Option<f64>,
    /// One thread sends over all connections in turn.
    pub(crate) in_turn: bool,
}

/// Condition on which a sender is done.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndOfLoad {
    Messages(u64),
    After(Duration),
}

impl MessageLoad {
    pub(crate) fn new(options: &BenchArgs, size: u32) -> MessageLoad {
        let end = EndOfLoad::asked(options).unwrap_or(EndOfLoad::After(BenchArgs::SECONDS));
        let rate = match options.rate {
            Some(SenderRate::PerSecond(rate)) => Some(rate),
            Some(SenderRate::Auto) | None => None,
        };
        MessageLoad { size, end, verify: !options.no_verify, rate, in_turn: options.single_sender }
    }

    /// Returns the load of one round.
    pub(crate) fn of_round(&self, round: u32, rounds: u32) -> MessageLoad {
        MessageLoad { end: self.end.of_round(round, rounds), ..*self }
    }

    /// Returns the number of messages of the sender that sent fewest, as a part of that of the one
    /// that sent most. Where each sender has a number of messages to send, these say nothing.
    pub(crate) fn fairness(&self, sent: impl Iterator<Item = u64>) -> Option<f64> {
        let all: Vec<u64> = sent.collect();
        let (fewest, most) = (all.iter().min()?, all.iter().max()?);
        let says = matches!(self.end, EndOfLoad::After(_)) && all.len() > 1 && *most > 0;
        says.then(|| *fewest as f64 / *most as f64)
    }

    /// Messages between two looks at the clock, a power of two: enough that looking costs
    /// nothing, and so few that they take no time. A sender that is paced looks at it anyway.
    pub(crate) fn stride(&self) -> u64 {
        match self.rate {
            Some(_) => 1,
            None => 1 << ((1 << 20) / self.size.clamp(1 << 12, 1 << 20)).ilog2(),
        }
    }
}

impl EndOfLoad {
    /// Returns the end that was asked for, if one was.
    pub(crate) fn asked(options: &BenchArgs) -> Option<EndOfLoad> {
        options.messages.map(EndOfLoad::Messages).or(options.seconds.map(EndOfLoad::After))
    }

    /// Returns the most messages, and the longest time.
    pub(crate) fn limits(self) -> (u64, Duration) {
        match self {
            EndOfLoad::Messages(messages) => (messages, Duration::MAX),
            EndOfLoad::After(time) => (u64::MAX, time),
        }
    }

    /// Returns the number of rounds: `asked`, or fewer where there are fewer messages.
    pub(crate) fn rounds(self, asked: u32) -> u32 {
        match self {
            EndOfLoad::Messages(messages) => rounds::rounds_of(messages, asked),
            EndOfLoad::After(_) => asked,
        }
    }

    /// Returns the share of one round: its messages, or its time.
    pub(crate) fn of_round(self, round: u32, rounds: u32) -> EndOfLoad {
        match self {
            EndOfLoad::Messages(messages) => {
                EndOfLoad::Messages(rounds::share(messages, round, rounds))
            }
            EndOfLoad::After(time) => EndOfLoad::After(rounds::time_share(time, rounds)),
        }
    }

    /// As people write it.
    pub(crate) fn flag(self) -> Flag {
        match self {
            EndOfLoad::Messages(messages) => ("--messages", messages.to_string()),
            EndOfLoad::After(time) => ("--seconds", time.as_secs_f64().to_string()),
        }
    }

    /// Reports whether a sender that has sent `messages` since `start` continues; it looks at the
    /// clock every `stride` messages, a power of two, so that no message costs a division.
    #[inline]
    pub(crate) fn goes_on(self, messages: u64, start: Instant, stride: u64) -> bool {
        match self {
            EndOfLoad::Messages(limit) => {
                messages < limit && (messages & (stride - 1) != 0 || !signals::is_interrupted())
            }
            EndOfLoad::After(time) => {
                messages & (stride - 1) != 0
                    || (host::time::since(start) < time && !signals::is_interrupted())
            }
        }
    }
}

/// Spaces messages evenly in time.
#[derive(Debug)]
pub(crate) struct Pacer {
    interval: Option<Duration>,
    next: Instant,
}

impl Pacer {
    pub(crate) fn new(rate: Option<f64>, start: Instant) -> Pacer {
        Pacer { interval: rate.map(|r| Duration::from_secs_f64(1.0 / r)), next: start }
    }

    /// Waits until the next message is due. A sender that was held up does not
    /// catch up with a burst: the rate is a limit.
    #[inline]
    pub(crate) fn wait(&mut self) {
        let Some(interval) = self.interval else { return };
        if host::has_own_processor() {
            host::thread::busy_wait_until(self.next);
        }
        let mut now = host::time::now();
        while now < self.next {
            host::thread::spin_loop();
            if self.next - now > Duration::from_micros(20) {
                host::thread::yield_now();
            }
            now = host::time::now();
        }
        self.next = (self.next + interval).max(now);
    }
}

#[cfg(test)]
mod tests;
