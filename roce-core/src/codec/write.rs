//! Headers into a caller's buffer.

use super::extended::HeaderWriter;
use super::{Headers, MAX_HEADERS};
use crate::lengths::BITS_24;

/// Reason why headers cannot be written. All of them are mistakes of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A header is there that the opcode has not, or is missing.
    #[error("the headers are not those of {0}")]
    Mismatch(crate::opcode::Opcode),
    /// A field has fewer bits than this value.
    #[error("{field} is {value:#x}, at most {max:#x} fits")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// The value.
        value: u32,
        /// The largest that it holds.
        max: u32,
    },
}

/// Writes what precedes the payload, and returns its length. When it fails, nothing is written.
///
/// ```
/// use roce_core::{codec::write, headers::*, lengths::MAX_HEADERS, opcode::Opcode, psn::Psn};
///
/// let mut bytes = [0; MAX_HEADERS];
/// let mut headers = Headers::new(Bth::new(Opcode::RcAck, 17, Psn::new(5)));
/// assert!(write(&headers, &mut bytes).is_err()); // an acknowledgement of what?
/// headers.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 6 });
/// let len = write(&headers, &mut bytes)?;
/// assert_eq!(bytes[..len], [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 5, 0x1f, 0, 0, 6]);
/// # Ok::<(), roce_core::codec::WriteError>(())
/// ```
#[inline]
pub fn write(headers: &Headers, bytes: &mut [u8; MAX_HEADERS]) -> Result<usize, WriteError> {
    let opcode = headers.bth.opcode;
    if !is_complete(headers) {
        return Err(WriteError::Mismatch(opcode));
    }
    check_fields(headers)?;
    HeaderWriter(bytes).headers(headers).ok_or(WriteError::Mismatch(opcode))?;
    Ok(opcode.header_len())
}

/// Reports whether the headers are those that the opcode asks for.
fn is_complete(headers: &Headers) -> bool {
    let opcode = headers.bth.opcode;
    headers.deth.is_some() == opcode.has_deth()
        && headers.reth.is_some() == opcode.has_reth()
        && headers.atomic.is_some() == opcode.has_atomic_eth()
        && headers.aeth.is_some() == opcode.has_aeth()
        && headers.atomic_ack.is_some() == opcode.has_atomic_ack_eth()
        && headers.imm.is_some() == opcode.has_imm()
        && headers.ieth.is_some() == opcode.has_ieth()
}

fn check_fields(headers: &Headers) -> Result<(), WriteError> {
    use crate::headers::Syndrome;

    let bth = &headers.bth;
    fits("dest_qpn", bth.dest_qpn, BITS_24)?;
    fits("pad", bth.pad.into(), 3)?;
    fits("tver", bth.tver.into(), 15)?;
    if let Some(deth) = headers.deth {
        fits("src_qpn", deth.src_qpn, BITS_24)?;
    }
    if let Some(aeth) = headers.aeth {
        fits("msn", aeth.msn, BITS_24)?;
        if let Syndrome::Ack { credits } = aeth.syndrome {
            fits("credits", credits.into(), 0x1f)?;
        }
    }
    Ok(())
}

fn fits(field: &'static str, value: u32, max: u32) -> Result<(), WriteError> {
    if value > max { Err(WriteError::TooLarge { field, value, max }) } else { Ok(()) }
}
