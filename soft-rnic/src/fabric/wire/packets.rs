//! Packets on their way out, and what received ones have in common with them.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use roce_core::codec;
use roce_core::headers::{DEFAULT_PKEY, Headers};
use roce_core::icrc::{Checked, Flow, Icrc};
use roce_core::lengths::{BTH, ICRC, MAX_HEADERS, MAX_PACKET};

use super::handover::is_handed_over;
use crate::clock;
use crate::lock::Guard;
use crate::objects::cq::CqWriter;
use crate::peers::process::directory::slot_of;
use crate::peers::wire::state::{PacketPath, RoceWire};
use crate::udp::{Captured, PacketOutbox, ReceivedDatagram, UdpPort};

/// Packets that a connection has in flight at least, before it sends more, where its last run is
/// held back until it is full. A program that posts one message after the other has each of them
/// sent with fewer calls: a message of 64 KiB has one packet more than a run. The run goes at the
/// latest with the second poll that finds it, when a completion queue is armed, or when the
/// device's thread looks.
pub(super) const HOLDS_FROM: u64 = 16;
/// Times that a thread waits for room to send, and how long, before what nothing sends again is
/// lost.
const WAITS: u32 = 10;
const A_WAIT: Duration = Duration::from_millis(1);

impl RoceWire {
    /// Puts a packet into the outbox. `fill` writes the payload; it is given the CRC-32 before the
    /// payload, and says that behind it. The packet is lost if there is no room although what was
    /// there has been sent.
    pub(super) fn put<E>(
        &self,
        tx: &mut PacketOutbox,
        path: &PacketPath,
        (headers, len): (&Headers, usize),
        fill: impl FnOnce(&mut [u8], u32) -> Result<u32, E>,
    ) -> Result<(), E> {
        let mut bytes = [0; MAX_HEADERS];
        // The machines make no headers that cannot be written.
        let Ok(before) = codec::write(headers, &mut bytes) else { return Ok(()) };
        let total = before + len + usize::from(headers.bth.pad) + ICRC;
        tx.choose_source(path.source);
        tx.choose_place(slot_of(headers.bth.dest_qpn));
        if !tx.has_room(path.peer, path.marks, total) {
            self.flush(tx);
        }
        let Some((nth, packet)) = tx.push(path.peer, path.marks, total) else { return Ok(()) };
        let (start, rest) = packet.split_at_mut(before);
        let (payload, end) = rest.split_at_mut(len);
        start.copy_from_slice(&bytes[..before]);
        let begun = bytes.first_chunk().map(|bth| Icrc::new(&path.flow, nth, total, bth));
        // The machines make no packets of a wrong length.
        let Some(Ok(mut icrc)) = begun else {
            tx.withdraw();
            return Ok(());
        };
        icrc.update(&bytes[BTH..before]);
        if let Err(error) = icrc.update_by(|crc| fill(payload, crc)) {
            tx.withdraw();
            return Err(error);
        }
        let (padding, place) = end.split_at_mut(headers.bth.pad.into());
        padding.fill(0);
        icrc.update(padding);
        place.copy_from_slice(&icrc.finish());
        if let Some(capture) = &self.capture {
            let (from, to, marks) = (self.source(path.source), path.peer, path.marks);
            capture.record(&Captured { from, to, marks, id: (nth, true), bytes: packet });
        }
        Ok(())
    }

    /// Captures a received packet, if that was asked for: with the identification that its
    /// ICRC fits.
    pub(super) fn capture_received(&self, datagram: &ReceivedDatagram<'_>, to: SocketAddr) {
        let Some(capture) = &self.capture else { return };
        let &ReceivedDatagram { from, marks, bytes, nth, .. } = datagram;
        let checked = Flow::new(from, to).and_then(|flow| flow.check(nth, bytes).ok());
        let id = match checked {
            Some(Checked::V4 { id, dont_fragment }) => (id, dont_fragment),
            Some(Checked::V6) | None => (0, true),
        };
        capture.record(&Captured { from, to, marks, id, bytes });
    }

    /// Reports whether there is room for a packet to `path`, if what is in the outbox is sent.
    pub(super) fn has_room(&self, path: &PacketPath) -> bool {
        let mut tx = self.tx.lock();
        let has_room = |tx: &PacketOutbox| tx.has_room(path.peer, path.marks, MAX_PACKET);
        if !has_room(&tx) {
            self.flush(&mut tx);
        }
        has_room(&tx)
    }

