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
//! What has gathered since the last push goes with the next one: that batches by itself,
//! as much as the pushes before it take time. The tail comes behind the records, either as
//! the immediate of their last write, which takes one of the receiver's posted receives, or
//! as a write of its own, which the receiver polls ([`Tail`](crate::ring::offer::Tail)). Positions
//! are the credits for the bytes; for the immediates it is the count of those whose receives
//! are posted again, which comes with the head.
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

/// Bytes of a ring whose pushes are single work requests: their length has 31 bits.
pub const MAX_CAPACITY: u64 = 1 << 30;
