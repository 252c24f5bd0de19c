//! One measurement: threads that send, threads that receive.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    Config, Ended, Message, Receiver, RecvError, SendError, Sender, SharedConfig, SharedPool, join,
    join_shared, receiver,
};
use rdma_conn::verbs_safe::WcStatus;

use super::load::{Load, Pacer, Receiving, Shape};
use crate::verify::Payload;

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) messages: u64,
    pub(crate) elapsed: Duration,
    /// Send-queue work requests at all ends; `None` where one of them is elsewhere.
    pub(crate) operations: Option<u64>,
    /// `None` where the device does not count them.
    pub(crate) rnr_events: Option<u64>,
    /// Bytes registered for receiving.
    pub(crate) registered_bytes: u64,
}

impl Measured {
    pub(crate) fn messages_per_s(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }
}

/// Both sides of a measurement, connected.
pub(crate) struct Sides {
    pub(crate) senders: Vec<Sender>,
    /// One entry a receiving thread.
    pub(crate) receivers: Vec<Vec<Receiver>>,
    pub(crate) pool: Option<SharedPool>,
}

impl Sides {
    /// The receiving side, without senders.
    pub(crate) fn receiving(device: &Device, config: &Config, shape: Shape) -> Result<Sides> {
        let window = config.recv_window + 1;
        let pool = |reposting| {
            let shared = SharedConfig {
                buffers: shape.srq_buffers.unwrap_or(window * shape.senders),
                buffer_bytes: config.message_bytes,
                max_peers: shape.senders,
                reposting,
                repost_batch: if config.repost_batch == 0 { 32 } else { config.repost_batch },
            };
            SharedPool::new(device, shared)
        };
        let pool = shape.srq.map(pool).transpose()?;
        let new = |peers| receiver(device, config, peers, pool.as_ref());
        let each = || (0..shape.senders).map(|_| new(1));
        let receivers = match shape.receiving {
            Receiving::SingleReceiver => vec![vec![new(shape.senders)?]],
            Receiving::RoundRobin => vec![each().collect::<Result<_, _>>()?],
            Receiving::ThreadEach => each().map(|r| Ok(vec![r?])).collect::<Result<_>>()?,
        };
        Ok(Sides { senders: Vec::new(), receivers, pool })
    }

    /// The receiver that the sender with this number belongs to.
    pub(crate) fn receiver_of(&mut self, sender: usize) -> Option<&mut Receiver> {
        let flat: Vec<&mut Receiver> = self.receivers.iter_mut().flatten().collect();
        let count = flat.len();
        flat.into_iter().nth(if count == 1 { 0 } else { sender })
    }

    fn within_process(device: &Device, config: &Config, shape: Shape) -> Result<Sides> {
        let mut sides = Sides::receiving(device, config, shape)?;
        let pool = sides.pool.clone();
        for i in 0..shape.senders as usize {
            let into = sides.receiver_of(i).context("a sender without a receiver")?;
            let sender = match &pool {
                Some(pool) => join_shared(into, pool, device, device, config)?,
                None => join(into, device, device, config)?,
            };
            sides.senders.push(sender);
        }
        Ok(sides)
    }

    fn registered_bytes(&self) -> u64 {
        let own: u64 = self.receivers.iter().flatten().map(Receiver::registered_bytes).sum();
        own + self.pool.as_ref().map_or(0, SharedPool::registered_bytes)
    }
}

/// Measures with both ends in this process.
pub(crate) fn within_process(
    device: &Device,
    config: &Config,
    shape: Shape,
    load: &Load,
) -> Result<Measured> {
    measure(Sides::within_process(device, config, shape)?, device, load)
}

