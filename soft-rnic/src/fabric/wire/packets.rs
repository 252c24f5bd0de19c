//! Packets on their way out.

use roce_core::codec;
use roce_core::headers::Headers;
use roce_core::lengths::{ICRC, MAX_HEADERS};

use super::state::{Path, Wire};
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
        if !tx.has_room(path.peer, path.marks, total) {
            self.flush(tx);
        }
        let Some((nth, packet)) = tx.push(path.peer, path.marks, total) else { return Ok(()) };
        packet[..before].copy_from_slice(&bytes[..before]);
        let filled = fill(&mut packet[before..before + len]);
        // A packet that was not filled goes without a seal: the peer drops it.
        if filled.is_ok() {
            let _ = path.flow.seal(nth, packet);
        }
        filled
    }

    /// Sends what is in the outbox, as far as the socket has room. What the system refuses is lost.
    pub(super) fn flush(&self, tx: &mut Outbox) {
        while !tx.is_empty() && tx.send(&self.port) != Ok(0) {}
    }
}
