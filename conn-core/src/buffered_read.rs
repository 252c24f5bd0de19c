//! The Buffered Read connection: the sender keeps records in a ring of its own, and the
//! receiver fetches them with RDMA READs.
//!
//! ```text
//!   sender: Source                                    receiver: Reader
//!   copies the record, publishes the tail
//!   [ tail, FIN ]        <------ READ -------------   is there more?
//!   [ the ring  ]        <------ READ, … ----------   what there is, in pieces
//!   [ head, STOP ]       <------ WRITE ------------   freed up to here
//!   [ landed, SEEN ]     <------ WRITE ------------   read up to here
//! ```
//!
//! The sender is passive: it posts nothing. What each end tells the other are two kinds of
//! words in the sender's memory: one that the sender writes, and two that the receiver
//! does, with one WRITE. (A third one asks for a [wake-up](wake).) Each is a position, a
//! multiple of 8, whose lowest bit says that it is the last one:
//!
//! | word | written by | position | lowest bit |
//! |---|---|---|---|
//! | tail | sender | up to where records are published | FIN: there will be no more |
//! | head | receiver | up to where they have been freed | STOP: no more will be read |
//! | landed | receiver | up to where they lie in its memory | SEEN: FIN was seen, and all read |
//!
//! After FIN, the sender keeps its memory until SEEN or STOP. The receiver posts nothing
//! after either.
//!
//! # Reading
//!
//! With each posting of data READs goes one READ of the tail, behind them: what was
//! written meanwhile is known when the data are there, without a round trip of its own.
//! What is known to be there is asked for at once, while records are still being handed
//! out (`prefetch`), in several READs of a limited length, unless READs turn out to take no
//! time of their own ([`Reader::polled`]). Only a receiver that has nothing
//! to hand out, and nothing on its way, reads the tail alone.

use core::fmt;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod reader;
mod source;
#[cfg(test)]
mod tests;
pub mod wake;

pub use reader::{MAX_WORDS, Reader, ReaderConfig, ReaderError, ReaderRequest, ReaderState};
pub use source::{Source, WordError};

/// The lowest bit of a word: the last one of its kind.
const LAST: u64 = 1;

/// Progress that the receiver reports to the sender: both words, which one WRITE carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Up to where records have been freed; the lowest bit is STOP.
    pub head: u64,
    /// Up to where they lie in the receiver's memory; the lowest bit is SEEN.
    pub landed: u64,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "head {:#x}, landed {:#x}", self.head, self.landed)
    }
}
