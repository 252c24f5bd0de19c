//! The opcodes of the base transport header, and what each says about its packet.

use core::fmt;

use crate::lengths;

/// The service of a queue pair, as the upper three bits of an opcode name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// Permitted lengths of a packet's payload, without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadRule {
    /// There is none.
    Empty,
    /// At most the path MTU; zero is allowed.
    UpToMtu,
    /// At most the path MTU, and at least one byte: what is left of a longer message.
    Rest,
    /// Exactly the path MTU: more follows.
    Mtu,
    /// Eight bytes.
    AtomicWrite,
}

/// Properties of an opcode's packet, one bit each.
const FIRST: u32 = 1 << 0;
const MIDDLE: u32 = 1 << 1;
const LAST: u32 = 1 << 2;
const ONLY: u32 = 1 << 3;
const SEND: u32 = 1 << 4;
const WRITE: u32 = 1 << 5;
const READ_REQUEST: u32 = 1 << 6;
const READ_RESPONSE: u32 = 1 << 7;
const ATOMIC: u32 = 1 << 8;
const ATOMIC_WRITE: u32 = 1 << 9;
const RETH: u32 = 1 << 10;
const AETH: u32 = 1 << 11;
const ATOMIC_ETH: u32 = 1 << 12;
const ATOMIC_ACK_ETH: u32 = 1 << 13;
const DETH: u32 = 1 << 14;
const IMM: u32 = 1 << 15;
const IETH: u32 = 1 << 16;
const CNP: u32 = 1 << 17;

/// Opcodes that ask the responder for something.
const REQUEST: u32 = SEND | WRITE | READ_REQUEST | ATOMIC | ATOMIC_WRITE;
/// Opcodes whose packets may have a payload.
const PAYLOAD: u32 = SEND | WRITE | READ_RESPONSE | ATOMIC_WRITE;

