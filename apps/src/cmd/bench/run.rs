//! One measurement: threads that send, threads that receive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base::{pinning, signals};
use host::sync::{Barrier, BrokenBarrier};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{CloseReason, ConnectError};
use rdma_conn::verbs_safe::WcStatus;

use crate::measure::{
    HAS_COME, LoadShape, MessageLoad, Pacer, Payload, ReceiverThreads, RoundResult, Whole, Work,
    since, start_all,
};
use crate::protocol::{MeasuredProtocol, MeasuredReceiver, MeasuredSender, TakeOutcome};
use crate::session::{card, sender_ended};

/// Both sides of a measurement, connected.
pub(crate) struct Sides<K: MeasuredProtocol> {
    pub(crate) senders: Vec<Outlet<K>>,
    /// One entry a receiving thread.
    pub(crate) receivers: Vec<Vec<Inlet<K>>>,
    pub(crate) pool: Option<K::Pool>,
}

/// A sender, and the stream of payloads that it sends.
pub(crate) struct Outlet<K: MeasuredProtocol> {
    pub(crate) sender: K::SendEnd,
    pub(crate) stream: u64,
}

/// A receiver, and what its peers send, in the order in which they join.
pub(crate) struct Inlet<K: MeasuredProtocol> {
    pub(crate) receiver: K::RecvEnd,
    pub(crate) streams: Vec<u64>,
}

impl<K: MeasuredProtocol> Sides<K> {
    /// Sides without receivers; the senders are added later.
    pub(crate) fn sending() -> Sides<K> {
        Sides { senders: Vec::new(), receivers: Vec::new(), pool: None }
    }

    /// The receiving side, without senders.
    pub(crate) fn receiving(
        device: &Device,
        config: &K::Settings,
        shape: LoadShape,
    ) -> Result<Sides<K>> {
        let pool = K::pool(device, config, shape)?;
        let new = |peers| {
            let receiver = K::new_receiver(device, config, peers, pool.as_ref())?;
            Ok::<_, ConnectError>(Inlet { receiver, streams: Vec::new() })
        };
        let each = || (0..shape.senders).map(|_| new(1));
        let receivers = match shape.receiving {
            ReceiverThreads::SingleReceiver => vec![vec![new(shape.senders)?]],
            ReceiverThreads::RoundRobin => vec![each().collect::<Result<_, _>>()?],
            ReceiverThreads::ThreadEach => each().map(|r| Ok(vec![r?])).collect::<Result<_>>()?,
        };
        Ok(Sides { senders: Vec::new(), receivers, pool })
    }

    /// Returns the place of the next sender: the only receiver, or the first that has no sender.
    pub(crate) fn next_inlet(&mut self) -> Result<&mut Inlet<K>> {
        let mut inlets: Vec<&mut Inlet<K>> = self.receivers.iter_mut().flatten().collect();
        let vacant = inlets.iter().position(|inlet| inlet.streams.is_empty());
        let at = if inlets.len() == 1 { Some(0) } else { vacant };
        Ok(inlets.swap_remove(at.context("a sender without a receiver")?))
    }

    fn within_process(device: &Device, config: &K::Settings, shape: LoadShape) -> Result<Sides<K>> {
        let mut sides = Sides::receiving(device, config, shape)?;
        let other = card::peer_device(device)?;
        let devices = [device, other.as_ref().unwrap_or(device)];
        let pool = sides.pool.clone();
        for stream in 0..u64::from(shape.senders) {
            let Inlet { receiver, streams } = sides.next_inlet()?;
            let sender = K::join(receiver, pool.as_ref(), devices, config)?;
            streams.push(stream);
            sides.senders.push(Outlet { sender, stream });
        }
        Ok(sides)
    }

    fn registered_bytes(&self) -> u64 {
        let inlets = self.receivers.iter().flatten();
        let own: u64 = inlets.map(|inlet| inlet.receiver.registered_bytes()).sum();
        own + self.pool.as_ref().map_or(0, K::pool_bytes)
    }
}

