//! The control messages of a connection, as the 32-bit immediate that carries them.
//!
//! Control travels as an empty send with immediate, so it needs no buffer contents
//! and no header. The top bit tells a credit (0) from a code (1):
//!
//! ```text
//!   0 ccc cccc cccc cccc cccc cccc cccc cccc   credit: low 31 bits of the position
//!   1 000 0000 0000 0000 0000 0000 0000 0001   FIN:  the sender has sent its last message
//!   1 000 0000 0000 0000 0000 0000 0000 0010   STOP: the receiver takes no more messages
//! ```

use core::fmt;

use crate::credit::CreditWire;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

const CODE: u32 = 1 << 31;
const FIN: u32 = CODE | 1;
const STOP: u32 = CODE | 2;

/// A control message.
///
/// ```
/// use conn_core::control::*;
/// use conn_core::credit::CreditWire;
///
/// let credit = Control::Credit(CreditWire::of_position(1 << 40 | 7));
/// assert_eq!(credit.encode(), 7);
/// assert_eq!(Control::decode(7), Ok(credit));
/// assert_eq!(Control::decode(0x8000_0001), Ok(Control::Fin));
/// assert_eq!(Control::decode(0x8000_0000), Err(UnknownControl(0x8000_0000)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Receiver to sender: messages may be sent up to this position.
    Credit(CreditWire),
    /// Sender to receiver: no message follows.
    Fin,
    /// Receiver to sender: no message will be taken any more.
    Stop,
}

/// An immediate that is no control message: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownControl(pub u32);

impl fmt::Display for UnknownControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer sent the unknown control immediate {:#010x}", self.0)
    }
}

impl core::error::Error for UnknownControl {}

impl Control {
    /// The immediate, in host order.
    #[inline]
    pub const fn encode(self) -> u32 {
        match self {
            Self::Credit(wire) => wire.get(),
            Self::Fin => FIN,
            Self::Stop => STOP,
        }
    }

    /// The message of an immediate, in host order.
    ///
    /// # Errors
    /// [`UnknownControl`] for a code that this version does not have.
    #[inline]
    pub const fn decode(immediate: u32) -> Result<Self, UnknownControl> {
        if let Some(wire) = CreditWire::new(immediate) {
            return Ok(Self::Credit(wire));
        }
        match immediate {
            FIN => Ok(Self::Fin),
            STOP => Ok(Self::Stop),
            unknown => Err(UnknownControl(unknown)),
        }
    }
}
