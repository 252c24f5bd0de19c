//! The receiver's end.

use super::ack::{CountWord, Notice, Outcome, Refusal};
use super::terms::AckMode;
use super::{MAX_WINDOW, place};

/// Policies of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsConfig {
    /// Messages that the sender may have unacknowledged, 1 to [`MAX_WINDOW`].
    pub window: u32,
    /// Mode of acknowledgement, as the sender asked for it.
    pub ack: AckMode,
    /// READs in flight: the smaller limit of this end's device as requester and of the peer's as
    /// responder; at least 1.
    pub reads: u32,
    /// Bytes of one READ, at most; at least 1. Longer messages are read in parts.
    pub max_read: u32,
    /// Messages that a count or a [`Notice::Done`] waits for, while others are still
    /// pending; 1 to `window`.
    pub gather: u32,
}

impl Default for ReadsConfig {
    /// A window of 16 messages, each acknowledged by a SEND when it was read; 4 READs of up to 1
    /// MiB in flight.
    fn default() -> Self {
        Self { window: 16, ack: AckMode::Send, reads: 4, max_read: 1 << 20, gather: 1 }
    }
}

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadsConfigError {
    /// The window is not from 1 to [`MAX_WINDOW`].
    #[error("a window is from 1 to {max} messages", max = MAX_WINDOW)]
    Window,
    /// No READs, or READs of no bytes.
    #[error("at least one READ of at least one byte")]
    Reads,
    /// Gathers none, or more than the window.
    #[error("1 to window acknowledgements are gathered")]
    Gather,
    /// The storage has fewer slots than the window.
    #[error("a slot of storage for each message")]
    StorageTooSmall,
}

/// Storage for one message of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadSlot {
    /// Bytes of it.
    len: u64,
    /// Bytes of READs that were given out.
    begun: u64,
    /// READs of it in flight.
    in_flight: u32,
    refused: Option<Refusal>,
}

/// A READ to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPart {
    /// The message.
    pub number: u64,
    /// Offset of the part, in the message and in its destination.
    pub offset: u64,
    /// Bytes of it, at least 1.
    pub len: u32,
    /// True if it is the last part of its message.
    pub is_last: bool,
    /// True if the READ has to be signalled: it is the last one of its message, or no other may be
    /// posted before one has completed.
    pub signalled: bool,
}

/// An acknowledgement to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Write the outcome to the signal of the message; behind a fence where the mode says
    /// so.
    Signal {
        /// The message.
        number: u64,
        /// Outcome of the message.
        outcome: Outcome,
    },
    /// Send a notice.
    Notice(Notice),
    /// Write the word to the sender (`Cumulative`), or store it for the sender to read
    /// (`Pull`).
    Count(CountWord),
}

/// A request that the sender may not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// More than the window holds.
    #[error("more messages than the window holds")]
    Overrun,
    /// Not the next number.
    #[error("message {found} where {expected} was due")]
    OutOfOrder {
        /// The low half of the number that was due.
        expected: u32,
        /// That of the request.
        found: u32,
    },
    /// A wakeup for a message that was never sent.
    #[error("a wakeup for a message that was never sent")]
    Wakeup,
    /// It arrives after the sender's goodbye.
    #[error("a message after the goodbye")]
    AfterFin,
    /// A notice that is the receiver's own to give.
    #[error("a notice that only the receiver gives")]
    Direction,
}

/// There is no message to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no message to be decided")]
pub struct DecideError;

/// A READ completed that was not begun: the device is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("completion of a READ that was never begun")]
pub struct ReadDoneError;

/// Messages that a receiver has been offered, and the progress of each.
///
/// ```text
///         acked  finished  issued  decided  received
///           |       |        |        |        |
///   1 2 3 4 5 6 7 8 9 . . . 12 . . . 15 . . . 18       all <= acked + window
///           `-read -'`-READs-'`to read'`-asked-'
///                    in flight
/// ```
///
/// (Behind a fence, `acked` may advance up to `issued`.)
///
/// ```
/// use conn_core::direct_read::{Ack, AckMode, Notice, Reads, ReadsConfig, ReadSlot};
///
/// let config =
///     ReadsConfig { window: 8, ack: AckMode::Send, reads: 4, max_read: 1 << 20, gather: 1 };
/// let mut reads = Reads::new(config, [ReadSlot::default(); 8])?;
/// assert_eq!(reads.on_request(1)?, 1);
/// reads.read(3 << 20)?;
/// let parts: Vec<_> = std::iter::from_fn(|| reads.next_read()).collect();
/// assert_eq!(parts.len(), 3);
/// assert!(parts[2].is_last && reads.next_ack().is_none());
/// for _ in parts {
///     reads.on_read_done()?;
/// }
/// let ack = reads.next_ack().unwrap();
/// assert_eq!(ack, Ack::Notice(Notice::Done(1)));
/// reads.mark_acked(ack);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: finished <= issued <= decided <= received; acked <= issued behind a fence, and
// <= finished otherwise; received <= min(acked, finished) + window, so that no slot is used
// twice; those after `issued` have no READ in flight but for the first one, which may have
// been begun; those up to `finished` have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads<S> {
    config: ReadsConfig,
    received: u64,
    decided: u64,
    /// All READs of these have been given out, or they were refused.
    issued: u64,
    /// All READs of these have completed.
    finished: u64,
    acked: u64,
    in_flight: u32,
    /// Refusals reported by notices.
    refusals: u64,
    /// The message for which the sleeping sender needs an acknowledgement.
    wakeup: Option<u64>,
    fin: bool,
    slots: S,
}