/// Measures with both ends in this process.
pub(crate) fn within_process<K: MeasuredProtocol>(
    device: &Device,
    config: &K::Settings,
    shape: LoadShape,
    load: &MessageLoad,
) -> Result<RoundResult> {
    measure(Sides::<K>::within_process(device, config, shape)?, device, load, || {})
}

/// Runs whatever sides there are to their end. When all threads are ready, `begin` is
/// called.
pub(crate) fn measure<K: MeasuredProtocol>(
    sides: Sides<K>,
    device: &Device,
    load: &MessageLoad,
    begin: impl FnOnce(),
) -> Result<RoundResult> {
    let registered_bytes = sides.registered_bytes();
    let Sides { senders, receivers, pool } = sides;
    let both_here = !senders.is_empty() && !receivers.is_empty();
    // By thread.
    let senders: Vec<Vec<Outlet<K>>> = match load.in_turn {
        true => vec![senders],
        false => senders.into_iter().map(|sender| vec![sender]).collect(),
    };
    let together = &Together {
        barrier: Barrier::new(senders.len() + receivers.len() + 1),
        has_failed: AtomicBool::new(false),
        has_senders: !senders.is_empty(),
    };
    let before = device.counters().ok();
    let sends = senders.len();
    let totals = host::thread::scope(|scope| {
        let send = |(number, outlets)| {
            scope.spawn(move || {
                pinning::pin_thread(number);
                together.watch(send(outlets, load, together))
            })
        };
        let receive = |(number, group)| {
            scope.spawn(move || {
                pinning::pin_thread(sends + number);
                together.watch(receive(group, load, together))
            })
        };
        let sending = senders.into_iter().enumerate().map(send);
        let threads = sending.chain(receivers.into_iter().enumerate().map(receive));
        let (threads, all) = start_all(threads, &together.barrier);
        if together.barrier.wait().is_ok() {
            begin();
        }
        let sides = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        sides.chain(all.err().map(Err)).collect::<Vec<Result<SideWork>>>()
    });
    drop(pool);
    let since = since(device, before);
    for e in totals.iter().filter_map(|side| side.as_ref().err()) {
        tracing::info!(error = %e, "a thread failed");
    }
    let senders = totals.iter().filter_map(|side| Some(side.as_ref().ok()?.sent));
    // The receiving threads are last in `totals`.
    let fairness = load.fairness(senders.take(sends));
    let total = SideWork::sum(totals).map_err(advise)?;
    let messages = total.delivered(both_here)?;
    Ok(RoundResult {
        messages,
        elapsed: total.end - total.start,
        work: total.work,
        whole: both_here.then_some(Whole { messages, work: total.work }),
        rnr_events: since.and_then(|since| since.rnr_events),
        registered_bytes,
        receivers_busy: total.busy.map(|busy| (total.end - total.start).mul_f64(busy)),
        fairness,
    })
}

/// Adds advice to a failure that the command line can avoid.
fn advise(failure: anyhow::Error) -> anyhow::Error {
    match sender_ended(&failure) {
        Some(CloseReason::PeerLost(e)) if e.cause.status == WcStatus::RNR_RETRY_EXC => failure
            .context("the receiver fell behind for longer than retries last; use credits, a lower --rate or a larger --recv-depth"),
        _ => failure,
    }
}

/// State that the threads of a measurement share.
struct Together {
    /// They begin together.
    barrier: Barrier,
    /// And end together, when one of them fails.
    has_failed: AtomicBool,
    /// True if this process has senders.
    has_senders: bool,
}

/// Another thread has failed.
#[derive(Debug, thiserror::Error)]
#[error("another thread has failed")]
struct GivenUp;

impl Together {
    /// Passes on a thread's result, and tells the other threads if it is a failure.
    fn watch(&self, side: Result<SideWork>) -> Result<SideWork> {
        if side.is_err() {
            // Nothing but the fact is passed on: what failed goes by the thread's end.
            self.has_failed.store(true, Ordering::Relaxed);
        }
        side
    }

