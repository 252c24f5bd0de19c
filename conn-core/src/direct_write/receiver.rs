//! The receiver's end.

use super::{Detection, GOODBYE, IMM_GOODBYE, IMM_MESSAGE, Layout, SLOT_BYTES};

/// Data that no honest sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// A message that is longer than a buffer.
    #[error("a message of {len} bytes, longer than its buffer")]
    TooLong {
        /// Length in its trailer.
        len: u64,
    },
    /// A later message than the one that goes into this buffer.
    #[error("message {number} lies in an earlier one's buffer")]
    Early {
        /// Number in the trailer, from 1.
        number: u64,
    },
    /// A message was announced, and is not there.
    #[error("a message was announced and is not there")]
    Missing,
    /// An immediate for which it had no credit, or that means nothing.
    #[error("an immediate without a credit for it ({0:#010x})")]
    Immediate(
        /// As it was received.
        u32,
    ),
    /// A goodbye after fewer messages than have arrived.
    #[error("a goodbye after {total} messages, more have come")]
    Goodbye {
        /// Number of messages in the goodbye.
        total: u64,
    },
}

/// A message that lies in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the buffer.
    pub buffer: u32,
    /// Offset of the message in the receiver's memory.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Adjacent slots that are due: one WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRun {
    /// Offset of the first slot in the sender's memory.
    pub offset: u64,
    /// The number of the first one's message.
    pub number: u64,
    /// Number of slots.
    pub count: u32,
}

/// The receiver's end. See the [module](super). `S` is storage for as many numbers as there are
/// buffers.
///
/// ```
/// use conn_core::direct_write::{BufferReceiver, Detection, Layout};
///
/// let layout = Layout::new(2, 100)?;
/// let mut receiver = BufferReceiver::new(layout, 4, Detection::Trailer, [0; 2]).expect("it fits");
/// assert_eq!(receiver.expected(), Some(0));
/// assert_eq!(receiver.on_trailer(Some([0, 0]))?, None); // nothing is there
/// let arrival = receiver.on_trailer(Some([1, 30]))?.expect("the first message");
/// assert_eq!((arrival.buffer, arrival.len), (0, 30));
/// receiver.free(arrival.buffer); // it was copied
/// let run = receiver.slots_due(1).expect("a credit");
/// assert_eq!((run.offset, run.count), (2 * 24, 1)); // for message 2
/// assert_eq!(receiver.slot_words(run.number), [2, 0]); // it goes into buffer 0
/// receiver.mark_told(run);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: received <= told <= granted <= received + buffers. Grant n is the buffer of message
// n; the first ones are told by the set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferReceiver<S> {
    layout: Layout,
    slots: u32,
    detection: Detection,
    /// The buffers of the messages that are expected, each at its number.
    grants: S,
    received: u64,
    granted: u64,
    told: u64,
    /// Immediates of messages.
    announced: u64,
    /// Number of messages in all, once the sender has said it.
    total: Option<u64>,
    is_goodbye_announced: bool,
}

impl<S: AsRef<[u32]> + AsMut<[u32]>> BufferReceiver<S> {
    /// A receiver for a sender with `slots` slots. `None` if there are fewer slots than buffers, or
    /// `storage` has another length.
    pub fn new(layout: Layout, slots: u32, detection: Detection, mut storage: S) -> Option<Self> {
        let grants = storage.as_mut();
        if slots < layout.buffers() || grants.len() != layout.buffers() as usize {
            return None;
        }
        grants.iter_mut().zip(0..).for_each(|(grant, buffer)| *grant = buffer);
        let first = u64::from(layout.buffers());
        Some(Self {
            layout,
            slots,
            detection,
            grants: storage,
            received: 0,
            granted: first,
            told: first,
            announced: 0,
            total: None,
            is_goodbye_announced: false,
        })
    }

    /// The shape of this end's memory.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Messages that have been taken from their buffers.
    pub const fn received(&self) -> u64 {
        self.received
    }

    fn place(&self, number: u64) -> usize {
        (number % u64::from(self.layout.buffers())) as usize
    }

    /// The buffer that the next message arrives in, if it may be there.
    #[inline]
    pub fn expected(&self) -> Option<u32> {
        let may_be = match self.detection {
            Detection::Immediate => self.received < self.announced,
            _ => self.received < self.told,
        };
        may_be.then(|| self.grants.as_ref()[self.place(self.received)])
    }

