//! Direct Write: the sender writes each message into a buffer of the receiver, and the receiver
//! tells it which buffers are free again.
//!
//! ```text
//!   sender                                            receiver
//!   message, trailer   ----- WRITE into a buffer -->  buffers, polled in order
//!   slots              <---- WRITE of slots --------  copies out, frees
//! ```
//!
//! The receiver has a number of buffers of one size ([`Layout`]). The sender has an array of
//! *slots* that the receiver writes: the slot of message `n` says into which buffer it goes. So a
//! slot is a credit, and buffers may be freed in any order. The first messages go into the
//! buffers in order, without slots.
//!
//! A message lies at the end of its buffer, in front of a *trailer*: its number, its length, and
//! a [checksum](crate::checksum) of both. The receiver knows the buffer of the next message, and
//! polls that trailer. Where a device does not write the bytes of one request in order, the trailer
//! is a request of its own. Where the receiver may sleep, each message is written with an immediate
//! ([`Detection`]). Neither end has a head or a tail: a message takes one WRITE, and the slots of
//! many freed buffers one WRITE together.
//!
//! Behind the last buffer lies the [goodbye](Layout::goodbye_at): when the sender has written
//! it, all messages are there. Behind the last slot lies the receiver's [stop](stop_at).
//!
//! Source: the Direct Write connection of Fischer, "Know Your Memory" (2021), and its code. The
//! original writes whole buffers with the length as their last word, which tears, and cannot send
//! messages of no bytes.

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod receiver;
mod sender;
pub mod terms;
#[cfg(test)]
mod tests;

use crate::wire::codes;

pub use receiver::{Arrival, ArrivalError, BufferReceiver, SlotRun};
pub use sender::{BufferSender, SlotError};

/// Bytes of a trailer: the number, the length, their checksum.
pub const TRAILER_BYTES: u64 = 24;
/// Bytes of a slot: the number of a message, its buffer, their checksum.
pub const SLOT_BYTES: u64 = 24;
/// The most buffers of a receiver.
pub const MAX_BUFFERS: u32 = 1 << 16;
/// The longest message, in bytes.
pub const MAX_MESSAGE: u32 = 1 << 30;
/// The immediate of a message.
pub const IMM_MESSAGE: u32 = 0;
/// The immediate of the goodbye.
pub const IMM_GOODBYE: u32 = 1;

/// Buffers begin at cache lines.
const LINE: u64 = 64;

/// Offset of the stop in a sender's memory with `slots` slots. The stop has words as a slot has
/// them: the number of messages that the receiver has taken, and [`STOPPED`].
pub const fn stop_at(slots: u32) -> u64 {
    slots as u64 * SLOT_BYTES
}

/// Bytes of a sender's memory: its slots, and the stop.
pub const fn slots_bytes(slots: u32) -> u64 {
    stop_at(slots) + SLOT_BYTES
}

/// The second word of a stop that was written.
pub const STOPPED: u64 = 1;
/// The second word of a goodbye that was written; the first one counts the messages.
pub const GOODBYE: u64 = 1;

/// Method by which the receiver finds a message. The receiver chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Detection {
    /// By its trailer, which is part of the same WRITE: for devices that write in order.
    Trailer = 1,
    /// By its trailer, which is a WRITE of its own.
    ApartTrailer = 2,
    /// By an immediate, which takes a posted receive, and can wake the receiver.
    Immediate = 3,
}

codes! { Detection { Trailer, ApartTrailer, Immediate } }

/// The shape of a receiver's memory: its buffers, and behind them the goodbye.
///
/// ```
/// use conn_core::direct_write::Layout;
///
/// let layout = Layout::new(16, 100)?;
/// assert_eq!(layout.stride(), 128); // 104 bytes of payload in whole words, and the trailer
/// assert_eq!(layout.payload_at(1, 100), 128);
/// assert_eq!(layout.trailer_at(1), 232);
/// # Ok::<(), conn_core::direct_write::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    buffers: u32,
    max_message: u32,
}

/// A shape that memory cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// No buffers, or more than [`MAX_BUFFERS`].
    #[error("{0} buffers; there are 1 to {max}", max = MAX_BUFFERS)]
    Buffers(u32),
    /// Messages longer than [`MAX_MESSAGE`].
    #[error("messages of {0} bytes; at most {max}", max = MAX_MESSAGE)]
    Message(u32),
}

impl Layout {
    /// Layout of `buffers` buffers for messages of at most `max_message` bytes.
    ///
    /// # Errors
    /// [`LayoutError`]
    pub const fn new(buffers: u32, max_message: u32) -> Result<Self, LayoutError> {
        if buffers == 0 || buffers > MAX_BUFFERS {
            return Err(LayoutError::Buffers(buffers));
        }
        if max_message > MAX_MESSAGE {
            return Err(LayoutError::Message(max_message));
        }
        Ok(Self { buffers, max_message })
    }

    /// Number of buffers.
    pub const fn buffers(&self) -> u32 {
        self.buffers
    }

    /// The longest message, in bytes.
    pub const fn max_message(&self) -> u32 {
        self.max_message
    }

    /// Bytes from one buffer to the next.
    pub const fn stride(&self) -> u64 {
        (padded(self.max_message) + TRAILER_BYTES).next_multiple_of(LINE)
    }

    /// Bytes in all.
    pub const fn bytes(&self) -> u64 {
        self.goodbye_at() + LINE
    }

    /// Offset of a buffer's trailer, which lies at the end of the buffer.
    pub const fn trailer_at(&self, buffer: u32) -> u64 {
        (buffer as u64 + 1) * self.stride() - TRAILER_BYTES
    }

    /// Offset of a message of `len` bytes, which lies in its buffer in whole words in front of the
    /// trailer.
    pub const fn payload_at(&self, buffer: u32, len: u32) -> u64 {
        self.trailer_at(buffer) - padded(len)
    }

    /// Offset of the goodbye. It has words as a trailer has them: the number of messages that there
    /// were, and [`GOODBYE`].
    pub const fn goodbye_at(&self) -> u64 {
        self.buffers as u64 * self.stride()
    }
}

/// Bytes of a payload in whole words.
pub const fn padded(len: u32) -> u64 {
    (len as u64).next_multiple_of(8)
}
