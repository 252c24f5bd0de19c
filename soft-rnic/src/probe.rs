//! Packets that try a path, for `rdma-conn doctor`: each is a datagram of RoCE v2 for a queue pair
//! that no device gives out, so that any program on the port there drops it, and all that is
//! between the ends treats it as packets of connections.
//!
//! ```text
//!   BTH, DETH | magic | kind | intact | port | sequence | address | four words | zeroes | ICRC
//! ```
//!
//! An echo is answered by a reply of the same length, which has the echo's source, and
//! whether its ICRC fitted: that is how address translation shows.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use roce_core::codec;
use roce_core::headers::{Bth, Deth, Headers};
use roce_core::icrc::Flow;
use roce_core::lengths::{self, ICRC, MAX_HEADERS, padding_of};
use roce_core::opcode::Opcode;
use roce_core::psn::Psn;

use crate::udp::{Marks, PacketOutbox, ReceivedDatagram};

/// The queue pair and the key that probes name.
const QPN: u32 = 0xff_d0c7;
const QKEY: u32 = 0x8000_d0c7;
const MAGIC: [u8; 8] = *b"rc-probe";
/// Bytes of the fields.
const FIELDS: usize = 48;
const HEADERS: usize = lengths::BTH + lengths::DETH;

/// Bytes of the shortest probe.
pub const SHORTEST: usize = HEADERS + FIELDS + ICRC;

/// Bytes of the longest packet that a connection with this path MTU sends.
#[must_use]
pub const fn longest(path_mtu: usize) -> usize {
    path_mtu + MAX_HEADERS + ICRC
}

/// Kind of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// To be answered.
    Echo,
    /// The answer.
    Reply,
    /// The sender has made queue pairs, which the words name.
    Join,
    /// The sender has done.
    Done,
}

/// A probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Kind of the probe.
    pub kind: ProbeKind,
    /// Its number.
    pub sequence: u32,
    /// In a reply, the source address of the echo; in others, the sender's own address.
    pub addr: SocketAddr,
    /// In a reply, true if the ICRC of the echo fitted.
    pub is_intact: bool,
    /// Numbers of queue pairs.
    pub words: [u32; 4],
}

impl Probe {
    /// Puts it into an outbox as a packet of `len` bytes from `from`, at least [`SHORTEST`];
    /// returns true if there was room, and it has a length that packets have.
    pub fn push(
        &self,
        outbox: &mut PacketOutbox,
        from: SocketAddr,
        to: SocketAddr,
        len: usize,
    ) -> bool {
        let Some(flow) = Flow::new(from, to) else { return false };
        let Some((headers, fields)) = self.encode(len) else { return false };
        let Some((nth, packet)) = outbox.push(to, Marks::default(), len) else { return false };
        packet[..HEADERS].copy_from_slice(&headers[..HEADERS]);
        packet[HEADERS..][..FIELDS].copy_from_slice(&fields);
        packet[HEADERS + FIELDS..].fill(0);
        let is_sealed = flow.seal(nth, packet).is_ok();
        if !is_sealed {
            outbox.withdraw();
        }
        is_sealed
    }

    fn encode(&self, len: usize) -> Option<([u8; MAX_HEADERS], [u8; FIELDS])> {
        let payload = len.checked_sub(HEADERS + ICRC).filter(|len| *len >= FIELDS)?;
        let bth = Bth::new(Opcode::UdSendOnly, QPN, Psn::new(self.sequence & 0xff_ffff));
        let mut headers = Headers::new(Bth { pad: padding_of(payload), ..bth });
        headers.deth = Some(Deth { qkey: QKEY, src_qpn: QPN });
        let mut bytes = [0; MAX_HEADERS];
        codec::write(&headers, &mut bytes).ok()?;
        let mut fields = [0; FIELDS];
        fields[..8].copy_from_slice(&MAGIC);
        (fields[8], fields[9]) = (self.kind as u8, self.is_intact.into());
        fields[10..12].copy_from_slice(&self.addr.port().to_be_bytes());
        fields[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        let ip = match self.addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        fields[16..32].copy_from_slice(&ip.octets());
        for (to, word) in fields[32..].chunks_exact_mut(4).zip(self.words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        Some((bytes, fields))
    }

    /// The probe in a datagram, if it is one, and whether its ICRC fits: one that was translated is
    /// read all the same.
    #[must_use]
    pub fn read(datagram: &ReceivedDatagram<'_>, local: SocketAddr) -> Option<(Probe, bool)> {
        let packet = datagram.bytes;
        let peek = codec::peek(packet)?;
        if packet.len() < SHORTEST || peek.dest_qpn != QPN {
            return None;
        }
        let fields: &[u8; FIELDS] = packet.get(HEADERS..)?.first_chunk()?;
        let word = |at: usize| {
            fields
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u32::from_be_bytes)
        };
        let kind = match fields[8] {
            0 => ProbeKind::Echo,
            1 => ProbeKind::Reply,
            2 => ProbeKind::Join,
            3 => ProbeKind::Done,
            _ => return None,
        };
        let ip: [u8; 16] = *fields[16..].first_chunk()?;
        let addr = SocketAddr::new(
            IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(),
            u16::from_be_bytes([fields[10], fields[11]]),
        );
        let words = [32, 36, 40, 44].map(word);
        let probe = Probe { kind, sequence: word(12), addr, is_intact: fields[9] == 1, words };
        let flow = Flow::new(datagram.from, local);
        let fits = flow.is_some_and(|flow| flow.check(datagram.nth, packet).is_ok());
        (fields[..8] == MAGIC).then_some((probe, fits))
    }
}

#[cfg(test)]
mod tests;
