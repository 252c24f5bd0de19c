//! Taking what has come, by threads that poll, and otherwise by a thread of the device.

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use roce_core::codec;
use roce_core::icrc::Flow;
use roce_core::opcode::Opcode;

use crate::deferred_work::DeferredWork;
use crate::lock::Guard;
use crate::objects::state::{Device, Qp};
use crate::udp::Datagram;

use super::groups::take_from_groups;
use super::packets::{add, is_of_partition};
use super::responder::{Answering, Owed};
use super::state::{Late, PacketFaults, Path, Rx, Wire};

/// Batches that one look takes before others have their turn.
const ROUNDS: u32 = 4;
/// Polls that find another thread at it until this one gives its processor away.
const PATIENCE: u32 = 64;
/// Looks that a queue pair takes which is reset, at most: as many packets as a socket keeps.
const DRAIN: u32 = 256;
/// How long the device's thread stays away from a device that is polled.
pub(super) const AWAY: Duration = Duration::from_micros(100);

/// The first step of a poll.
#[cold]
pub(crate) fn look(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    // Relaxed: a hint for the device's thread; a count that is lost is followed by others.
    let polls = wire.polls.load(Ordering::Relaxed);
    wire.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    let Some(rx) = wire.rx.try_lock() else { return wait_for_holder(wire) };
    // Relaxed: it is cleared under this lock.
    let may_defer = wire.is_watched.load(Ordering::Relaxed);
    if progress(device, wire, rx, may_defer) {
        wire.leave();
    }
}

/// Another thread is at it. It may be one that has lost this processor.
#[cold]
fn wait_for_holder(wire: &Wire) {
    // Relaxed: a hint, as above.
    let missed = wire.missed.load(Ordering::Relaxed).wrapping_add(1);
    wire.missed.store(missed, Ordering::Relaxed);
    if missed.is_multiple_of(PATIENCE) {
        std::thread::yield_now();
    }
}

/// What the timer does before a deadline counts: the answer may have come. A thread that polls has
/// taken it mostly, and is not to find the lock taken for nothing.
#[cold]
pub(crate) fn catch_up(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    // Relaxed: a hint.
    let is_polled = wire.is_watched.load(Ordering::Relaxed);
    if is_polled && wire.port.wait(None, Duration::ZERO) == Ok(false) {
        return;
    }
    if let Some(rx) = wire.rx.try_lock()
        && progress(device, wire, rx, false)
    {
        wire.leave();
    }
}

/// What a queue pair that was reset does before it can be connected again: packets that have come for
/// the connection that has ended are dropped. No lock is held.
#[cold]
pub(crate) fn drain(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    for _ in 0..DRAIN {
        if !progress(device, wire, wire.rx.lock(), false) {
            return;
        }
    }
}

/// What a queue pair that ends does first: a peer whose message the program has seen is not to learn
/// that it was lost.
#[cold]
pub(crate) fn settle(device: &Arc<Device>) {
    if let Some(wire) = device.wire() {
        settle_with(device, wire, wire.rx.lock());
    }
}

fn settle_with(device: &Device, wire: &Wire, mut rx: Guard<'_, Rx>) {
    let mut deferred = DeferredWork::default();
    answer(device, wire, &mut rx.answering, &mut Answering::new(), &mut deferred);
    drop(rx);
    deferred.run();
}

/// Takes what has come; whether there may be more to do. If it may, it leaves acknowledgements to what
/// the program sends next, or to the next call: they take time before a reply.
pub(super) fn progress(
    device: &Arc<Device>,
    wire: &Wire,
    mut rx: Guard<'_, Rx>,
    may_defer: bool,
) -> bool {
    let Rx { inbox, groups, answering, resuming, faults, late } = &mut *rx;
    let mut deferred = DeferredWork::default();
    let (mut shared, mut last) = (Answering::new(), None);
    let mut has_more = true;
    // What was left, unless the program has sent it; and what the socket had no room for.
    answer(device, wire, answering, &mut shared, &mut deferred);
    for _ in 0..ROUNDS {
        // After an error, which an earlier packet has met, the next call is about the next one.
        let is_over = inbox.receive(&wire.port).is_ok_and(|_| !inbox.is_full());
        let mut take = |datagram: &Datagram<'_>| {
            match device.take(wire, datagram, (&mut shared, &mut last), &mut deferred) {
                Heard::Nothing | Heard::Request(_, Owed::Nothing) => {}
                Heard::Request(qpn, Owed::Answer) => note(answering, qpn),
                Heard::Request(qpn, Owed::Nak) => {
                    note(answering, qpn);
                    // All that the peer sends until it has the NAK is sent again.
                    if let Some(qp) = device.qps.get(qpn) {
                        qp.answer_peer(wire, &mut shared, &mut deferred);
                        wire.flush(&mut wire.tx.lock());
                    }
                }
                Heard::Response(qpn) => note(resuming, qpn),
            }
        };
        let mut came = 0;
        for datagram in inbox.datagrams() {
            came += 1;
            if wire.capture.is_some() {
                wire.capture_received(&datagram, wire.port.local());
            }
            match faults {
                None => take(&datagram),
                Some(faults) => faults.strike(late, &datagram, &mut take),
            }
        }
        add(&wire.counts.received, came);
        // Senders go on while this end takes what else has come.
        if !(is_over && may_defer) {
            answer(device, wire, answering, &mut shared, &mut deferred);
        }
        if is_over {
            has_more = !answering.is_empty();
            break;
        }
    }
    let of_groups = (&mut shared, &mut deferred);
    has_more |= take_from_groups(device, wire, groups, (inbox, faults), of_groups);
    for qpn in resuming.drain(..) {
        if let Some(qp) = device.qps.get(qpn) {
            qp.run_wire(&mut qp.sq.lock(), &mut deferred, false);
        }
    }
    drop(rx);
    deferred.run();
    has_more
}

