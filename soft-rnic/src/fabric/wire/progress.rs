//! Taking received packets, by threads that poll, and otherwise by a thread of the device.

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::cancellation::Uncancelled;
use crate::clock;
use crate::lock::Guard;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, Qp};
use crate::peers::wire::answers::{Allowance, Answers, AnswersSent};
use crate::peers::wire::state::{LatePacket, PacketFaults, RoceWire, Rx};
use crate::udp::{MergedDatagrams, ReceivedDatagram};

use super::arrivals::Arrivals;
use super::groups::take_from_groups;
use super::handover::handed_over;
use super::packets::add;
use super::responder::Answering;

/// Batches that one look takes before others have their turn.
pub(super) const ROUNDS: u32 = 4;
/// Polls that find the receive lock taken, before this thread yields.
const YIELD_AFTER: u32 = 64;
/// Looks that a queue pair takes which is reset, at most: as many packets as a socket keeps. Nor do
/// they take longer, beside the last of them: packets may arrive as fast as they are taken.
pub(super) const DRAIN: u32 = 256;
pub(super) const DRAIN_NS: u64 = 1_000_000;
/// Pauses of the device's thread while the device is polled: the first one, and the longest; each
/// is twice as long as the one before.
pub(super) const AWAY: Duration = Duration::from_micros(100);
pub(super) const LONGEST_AWAY: Duration = Duration::from_micros(400);

/// The packets that a look takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum LookScope {
    /// Packets to the device's own address.
    Own,
    /// Packets to groups as well. If it may defer, it leaves acknowledgements to what the program
    /// sends next, or to the next call: they take time before a reply.
    Whole { may_defer: bool },
}

/// The first step of a poll.
#[cold]
pub(crate) fn look(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    // Relaxed: a hint for the device's thread; a count that is lost is followed by others.
    let polls = wire.polls.load(Ordering::Relaxed);
    wire.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    let Some(rx) = wire.rx.try_lock() else { return wait_for_holder(wire) };
    let _uncancelled = Uncancelled::new();
    let rx = rx.give_way();
    // Relaxed: it is cleared under this lock.
    let may_defer = wire.is_watched.load(Ordering::Relaxed);
    if progress(device, wire, rx, LookScope::Whole { may_defer }) {
        wire.leave();
    }
}

/// The receive lock is taken, perhaps by a thread that was preempted on this processor.
#[cold]
fn wait_for_holder(wire: &RoceWire) {
    // Relaxed: a hint, as above.
    let missed = wire.missed.load(Ordering::Relaxed).wrapping_add(1);
    wire.missed.store(missed, Ordering::Relaxed);
    if missed.is_multiple_of(YIELD_AFTER) {
        host::thread::yield_now();
    }
}

/// Takes packets before the timer lets a deadline count: the answer may have arrived. A thread that
/// polls has mostly taken it, and is not to find the lock taken for nothing.
#[cold]
pub(crate) fn catch_up(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    // Relaxed: a hint.
    let is_polled = wire.is_watched.load(Ordering::Relaxed);
    if is_polled && wire.port.wait(None, Duration::ZERO) == Ok(false) {
        return;
    }
    if let Some(rx) = wire.rx.try_lock()
        && progress(device, wire, rx, LookScope::Own)
    {
        wire.leave();
    }
}

/// Takes the received packets, before a queue pair that was reset can be connected again:
/// those for the connection that has ended are dropped. Those to groups wait elsewhere, and are of
/// no connection. No lock is held.
#[cold]
pub(crate) fn drain(device: &Arc<Device>) {
    // A packet for a child of fork is its parent's.
    let Some(wire) = device.wire().filter(|wire| !wire.is_inherited()) else { return };
    look_on(clock::now, || {
        // What is owed to peers is the device's thread's to say, and no time of this call.
        let mut shared = Answering::with(Allowance::none());
        let (mut deferred, mut rx) = (DeferredWork::default(), wire.rx.lock());
        let has_more = take_own(device, wire, &mut rx, false, (&mut shared, &mut deferred));
        let is_owing = !rx.answering.is_empty();
        drop(rx);
        deferred.run();
        if is_owing {
            wire.leave();
        }
        has_more
    });
}

/// Looks as long as there is more, [`DRAIN`] times and for [`DRAIN_NS`] at most.
pub(super) fn look_on(now: impl Fn() -> u64, mut look: impl FnMut() -> bool) {
    let begun = now();
    let _ = (0..DRAIN).all(|_| look() && now().saturating_sub(begun) <= DRAIN_NS);
}

/// Acknowledges, before a queue pair ends, the messages that the program has seen, so that the peer
/// does not report them as lost.
#[cold]
pub(crate) fn settle(qp: &Arc<Qp>) {
    // A child of fork would answer in its parent's name, which answers as well.
    let wire = qp.pd.context.device.wire();
    let Some(wire) = wire.filter(|wire| !wire.is_inherited()) else { return };
    let rx = wire.rx.lock();
    let (mut deferred, Answering { mut buffers, mut allowance }) =
        (DeferredWork::default(), Answering::new());
    let mut answer = || qp.answer_peer(wire, (&mut buffers, &mut allowance), &mut deferred);
    while qp.owes_response() && answer() == AnswersSent::Some {}
    wire.flush(&mut wire.tx.lock());
    drop(rx);
    deferred.run();
}

