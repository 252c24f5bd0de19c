//! The sender's end.

use super::ack::{CountWord, Notice, Outcome, UnknownOutcome};
use super::{MAX_WINDOW, place};

/// Messages that a sender has offered, and the progress of their acknowledgement.
///
/// ```text
///            acked      sent
///              |          |
///   1 2 3 4 5 6 7 8 9 10 11         acked <= sent <= acked + window
///   `-- ours --'`-- the receiver's, to read --'
/// ```
///
/// ```
/// use conn_core::direct_read::{Acknowledged, CountWord, Offers};
///
/// let mut offers = Offers::new(2)?;
/// assert_eq!((offers.offer()?, offers.offer()?), (1, 2));
/// assert!(offers.offer().is_err(), "the window is full");
/// let word = CountWord { count: 2, refusals: 0 };
/// assert_eq!(offers.on_count(word)?, Acknowledged { read: 2, then: None });
/// assert_eq!(offers.offer()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: acked <= sent <= acked + window; counted <= sent; refusals <= acked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers {
    window: u32,
    sent: u64,
    acked: u64,
    /// The last count that was looked at: counts do not go back.
    counted: u64,
    /// Refusals that arrived as notices.
    refusals: u64,
    stopped: bool,
}

/// Reason why nothing can be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The window is not from 1 to [`MAX_WINDOW`].
    #[error("a window is from 1 to {max} messages", max = MAX_WINDOW)]
    Window,
    /// As many messages as the window holds are not acknowledged.
    #[error("the window is full until a message is acknowledged")]
    Full,
    /// The receiver has stopped.
    #[error("the receiver has stopped")]
    Stopped,
}

/// An acknowledgement that cannot be: the receiver, or the device, is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AckError {
    /// The message was never sent.
    #[error("acknowledges a message that was never sent")]
    NeverSent,
    /// The message was acknowledged before, or a count has gone back.
    #[error("acknowledges a message for the second time")]
    Backwards,
    /// A byte that is no outcome.
    #[error("{0}")]
    Outcome(UnknownOutcome),
    /// A notice that only the sender may give.
    #[error("a notice that only the sender gives")]
    Direction,
}

/// Messages that were acknowledged, in order: the oldest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[must_use = "these messages' memory is the sender's again"]
pub struct Acknowledged {
    /// Number of messages that were read.
    pub read: u64,
    /// The outcome of one more message, after these.
    pub then: Option<Outcome>,
}

/// Effect of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "these messages' memory is the sender's again"]
pub enum NoticeEffect {
    /// Messages were acknowledged.
    Acknowledged(Acknowledged),
    /// The acknowledgement that the sender waits for was made: look.
    Wakeup,
    /// The receiver has stopped: these messages were acknowledged, and no others will be.
    Stopped(Acknowledged),
}

/// Making, asking.
impl Offers {
    /// Nothing offered; at most `window` messages unacknowledged.
    ///
    /// # Errors
    /// [`OfferError::Window`].
    pub const fn new(window: u32) -> Result<Self, OfferError> {
        if window == 0 || window > MAX_WINDOW {
            return Err(OfferError::Window);
        }
        Ok(Self { window, sent: 0, acked: 0, counted: 0, refusals: 0, stopped: false })
    }

    /// Messages offered so far: the number of the last one.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages acknowledged so far: the oldest ones.
    pub const fn acked(&self) -> u64 {
        self.acked
    }

    /// Messages that may be offered now.
    pub const fn room(&self) -> u32 {
        if self.stopped { 0 } else { self.window - (self.sent - self.acked) as u32 }
    }

    /// The message that is acknowledged next; `None` if all are.
    pub const fn awaited(&self) -> Option<u64> {
        if self.acked < self.sent { Some(self.acked + 1) } else { None }
    }

    /// Returns the index of a message's signal, which is less than the window.
    pub const fn place(&self, number: u64) -> u32 {
        place(number, self.window)
    }
}

