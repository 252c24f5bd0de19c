//! The sender's end.

use super::{Layout, STOPPED};

/// Words of the receiver that no honest one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// A buffer that does not exist.
    #[error("the peer has no buffer {buffer}")]
    Buffer {
        /// Number of the buffer in the slot.
        buffer: u64,
    },
    /// A slot for a later message.
    #[error("the slot of message {number} is not there")]
    Early {
        /// The message that the slot says.
        number: u64,
    },
    /// It has taken more messages than were sent.
    #[error("the peer cannot have taken {taken} messages")]
    Taken {
        /// Number of messages in the stop.
        taken: u64,
    },
}

/// The sender's end. See the [module](super).
///
/// ```
/// use conn_core::direct_write::{BufferSender, Layout};
///
/// let mut sender = BufferSender::new(Layout::new(2, 100)?, 4).expect("as many slots as buffers");
/// for buffer in 0..2 {
///     assert_eq!(sender.buffer(|_| unreachable!())?, Some(buffer));
///     assert_eq!(sender.mark_sent(), u64::from(buffer) + 1);
/// }
/// assert_eq!(sender.slot_at(), 2 * 24); // message 2 has slot 2
/// assert_eq!(sender.buffer(|_| Some([0, 0]))?, None); // there is no credit yet
/// assert_eq!(sender.buffer(|_| Some([2, 1]))?, Some(1)); // buffer 1 was freed first
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSender {
    layout: Layout,
    slots: u32,
    sent: u64,
}

impl BufferSender {
    /// A sender to buffers of this shape, with `slots` slots for them; `None` if these are fewer
    /// than the buffers.
    pub const fn new(layout: Layout, slots: u32) -> Option<Self> {
        if slots < layout.buffers() {
            return None;
        }
        Some(Self { layout, slots, sent: 0 })
    }

    /// The shape of the receiver's memory.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Messages that were sent.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Offset of the next message's slot.
    #[inline]
    pub const fn slot_at(&self) -> u64 {
        self.sent % self.slots as u64 * super::SLOT_BYTES
    }

    /// The buffer that the next message goes into; `None` without a credit. `slot` loads the
    /// verified words of the slot at an offset, or nothing while they are being written.
    ///
    /// # Errors
    /// [`SlotError`]: the peer broke the protocol.
    #[inline]
    pub fn buffer(
        &self,
        slot: impl FnOnce(u64) -> Option<[u64; 2]>,
    ) -> Result<Option<u32>, SlotError> {
        let buffers = u64::from(self.layout.buffers());
        if self.sent < buffers {
            return Ok(Some(self.sent as u32));
        }
        match slot(self.slot_at()) {
            Some([number, buffer]) if number == self.sent => {
                if buffer < buffers {
                    Ok(Some(buffer as u32))
                } else {
                    Err(SlotError::Buffer { buffer })
                }
            }
            Some([number, _]) if number > self.sent => Err(SlotError::Early { number }),
            _ => Ok(None),
        }
    }

    /// The next message was sent: the number in its trailer, which counts from 1.
    #[inline]
    pub const fn mark_sent(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Takes the words of the stop; returns how many messages the receiver has taken, if it has
    /// stopped.
    ///
    /// # Errors
    /// [`SlotError::Taken`]
    pub const fn on_stop(&self, [taken, flag]: [u64; 2]) -> Result<Option<u64>, SlotError> {
        match flag {
            STOPPED if taken > self.sent => Err(SlotError::Taken { taken }),
            STOPPED => Ok(Some(taken)),
            _ => Ok(None),
        }
    }
}
