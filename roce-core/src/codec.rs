//! Packets as bytes.

use crate::headers::Headers;

/// A packet as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What precedes the payload.
    pub headers: Headers,
    /// The payload, without padding.
    pub payload: &'a [u8],
}