    /// Reports whether to stop receiving: a signal has asked for an end, and the senders, which
    /// would end early, are in other processes. The messages that have arrived until now are then a
    /// partial result.
    ///
    /// # Errors
    /// A signal asked for such an end, and nothing has arrived.
    fn stops_receiving(&self, side: &SideWork) -> Result<bool> {
        match signals::interrupted().filter(|_| !self.has_senders) {
            Some(interrupted) if side.received == 0 => Err(interrupted.into()),
            interrupted => Ok(interrupted.is_some()),
        }
    }

    /// # Errors
    /// [`GivenUp`] once another thread has failed.
    fn go_on(&self) -> Result<(), GivenUp> {
        // A little late is soon enough.
        if self.has_failed.load(Ordering::Relaxed) { Err(GivenUp) } else { Ok(()) }
    }
}

/// Work of one thread, or of several together.
#[derive(Debug, Clone, Copy)]
struct SideWork {
    start: Instant,
    end: Instant,
    received: u64,
    sent: u64,
    work: Work,
    /// The part of its time that a thread which receives kept its processor busy; of several, the
    /// sum.
    busy: Option<f64>,
}

impl SideWork {
    fn sum(mut sides: Vec<Result<SideWork>>) -> Result<SideWork> {
        let cause = |side: &Result<SideWork>| side.as_ref().is_err_and(|e| !is_consequence(e));
        let failed = sides.iter().position(cause).or(sides.iter().position(Result::is_err));
        if let Some(at) = failed {
            return sides.swap_remove(at);
        }
        let mut sides = sides.into_iter();
        let first = sides.next().context("no side to measure")??;
        sides.try_fold(first, |a, b| {
            let b = b?;
            Ok(SideWork {
                start: a.start.min(b.start),
                end: a.end.max(b.end),
                received: a.received + b.received,
                sent: a.sent + b.sent,
                work: a.work + b.work,
                busy: a.busy.into_iter().chain(b.busy).reduce(|a, b| a + b),
            })
        })
    }

    /// Messages that arrived; of senders whose receivers are elsewhere, those that were
    /// acknowledged.
    fn delivered(&self, both_here: bool) -> Result<u64> {
        let SideWork { sent, received, .. } = *self;
        anyhow::ensure!(
            !both_here || sent == received,
            "messages sent: {sent}, arrived: {received}"
        );
        Ok(sent.max(received))
    }
}

/// Reports whether a thread failed only because its receiver or another thread did.
fn is_consequence(failure: &anyhow::Error) -> bool {
    failure.is::<GivenUp>()
        || failure.is::<BrokenBarrier>()
        || sender_ended(failure).is_some_and(CloseReason::is_close)
}

fn send<K: MeasuredProtocol>(
    outlets: Vec<Outlet<K>>,
    load: &MessageLoad,
    together: &Together,
) -> Result<SideWork> {
    let mut senders: Vec<(K::SendEnd, Payload)> = outlets
        .into_iter()
        .map(|Outlet { sender, stream }| (sender, Payload::new(load.size as usize, stream)))
        .collect();
    let sent = send_all(&mut senders, load, together);
    // An error of sending is reported first: closing then fails as a consequence.
    let closed = senders.into_iter().try_for_each(|(sender, _)| sender.close());
    let side = sent?;
    closed?;
    Ok(side)
}

/// Sends over each of the connections in turn.
fn send_all<S: MeasuredSender>(
    senders: &mut [(S, Payload)],
    load: &MessageLoad,
    together: &Together,
) -> Result<SideWork> {
    if load.verify {
        senders.iter_mut().for_each(|(_, payload)| payload.prepare());
    }
    let plain = vec![0x5a; load.size as usize];
    together.barrier.wait()?;
    let start = host::time::now();
    let mut pacer = Pacer::new(load.rate, start);
    let mut turns = 0;
    let stride = load.stride();
    while load.end.goes_on(turns, start, stride) {
        together.go_on()?;
        pacer.wait();
        for (sender, payload) in &mut *senders {
            if load.verify {
                sender.send_with(load.size as usize, |room| payload.fill(room))?;
            } else {
                sender.send_again(&plain)?;
            }
            if load.rate.is_some() {
                sender.flush()?;
            }
        }
        turns += 1;
    }
    senders.iter_mut().try_for_each(|(sender, _)| sender.wait_all())?;
    let end = host::time::now();
    let work = senders.iter().fold(Work::default(), |all, (sender, _)| all + sender.work());
    let sent = turns * senders.len() as u64;
    Ok(SideWork { start, end, received: 0, sent, work, busy: None })
}

