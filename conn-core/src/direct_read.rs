//! Direct Read: the receiver reads each message from the sender's memory into its final place.
//!
//! The protocol is that of Fischer, "Know Your Memory: RDMA-Based Protocols for Data
//! Exchange" (2021), which has the first two ways to acknowledge (`FencedWrite`, `Write`), with
//! windows, refusals and three more ways:
//!
//! ```text
//!   sender                                   receiver
//!   [Offers]                                 [Reads]
//!     | ---- SEND: read request ---------------> |  reposts the buffer of the request
//!     |                                          |  decides: read, or refuse
//!     | <=== RDMA READ, in parts ============== |  to the final place
//!     | <--- acknowledgement ------------------ |
//!     v  the memory is the sender's again        v  the message is there
//! ```
//!
//! Requests are numbered from 1 and decided in the order of their arrival. READs of one queue pair
//! complete in order, and so **acknowledgements arrive in order**: the state of either end is a few
//! counts.
//!
//! ```text
//!   sender     acked <= sent <= acked + window
//!   receiver   acked <= finished <= issued <= decided <= received <= acked + window
//! ```
//!
//! | [`AckMode`] | acknowledged by | when |
//! |---|---|---|
//! | `FencedWrite` | a WRITE of the outcome to the signal of the message | posted with the READ, behind a fence |
//! | `Write` | the same | posted when the READ has completed |
//! | `Send` | an empty SEND with [`Notice::Done`] | when READs have completed: one for all of them |
//! | `Cumulative` | a WRITE of a [`CountWord`] to the sender | when enough have gathered, or no other READ is pending |
//! | `Pull` | a [`CountWord`] of the receiver that the sender READs | when the sender needs to know |
//!
//! With `Send`, `Cumulative` and `Pull`, a [`Notice::Refused`] reports each refusal. A count
//! word has the number of such notices that precede it, and is ignored until they have
//! arrived: a word that is read may overtake them.
//!
//! # The drive loop
//!
//! The sender:
//!
//! 1. [`Offers::offer`] gives a number; post the [`ReadRequest`], keep the memory.
//! 2. Load the signal of message [`Offers::awaited`] or the count word, or take received notices,
//!    and pass them to [`on_signal`](Offers::on_signal), [`on_count`](Offers::on_count),
//!    [`on_notice`](Offers::on_notice). These acknowledge the oldest messages.
//!
//! The receiver:
//!
//! 1. For each request, [`Reads::on_request`]; then, in order, [`read`](Reads::read) or
//!    [`refuse`](Reads::refuse).
//! 2. While [`Reads::next_read`] gives a part, post it; for each that completes,
//!    [`on_read_done`](Reads::on_read_done).
//! 3. While [`Reads::next_ack`] gives one, post it and [`mark_acked`](Reads::mark_acked).
//!
//! **Contract: execute what a machine answers before you ask it again.**

mod ack;
mod offers;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod reads;
mod request;
mod terms;
#[cfg(test)]
mod tests;

pub use crate::ring::offer::Place;
pub use ack::{CountWord, Notice, Outcome, Refusal, UnknownNotice, UnknownOutcome};
pub use offers::{AckError, Acknowledged, NoticeEffect, OfferError, Offers};
pub use reads::{
    Ack, DecideError, ReadDoneError, ReadPart, ReadSlot, Reads, ReadsConfig, ReadsConfigError,
    RequestError,
};
pub use request::{DecodeError, EncodeError, HEADER_LEN, ReadRequest};
pub use terms::{AckMode, SignalAt, TERMS_LEN, Terms, TermsError};

/// The largest window of either end, in messages.
pub const MAX_WINDOW: u32 = 16_384;

/// Returns the index of a message's place, which is less than `window`.
const fn place(number: u64, window: u32) -> u32 {
    // A division is a large part of a message's cost, and most windows are powers of two.
    match window.is_power_of_two() {
        true => number as u32 & (window - 1),
        false => (number % window as u64) as u32,
    }
}