/// Declares the enum, and from the same lines the tables that are indexed by the byte.
macro_rules! opcodes {
    ($($(#[$doc:meta])+ $name:ident = $value:literal, $($flag:ident)|+;)+) => {
        /// The opcode of a packet. Reserved values, RD, XRC and FLUSH have none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])+ $name = $value,)+
        }

        /// Every opcode, in the order of their values.
        pub const ALL: &[Opcode] = &[$(Opcode::$name),+];

        /// The flags of each opcode, by its value.
        static FLAGS: [u32; 256] = {
            let mut flags = [0; 256];
            $(flags[$value] = $($flag)|+;)+
            flags
        };
    };
}

opcodes! {
    /// First packet of a SEND.
    RcSendFirst = 0x00, SEND | FIRST;
    /// A packet of a SEND that is neither its first nor its last.
    RcSendMiddle = 0x01, SEND | MIDDLE;
    /// Last packet of a SEND.
    RcSendLast = 0x02, SEND | LAST;
    /// Last packet of a SEND with immediate.
    RcSendLastImm = 0x03, SEND | LAST | IMM;
    /// A SEND in one packet.
    RcSendOnly = 0x04, SEND | ONLY;
    /// A SEND with immediate in one packet.
    RcSendOnlyImm = 0x05, SEND | ONLY | IMM;
    /// First packet of a WRITE.
    RcWriteFirst = 0x06, WRITE | FIRST | RETH;
    /// A packet of a WRITE that is neither its first nor its last.
    RcWriteMiddle = 0x07, WRITE | MIDDLE;
    /// Last packet of a WRITE.
    RcWriteLast = 0x08, WRITE | LAST;
    /// Last packet of a WRITE with immediate.
    RcWriteLastImm = 0x09, WRITE | LAST | IMM;
    /// A WRITE in one packet.
    RcWriteOnly = 0x0a, WRITE | ONLY | RETH;
    /// A WRITE with immediate in one packet.
    RcWriteOnlyImm = 0x0b, WRITE | ONLY | RETH | IMM;
    /// A READ.
    RcReadRequest = 0x0c, READ_REQUEST | ONLY | RETH;
    /// First packet of what a READ has read.
    RcReadResponseFirst = 0x0d, READ_RESPONSE | FIRST | AETH;
    /// A packet of what a READ has read that is neither the first nor the last.
    RcReadResponseMiddle = 0x0e, READ_RESPONSE | MIDDLE;
    /// Last packet of what a READ has read.
    RcReadResponseLast = 0x0f, READ_RESPONSE | LAST | AETH;
    /// All that a READ has read. It also answers an ATOMIC WRITE, without payload.
    RcReadResponseOnly = 0x10, READ_RESPONSE | ONLY | AETH;
    /// An acknowledgement, or a NAK.
    RcAck = 0x11, ONLY | AETH;
    /// An acknowledgement with the value that an atomic has found.
    RcAtomicAck = 0x12, ONLY | AETH | ATOMIC_ACK_ETH;
    /// Compare and swap.
    RcCmpSwap = 0x13, ATOMIC | ONLY | ATOMIC_ETH;
    /// Fetch and add.
    RcFetchAdd = 0x14, ATOMIC | ONLY | ATOMIC_ETH;
    /// Last packet of a SEND with invalidate.
    RcSendLastInv = 0x16, SEND | LAST | IETH;
    /// A SEND with invalidate in one packet.
    RcSendOnlyInv = 0x17, SEND | ONLY | IETH;
    /// ATOMIC WRITE: eight bytes.
    RcAtomicWrite = 0x1d, ATOMIC_WRITE | ONLY | RETH;
    /// First packet of a SEND.
    UcSendFirst = 0x20, SEND | FIRST;
    /// A packet of a SEND that is neither its first nor its last.
    UcSendMiddle = 0x21, SEND | MIDDLE;
    /// Last packet of a SEND.
    UcSendLast = 0x22, SEND | LAST;
    /// Last packet of a SEND with immediate.
    UcSendLastImm = 0x23, SEND | LAST | IMM;
    /// A SEND in one packet.
    UcSendOnly = 0x24, SEND | ONLY;
    /// A SEND with immediate in one packet.
    UcSendOnlyImm = 0x25, SEND | ONLY | IMM;
    /// First packet of a WRITE.
    UcWriteFirst = 0x26, WRITE | FIRST | RETH;
    /// A packet of a WRITE that is neither its first nor its last.
    UcWriteMiddle = 0x27, WRITE | MIDDLE;
    /// Last packet of a WRITE.
    UcWriteLast = 0x28, WRITE | LAST;
    /// Last packet of a WRITE with immediate.
    UcWriteLastImm = 0x29, WRITE | LAST | IMM;
    /// A WRITE in one packet.
    UcWriteOnly = 0x2a, WRITE | ONLY | RETH;
    /// A WRITE with immediate in one packet.
    UcWriteOnlyImm = 0x2b, WRITE | ONLY | RETH | IMM;
    /// A datagram.
    UdSendOnly = 0x64, SEND | ONLY | DETH;
    /// A datagram with immediate.
    UdSendOnlyImm = 0x65, SEND | ONLY | DETH | IMM;
    /// A congestion notification: packets of this queue pair met congestion.
    Cnp = 0x81, ONLY | CNP;
}

/// The opcodes by their value.
static BY_VALUE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut at = 0;
    while at < ALL.len() {
        table[ALL[at] as usize] = Some(ALL[at]);
        at += 1;
    }
    table
};

/// On the wire.
impl Opcode {
    /// The opcode with a value, if there is one.
    #[inline]
    pub fn from_u8(value: u8) -> Option<Self> {
        BY_VALUE[usize::from(value)]
    }

    /// Its value.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// The service that it belongs to; a congestion notification belongs to none.
    #[inline]
    pub fn transport(self) -> Option<Transport> {
        transport_of(self.to_u8())
    }

    /// The bytes of all headers of its packets, with the reserved ones of a congestion
    /// notification: at most [`MAX_HEADERS`](lengths::MAX_HEADERS).
    #[inline]
    pub fn header_len(self) -> usize {
        usize::from(HEADER_LEN[usize::from(self.to_u8())])
    }

    /// Returns the rule for the length of the payload.
    #[inline]
    pub fn payload_rule(self) -> PayloadRule {
        match () {
            () if !self.has_any(PAYLOAD) => PayloadRule::Empty,
            () if self.has_any(ATOMIC_WRITE) => PayloadRule::AtomicWrite,
            () if self.has_any(ONLY) => PayloadRule::UpToMtu,
            () if self.has_any(LAST) => PayloadRule::Rest,
            () => PayloadRule::Mtu,
        }
    }

