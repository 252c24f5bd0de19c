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
//! The sender is passive: it posts nothing. The ends communicate by words in the sender's memory:
//! the sender writes one, and the receiver writes two with one WRITE. (A third one asks for a
//! [wake-up](wake).) Each word is a position, a multiple of 8. Its lowest bit marks the last
//! position:
//!
//! | word | written by | position | lowest bit |
//! |---|---|---|---|
//! | tail | sender | end of the published records | FIN: no more follow |
//! | head | receiver | end of the freed records | STOP: no more will be read |
//! | landed | receiver | end of the bytes that lie in its memory | SEEN: FIN was seen, and all was read |
//!
//! After FIN, the sender keeps its memory until SEEN or STOP. The receiver posts nothing
//! after either.
//!
//! # Reading
//!
//! Each post of data READs ends with a READ of the tail: when the data have arrived, the receiver
//! knows the new tail without another round trip. It requests all published bytes at once, in
//! several READs of a limited length, while records are still being handed out (`prefetch`). A
//! synchronous device turns prefetching off ([`Reader::polled`]). A receiver reads the tail alone
//! only if it has nothing to hand out and nothing in flight.

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
    /// End of the freed records; the lowest bit is STOP.
    pub head: u64,
    /// End of the bytes that lie in the receiver's memory; the lowest bit is SEEN.
    pub landed: u64,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "head {:#x}, landed {:#x}", self.head, self.landed)
    }
}