/// Receives until all senders have closed, or a signal ends this end early.
fn receive<K: MeasuredProtocol>(
    group: Vec<Inlet<K>>,
    load: &MessageLoad,
    together: &Together,
) -> Result<SideWork> {
    let alone = group.len() == 1;
    let mut open: Vec<CheckingReceiver<K::RecvEnd>> =
        group.into_iter().map(|inlet| CheckingReceiver::new(inlet, load)).collect();
    together.barrier.wait()?;
    let start = host::time::now();
    let (received, sent, work) = (0, 0, Work::default());
    let mut side = SideWork { start, end: start, received, sent, work, busy: None };
    let busy_before = host::time::thread_cpu();
    let mut vain = 0_u32;
    while !open.is_empty() {
        together.go_on()?;
        if together.stops_receiving(&side)? {
            break;
        }
        if round(&mut open, alone.then_some(LOOK), &mut side)? {
            vain = 0;
            continue;
        }
        vain = vain.wrapping_add(1);
        // The senders may share a core with this thread.
        if vain.is_multiple_of(VAIN_ROUNDS) || host::has_own_processor() {
            host::thread::yield_until(None)
        } else {
            host::thread::spin_loop()
        }
    }
    let busy = host::time::thread_cpu().saturating_sub(busy_before);
    side.busy = Some(busy.as_secs_f64() / host::time::since(start).as_secs_f64().max(1e-9));
    Ok(side)
}

/// Time that a thread waits for one receiver before it checks whether others have failed.
const LOOK: Duration = Duration::from_millis(100);
/// Rounds over several receivers without any message, until others get a turn.
const VAIN_ROUNDS: u32 = 64;

/// Takes what there is from each receiver, and drops those that are closed; returns true if there
/// was anything.
fn round<R: MeasuredReceiver>(
    open: &mut Vec<CheckingReceiver<R>>,
    time: Option<Duration>,
    side: &mut SideWork,
) -> Result<bool> {
    let (mut at, mut any) = (0, false);
    while let Some(taker) = open.get_mut(at) {
        match taker.take(time)? {
            TakeOutcome::Some(count) => {
                if side.received == 0 {
                    signals::first_message();
                    tracing::info!("{HAS_COME}");
                }
                side.received += count;
                side.end = host::time::now();
                any = true;
            }
            TakeOutcome::Nothing => {}
            TakeOutcome::Closed => {
                side.work = side.work + open.swap_remove(at).receiver.work();
                continue;
            }
        }
        at += 1;
    }
    Ok(any)
}

/// A receiver and what is expected from its peers.
struct CheckingReceiver<R> {
    receiver: R,
    /// By peer.
    expected: Vec<Payload>,
    verify: bool,
}

impl<R: MeasuredReceiver> CheckingReceiver<R> {
    fn new<K: MeasuredProtocol<RecvEnd = R>>(
        inlet: Inlet<K>,
        load: &MessageLoad,
    ) -> CheckingReceiver<R> {
        let Inlet { receiver, streams } = inlet;
        let payload = |stream| Payload::new(load.size as usize, stream);
        let expected = streams.into_iter().map(payload).collect();
        CheckingReceiver { receiver, expected, verify: load.verify }
    }

    /// Takes the available messages, or waits up to `time` for the first.
    fn take(&mut self, time: Option<Duration>) -> Result<TakeOutcome> {
        let CheckingReceiver { receiver, expected, verify } = self;
        if !*verify {
            return receiver.take(time, |_, _| Ok(()));
        }
        receiver.take(time, |peer, message| {
            let expected = expected.get_mut(peer as usize);
            expected.context("a message of a peer that has not joined")?.check(message)
        })
    }
}

#[cfg(test)]
mod tests;