/// Answers peers. Queue pairs that have more to send than one turn allows stay in the list.
fn answer(
    device: &Device,
    wire: &Wire,
    answering: &mut Vec<u32>,
    shared: &mut Answering,
    deferred: &mut DeferredWork,
) {
    answering.retain(|qpn| {
        let qp = device.qps.get(*qpn).filter(|qp| qp.owes_response());
        qp.is_some_and(|qp| qp.answer_peer(wire, shared, deferred))
    });
    wire.flush(&mut wire.tx.lock());
}

fn is_response(opcode: u8) -> bool {
    Opcode::from_u8(opcode).is_some_and(Opcode::is_response)
}

/// What a packet was.
pub(super) enum Heard {
    Nothing,
    Request(u32, Owed),
    Response(u32),
}

/// Notes a queue pair once, mostly: there are few in a batch.
fn note(list: &mut Vec<u32>, qpn: u32) {
    if !list.contains(&qpn) {
        list.push(qpn);
    }
}

impl Device {
    /// Takes one packet; `last` is the queue pair that the packet before was for.
    pub(super) fn take(
        &self,
        wire: &Wire,
        datagram: &Datagram<'_>,
        (shared, last): (&mut Answering, &mut Option<Arc<Qp>>),
        deferred: &mut DeferredWork,
    ) -> Heard {
        let counts = &wire.counts;
        // Relaxed: statistics.
        let count = |which: &core::sync::atomic::AtomicU64| {
            which.fetch_add(1, Ordering::Relaxed);
            Heard::Nothing
        };
        let Some(peek) = codec::peek(datagram.bytes) else { return count(&counts.malformed) };
        // Packets come in runs for the same queue pair.
        if last.as_ref().is_none_or(|last| last.num != peek.dest_qpn) {
            *last = self.qps.get(peek.dest_qpn);
        }
        let Some(qp) = last else {
            if wire.answer_departed(datagram, peek.dest_qpn) {
                return Heard::Nothing;
            }
            return count(&counts.strangers);
        };
        if !qp.hears(datagram) {
            wire.symptoms.note_foreign(datagram.from.ip());
            return count(&counts.strangers);
        }
        if !is_of_partition(peek.pkey) {
            return count(&counts.strangers);
        }
        let flow = Flow::new(datagram.from, wire.port.local());
        if flow.is_none_or(|flow| flow.check(datagram.nth, datagram.bytes).is_err()) {
            return count(&counts.bad_icrc);
        }
        let owed = match codec::parse(datagram.bytes) {
            // Of an unreliable one the lock may be held for long; none has anything to hear.
            Ok(packet) if packet.headers.bth.opcode.is_response() && qp.transport.is_reliable() => {
                qp.hear(&mut qp.sq.lock(), &packet.headers, packet.payload, deferred);
                return Heard::Response(peek.dest_qpn);
            }
            Ok(packet) => qp.serve(&packet, datagram, wire.gid, shared, deferred),
            Err(error) if error.is_invalid_request() && !is_response(peek.opcode) => {
                qp.serve_malformed(peek.psn, shared, deferred)
            }
            Err(_) => return count(&counts.malformed),
        };
        Heard::Request(peek.dest_qpn, owed)
    }
}

impl Qp {
    /// Whether a packet comes from this queue pair's peer, as far as its address says.
    fn hears(&self, datagram: &Datagram<'_>) -> bool {
        let responder = self.responder.lock();
        let Some(wire) = &responder.wire else { return false };
        let is_peer = |path: Path| path.peer.ip() == datagram.from.ip().to_canonical();
        wire.path.is_none_or(is_peer)
    }
}

/// Packets that overtake one that is late, at most.
const OVERTAKE: u64 = 4;

impl PacketFaults {
    /// Has `take` called for what the network lets through: not at all, once, twice, or later. Packets to
    /// one address overtake each other.
    pub(super) fn strike(
        &mut self,
        late: &mut Option<(Late, u32)>,
        datagram: &Datagram<'_>,
        take: &mut impl FnMut(&Datagram<'_>),
    ) {
        let PacketFaults { network, random } = self;
        if random.strikes(network.loss) {
            return;
        }
        if late.is_none() && random.strikes(network.reordering) {
            let &Datagram { from, marks, bytes, nth } = datagram;
            let set_aside = Late { from, marks, bytes: bytes.to_vec(), nth };
            *late = Some((set_aside, 1 + random.below(OVERTAKE) as u32));
            return;
        }
        take(datagram);
        if random.strikes(network.duplication) {
            take(datagram);
        }
        if let Some((Late { from, marks, bytes, nth }, 0)) = late
            .take_if(|(_, left)| core::mem::replace(left, left.saturating_sub(1)) <= 1)
            .map(|(late, _)| (late, 0))
        {
            take(&Datagram { from, marks, bytes: &bytes, nth });
        }
    }
}
