//! Loans: credits out of a pool of receive buffers that many connections share.
//!
//! With separate receive queues each sender has credits for all buffers of its own queue. With a
//! shared receive queue this would take as much memory. So a sender has one buffer of its own, its
//! *share*, and borrows credits for more:
//!
//! ```text
//!   sender: Borrower                          receiver: LoanGrantor        pool: Lender
//!      | --- WANT: no credit is left ----------------> | --- want ----------> | waits in
//!      | <-- LOAN: credits up to a position ---------- | <-- credits -------- | a queue
//!      | === messages ===============================> | --- home ----------> | (posted
//!      |                                               |                      |  again)
//!      | <-- RECALL: others wait --------------------- | <-- recall --------- | tick
//!      | --- RETURN: used or given back up to --------> | --- give_back -----> |
//! ```
//!
//! Credits are positions, as in [`credit`](crate::credit). A returned credit counts as sent: RETURN
//! names the position up to which all credits are used or returned. So a sender can return a credit
//! neither twice nor after it has sent the message.
//!
//! # Which buffer a message takes
//!
//! Each member keeps three buffers of the pool: the share, one for WANT and one for FIN. LOAN
//! says that WANT's is posted again. FIN has its own, so that a sender can close while its WANT is
//! unanswered: the receiver may not be called again. RETURN takes one of the buffers for which it
//! returns credits. Messages to the sender take its own control receives: at most [`MAX_IN_FLIGHT`]
//! at a time.
//!
//! # Why every message finds a buffer, and every sender gets one
//!
//! A member *uses* the buffers that it has credits for and those that hold its messages:
//! `used = granted - posted again`. The lender keeps
//!
//! ```text
//!   sum of max(used, 1)  +  two control buffers a member  +  free  =  buffers
//! ```
//!
//! with `free >= 0`. A share is never lent: a member that uses nothing is granted one credit,
//! regardless of the others, and WANT needs no credit. So every message finds a buffer, and there
//! is no deadlock.
//!
//! # How much each member gets
//!
//! Loans go out in the order of WANTs, so between two loans to one sender every waiting sender gets
//! one. A member's first loan has [`FIRST_LOAN`] credits; the size doubles when a loan was used up
//! and halves when part of it was returned. All loans together take at most three quarters of the
//! lendable buffers. One loan takes at most half of what silent loans leave of these, but always up
//! to [`FIRST_LOAN`], so that two senders can have credits at a time. When the next loan does not
//! fit, its sender waits until others are used up. A loan that is older than a tick and not used up
//! is recalled. Until its sender answers, the loan is *silent*: no other sender waits for it. Held
//! messages of a sender that waits itself are silent, too. Silent buffers leave less for the
//! others, down to loans of one, which come from the last quarter.

use crate::credit::WirePosition;

mod borrower;
mod grantor;
mod lender;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

pub use borrower::{Borrower, LoanError};
pub use grantor::{LoanGrantor, ReturnError, WantError};
pub use lender::{Due, JoinError, Lender, LenderConfigError, LenderError, LenderSlot};

/// Credits of the first loan to a member, unless its maximum is lower.
pub const FIRST_LOAN: u32 = 4;

/// Buffers that each member keeps: its share, and one each for WANT and FIN.
pub const KEPT: u32 = 3;

/// Messages to a sender that can be under way at once: it posts as many receives for them.
/// (A share, a RECALL of the loan before, two answers to its WANT, a RECALL of this loan,
/// and STOP.)
pub const MAX_IN_FLIGHT: u32 = 6;

/// A position as LOAN and RETURN carry it: its low 28 bits.
pub type LoanWire = WirePosition<28>;