/// Making, asking.
impl<S: AsRef<[ReadSlot]> + AsMut<[ReadSlot]>> Reads<S> {
    /// Nothing received.
    ///
    /// # Errors
    /// [`ReadsConfigError`].
    pub fn new(config: ReadsConfig, mut slots: S) -> Result<Self, ReadsConfigError> {
        let ReadsConfig { window, reads, max_read, gather, .. } = config;
        if window == 0 || window > MAX_WINDOW {
            return Err(ReadsConfigError::Window);
        }
        if reads == 0 || max_read == 0 {
            return Err(ReadsConfigError::Reads);
        }
        if gather == 0 || gather > window {
            return Err(ReadsConfigError::Gather);
        }
        if slots.as_ref().len() < window as usize {
            return Err(ReadsConfigError::StorageTooSmall);
        }
        slots.as_mut().fill(ReadSlot::default());
        let (wakeup, fin) = (None, false);
        let (received, decided, issued, finished, acked) = (0, 0, 0, 0, 0);
        let (in_flight, refusals) = (0, 0);
        Ok(Self {
            config,
            received,
            decided,
            issued,
            finished,
            acked,
            in_flight,
            refusals,
            wakeup,
            fin,
            slots,
        })
    }

    /// The policies.
    pub const fn config(&self) -> &ReadsConfig {
        &self.config
    }

    /// Requests received so far.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Messages decided so far: the oldest ones.
    pub const fn decided(&self) -> u64 {
        self.decided
    }

    /// Messages that have been read, or refused: the oldest ones.
    pub const fn finished(&self) -> u64 {
        self.finished
    }

    /// Messages acknowledged so far: the oldest ones.
    pub const fn acked(&self) -> u64 {
        self.acked
    }

    /// READs in flight.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Reports whether the sender has said goodbye, and all that it offered was acknowledged.
    pub const fn is_over(&self) -> bool {
        self.fin && self.acked == self.received && self.finished == self.received
    }

    fn slot(&mut self, number: u64) -> &mut ReadSlot {
        let at = place(number, self.config.window);
        &mut self.slots.as_mut()[at as usize]
    }

    fn look(&self, number: u64) -> &ReadSlot {
        &self.slots.as_ref()[place(number, self.config.window) as usize]
    }
}

/// Arrivals from the sender.
impl<S: AsRef<[ReadSlot]> + AsMut<[ReadSlot]>> Reads<S> {
    /// Takes a received request, with the low half of its number; returns the whole number.
    ///
    /// # Errors
    /// [`RequestError`]; nothing has changed.
    pub fn on_request(&mut self, found: u32) -> Result<u64, RequestError> {
        if self.fin {
            return Err(RequestError::AfterFin);
        }
        // Behind a fence, acknowledgements are posted before the READs have completed.
        let oldest = self.acked.min(self.finished);
        if self.received - oldest >= u64::from(self.config.window) {
            return Err(RequestError::Overrun);
        }
        let expected = (self.received + 1) as u32;
        if found != expected {
            return Err(RequestError::OutOfOrder { expected, found });
        }
        self.received += 1;
        *self.slot(self.received) = ReadSlot::default();
        Ok(self.received)
    }

    /// Takes a received notice.
    ///
    /// # Errors
    /// [`RequestError`]; nothing has changed.
    pub fn on_notice(&mut self, notice: Notice) -> Result<(), RequestError> {
        match notice {
            Notice::Fin if self.fin => Err(RequestError::AfterFin),
            Notice::Fin => {
                self.fin = true;
                Ok(())
            }
            Notice::Wakeup(low) => {
                let oldest = self.received.saturating_sub(u64::from(self.config.window));
                let number = Notice::number(oldest, low).filter(|n| *n <= self.received);
                self.wakeup = Some(number.ok_or(RequestError::Wakeup)?);
                Ok(())
            }
            _ => Err(RequestError::Direction),
        }
    }
}

/// Deciding, and reading.
impl<S: AsRef<[ReadSlot]> + AsMut<[ReadSlot]>> Reads<S> {
    /// Decides that the oldest undecided message, of `len` bytes, is read: its number.
    ///
    /// # Errors
    /// [`DecideError`]; nothing has changed.
    pub fn read(&mut self, len: u64) -> Result<u64, DecideError> {
        self.decide(ReadSlot { len, ..ReadSlot::default() })
    }

    /// Decides that the oldest undecided message is refused: its number.
    ///
    /// # Errors
    /// [`DecideError`]; nothing has changed.
    pub fn refuse(&mut self, why: Refusal) -> Result<u64, DecideError> {
        self.decide(ReadSlot { refused: Some(why), ..ReadSlot::default() })
    }

