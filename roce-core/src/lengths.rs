//! Lengths of the parts of a packet, in bytes.

/// Base transport header.
pub const BTH: usize = 12;
/// Datagram extended transport header.
pub const DETH: usize = 8;
/// RDMA extended transport header.
pub const RETH: usize = 16;
/// Atomic extended transport header.
pub const ATOMIC_ETH: usize = 28;
/// Acknowledge extended transport header.
pub const AETH: usize = 4;
/// Atomic acknowledge extended transport header.
pub const ATOMIC_ACK_ETH: usize = 8;
/// Immediate data.
pub const IMM_DT: usize = 4;
/// Invalidate extended transport header.
pub const IETH: usize = 4;
/// Reserved bytes behind the base transport header of a congestion notification.
pub const CNP_RESERVED: usize = 16;
/// All headers of an atomic, which has the most.
pub const MAX_HEADERS: usize = BTH + ATOMIC_ETH;

/// The path MTUs: bytes of payload in a packet that more of its message follow.
pub const PATH_MTUS: [usize; 5] = [256, 512, 1024, 2048, 4096];
/// The longest payload.
pub const MAX_PAYLOAD: usize = PATH_MTUS[PATH_MTUS.len() - 1];
/// The payload of an ATOMIC WRITE, always.
pub const ATOMIC_WRITE: usize = 8;
/// Invariant CRC, at the end of every packet.
pub const ICRC: usize = 4;
/// The shortest packet: a SEND of no bytes.
pub const MIN_PACKET: usize = BTH + ICRC;
/// No packet is longer.
pub const MAX_PACKET: usize = MAX_HEADERS + MAX_PAYLOAD + ICRC;

/// The padding behind a payload: packets are of whole words of four bytes.
#[inline]
pub const fn padding_of(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() % 4) as u8
}

/// The largest number of a queue pair, and the largest sequence number.
pub(crate) const BITS_24: u32 = 0xff_ffff;
