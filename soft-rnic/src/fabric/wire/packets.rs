//! Packets on their way out.

use roce_core::codec;
use roce_core::headers::Headers;
use roce_core::lengths::{ICRC, MAX_HEADERS, MAX_PACKET};

use super::state::{Path, Wire};
use crate::fabric::process::directory::slot_of;
use crate::udp::Outbox;

impl Wire {
    /// Puts a packet into the outbox, whose payload `fill` writes. It is lost if there is no room
    /// although what was there has been sent.
    pub(super) fn put<E>(
        &self,
        tx: &mut Outbox,
        path: &Path,
        (headers, len): (&Headers, usize),
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bytes = [0; MAX_HEADERS];
        // The machines make no headers that cannot be written.
        let Ok(before) = codec::write(headers, &mut bytes) else { return Ok(()) };
        let total = before + len + usize::from(headers.bth.pad) + ICRC;
        tx.choose_place(slot_of(headers.bth.dest_qpn));
        if !tx.has_room(path.peer, path.marks, total) {
            self.flush(tx);
        }
        let Some((nth, packet)) = tx.push(path.peer, path.marks, total) else { return Ok(()) };
        packet[..before].copy_from_slice(&bytes[..before]);
        // Padding, and the place of the checksum.
        packet[before + len..].fill(0);
        let filled = fill(&mut packet[before..before + len]);
        match &filled {
            // The machines make no packets of a wrong length.
            Ok(()) => _ = path.flow.seal(nth, packet),
            Err(_) => tx.withdraw(),
        }
        filled
    }

    /// Whether there is room for a packet to `path`, if what is in the outbox is sent.
    pub(super) fn has_room(&self, path: &Path) -> bool {
        let mut tx = self.tx.lock();
        let has_room = |tx: &Outbox| tx.has_room(path.peer, path.marks, MAX_PACKET);
        if !has_room(&tx) {
            self.flush(&mut tx);
        }
        has_room(&tx)
    }

    /// Sends what is in the outbox, as far as the socket has room. What the system refuses is lost.
    pub(super) fn flush(&self, tx: &mut Outbox) {
        while !tx.is_empty() && tx.send(&self.port) != Ok(0) {}
    }
}