/// Takes received packets; returns true if there may be more to do. Connections are first, and are
/// answered before groups have their turn.
pub(super) fn progress(
    device: &Arc<Device>,
    wire: &RoceWire,
    mut rx: Guard<'_, Rx>,
    look: LookScope,
) -> bool {
    let (mut deferred, mut shared) = (DeferredWork::default(), Answering::new());
    let may_defer = matches!(look, LookScope::Whole { may_defer: true });
    let mut has_more = take_own(device, wire, &mut rx, may_defer, (&mut shared, &mut deferred));
    let Rx { inbox, groups, answering, faults, .. } = &mut *rx;
    if matches!(look, LookScope::Whole { .. }) {
        let of_groups = (&mut shared, &mut deferred);
        has_more |= take_from_groups(
            device,
            wire,
            groups,
            (inbox, faults),
            of_groups,
            |shared, deferred| answer(device, wire, answering, shared, deferred),
        );
    }
    has_more |= !answering.is_empty();
    drop(rx);
    deferred.run();
    has_more
}

/// Takes packets received at the device's own address, and does what follows from them; returns
/// true if there may be more.
pub(super) fn take_own(
    device: &Arc<Device>,
    wire: &RoceWire,
    rx: &mut Rx,
    may_defer: bool,
    (shared, deferred): (&mut Answering, &mut DeferredWork),
) -> bool {
    let Rx { inbox, answering, resuming, faults, late, left_run, .. } = rx;
    let mut has_more = true;
    // What was left, unless the program has sent it; and what the socket had no room for.
    match may_defer && answering.is_empty() {
        true => flush_held(wire, left_run),
        false => answer(device, wire, answering, shared, deferred),
    }
    for _ in 0..ROUNDS {
        // After an error, which an earlier packet has met, the next call is about the next one.
        let is_over = inbox.receive(&wire.port).is_ok_and(|_| !inbox.is_full());
        let mut arrivals = Arrivals {
            device,
            wire,
            answering: &mut *answering,
            resuming: &mut *resuming,
            shared: &mut *shared,
            deferred: &mut *deferred,
        };
        let mut arrive = |merged: MergedDatagrams<'_>| {
            if wire.capture.is_some() {
                let to = wire.port.local();
                merged.for_each(|datagram| wire.capture_received(&datagram, to));
            }
            match faults {
                None => arrivals.take_all(merged),
                Some(faults) => merged.for_each(|datagram| {
                    let mut take =
                        |one: &ReceivedDatagram<'_>| arrivals.take_all(MergedDatagrams::from(*one));
                    faults.strike(late, &datagram, &mut take);
                }),
            }
        };
        let mut came = 0;
        for merged in inbox.merged() {
            came += merged.len() as u64;
            match wire.may_be_handed_over(merged.current()) {
                false => arrive(merged),
                true => merged.for_each(|datagram| arrive(handed_over(datagram).into())),
            }
        }
        add(&wire.counts.received, came);
        // Senders continue while this end takes the other packets.
        if !(is_over && may_defer) {
            answer(device, wire, answering, shared, deferred);
        }
        if is_over {
            has_more = false;
            break;
        }
    }
    for qpn in resuming.drain(..) {
        if let Some(qp) = device.qps.get(qpn) {
            qp.run_wire(&mut qp.sq.lock(), deferred, false);
        }
    }
    has_more
}

/// Sends what is in the outbox, but for a run that is held back: that goes with the second look.
fn flush_held(wire: &RoceWire, left: &mut u64) {
    let mut tx = wire.tx.lock();
    let run = tx.begun();
    match tx.is_held() && core::mem::replace(left, run) != run {
        true => wire.flush_full(&mut tx),
        false => wire.flush(&mut tx),
    }
}

/// A program has armed a completion queue, and may wait for its event: nothing is held back any
/// more.
#[cold]
pub(crate) fn before_waiting(device: &Device) {
    let Some(wire) = device.wire() else { return };
    let mut tx = wire.tx.lock();
    if tx.is_held() {
        wire.flush(&mut tx);
    }
}

/// Answers peers. Those that are owed more than the look allows stay in the list.
fn answer(
    device: &Device,
    wire: &RoceWire,
    answering: &mut Answers,
    shared: &mut Answering,
    deferred: &mut DeferredWork,
) {
    let Answering { buffers, allowance } = shared;
    answering.take_turns(allowance, |qpn, allowance| {
        let qp = device.qps.get(qpn).filter(|qp| qp.owes_response());
        qp.map_or(AnswersSent::All, |qp| qp.answer_peer(wire, (buffers, allowance), deferred))
    });
    wire.flush(&mut wire.tx.lock());
}

/// Packets that overtake one that is late, at most.
const OVERTAKE: u64 = 4;

impl PacketFaults {
    /// Has `take` called for what the network lets through: not at all, once, twice, or later.
    /// Packets to one address overtake each other.
    pub(super) fn strike(
        &mut self,
        late: &mut Option<(LatePacket, u32)>,
        datagram: &ReceivedDatagram<'_>,
        take: &mut impl FnMut(&ReceivedDatagram<'_>),
    ) {
        let datagram = &ReceivedDatagram { marks: self.mark(datagram.marks), ..*datagram };
        let PacketFaults { network, random } = self;
        if random.strikes(network.loss) {
            return;
        }
        if late.is_none() && random.strikes(network.reordering) {
            let &ReceivedDatagram { from, marks, bytes, nth, was_handed_over } = datagram;
            let set_aside = LatePacket { from, marks, bytes: bytes.to_vec(), nth, was_handed_over };
            *late = Some((set_aside, 1 + random.below(OVERTAKE) as u32));
            return;
        }
        take(datagram);
        if random.strikes(network.duplication) {
            take(datagram);
        }
        if let Some((LatePacket { from, marks, bytes, nth, was_handed_over }, 0)) = late
            .take_if(|(_, left)| core::mem::replace(left, left.saturating_sub(1)) <= 1)
            .map(|(late, _)| (late, 0))
        {
            take(&ReceivedDatagram { from, marks, bytes: &bytes, nth, was_handed_over });
        }
    }
}
