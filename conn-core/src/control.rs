//! The control messages of a connection, as the 32-bit immediate that carries them.
//!
//! Control travels as an empty send with immediate, so it needs no buffer contents
//! and no header. The top bit tells a credit (0) from everything else (1):
//!
//! ```text
//!   0 ccc cccc cccc cccc cccc cccc cccc cccc   credit: low 31 bits of the position
//!   1 000 0000 0000 0000 0000 0000 0000 0001   FIN:    the sender has sent its last message
//!   1 1tt tttt tttt tttt tttt tttt tttt tttt   STOP:   the receiver has taken this many messages
//!                                              (low 30 bits), and takes no more
//!   1 000 0000 0000 0000 0000 0000 0000 0011   WANT:   the sender asks for a loan
//!   1 000 0000 0000 0000 0000 0000 0000 0100   RECALL: the receiver asks for unused credits
//!   1 010 cccc cccc cccc cccc cccc cccc cccc   LOAN:   answers WANT; 28 bits of the position
//!   1 011 cccc cccc cccc cccc cccc cccc cccc   RETURN: used or given back up to here; 28 bits
//! ```
//!
//! The last four are for connections with [loans](crate::loan) as credits.
//!
//! A STOP carries the count because a sender does not ask for a completion of each message:
//! without it, the sender could not tell a close after its last message from one that loses
//! messages.

use crate::credit::CreditWire;
use crate::loan::LoanWire;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

const CODE: u32 = 1 << 31;
const FIN: u32 = CODE | 1;
const STOP: u32 = CODE | 1 << 30;
const TAKEN_MASK: u32 = (1 << 30) - 1;
const WANT: u32 = CODE | 3;
const RECALL: u32 = CODE | 4;
const LOAN: u32 = 0b1010 << 28;
const RETURN: u32 = 0b1011 << 28;
/// The bits that tell LOAN and RETURN from each other and from codes.
const KIND: u32 = 0b1111 << 28;

/// Count of the messages that a receiver has taken, as a STOP carries it: the low 30 bits.
///
/// ```
/// use conn_core::control::Taken;
///
/// let taken = Taken::of_count((1 << 40) + 7);
/// assert_eq!(taken.missing_of((1 << 40) + 9), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken(u32);

impl Taken {
    /// The wire form of a count.
    #[inline]
    pub const fn of_count(count: u64) -> Self {
        Self(count as u32 & TAKEN_MASK)
    }

    /// Returns the number of the `sent` messages that were not taken, modulo 2^30. A receiver holds
    /// fewer than that, so a count beyond `sent` gives a number that no honest receiver causes.
    #[inline]
    pub const fn missing_of(self, sent: u64) -> u32 {
        (sent as u32).wrapping_sub(self.0) & TAKEN_MASK
    }
}

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
    /// Receiver to sender: this many messages were taken, and no more will be.
    Stop(Taken),
    /// Sender to receiver: no credit is left, a loan is asked for.
    Want,
    /// Receiver to sender: others wait for credits that are not used.
    Recall,
    /// Receiver to sender: WANT was heard, and messages may be sent up to this position.
    Loan(LoanWire),
    /// Sender to receiver: all credits before this position are used or given back.
    Return(LoanWire),
}

/// An immediate that is no control message: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent the unknown control immediate {0:#010x}")]
pub struct UnknownControl(pub u32);

impl Control {
    /// The immediate, in host order.
    #[inline]
    pub const fn encode(self) -> u32 {
        match self {
            Self::Credit(wire) => wire.get(),
            Self::Fin => FIN,
            Self::Stop(taken) => STOP | taken.0,
            Self::Want => WANT,
            Self::Recall => RECALL,
            Self::Loan(wire) => LOAN | wire.get(),
            Self::Return(wire) => RETURN | wire.get(),
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
        let loan = LoanWire::of_position(immediate as u64);
        match immediate {
            FIN => Ok(Self::Fin),
            stop if stop & STOP == STOP => Ok(Self::Stop(Taken(stop & TAKEN_MASK))),
            WANT => Ok(Self::Want),
            RECALL => Ok(Self::Recall),
            _ if immediate & KIND == LOAN => Ok(Self::Loan(loan)),
            _ if immediate & KIND == RETURN => Ok(Self::Return(loan)),
            unknown => Err(UnknownControl(unknown)),
        }
    }
}