    #[inline]
    fn has_any(self, flags: u32) -> bool {
        FLAGS[usize::from(self.to_u8())] & flags != 0
    }
}

/// The service that a byte names by its upper bits, whether or not the opcode is known: a
/// responder of RC answers unknown requests, those of UC and UD drop them.
#[inline]
pub const fn transport_of(value: u8) -> Option<Transport> {
    match value >> 5 {
        0 => Some(Transport::Rc),
        1 => Some(Transport::Uc),
        3 => Some(Transport::Ud),
        _ => None,
    }
}

/// Bytes of all headers, by the opcode's value.
static HEADER_LEN: [u8; 256] = {
    let mut lens = [0; 256];
    let mut at = 0;
    while at < ALL.len() {
        let value = ALL[at] as usize;
        lens[value] = header_len(FLAGS[value]);
        at += 1;
    }
    lens
};

const fn header_len(flags: u32) -> u8 {
    let sizes = [
        (RETH, lengths::RETH),
        (AETH, lengths::AETH),
        (ATOMIC_ETH, lengths::ATOMIC_ETH),
        (ATOMIC_ACK_ETH, lengths::ATOMIC_ACK_ETH),
        (DETH, lengths::DETH),
        (IMM, lengths::IMM_DT),
        (IETH, lengths::IETH),
        (CNP, lengths::CNP_RESERVED),
    ];
    let mut len = lengths::BTH;
    let mut at = 0;
    while at < sizes.len() {
        if flags & sizes[at].0 != 0 {
            len += sizes[at].1;
        }
        at += 1;
    }
    len as u8
}

/// Declares predicates, each true for opcodes with one of its flags.
macro_rules! predicates {
    ($(#[$group:meta])+ impl Opcode { $($(#[$doc:meta])+ $name:ident = $($flag:ident)|+;)+ }) => {
        $(#[$group])+
        impl Opcode {
            $(
                $(#[$doc])+
                #[inline]
                pub fn $name(self) -> bool {
                    self.has_any($($flag)|+)
                }
            )+
        }
    };
}

predicates! {
    /// Position of a packet in its message.
    impl Opcode {
        /// The first of several.
        is_first = FIRST;
        /// Neither the first nor the last.
        is_middle = MIDDLE;
        /// The last of several.
        is_last = LAST;
        /// A message in one packet.
        is_only = ONLY;
        /// A message begins with this packet.
        starts_message = FIRST | ONLY;
        /// A message ends with this packet.
        ends_message = LAST | ONLY;
    }
}

predicates! {
    /// Purpose of a packet.
    impl Opcode {
        /// A request, as the responder gets it.
        is_request = REQUEST;
        /// An answer, as the requester gets it.
        is_response = READ_RESPONSE | AETH;
        /// A packet of a SEND.
        is_send = SEND;
        /// A packet of a WRITE; an ATOMIC WRITE is none.
        is_write = WRITE;
        /// A READ's request.
        is_read_request = READ_REQUEST;
        /// A packet of what a READ has read.
        is_read_response = READ_RESPONSE;
        /// Compare and swap, or fetch and add.
        is_atomic = ATOMIC;
        /// A request that is answered by a response of its own, which the responder remembers.
        has_response = READ_REQUEST | ATOMIC | ATOMIC_WRITE;
        /// An ATOMIC WRITE.
        is_atomic_write = ATOMIC_WRITE;
    }
}

predicates! {
    /// Headers that follow the base transport header.
    impl Opcode {
        /// An address, a key and a length of remote memory.
        has_reth = RETH;
        /// A syndrome and a message sequence number.
        has_aeth = AETH;
        /// The operands of an atomic.
        has_atomic_eth = ATOMIC_ETH;
        /// The value that an atomic has found.
        has_atomic_ack_eth = ATOMIC_ACK_ETH;
        /// The Q_Key and the source of a datagram.
        has_deth = DETH;
        /// An immediate.
        has_imm = IMM;
        /// A key to invalidate.
        has_ieth = IETH;
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} ({:#04x})", self.to_u8())
    }
}

#[cfg(test)]
mod tests;
