//! Messages that the senders send, and the checks on delivery.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use rdma_conn::multicast::{Message, Policy, SendError, Sender, Ticket};

use super::traffic::GroupTraffic;
use crate::scratch::scratch;

/// Bytes of a message that tell when it was sent, and which it is; of a shorter one, less
/// is known.
const STAMP: usize = 8;

/// Messages of a sender that are all timed; after them, one in [`ONE_TIMED_IN`] is: a histogram's
/// cost is not the group's.
const ALL_TIMED: u64 = 10_000;
const ONE_TIMED_IN: u64 = 16;

/// A sender's messages.
pub(super) struct SenderLoad {
    sender: Sender,
    bytes: Vec<u8>,
    began: Instant,
    /// Between two messages, if there is a pace.
    pace: Option<Duration>,
    lone: Option<Lone>,
    paced: Option<Burst>,
    limit: Option<u64>,
    flush_every: Option<u64>,
    pub(super) sent: u64,
    until_flush: u64,
}

/// One message at a time.
struct Lone {
    /// Between the delivery of a message and the next one.
    pause: Pause,
    /// The message that is under way.
    last: Option<Ticket>,
}

/// Time in which passes are made. Members push what they inhibit in their passes only, so that a
/// process that does not run for a while is as far as it was before.
struct Pause {
    length: Duration,
    passed: Duration,
    /// The last pass, if the pause has begun.
    looked: Option<Instant>,
}

impl Pause {
    /// Passes that a pause has at least.
    const PASSES: u32 = 4;

    fn new(length: Duration) -> Pause {
        Pause { length, passed: Duration::ZERO, looked: None }
    }

    fn restart(&mut self) {
        *self = Pause::new(self.length);
    }

    /// Reports whether the pause is over with the pass that begins at `now`.
    fn is_over(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.looked.replace(now).unwrap_or(now));
        self.passed += since.min(self.length / Pause::PASSES);
        self.passed >= self.length
    }
}

/// Messages that are sent at a time. Of those that were sent, the policy pushes all up to a
/// multiple of its k; the rest are inhibited, and wait for later messages.
struct Burst {
    size: u64,
    k: u64,
    /// The last message whose number is a multiple of k: with it, all before it were pushed.
    pushed: Option<Ticket>,
}

impl Burst {
    fn new(size: u64, policy: Policy) -> Burst {
        let k = match policy {
            Policy::Every(k) => k.into(),
            Policy::Opportunistic | Policy::OpportunisticWithNulls => 1,
        };
        Burst { size, k, pushed: None }
    }

    /// Reports whether the next messages may go: those that were pushed are stable.
    fn may_send(&self, sender: &Sender) -> bool {
        self.pushed.is_none_or(|ticket| sender.is_delivered(ticket))
    }

    /// Message `number`, counted from 1, was sent.
    fn sent(&mut self, number: u64, ticket: Ticket) {
        if number.is_multiple_of(self.k) {
            self.pushed = Some(ticket);
        }
    }
}

impl Lone {
    /// Reports whether the next message may go.
    fn may_send(&mut self, sender: &Sender, now: Instant) -> bool {
        match self.last {
            None => true,
            Some(last) => sender.is_delivered(last) && self.pause.is_over(now),
        }
    }
}

impl SenderLoad {
    pub(super) fn new(
        sender: Sender,
        traffic: &GroupTraffic,
        policy: Policy,
        last: bool,
        began: Instant,
    ) -> Result<SenderLoad> {
        let rate = traffic.slow.filter(|_| last).or(traffic.rate);
        Ok(SenderLoad {
            sender,
            bytes: scratch(traffic.size)?,
            began,
            pace: rate.map(|rate| Duration::from_secs_f64(1.0 / rate)),
            lone: traffic
                .lone_us
                .map(|pause| Lone { pause: Pause::new(Duration::from_micros(pause)), last: None }),
            paced: traffic.burst.map(|size| Burst::new(size, policy)),
            limit: traffic.messages,
            flush_every: traffic.flush_every,
            sent: 0,
            until_flush: traffic.flush_every.unwrap_or(0),
        })
    }

    /// Sends what is due at `now` and has room; at most `most` messages, or a burst.
    pub(super) fn send(&mut self, now: Instant, most: u64) -> Result<(), SendError> {
        if !self.flush()? {
            return Ok(());
        }
        if self.paced.as_ref().is_some_and(|burst| !burst.may_send(&self.sender)) {
            return Ok(());
        }
        let most = self.paced.as_ref().map_or(most, |burst| burst.size);
        let is_lone = self.lone.is_some();
        if self.lone.as_mut().is_some_and(|lone| !lone.may_send(&self.sender, now)) {
            return Ok(());
        }
        // What has no company is timed to the moment, not to the pass.
        let (most, now) = if is_lone { (1, host::time::now()) } else { (most, now) };
        let due = self.due(now).min(self.sent.saturating_add(most));
        while self.sent < due && (self.flush_every.is_none() || self.until_flush > 0) {
            match self.send_one(now) {
                Err(SendError::WindowFull) => break,
                other => other?,
            }
        }
        Ok(())
    }