/// Runs whatever sides there are to their end.
pub(crate) fn measure(sides: Sides, device: &Device, load: &Load) -> Result<Measured> {
    let registered_bytes = sides.registered_bytes();
    let Sides { senders, receivers, pool } = sides;
    let both_here = !senders.is_empty() && !receivers.is_empty();
    let barrier = Barrier::new(senders.len() + receivers.len());
    let before = device.counters().ok();
    let totals = std::thread::scope(|scope| {
        let sending: Vec<_> = (0..)
            .zip(senders)
            .map(|(stream, sender)| {
                let barrier = &barrier;
                scope.spawn(move || send(sender, stream, load, barrier))
            })
            .collect();
        let receiving: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(first, group)| {
                let barrier = &barrier;
                scope.spawn(move || receive(group, first as u64, load, barrier))
            })
            .collect();
        sending
            .into_iter()
            .chain(receiving)
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<Result<Side>>>()
    });
    drop(pool);
    let after = device.counters().ok();
    for e in totals.iter().filter_map(|side| side.as_ref().err()) {
        tracing::info!(error = %e, "a thread failed");
    }
    let total = Side::sum(totals).map_err(advise)?;
    Ok(Measured {
        messages: total.delivered(both_here)?,
        elapsed: total.end - total.start,
        operations: both_here.then_some(total.operations),
        rnr_events: before.and_then(|b| after?.since(&b).rnr_events),
        registered_bytes,
    })
}

/// What to do about a failure that the command line can avoid.
fn advise(failure: anyhow::Error) -> anyhow::Error {
    match failure.downcast_ref::<SendError>() {
        Some(SendError::Ended(Ended::PeerLost(e))) if e.status == WcStatus::RNR_RETRY_EXC => failure
            .context("the receiver fell behind for longer than retries last; use credits, a lower --rate or a larger --recv-window"),
        _ => failure,
    }
}

/// What one thread did.
#[derive(Debug, Clone, Copy)]
struct Side {
    start: Instant,
    end: Instant,
    received: u64,
    sent: u64,
    operations: u64,
}

impl Side {
    fn sum(mut sides: Vec<Result<Side>>) -> Result<Side> {
        let cause = |side: &Result<Side>| side.as_ref().is_err_and(|e| !is_consequence(e));
        let failed = sides.iter().position(cause).or(sides.iter().position(Result::is_err));
        if let Some(at) = failed {
            return sides.swap_remove(at);
        }
        let mut sides = sides.into_iter();
        let first = sides.next().context("nobody to measure")??;
        sides.try_fold(first, |a, b| {
            let b = b?;
            Ok(Side {
                start: a.start.min(b.start),
                end: a.end.max(b.end),
                received: a.received + b.received,
                sent: a.sent + b.sent,
                operations: a.operations + b.operations,
            })
        })
    }

    /// Messages that arrived; of senders whose receivers are elsewhere, those that were
    /// acknowledged.
    fn delivered(&self, both_here: bool) -> Result<u64> {
        let Side { sent, received, .. } = *self;
        anyhow::ensure!(
            !both_here || sent == received,
            "{sent} messages were sent and {received} arrived"
        );
        Ok(sent.max(received))
    }
}

/// Whether a sender failed only because its receiver did.
fn is_consequence(failure: &anyhow::Error) -> bool {
    matches!(failure.downcast_ref(), Some(SendError::Ended(Ended::PeerStopped)))
}

fn send(mut sender: Sender, stream: u64, load: &Load, barrier: &Barrier) -> Result<Side> {
    let mut payload = Payload::new(load.size as usize, stream);
    let plain = vec![0x5a; load.size as usize];
    barrier.wait();
    let start = Instant::now();
    let mut pacer = Pacer::new(load.rate, start);
    let mut sent = 0;
    let stride = load.stride();
    while load.end.goes_on(sent, start, stride) {
        pacer.wait();
        if load.verify {
            send_checked(&mut sender, &mut payload, load.size as usize)?;
        } else {
            sender.send_async(&plain)?;
        }
        if load.rate.is_some() {
            sender.flush()?;
        }
        sent += 1;
    }
    sender.wait_all()?;
    let end = Instant::now();
    let operations = sender.stats().work_requests;
    sender.close()?;
    Ok(Side { start, end, received: 0, sent, operations })
}