/// Offering, and being acknowledged.
impl Offers {
    /// Offers the next message: its number.
    ///
    /// # Errors
    /// [`OfferError`]; nothing has changed.
    pub const fn offer(&mut self) -> Result<u64, OfferError> {
        if self.stopped {
            return Err(OfferError::Stopped);
        }
        if self.room() == 0 {
            return Err(OfferError::Full);
        }
        self.sent += 1;
        Ok(self.sent)
    }

    /// Takes back the message offered last, after its request was not posted.
    ///
    /// # Errors
    /// [`AckError::NeverSent`] if none is unacknowledged; nothing has changed.
    pub const fn withdraw(&mut self) -> Result<(), AckError> {
        if self.sent == self.acked {
            return Err(AckError::NeverSent);
        }
        self.sent -= 1;
        Ok(())
    }

    /// The signal of the [awaited](Self::awaited) message has this value.
    ///
    /// # Errors
    /// [`AckError`]; nothing has changed.
    pub fn on_signal(&mut self, byte: u8) -> Result<Acknowledged, AckError> {
        match Outcome::from_code(byte).map_err(AckError::Outcome)? {
            None => Ok(Acknowledged::default()),
            Some(_) if self.acked == self.sent => Err(AckError::NeverSent),
            Some(outcome) => {
                self.acked += 1;
                Ok(Acknowledged { read: 0, then: Some(outcome) })
            }
        }
    }

    /// Takes the value of the count word. It acknowledges nothing while a notice of a refusal that
    /// it counts is missing.
    ///
    /// # Errors
    /// [`AckError`]; nothing has changed.
    pub fn on_count(&mut self, word: CountWord) -> Result<Acknowledged, AckError> {
        if word.count > self.sent {
            return Err(AckError::NeverSent);
        }
        if word.count < self.counted {
            return Err(AckError::Backwards);
        }
        // An older word counts fewer refusals than have arrived, by at most 2^15.
        let unreported = word.refusals.wrapping_sub(self.refusals as u16) as i16;
        if unreported > 0 {
            return Ok(Acknowledged::default());
        }
        self.counted = word.count;
        let read = word.count.saturating_sub(self.acked);
        self.acked += read;
        Ok(Acknowledged { read, then: None })
    }

    /// Takes a received notice.
    ///
    /// # Errors
    /// [`AckError`]; nothing has changed.
    pub fn on_notice(&mut self, notice: Notice) -> Result<NoticeEffect, AckError> {
        Ok(match notice {
            Notice::Done(low) => {
                let last = self.number(low)?;
                let read = last - self.acked;
                self.acked = last;
                NoticeEffect::Acknowledged(Acknowledged { read, then: None })
            }
            Notice::Refused(low, refusal) => {
                let last = self.number(low)?;
                let read = last - 1 - self.acked;
                (self.acked, self.refusals) = (last, self.refusals + 1);
                let then = Some(Outcome::Refused(refusal));
                NoticeEffect::Acknowledged(Acknowledged { read, then })
            }
            Notice::Wakeup(_) => NoticeEffect::Wakeup,
            Notice::Stop(low) => {
                // A count that was pulled before may be higher: READs in flight at the receiver's
                // stop have completed.
                let last = Notice::number(self.acked, low).unwrap_or(self.acked);
                if last > self.sent {
                    return Err(AckError::NeverSent);
                }
                let read = last - self.acked;
                (self.acked, self.stopped) = (last, true);
                NoticeEffect::Stopped(Acknowledged { read, then: None })
            }
            Notice::Fin => return Err(AckError::Direction),
        })
    }

    /// The message that a notice speaks of, which is not acknowledged.
    fn number(&self, low: u32) -> Result<u64, AckError> {
        let number = Notice::number(self.acked + 1, low).ok_or(AckError::Backwards)?;
        if number > self.sent { Err(AckError::NeverSent) } else { Ok(number) }
    }
}
