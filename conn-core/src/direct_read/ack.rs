//! Acknowledgements: the byte of a signal, the immediate of a notice, the count word.

use core::fmt;

/// Reason why a message was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// It is longer than the buffer for it.
    TooLong = 2,
    /// The receiver does not want it.
    NotWanted = 3,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "it is longer than the receiver's buffer",
            Self::NotWanted => "the receiver does not want it",
        })
    }
}

/// Result of a message: it was read, or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The receiver has all of it.
    Read,
    /// The receiver has not looked at it.
    Refused(Refusal),
}

/// A byte that is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown outcome {0}")]
pub struct UnknownOutcome(pub u8);

impl Outcome {
    /// The byte of the signal; never 0, which says that there is no outcome yet.
    pub const fn code(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Refused(refusal) => refusal as u8,
        }
    }

    /// From the byte of a signal; `None` as long as there is no outcome.
    ///
    /// # Errors
    /// [`UnknownOutcome`]: the byte means nothing.
    pub const fn from_code(code: u8) -> Result<Option<Self>, UnknownOutcome> {
        Ok(Some(match code {
            0 => return Ok(None),
            1 => Self::Read,
            2 => Self::Refused(Refusal::TooLong),
            3 => Self::Refused(Refusal::NotWanted),
            other => return Err(UnknownOutcome(other)),
        }))
    }
}

/// Content of the immediate of an empty SEND. It has the low 24 bits of a message's number, which
/// are enough for any window.
///
/// | bits | |
/// |---|---|
/// | 31..28 | kind: 1 done, 2 refused, 3 wakeup, 4 stop, 5 fin |
/// | 27..24 | of refused: the code of its outcome; else 0 |
/// | 23..0 | of done, refused, wakeup: the message; of stop: the last one acknowledged; else 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// To the sender: this message and all before it were read, except for those that
    /// were refused.
    Done(u32),
    /// To the sender: all before this message were read, and this one is refused.
    Refused(u32, Refusal),
    /// To the receiver: send a wakeup when this message is acknowledged. To the sender: it
    /// is.
    Wakeup(u32),
    /// To the sender: the receiver goes. This message and all before it were acknowledged,
    /// and nothing more is read.
    Stop(u32),
    /// To the receiver: the sender goes, there are no more messages.
    Fin,
}

/// An immediate that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown notice {0:#010x}")]
pub struct UnknownNotice(pub u32);

/// Bits of a message's number in a notice.
const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

impl Notice {
    /// The immediate.
    ///
    /// ```
    /// use conn_core::direct_read::{Notice, Refusal};
    ///
    /// let notice = Notice::Refused(77, Refusal::NotWanted);
    /// assert_eq!(Notice::decode(notice.encode()), Ok(notice));
    /// assert!(Notice::decode(0).is_err());
    /// ```
    pub const fn encode(self) -> u32 {
        match self {
            Self::Done(number) => 1 << 28 | number & MASK,
            Self::Refused(number, refusal) => 2 << 28 | (refusal as u32) << BITS | number & MASK,
            Self::Wakeup(number) => 3 << 28 | number & MASK,
            Self::Stop(number) => 4 << 28 | number & MASK,
            Self::Fin => 5 << 28,
        }
    }

    /// From an immediate.
    ///
    /// # Errors
    /// [`UnknownNotice`]: it means nothing.
    pub const fn decode(imm: u32) -> Result<Self, UnknownNotice> {
        let (kind, code, number) = (imm >> 28, (imm >> BITS & 0xf) as u8, imm & MASK);
        Ok(match (kind, code, number) {
            (1, 0, _) => Self::Done(number),
            (2, 2, _) => Self::Refused(number, Refusal::TooLong),
            (2, 3, _) => Self::Refused(number, Refusal::NotWanted),
            (3, 0, _) => Self::Wakeup(number),
            (4, 0, _) => Self::Stop(number),
            (5, 0, 0) => Self::Fin,
            _ => return Err(UnknownNotice(imm)),
        })
    }

    /// The low bits of `number`, as a notice has them.
    pub const fn low(number: u64) -> u32 {
        number as u32 & MASK
    }

    /// The number in `base ..= base + 2^23` that has the low bits `low`; `None` if none
    /// has.
    pub(super) const fn number(base: u64, low: u32) -> Option<u64> {
        let ahead = low.wrapping_sub(base as u32) & MASK;
        if ahead > MASK / 2 { None } else { base.checked_add(ahead as u64) }
    }
}

/// Counts of the messages acknowledged, and of the refusals reported by notices before. One word
/// holds both, so that they are consistent.
///
/// | bits | |
/// |---|---|
/// | 63..16 | messages acknowledged |
/// | 15..0 | refusals reported, modulo 2^16 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CountWord {
    /// Messages acknowledged, less than 2^48.
    pub count: u64,
    /// Low bits of the count of refusals reported by notices.
    pub refusals: u16,
}

impl CountWord {
    /// The word; stored and sent in the byte order of little-endian machines.
    ///
    /// ```
    /// use conn_core::direct_read::CountWord;
    ///
    /// let word = CountWord { count: 1 << 40, refusals: 3 };
    /// assert_eq!(CountWord::decode(word.encode()), word);
    /// ```
    pub const fn encode(self) -> u64 {
        self.count << 16 | self.refusals as u64
    }

    /// From a word.
    pub const fn decode(word: u64) -> Self {
        Self { count: word >> 16, refusals: word as u16 }
    }
}