/// Fills the payload in place, once there is room for it.
fn send_checked(sender: &mut Sender, payload: &mut Payload, size: usize) -> Result<(), SendError> {
    loop {
        match sender.try_send_with(size, |slot| payload.fill(slot)) {
            Err(SendError::Full(_)) => sender.wait_for_room()?,
            done => return done.map(drop),
        }
    }
}

/// Receives until all senders have closed.
fn receive(group: Vec<Receiver>, first: u64, load: &Load, barrier: &Barrier) -> Result<Side> {
    let alone = group.len() == 1;
    let mut open: Vec<Taker> =
        (first..).zip(group).map(|(stream, receiver)| Taker::new(receiver, stream, load)).collect();
    barrier.wait();
    let start = Instant::now();
    let mut side = Side { start, end: start, received: 0, sent: 0, operations: 0 };
    while !open.is_empty() {
        let mut at = 0;
        while let Some(taker) = open.get_mut(at) {
            match taker.take(alone)? {
                Taken::Some(count) => {
                    side.received += count;
                    side.end = Instant::now();
                }
                Taken::Nothing => std::hint::spin_loop(),
                Taken::Closed => {
                    side.operations += open.swap_remove(at).receiver.stats().work_requests;
                    continue;
                }
            }
            at += 1;
        }
    }
    Ok(side)
}

/// A receiver and what is expected from its peers.
struct Taker {
    receiver: Receiver,
    /// By peer; the first peer's stream has the number `first`.
    expected: Vec<Payload>,
    first: u64,
    size: usize,
    verify: bool,
}

enum Taken {
    Some(u64),
    Nothing,
    Closed,
}

impl Taker {
    /// Messages taken before the next receiver has its turn.
    const TURN: u64 = 64;

    fn new(receiver: Receiver, first: u64, load: &Load) -> Taker {
        Taker {
            receiver,
            expected: Vec::new(),
            first,
            size: load.size as usize,
            verify: load.verify,
        }
    }

    /// Takes what is there; waits for it when this is the thread's only receiver.
    fn take(&mut self, alone: bool) -> Result<Taken> {
        let mut count = 0;
        while count < Self::TURN {
            let message = match self.receiver.try_recv() {
                Err(RecvError::Empty) if alone && count == 0 => self.receiver.recv(),
                other => other,
            };
            match message {
                Ok(message) => self.check(message)?,
                Err(RecvError::Empty) => break,
                Err(RecvError::Closed) if count == 0 => return Ok(Taken::Closed),
                Err(RecvError::Closed) => break,
                Err(e) => return Err(e.into()),
            }
            count += 1;
        }
        Ok(if count > 0 { Taken::Some(count) } else { Taken::Nothing })
    }

    #[inline]
    fn check(&mut self, message: Message) -> Result<()> {
        if self.verify {
            let peer = message.peer().0 as usize;
            while self.expected.len() <= peer {
                let stream = self.first + self.expected.len() as u64;
                self.expected.push(Payload::new(self.size, stream));
            }
            self.expected[peer].check(&message)?;
        }
        self.receiver.free(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(sent: u64, received: u64) -> Side {
        let now = Instant::now();
        Side { start: now, end: now, received, sent, operations: 0 }
    }

    #[test]
    fn what_did_not_arrive_is_a_failure() {
        let sum = |sent, received| Side::sum(vec![Ok(side(sent, 0)), Ok(side(0, received))]);
        assert_eq!(sum(5, 5).unwrap().delivered(true).unwrap(), 5);
        assert!(sum(5, 4).unwrap().delivered(true).is_err());
        assert!(sum(4, 5).unwrap().delivered(true).is_err());
        assert_eq!(side(5, 0).delivered(false).unwrap(), 5, "the other end is elsewhere");
    }

    #[test]
    fn the_cause_is_named_and_not_what_followed_from_it() {
        let stopped = || Err(SendError::Ended(Ended::PeerStopped).into());
        let failed = Side::sum(vec![stopped(), Err(anyhow::anyhow!("a wrong checksum"))]);
        assert_eq!(failed.unwrap_err().to_string(), "a wrong checksum");
        assert!(Side::sum(vec![Ok(side(1, 1)), stopped()]).is_err());
    }
}