    fn decide(&mut self, slot: ReadSlot) -> Result<u64, DecideError> {
        if self.decided == self.received {
            return Err(DecideError);
        }
        self.decided += 1;
        *self.slot(self.decided) = slot;
        self.advance();
        Ok(self.decided)
    }

    /// The next READ to be posted, if one may be. It counts as in flight from here on.
    pub fn next_read(&mut self) -> Option<ReadPart> {
        if self.issued == self.decided || self.in_flight >= self.config.reads {
            return None;
        }
        let (number, most) = (self.issued + 1, u64::from(self.config.max_read));
        let slot = self.slot(number);
        let (offset, left) = (slot.begun, slot.len - slot.begun);
        let len = left.min(most);
        slot.begun += len;
        slot.in_flight += 1;
        let is_last = len == left;
        self.in_flight += 1;
        self.advance();
        let signalled = is_last || self.in_flight == self.config.reads;
        Some(ReadPart { number, offset, len: len as u32, is_last, signalled })
    }

    /// The oldest READ in flight has completed; returns how many messages are finished now.
    ///
    /// # Errors
    /// [`ReadDoneError`]; nothing has changed.
    pub fn on_read_done(&mut self) -> Result<u64, ReadDoneError> {
        if self.in_flight == 0 {
            return Err(ReadDoneError);
        }
        // Finished messages have no READ in flight, and READs complete in order.
        let oldest = self.finished + 1;
        self.slot(oldest).in_flight -= 1;
        self.in_flight -= 1;
        self.advance();
        Ok(self.finished)
    }

    /// Moves `issued` and `finished` over messages that need no further READ.
    fn advance(&mut self) {
        while self.issued < self.decided {
            let slot = self.look(self.issued + 1);
            if slot.refused.is_none() && slot.begun < slot.len {
                break;
            }
            self.issued += 1;
        }
        while self.finished < self.issued && self.look(self.finished + 1).in_flight == 0 {
            self.finished += 1;
        }
    }
}

/// Acknowledging.
impl<S: AsRef<[ReadSlot]> + AsMut<[ReadSlot]>> Reads<S> {
    /// The acknowledgement to be posted next, if one is due. Say
    /// [`mark_acked`](Self::mark_acked) when it was posted.
    pub fn next_ack(&self) -> Option<Ack> {
        if let Some(number) = self.wakeup.filter(|number| *number <= self.acked) {
            return Some(Ack::Notice(Notice::Wakeup(Notice::low(number))));
        }
        let ready = match self.config.ack {
            AckMode::FencedWrite => self.issued,
            _ => self.finished,
        };
        if self.acked == ready {
            return None;
        }
        if self.config.ack.signals() {
            return Some(self.signal(self.acked + 1));
        }
        // Up to the first one that was refused, which has a notice of its own.
        let refused = (self.acked + 1..=ready).find(|n| self.look(*n).refused.is_some());
        match refused.and_then(|number| Some((number, self.look(number).refused?))) {
            // It acknowledges those before it, too.
            Some((number, why)) => Some(Ack::Notice(Notice::Refused(Notice::low(number), why))),
            None => self.is_due(ready).then(|| self.together(ready)),
        }
    }

    fn signal(&self, number: u64) -> Ack {
        let refused = self.look(number).refused;
        Ack::Signal { number, outcome: refused.map_or(Outcome::Read, Outcome::Refused) }
    }

    /// Acknowledges all up to `last` at once.
    fn together(&self, last: u64) -> Ack {
        match self.config.ack {
            AckMode::Send => Ack::Notice(Notice::Done(Notice::low(last))),
            _ => Ack::Count(CountWord { count: last, refusals: self.refusals as u16 }),
        }
    }

    /// Reports whether to acknowledge the messages up to `last` now: an acknowledgement costs
    /// nothing, the sender waits for one of them, enough have gathered, or no later message has
    /// been decided, so that no later acknowledgement would cover them.
    fn is_due(&self, last: u64) -> bool {
        let costs_nothing = self.config.ack == AckMode::Pull;
        let wanted = self.wakeup.is_some_and(|number| number <= last);
        let enough = last - self.acked >= u64::from(self.config.gather);
        costs_nothing || wanted || enough || last == self.decided
    }

    /// The acknowledgement that [`next_ack`](Self::next_ack) gave was posted.
    pub fn mark_acked(&mut self, ack: Ack) {
        match ack {
            Ack::Signal { number, .. } => self.acked = number,
            Ack::Count(word) => self.acked = word.count,
            Ack::Notice(Notice::Done(low)) => self.acked = self.number(low),
            Ack::Notice(Notice::Refused(low, _)) => {
                self.acked = self.number(low);
                self.refusals += 1;
            }
            Ack::Notice(_) => self.wakeup = None,
        }
    }

    /// Number of a message to acknowledge, from its low bits.
    fn number(&self, low: u32) -> u64 {
        Notice::number(self.acked, low).unwrap_or(self.acked)
    }
}
