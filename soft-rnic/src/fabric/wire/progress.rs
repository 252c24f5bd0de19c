//! Taking what has come, by threads that poll, and otherwise by a thread of the device.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use roce_core::codec;
use roce_core::headers::DEFAULT_PKEY;
use roce_core::icrc::Flow;
use roce_core::opcode::Opcode;

use crate::deferred_work::DeferredWork;
use crate::lock::Guard;
use crate::objects::span::SpanBuf;
use crate::objects::state::{Device, Qp};
use crate::udp::Datagram;

use super::responder::Answering;
use super::state::{Late, PacketFaults, Path, Rx, Wire};

/// Batches that one look takes before others have their turn.
const ROUNDS: u32 = 4;
/// Looks that a queue pair takes which is reset, at most: as many packets as a socket keeps.
const DRAIN: u32 = 256;
/// How long the device's thread stays away from a device that is polled, and how long it waits for
/// packets before it looks around.
const AWAY: Duration = Duration::from_micros(100);
const WAIT: Duration = Duration::from_secs(1);

/// The first step of a poll.
#[cold]
pub(crate) fn look(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    // Relaxed: a hint for the device's thread; a count that is lost is followed by others.
    let polls = wire.polls.load(Ordering::Relaxed);
    wire.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    // Another thread may be at it.
    if let Some(rx) = wire.rx.try_lock() {
        progress(device, wire, rx);
    }
}

/// What the timer does before a deadline counts: the answer may have come.
#[cold]
pub(crate) fn catch_up(device: &Arc<Device>) {
    if let Some(wire) = device.wire()
        && let Some(rx) = wire.rx.try_lock()
    {
        progress(device, wire, rx);
    }
}

/// What a queue pair that is reset does first: packets that have come for the connection that ends
/// are not for its next one.
#[cold]
pub(crate) fn drain(device: &Arc<Device>) {
    let Some(wire) = device.wire() else { return };
    for _ in 0..DRAIN {
        if !progress(device, wire, wire.rx.lock()) {
            return;
        }
    }
}

/// Takes what has come; whether there may be more to do.
fn progress(device: &Arc<Device>, wire: &Wire, mut rx: Guard<'_, Rx>) -> bool {
    let Rx { inbox, answering, resuming, faults } = &mut *rx;
    let mut deferred = DeferredWork::default();
    // SAFETY: this call owns it, and hands it out to one queue pair at a time.
    let mut shared = Answering { room: unsafe { SpanBuf::new() }, payload: Vec::new() };
    let mut has_more = true;
    for _ in 0..ROUNDS {
        match inbox.receive(&wire.port) {
            Ok(true) => {}
            Ok(false) => {
                has_more = false;
                break;
            }
            // An error that an earlier packet has met: the next call is about the next one.
            Err(_) => continue,
        }
        let mut take =
            |datagram: &Datagram<'_>| match device.take(wire, datagram, &mut shared, &mut deferred)
            {
                Heard::Nothing => {}
                Heard::Request(qpn) => note(answering, qpn),
                Heard::Response(qpn) => note(resuming, qpn),
            };
        for datagram in inbox.datagrams() {
            if wire.capture.is_some() {
                wire.capture_received(&datagram);
            }
            match faults {
                None => take(&datagram),
                Some(faults) => faults.strike(&datagram, &mut take),
            }
        }
    }
    answering.retain(|qpn| {
        let qp = device.qps.get(*qpn);
        qp.is_some_and(|qp| qp.answer_peer(wire, &mut shared, &mut deferred))
    });
    has_more |= !answering.is_empty();
    wire.flush(&mut wire.tx.lock());
    for qpn in resuming.drain(..) {
        if let Some(qp) = device.qps.get(qpn) {
            qp.run_wire(&mut qp.sq.lock(), &mut deferred, false);
        }
    }
    drop(rx);
    deferred.run();
    has_more
}

/// All of a partition key but whether its holder is a full member.
const MEMBERS: u16 = 0x7fff;

fn is_response(opcode: u8) -> bool {
    Opcode::from_u8(opcode).is_some_and(Opcode::is_response)
}

/// What a packet was.
enum Heard {
    Nothing,
    Request(u32),
    Response(u32),
}

/// Notes a queue pair once, mostly: there are few in a batch.
fn note(list: &mut Vec<u32>, qpn: u32) {
    if !list.contains(&qpn) {
        list.push(qpn);
    }
}

impl Device {
    /// Takes one packet.
    fn take(
        &self,
        wire: &Wire,
        datagram: &Datagram<'_>,
        shared: &mut Answering,
        deferred: &mut DeferredWork,
    ) -> Heard {
        let counts = &wire.counts;
        // Relaxed: statistics.
        let count = |which: &core::sync::atomic::AtomicU64| {
            which.fetch_add(1, Ordering::Relaxed);
            Heard::Nothing
        };
        let Some(peek) = codec::peek(datagram.bytes) else { return count(&counts.malformed) };
        let Some(qp) = self.qps.get(peek.dest_qpn) else { return count(&counts.strangers) };
        if !qp.hears(datagram) {
            wire.symptoms.note_foreign(datagram.from.ip());
            return count(&counts.strangers);
        }
        if peek.pkey & MEMBERS != DEFAULT_PKEY & MEMBERS {
            return count(&counts.strangers);
        }
        let flow = Flow::new(datagram.from, wire.port.local());
        if flow.is_none_or(|flow| flow.check(datagram.nth, datagram.bytes).is_err()) {
            return count(&counts.bad_icrc);
        }
        let has_answer = match codec::parse(datagram.bytes) {
            Ok(packet) if packet.headers.bth.opcode.is_response() => {
                qp.hear(&mut qp.sq.lock(), &packet.headers, packet.payload);
                return Heard::Response(peek.dest_qpn);
            }
            Ok(packet) => qp.serve(&packet, datagram, shared, deferred),
            Err(error) if error.is_invalid_request() && !is_response(peek.opcode) => {
                qp.serve_malformed(peek.psn, shared, deferred)
            }
            Err(_) => return count(&counts.malformed),
        };
        if has_answer { Heard::Request(peek.dest_qpn) } else { Heard::Nothing }
    }

    /// Starts the device's thread, once.
    pub(super) fn start_wire_thread(self: &Arc<Device>) {
        let Some(wire) = self.wire() else { return };
        wire.thread.get_or_init(|| {
            let device = Arc::downgrade(self);
            // Without a thread, packets are taken by those that poll.
            let _ = std::thread::Builder::new()
                .name("soft-rnic-wire".into())
                .spawn(move || run(&device));
        });
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
    /// Has `take` called for what the network lets through: not at all, once, twice, or later.
    fn strike(&mut self, datagram: &Datagram<'_>, take: &mut impl FnMut(&Datagram<'_>)) {
        let PacketFaults { network, random, late } = self;
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

/// The device's thread.
fn run(device: &Weak<Device>) {
    let mut seen = 0;
    while let Some(device) = device.upgrade() {
        let Some(wire) = device.wire() else { return };
        // Relaxed: as in `look`.
        let polls = wire.polls.load(Ordering::Relaxed);
        if polls != seen {
            seen = polls;
            std::thread::sleep(AWAY);
            continue;
        }
        let has_more = wire.rx.try_lock().is_some_and(|rx| progress(&device, wire, rx));
        let is_full = !wire.tx.lock().is_empty();
        if is_full || !has_more {
            let _ = wire.port.wait(is_full, WAIT);
        }
    }
}
