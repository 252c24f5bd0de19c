//! Terms of one direction, which its ends exchange at set-up.
//!
//! They precede the application data of the [`handshake`](crate::handshake), once for each
//! direction that exists, initiator to acceptor first. All integers are little-endian; fields that
//! a sender does not have are 0:
//!
//! | bytes | terms |
//! |---|---|
//! | 8 | the address of this end's memory: a receiver's ring, a sender's stop |
//! | 4 | its key |
//! | 4 | how many extents |
//! | 4 | bytes of an extent |
//! | 4 | the longest message, in bytes |
//! | 4 | how many links |
//! | 4 | the number of this link |
//! | 1 | 0 of a sender, 1 of a receiver, 2 of a receiver with a device that does not write the bytes of a request in order: trailers are requests of their own |
//! | 7 | 0 |

use super::{Layout, LayoutError, STOP_BYTES};
use crate::ring::offer::Place;
use crate::wire::Wire;

/// The memory, the five numbers of a receiver, the kind of end, zeros.
type Fields = (Place, [u32; 5], u8, [u8; 7]);

/// Bytes of the terms of one direction.
pub const TERMS_LEN: usize = Fields::LEN;

/// Memory of one end for one direction, as that end tells it to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// The end that sends.
    Sender {
        /// Destination of the receiver's stop.
        place: Place,
    },
    /// The end that receives.
    Receiver {
        /// Beginning of its memory.
        place: Place,
        /// Its shape.
        layout: Layout,
        /// The sender's link.
        link: u32,
        /// True if a trailer is a request of its own.
        apart: bool,
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
    /// A ring that cannot be.
    #[error("{0}")]
    Layout(LayoutError),
    /// A link beyond those that there are.
    #[error("there is no link {0}")]
    Link(u32),
    /// Neither a sender nor a receiver.
    #[error("unknown kind of end {0}")]
    Kind(u8),
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
            Self::Sender { place } => (place, [0; 5], 0, [0; 7]),
            Self::Receiver { place, layout: of, link, apart } => {
                let shape = [of.extents(), of.extent_bytes(), of.max_message(), of.links(), link];
                (place, shape, 1 + u8::from(apart), [0; 7])
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
        let ((place, numbers, kind, zeros), rest) = Fields::split(bytes).ok_or(short)?;
        if zeros != [0; 7] || (kind == 0 && numbers != [0; 5]) {
            return Err(TermsError::NotZero);
        }
        let (terms, len) = match kind {
            0 => (Self::Sender { place }, STOP_BYTES),
            1 | 2 => {
                let [extents, extent_bytes, max_message, links, link] = numbers;
                let layout = Layout::new(extents, extent_bytes, max_message, links);
                let layout = layout.map_err(TermsError::Layout)?;
                if link >= links {
                    return Err(TermsError::Link(link));
                }
                (Self::Receiver { place, layout, link, apart: kind == 2 }, layout.bytes())
            }
            _ => return Err(TermsError::Kind(kind)),
        };
        if !place.holds(len) {
            return Err(TermsError::Memory);
        }
        Ok((terms, rest))
    }
}
