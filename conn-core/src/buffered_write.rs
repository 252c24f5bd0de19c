//! Buffered Write: the sender writes records into the receiver's ring, and the receiver
//! writes its head back.
//!
//! ```text
//!   sender                                              receiver
//!   records in a ring of its own     push: records,     ring, polled
//!   [ . . r r r r . . ]  ------------ then tail ------> [ . . r r r r . . ]
//!   control block        <----------- head, taken ----- hands out, frees
//! ```
//!
//! A push carries all records since the last one, so the time that a push takes sets the batch
//! size. The tail follows the records in one of two ways ([`Tail`](crate::ring::offer::Tail)). As
//! the immediate of their last write, it takes one of the receiver's posted receives. As a write of
//! its own, it is polled by the receiver. The head is the credit for bytes. The credit for
//! immediates is the count of reposted receives, which is written with the head.
//!
//! ```text
//!            open --- close() ---> closing --- push with FIN ---> said
//!   sender    |                       |                             |
//!             +-------- STOP ---------+-----------------------------+---> stopped
//!
//!   receiver  open --- FIN, all handed out ---> ended          open --- stop() ---> stopped
//! ```

pub mod inline_record;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::{PushedError, Update, WriteReceiver};
pub use sender::{Piece, Push, UpdateError, WriteSender};

/// Bytes of the longest ring in which a push is a single work request: a length has 31 bits.
pub const MAX_CAPACITY: u64 = 1 << 30;
