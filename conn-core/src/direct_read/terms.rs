//! Terms of one direction, which its ends tell each other when they are set up.
//!
//! They stand in front of the application data of the [`handshake`](crate::handshake), once for
//! each direction that exists, that of initiator to acceptor first. All integers are little-endian:
//!
//! | bytes | terms |
//! |---|---|
//! | 1 | how messages are acknowledged, as their sender wants it |
//! | 1 | where the signal is: 0 apart from the message, 1 at its tail |
//! | 1 | READs in flight: as many as this end's device answers, or begins |
//! | 1 | 0 |
//! | 4 | the key of the counts |
//! | 8 | the address of the counts; key and address are 0 where there are none |
//! | 4 | bytes of the longest message that a receiver reads into buffers of its own |

use crate::ring::offer::Place;
use crate::wire::{Wire, codes};

/// Acknowledgement, signal, READs, zero; key and address of the counts; the longest message.
type Fields = (u8, u8, u8, u8, u32, u64, u32);

/// Bytes of the terms of one direction.
pub const TERMS_LEN: usize = Fields::LEN;

/// Mode of acknowledgement: how a sender learns that a message was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AckMode {
    /// A WRITE that is posted together with the READ, behind a fence.
    FencedWrite = 0,
    /// A WRITE that is posted when the READ has completed.
    Write = 1,
    /// A SEND when READs have completed.
    Send = 2,
    /// A WRITE of a count, for many messages.
    Cumulative = 3,
    /// The sender READs a count when it needs to know.
    Pull = 4,
}

codes! { AckMode { FencedWrite, Write, Send, Cumulative, Pull } }

impl AckMode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::FencedWrite, Self::Write, Self::Send, Self::Cumulative, Self::Pull];

    /// Its name, as users write it.
    ///
    /// ```
    /// assert_eq!(conn_core::direct_read::AckMode::FencedWrite.name(), "fenced-write");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::FencedWrite => "fenced-write",
            Self::Write => "write",
            Self::Send => "send",
            Self::Cumulative => "cumulative",
            Self::Pull => "pull",
        }
    }

    /// Reports whether each message has a signal of its own.
    pub const fn signals(self) -> bool {
        matches!(self, Self::FencedWrite | Self::Write)
    }

    /// Reports whether a completion tells the sender's processor.
    pub const fn notifies(self) -> bool {
        matches!(self, Self::Send)
    }
}

/// Location of a message's signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SignalAt {
    /// In memory of its own, so that messages need no special layout.
    #[default]
    Separate,
    /// Right behind the buffer of the message, as in Fischer's design.
    Tail,
}

/// Terms that one end states for one direction.
///
/// ```
/// use conn_core::direct_read::{AckMode, SignalAt, TERMS_LEN, Terms};
///
/// let terms = Terms { ack: AckMode::Write, signal: SignalAt::Tail, reads: 16, counts: None, max_message: 4096 };
/// let bytes = terms.encode();
/// let (decoded, rest) = Terms::decode(&bytes)?;
/// assert_eq!((decoded, rest.len()), (terms, 0));
/// # Ok::<(), conn_core::direct_read::TermsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Mode of acknowledgement that the sender wants. The receiver's value is ignored.
    pub ack: AckMode,
    /// Location of the sender's signals.
    pub signal: SignalAt,
    /// READs that this end's device answers at a time (sender), or begins (receiver).
    pub reads: u8,
    /// Place of a count word: the sender's, to be written, or the receiver's, to be read.
    pub counts: Option<Place>,
    /// Bytes of the longest message that a receiver reads into buffers of its own. The sender's
    /// value is ignored.
    pub max_message: u32,
}

/// Bytes that are no terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// Fewer than [`TERMS_LEN`] bytes.
    #[error("terms of {len} bytes; they have {expected}", expected = TERMS_LEN)]
    TooShort {
        /// Bytes given.
        len: usize,
    },
    /// An unknown way to acknowledge.
    #[error("unknown way {0} to acknowledge")]
    Ack(u8),
    /// A byte that has to be 0 or 1, or 0, is not.
    #[error("{0} in a reserved byte")]
    Reserved(u8),
    /// Counts beyond the end of the address space.
    #[error("counts beyond the end of the address space")]
    Wraps,
}

impl Terms {
    /// Their bytes.
    pub fn encode(&self) -> [u8; TERMS_LEN] {
        let Place { addr, rkey } = self.counts.unwrap_or(Place { addr: 0, rkey: 0 });
        let fields: Fields =
            (self.ack.code(), self.signal as u8, self.reads, 0, rkey, addr, self.max_message);
        fields.encoded()
    }

    /// Decodes the terms at the beginning of `bytes`; returns them and the rest.
    ///
    /// # Errors
    /// [`TermsError`]: what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), TermsError> {
        let short = TermsError::TooShort { len: bytes.len() };
        let (fields, rest) = Fields::split(bytes).ok_or(short)?;
        let (ack, signal, reads, zero, rkey, addr, max_message) = fields;
        let ack = AckMode::from_code(ack).ok_or(TermsError::Ack(ack))?;
        let signal = match signal {
            0 => SignalAt::Separate,
            1 => SignalAt::Tail,
            other => return Err(TermsError::Reserved(other)),
        };
        if zero != 0 {
            return Err(TermsError::Reserved(zero));
        }
        if addr.checked_add(8).is_none() {
            return Err(TermsError::Wraps);
        }
        let counts = (addr != 0 || rkey != 0).then_some(Place { addr, rkey });
        Ok((Self { ack, signal, reads, counts, max_message }, rest))
    }
}