    /// Takes the words of the trailer in the [expected](Self::expected) buffer, `None` while they
    /// are being written. Returns the message if it has arrived; it counts as received.
    ///
    /// # Errors
    /// [`ArrivalError`]: the peer broke the protocol.
    #[inline]
    pub fn on_trailer(&mut self, words: Option<[u64; 2]>) -> Result<Option<Arrival>, ArrivalError> {
        let (next, longest) = (self.received + 1, self.layout.max_message());
        match (self.expected(), words) {
            (None, _) => Ok(None),
            (Some(_), Some([number, len])) if number == next && len > longest.into() => {
                Err(ArrivalError::TooLong { len })
            }
            (Some(buffer), Some([number, len])) if number == next => {
                self.received = next;
                let len = len as u32;
                Ok(Some(Arrival { buffer, offset: self.layout.payload_at(buffer, len), len }))
            }
            (Some(_), Some([number, _])) if number > next => Err(ArrivalError::Early { number }),
            // Messages were written before the goodbye that counts them, and before the immediate
            // that announces them.
            _ if self.detection == Detection::Immediate => Err(ArrivalError::Missing),
            _ => Ok(None),
        }
    }

    /// An immediate has arrived, and its receive was posted again.
    ///
    /// # Errors
    /// [`ArrivalError::Immediate`]
    pub fn on_immediate(&mut self, imm: u32) -> Result<(), ArrivalError> {
        let is_credited = self.announced < self.told && !self.is_goodbye_announced;
        match (self.detection, imm) {
            (Detection::Immediate, IMM_MESSAGE) if is_credited => self.announced += 1,
            (Detection::Immediate, IMM_GOODBYE) if !self.is_goodbye_announced => {
                self.is_goodbye_announced = true;
            }
            _ => return Err(ArrivalError::Immediate(imm)),
        }
        Ok(())
    }

    /// Reports whether the goodbye may be there.
    #[inline]
    pub const fn awaits_goodbye(&self) -> bool {
        let may_be = self.is_goodbye_announced || !matches!(self.detection, Detection::Immediate);
        may_be && self.total.is_none()
    }

    /// Takes the words of the goodbye; returns true if it has been said. The messages that it
    /// counts are all there: look for them once more.
    ///
    /// # Errors
    /// [`ArrivalError::Goodbye`], and [`ArrivalError::Missing`] where it was announced.
    pub const fn on_goodbye(&mut self, words: Option<[u64; 2]>) -> Result<bool, ArrivalError> {
        match words {
            Some([total, GOODBYE]) if total < self.received => Err(ArrivalError::Goodbye { total }),
            Some([total, GOODBYE]) => {
                self.total = Some(total);
                Ok(true)
            }
            _ if self.is_goodbye_announced => Err(ArrivalError::Missing),
            _ => Ok(false),
        }
    }

    /// Reports whether the sender has said goodbye, and all its messages have been taken.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.total == Some(self.received)
    }

    /// Reports whether the sender has said goodbye.
    pub const fn has_heard_goodbye(&self) -> bool {
        self.total.is_some()
    }

    /// A buffer is free: its message was taken. Frees may be in any order; a buffer from which no
    /// message was taken is left unchanged.
    #[inline]
    pub fn free(&mut self, buffer: u32) {
        let is_held = self.granted < self.received + u64::from(self.layout.buffers());
        if is_held && buffer < self.layout.buffers() {
            let place = self.place(self.granted);
            self.grants.as_mut()[place] = buffer;
            self.granted += 1;
        }
    }

    /// Slots that are worth telling: at least `threshold` of them, and one at least.
    #[inline]
    pub fn slots_due(&self, threshold: u32) -> Option<SlotRun> {
        let due = self.granted - self.told;
        if due == 0 || due < threshold.into() || self.total.is_some() {
            return None;
        }
        let slots = u64::from(self.slots);
        let first = self.told % slots;
        let count = due.min(slots - first) as u32;
        Some(SlotRun { offset: first * SLOT_BYTES, number: self.told, count })
    }

    /// The words of the slot of a message that is due.
    #[inline]
    pub fn slot_words(&self, number: u64) -> [u64; 2] {
        [number, self.grants.as_ref()[self.place(number)].into()]
    }

    /// The slots were written, or fewer of them.
    #[inline]
    pub const fn mark_told(&mut self, run: SlotRun) {
        self.told = run.number + run.count as u64;
    }
}