    /// Sends a packet without a payload, behind what is in the outbox.
    pub(super) fn send_now(&self, path: &PacketPath, headers: &Headers) {
        let mut tx = self.tx.lock();
        let nothing = |_: &mut [u8], crc| Ok::<u32, core::convert::Infallible>(crc);
        let Ok(()) = self.put(&mut tx, path, (headers, 0), nothing);
        self.flush(&mut tx);
    }

    /// The same, of an answer that the peer waits for.
    pub(super) fn say(&self, path: &PacketPath, headers: &Headers) {
        self.send_now(path, headers);
        // Relaxed: of one of those that answer at once.
        self.answered_ns.store(clock::now(), Ordering::Relaxed);
    }

    /// The outbox for a packet that nothing sends again: with room for it, once the socket has
    /// some, if that is soon. No other lock is held meanwhile but that of a send queue: `writer`
    /// lets go of its.
    pub(super) fn make_room<'w>(
        &'w self,
        tx: Guard<'w, PacketOutbox>,
        writer: &mut CqWriter<'_>,
    ) -> Guard<'w, PacketOutbox> {
        let has_room = |tx: &PacketOutbox| tx.has_room_for_any(MAX_PACKET);
        if has_room(&tx) {
            return tx;
        }
        drop(tx);
        writer.release();
        self.flush_until(has_room);
        self.tx.lock()
    }

    /// Sends what is in the outbox until that is enough; where the socket is full, this thread
    /// waits for it, unless one has waited before without success. Returns true if it is enough.
    pub(super) fn flush_until(&self, is_enough: impl Fn(&PacketOutbox) -> bool) -> bool {
        let mut waits = 0..WAITS;
        loop {
            let full = {
                let mut tx = self.tx.lock();
                self.flush(&mut tx);
                if is_enough(&tx) {
                    return true;
                }
                // Relaxed: it is written under the lock.
                if self.is_stuck.load(Ordering::Relaxed) || waits.next().is_none() {
                    self.is_stuck.store(true, Ordering::Relaxed);
                    return false;
                }
                self.full_port(&tx)
            };
            let _ = full.unwrap_or(&self.port).wait_for_room(A_WAIT);
        }
    }

    /// The port that what is in the outbox waits for.
    pub(super) fn full_port(&self, tx: &PacketOutbox) -> Option<&UdpPort> {
        tx.first_source(&self.port, self.send_ports.others())
    }

    /// Sends what is in the outbox, as far as the socket has room. What the system refuses is lost.
    pub(super) fn flush(&self, tx: &mut PacketOutbox) {
        tx.release();
        self.send_due(tx);
    }

    /// The same, but holds a run back that more packets can join: see [`HOLDS_FROM`].
    pub(super) fn flush_full(&self, tx: &mut PacketOutbox) {
        tx.hold();
        self.send_due(tx);
    }

    fn send_due(&self, tx: &mut PacketOutbox) {
        while tx.has_due() {
            match tx.send_from(&self.port, self.send_ports.others(), renumber) {
                Ok(0) => return,
                Ok(n) => {
                    add(&self.counts.sent, n as u64);
                    // Relaxed: it is written under the lock. (Most find it clear.)
                    if self.is_stuck.load(Ordering::Relaxed) {
                        self.is_stuck.store(false, Ordering::Relaxed);
                    }
                }
                Err(error) => self.symptoms.note_refused(error),
            }
        }
    }
}

/// A packet is sent alone that was made for its place in a run: it has identification 0.
#[cold]
pub(super) fn renumber(from: SocketAddr, to: SocketAddr, packet: &mut [u8]) {
    // The ICRC of one that is handed over is of its way here.
    if is_handed_over(packet) {
        return;
    }
    if let Some(flow) = Flow::new(from, to) {
        // It had a proper length before.
        let _ = flow.seal(0, packet);
    }
}

/// Adds to a count whose writers hold a lock.
pub(super) fn add(count: &AtomicU64, n: u64) {
    // Relaxed: a statistic.
    count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// All of a partition key but whether its holder is a full member.
const MEMBERS: u16 = 0x7fff;

/// Reports whether a packet with this key is of the partition that all are members of.
pub(super) fn is_of_partition(pkey: u16) -> bool {
    pkey & MEMBERS == DEFAULT_PKEY & MEMBERS
}
