//! Extended headers, those behind the base transport header, in both directions.

use core::mem;

use super::error::ParseError;
use crate::headers::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Headers, Ieth, ImmDt, Reth, Syndrome,
};
use crate::lengths::{BITS_24, CNP_RESERVED};
use crate::opcode::Opcode;

/// A header behind the base transport header.
trait Extended: Sized {
    fn read(reader: &mut HeaderReader<'_>) -> Result<Self, ParseError>;

    /// `None` if there is no room.
    fn write(self, writer: &mut HeaderWriter<'_>) -> Option<()>;
}

/// Both directions of headers with these fields, in the order of the wire.
macro_rules! extended {
    ($($header:ident { $($field:tt: $bits:ident),+ })+) => {$(
        impl Extended for $header {
            fn read(reader: &mut HeaderReader<'_>) -> Result<Self, ParseError> {
                Ok(Self { $($field: reader.$bits()?),+ })
            }

            fn write(self, writer: &mut HeaderWriter<'_>) -> Option<()> {
                $(writer.$bits(self.$field)?;)+
                Some(())
            }
        }
    )+};
}

extended! {
    Deth { qkey: u32, src_qpn: u24 }
    Reth { va: u64, rkey: u32, len: u32 }
    AtomicEth { va: u64, rkey: u32, swap_add: u64, compare: u64 }
    AtomicAckEth { original: u64 }
    ImmDt { 0: u32 }
    Ieth { rkey: u32 }
}

impl Extended for Aeth {
    fn read(reader: &mut HeaderReader<'_>) -> Result<Self, ParseError> {
        let word = reader.u32()?;
        let value = (word >> 24) as u8;
        let syndrome = Syndrome::from_u8(value).ok_or(ParseError::UnknownSyndrome(value))?;
        Ok(Self { syndrome, msn: word & BITS_24 })
    }

    fn write(self, writer: &mut HeaderWriter<'_>) -> Option<()> {
        writer.u32(u32::from(self.syndrome.to_u8()) << 24 | self.msn)
    }
}

/// Bytes that have not been read yet, and the error if there are not enough.
pub(super) struct HeaderReader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) truncated: ParseError,
}

impl HeaderReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(self.truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// The low 24 bits of a word; the others are reserved.
    fn u24(&mut self) -> Result<u32, ParseError> {
        self.u32().map(|word| word & BITS_24)
    }

    fn u32(&mut self) -> Result<u32, ParseError> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, ParseError> {
        self.take().map(u64::from_be_bytes)
    }

    fn read_if<T: Extended>(&mut self, is_there: bool) -> Result<Option<T>, ParseError> {
        if is_there { T::read(self).map(Some) } else { Ok(None) }
    }

    /// Reads all headers of an opcode.
    pub(super) fn headers(&mut self, bth: Bth) -> Result<Headers, ParseError> {
        let opcode = bth.opcode;
        let headers = Headers {
            bth,
            deth: self.read_if(opcode.has_deth())?,
            reth: self.read_if(opcode.has_reth())?,
            atomic: self.read_if(opcode.has_atomic_eth())?,
            aeth: self.read_if(opcode.has_aeth())?,
            atomic_ack: self.read_if(opcode.has_atomic_ack_eth())?,
            imm: self.read_if(opcode.has_imm())?,
            ieth: self.read_if(opcode.has_ieth())?,
        };
        if opcode == Opcode::Cnp {
            self.take::<CNP_RESERVED>()?;
        }
        Ok(headers)
    }
}

/// Bytes that have not been written yet.
pub(super) struct HeaderWriter<'a>(pub(super) &'a mut [u8]);

/// `None` if there is no room: [`MAX_HEADERS`](crate::lengths::MAX_HEADERS) has room for all
/// headers of an opcode.
impl HeaderWriter<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        let (here, rest) = mem::take(&mut self.0).split_first_chunk_mut()?;
        *here = bytes;
        self.0 = rest;
        Some(())
    }

    /// A word of which only the low 24 bits are set.
    fn u24(&mut self, value: u32) -> Option<()> {
        self.u32(value)
    }

    fn u32(&mut self, value: u32) -> Option<()> {
        self.put(value.to_be_bytes())
    }

    fn u64(&mut self, value: u64) -> Option<()> {
        self.put(value.to_be_bytes())
    }

    fn bth(&mut self, bth: &Bth) -> Option<()> {
        let bit = |flag: bool, at: u32| u32::from(flag) << at;
        let flags = bit(bth.solicited, 7) | bit(bth.mig_req, 6) | u32::from(bth.pad) << 4;
        let flags = flags | u32::from(bth.tver);
        let first = u32::from(bth.opcode.to_u8()) << 24 | flags << 16 | u32::from(bth.pkey);
        let second = bit(bth.fecn, 31) | bit(bth.becn, 30) | bth.dest_qpn;
        let third = bit(bth.ack_req, 31) | bth.psn.get();
        // At once: room is checked once.
        let words = u128::from(first) << 64 | u128::from(second) << 32 | u128::from(third);
        let [_, _, _, _, bytes @ ..] = words.to_be_bytes();
        self.put(bytes)
    }

    fn write_some<T: Extended>(&mut self, header: Option<T>) -> Option<()> {
        header.map_or(Some(()), |header| header.write(self))
    }

    /// Writes all headers that there are.
    pub(super) fn headers(mut self, headers: &Headers) -> Option<()> {
        self.bth(&headers.bth)?;
        self.write_some(headers.deth)?;
        self.write_some(headers.reth)?;
        self.write_some(headers.atomic)?;
        self.write_some(headers.aeth)?;
        self.write_some(headers.atomic_ack)?;
        self.write_some(headers.imm)?;
        self.write_some(headers.ieth)?;
        if headers.bth.opcode == Opcode::Cnp {
            self.put([0; CNP_RESERVED])?;
        }
        Some(())
    }
}
