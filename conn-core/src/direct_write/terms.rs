//! Terms of one direction, which its ends tell each other when they are set up.
//!
//! They stand in front of the application data of the [`handshake`](crate::handshake), once for
//! each direction that exists, that of initiator to acceptor first. All integers are little-endian:
//!
//! | bytes | terms |
//! |---|---|
//! | 8 | the address of this end's memory: a receiver's buffers, a sender's slots |
//! | 4 | its key |
//! | 4 | how many buffers, or slots |
//! | 4 | the longest message, in bytes; 0 of a sender |
//! | 1 | how messages are found ([`Detection`]); 0 of a sender |
//! | 3 | 0 |

use super::{Detection, Layout, LayoutError, MAX_BUFFERS, slots_bytes};
use crate::ring::offer::Place;
use crate::wire::Wire;

/// The memory, buffers or slots, the longest message, the detection, zeros.
type Fields = (Place, u32, u32, u8, [u8; 3]);

/// Bytes of the terms of one direction.
pub const TERMS_LEN: usize = Fields::LEN;

/// Memory of one end for one direction, as that end tells it to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// The end that sends: its slots.
    Sender {
        /// Place of the first slot.
        place: Place,
        /// Number of slots.
        slots: u32,
    },
    /// The end that receives: its buffers.
    Receiver {
        /// Place of the first buffer.
        place: Place,
        /// Their shape.
        layout: Layout,
        /// Method by which messages are found.
        detection: Detection,
    },
}

/// Bytes that are no terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// Fewer bytes than terms have.
    #[error("terms of {len} bytes are not whole")]
    TooShort {
        /// Bytes given.
        len: usize,
    },
    /// Buffers that cannot be, or a number of slots that cannot be.
    #[error("{0}")]
    Layout(LayoutError),
    /// An unknown way to find messages.
    #[error("unknown way to find messages {0}")]
    Detection(u8),
    /// Memory at an address that is 0, is not aligned to 8 bytes, or ends beyond the address
    /// space.
    #[error("memory at an address that cannot be")]
    Memory,
    /// A field that must be 0 is not.
    #[error("something in the terms that must be 0 is not")]
    NotZero,
}

impl Terms {
    /// As bytes.
    pub fn encode(&self) -> [u8; TERMS_LEN] {
        let fields: Fields = match *self {
            Self::Sender { place, slots } => (place, slots, 0, 0, [0; 3]),
            Self::Receiver { place, layout, detection } => {
                (place, layout.buffers(), layout.max_message(), detection.code(), [0; 3])
            }
        };
        fields.encoded()
    }

    /// From the first bytes, and the rest of them.
    ///
    /// # Errors
    /// [`TermsError`]
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), TermsError> {
        let short = TermsError::TooShort { len: bytes.len() };
        let (fields, rest) = Fields::split(bytes).ok_or(short)?;
        let (place, count, longest, code, zeros) = fields;
        if zeros != [0; 3] || (code == 0 && longest != 0) {
            return Err(TermsError::NotZero);
        }
        let (terms, len) = if code == 0 {
            if count == 0 || count > MAX_BUFFERS {
                return Err(TermsError::Layout(LayoutError::Buffers(count)));
            }
            (Self::Sender { place, slots: count }, slots_bytes(count))
        } else {
            let layout = Layout::new(count, longest).map_err(TermsError::Layout)?;
            let detection = Detection::from_code(code).ok_or(TermsError::Detection(code))?;
            (Self::Receiver { place, layout, detection }, layout.bytes())
        };
        if !place.holds(len) {
            return Err(TermsError::Memory);
        }
        Ok((terms, rest))
    }
}
