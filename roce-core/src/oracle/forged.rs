//! Packets that no peer has sent.

use arbitrary::Arbitrary;

use super::host::{BASE, RKEY};
use crate::headers::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Headers, Ieth, ImmDt, NakCode, Reth, RnrTimer, Syndrome,
};
use crate::opcode;
use crate::psn::Psn;

/// A packet with arbitrary headers. Numbers are near those that mean something.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Forged {
    /// Its opcode, as a place in the list of all.
    pub opcode: u8,
    /// Distance of its number from the one that the receiver waits for.
    pub ahead: i8,
    /// Value of its syndrome.
    pub syndrome: u8,
    /// Bytes of its payload.
    pub payload: u16,
    /// Bytes that a RETH names.
    pub length: u32,
    /// Offset from the memory's beginning.
    pub offset: u16,
    /// Its key is that of the memory, it asks for an acknowledgement, it has the headers of its
    /// opcode only, it has met congestion, and it says so of the other direction (BECN): one bit
    /// each.
    pub flags: u8,
}

impl Forged {
    /// Its headers, if `expected` is the number that the receiver waits for.
    pub(super) fn headers(&self, expected: Psn) -> Headers {
        let opcode = opcode::ALL[usize::from(self.opcode) % opcode::ALL.len()];
        let psn = Psn::new(expected.get().wrapping_add_signed(self.ahead.into()));
        let (ack_req, becn) = (self.flags & 2 != 0, self.flags & 16 != 0);
        let bth = Bth { ack_req, becn, ..Bth::new(opcode, 1, psn) };
        let (va, rkey) = (BASE.wrapping_add(self.offset.into()), RKEY ^ u32::from(self.flags & 1));
        let keeps = |has: bool| has || self.flags & 4 != 0;
        let aeth = Aeth { syndrome: self.syndrome(), msn: self.length & 0xff_ffff };
        let atomic = AtomicEth { va, rkey, swap_add: 3, compare: 0 };
        Headers {
            reth: keeps(opcode.has_reth()).then_some(Reth { va, rkey, len: self.length }),
            atomic: keeps(opcode.has_atomic_eth()).then_some(atomic),
            aeth: keeps(opcode.has_aeth()).then_some(aeth),
            atomic_ack: keeps(opcode.has_atomic_ack_eth()).then_some(AtomicAckEth { original: 7 }),
            imm: keeps(opcode.has_imm()).then_some(ImmDt(9)),
            ieth: keeps(opcode.has_ieth()).then_some(Ieth { rkey: self.length }),
            ..Headers::new(bth)
        }
    }

    pub(super) fn is_marked(&self) -> bool {
        self.flags & 8 != 0
    }

    fn syndrome(&self) -> Syndrome {
        let timer = RnrTimer::new(self.syndrome & 31).expect("five bits");
        match self.syndrome >> 5 {
            0..3 => Syndrome::ACK,
            3 | 4 => Syndrome::RnrNak { timer },
            5 | 6 => Syndrome::Nak(NakCode::PsnSequenceError),
            _ => Syndrome::Nak(match self.syndrome & 3 {
                0 => NakCode::InvalidRequest,
                1 => NakCode::RemoteAccessError,
                2 => NakCode::RemoteOperationalError,
                _ => NakCode::InvalidRdRequest,
            }),
        }
    }
}
