//! The transport headers of a packet, as values.
//!
//! The order on the wire is that of the fields of [`Headers`]. Numbers are in host order here, and
//! in network order there.

use crate::opcode::Opcode;
use crate::psn::Psn;

/// The transport header version, the only one there is.
pub const TVER: u8 = 0;
/// The P_Key of full members of the default partition.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Credit code of an AETH in which the responder says nothing about credits.
pub const NO_CREDITS: u8 = 0x1f;

/// Base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Operation of the packet, which determines the headers that follow.
    pub opcode: Opcode,
    /// The receiver's completion is a solicited event.
    pub solicited: bool,
    /// Path migration state: sent as 1, ignored on receipt.
    pub mig_req: bool,
    /// Bytes behind the payload that fill it up to a multiple of four: 0 to 3.
    pub pad: u8,
    /// Transport header version: [`TVER`] in every packet that is accepted.
    pub tver: u8,
    /// Partition key.
    pub pkey: u16,
    /// The packet met congestion. (RoCE v2 says so in the IP header.)
    pub fecn: bool,
    /// Packets of the other direction met congestion: set in a congestion notification.
    pub becn: bool,
    /// The queue pair that the packet is for, 24 bits.
    pub dest_qpn: u32,
    /// The responder is to acknowledge.
    pub ack_req: bool,
    /// The packet's number: of a response, the number of the request packet that it answers.
    pub psn: Psn,
}

impl Bth {
    /// A header with the default partition key, and without flags and padding.
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: true,
            pad: 0,
            tver: TVER,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_req: false,
            psn,
        }
    }
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Has to be the Q_Key of the receiving queue pair.
    pub qkey: u32,
    /// The queue pair that has sent the datagram, 24 bits.
    pub src_qpn: u32,
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address at which the memory begins, as the peer named it.
    pub va: u64,
    /// The key of its region.
    pub rkey: u32,
    /// Bytes of the whole message, not of this packet.
    pub len: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address of the eight bytes.
    pub va: u64,
    /// The key of their region.
    pub rkey: u32,
    /// Value that a compare and swap stores, or that a fetch and add adds.
    pub swap_add: u64,
    /// Value that a compare and swap compares with the memory.
    pub compare: u64,
}

/// Answer of a responder to the requests up to a packet sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// They are done.
    Ack {
        /// Receives that the responder has posted, coded in 5 bits: [`NO_CREDITS`] says nothing.
        credits: u8,
    },
    /// The request with this number meets no posted receive: try again after a while.
    RnrNak {
        /// After how long.
        timer: RnrTimer,
    },
    /// The request with this number failed, or one before it did not arrive.
    Nak(NakCode),
}

/// Reason for which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A request before this one did not arrive.
    PsnSequenceError = 0,
    /// The request is one that the responder does not support, or is malformed.
    InvalidRequest = 1,
    /// The key, the range or the permission of remote memory is wrong.
    RemoteAccessError = 2,
    /// The responder could not complete it.
    RemoteOperationalError = 3,
    /// An error of reliable datagrams, which are not supported here.
    InvalidRdRequest = 4,
}

impl NakCode {
    const ALL: [Self; 5] = [
        Self::PsnSequenceError,
        Self::InvalidRequest,
        Self::RemoteAccessError,
        Self::RemoteOperationalError,
        Self::InvalidRdRequest,
    ];
}

impl Syndrome {
    /// An acknowledgement that says nothing about credits.
    pub const ACK: Self = Self::Ack { credits: NO_CREDITS };

    /// The syndrome with a value, if it is none of the reserved ones.
    pub fn from_u8(value: u8) -> Option<Self> {
        let low = value & 0x1f;
        match value >> 5 {
            0 => Some(Self::Ack { credits: low }),
            1 => RnrTimer::new(low).map(|timer| Self::RnrNak { timer }),
            3 => NakCode::ALL.get(usize::from(low)).map(|&code| Self::Nak(code)),
            _ => None,
        }
    }

    /// Its value; of `credits`, the low 5 bits.
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak { timer } => 1 << 5 | timer.code(),
            Self::Nak(code) => 3 << 5 | code as u8,
        }
    }
}

/// Time that a requester waits before it repeats a request that met no posted receive: the 5-bit
/// code of `min_rnr_timer`.
///
/// ```
/// use roce_core::headers::RnrTimer;
///
/// assert_eq!(RnrTimer::new(12).map(RnrTimer::ns), Some(640_000));
/// assert_eq!(RnrTimer::at_least_ns(500_000), RnrTimer::new(12));
/// assert_eq!(RnrTimer::new(32), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

/// The times of the codes, in units of 10 µs. Code 0 is the longest.
const RNR_10US: [u64; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

impl RnrTimer {
    /// The timer with a code below 32.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The shortest timer that is not shorter than this time, if there is one.
    pub fn at_least_ns(ns: u64) -> Option<Self> {
        (1..32).chain([0]).map(Self).find(|timer| timer.ns() >= ns)
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time that it stands for.
    pub const fn ns(self) -> u64 {
        RNR_10US[self.0 as usize] * 10_000
    }
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Result of the requests: ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, 24 bits that wrap.
    pub msn: u32,
}

/// Atomic acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// Value of the memory before the atomic.
    pub original: u64,
}

/// Immediate data. A verbs program sees its four bytes in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt(pub u32);

/// Invalidate extended transport header: the key that the receiver invalidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// The key.
    pub rkey: u32,
}

/// Everything that precedes the payload. The opcode says which of the others are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// In every packet.
    pub bth: Bth,
    /// In datagrams.
    pub deth: Option<Deth>,
    /// In the first packet of a WRITE, in READs and ATOMIC WRITEs.
    pub reth: Option<Reth>,
    /// In atomics.
    pub atomic: Option<AtomicEth>,
    /// In acknowledgements, and in all responses to READs but middle ones.
    pub aeth: Option<Aeth>,
    /// In the acknowledgement of an atomic.
    pub atomic_ack: Option<AtomicAckEth>,
    /// In the last packet of a message with immediate.
    pub imm: Option<ImmDt>,
    /// In the last packet of a SEND with invalidate.
    pub ieth: Option<Ieth>,
}

impl Headers {
    /// Only a base transport header; the caller adds what its opcode needs.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
        }
    }
}

#[cfg(test)]
mod tests;