    fn send_one(&mut self, now: Instant) -> Result<(), SendError> {
        stamp(&mut self.bytes, self.sent, now - self.began);
        let ticket = self.sender.try_send(&self.bytes)?;
        if let Some(lone) = &mut self.lone {
            lone.last = Some(ticket);
            lone.pause.restart();
        }
        self.sent += 1;
        if let Some(burst) = &mut self.paced {
            burst.sent(self.sent, ticket);
        }
        self.until_flush = self.until_flush.saturating_sub(1);
        // For which there may be no room until the next call.
        self.flush().map(drop)
    }

    /// Flushes, if `flush_every` messages have been sent: false if the window has no room for that.
    fn flush(&mut self) -> Result<bool, SendError> {
        let Some(every) = self.flush_every.filter(|_| self.until_flush == 0) else {
            return Ok(true);
        };
        match self.sender.flush() {
            Ok(_) => self.until_flush = every,
            Err(SendError::WindowFull) => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Messages that are to be sent until `now`.
    fn due(&self, now: Instant) -> u64 {
        let paced = |pace: Duration| {
            let since = now.saturating_duration_since(self.began);
            (since.as_nanos() / pace.as_nanos().max(1)) as u64 + 1
        };
        self.pace.map_or(u64::MAX, paced).min(self.limit.unwrap_or(u64::MAX))
    }

    /// Reports whether all messages were sent, and a lone sender has none under way.
    pub(super) fn is_done(&mut self) -> bool {
        let is_flushed = self.flush_every.is_none() || self.until_flush > 0;
        let is_sent = is_flushed && self.limit.is_some_and(|limit| self.sent >= limit);
        let SenderLoad { lone, sender, .. } = self;
        is_sent && lone.as_mut().is_none_or(|lone| lone.may_send(sender, host::time::now()))
    }
}

/// The time in the first 8 bytes, and the number in the next 8, as far as they go; what
/// follows depends on the number.
fn stamp(bytes: &mut [u8], number: u64, since: Duration) {
    let time = (since.as_nanos() as u64).to_le_bytes();
    if let Some(front) = bytes.get_mut(..STAMP) {
        front.copy_from_slice(&time);
    }
    let rest = bytes.get_mut(STAMP..).unwrap_or_default();
    let mut expected = pattern(number);
    for place in rest.iter_mut().step_by(8) {
        *place = expected;
        expected = expected.wrapping_add(1);
    }
}

/// The first byte that tells which message it is; every eighth is one more.
fn pattern(number: u64) -> u8 {
    (number ^ (number >> 8)) as u8
}

/// Deliveries at one member: their counts, their latencies, and the first wrong one.
pub(super) struct Delivered {
    /// Messages of each sender.
    pub(super) counts: Vec<u64>,
    pub(super) latency: Histogram<u64>,
    /// The first message that was not as expected: its sender, and its number.
    pub(super) wrong: Option<(u8, u64)>,
    began: Instant,
    verify: bool,
    is_lone: bool,
    /// Whose messages tell how long they took, if not all: those of the own clock.
    pub(super) timed: Option<u8>,
}

impl Delivered {
    pub(super) fn new(senders: u8, traffic: &GroupTraffic, began: Instant) -> Delivered {
        let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        Delivered {
            counts: vec![0; senders.into()],
            latency: latency.expect("the bounds are in order"),
            wrong: None,
            began,
            verify: traffic.verify,
            is_lone: traffic.lone_us.is_some(),
            timed: None,
        }
    }

    /// A message was delivered in a pass that began at `now`.
    pub(super) fn take(&mut self, message: Message<'_>, now: Instant) {
        let count = &mut self.counts[message.from.index()];
        let number = *count;
        *count += 1;
        let is_timed = self.timed.is_none_or(|rank| rank == message.from.0);
        let is_sampled = number < ALL_TIMED || number.is_multiple_of(ONE_TIMED_IN);
        if let Some(time) = message.bytes.first_chunk().filter(|_| is_timed && is_sampled) {
            let sent = Duration::from_nanos(u64::from_le_bytes(*time));
            let now = if self.is_lone { host::time::now() } else { now };
            let took = (now - self.began).saturating_sub(sent);
            self.latency.saturating_record(took.as_nanos() as u64);
        }
        if self.verify && !is_right(message.bytes, number) {
            self.wrong.get_or_insert((message.from.0, number));
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

fn is_right(bytes: &[u8], number: u64) -> bool {
    let rest = bytes.get(STAMP..).unwrap_or_default();
    let (mut expected, mut differs) = (pattern(number), 0);
    let (places, last) = rest.as_chunks::<8>();
    for place in places {
        differs |= place[0] ^ expected;
        expected = expected.wrapping_add(1);
    }
    // No branch for each: the places are few, and almost always right.
    differs |= last.first().map_or(0, |place| place ^ expected);
    differs == 0
}

#[cfg(test)]
mod tests;
