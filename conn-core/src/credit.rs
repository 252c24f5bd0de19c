//! Credits: limits of the sender, so that a message always finds a buffer.
//!
//! A credit is a position: "messages may be sent up to, and not including, number
//! `limit`". It is absolute and cumulative, so a credit that is lost, merged with a
//! later one or repeated does no harm, and the two ends never have to agree on a
//! window that either could get wrong. Positions are u64 counts that never wrap; the
//! wire carries the low 31 bits.
//!
//! ```text
//!   sender      sent <= limit            limit <= sent + window
//!   receiver    received <= granted      granted <= window + reposted
//!               reposted <= received
//!   together    received <= sent <= limit <= granted <= received + window
//! ```
//!
//! Both ends start with `limit = granted = window`: the receiver has posted that many
//! buffers before the set-up ends. A buffer is granted again when it has been
//! *posted* again, not when it has been freed: a message that arrived in between would
//! find no buffer (RNR).
//!
//! It cannot stall: a sender without credit has sent `granted` messages; once they have arrived,
//! `received == granted`, and then every reposted buffer is due for granting, regardless of the
//! threshold.

use core::fmt;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

/// The largest window, in messages. It is a small part of the 2^31 positions that the wire
/// distinguishes, so an impossible credit is always detected, whether it is too low or too high.
pub const MAX_WINDOW: u32 = 1 << 20;

/// A position as the wire carries it: its low `BITS` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WirePosition<const BITS: u32>(u32);

/// A position as a credit carries it: its low 31 bits. The top bit marks a control code.
pub type CreditWire = WirePosition<31>;

impl<const BITS: u32> WirePosition<BITS> {
    const MASK: u32 = (1 << BITS) - 1;

    /// From the wire; `None` when more bits are set than it has.
    #[inline]
    pub const fn new(value: u32) -> Option<Self> {
        if value & !Self::MASK == 0 { Some(Self(value)) } else { None }
    }

    /// The wire form of a position.
    #[inline]
    pub const fn of_position(position: u64) -> Self {
        Self(position as u32 & Self::MASK)
    }

    /// The bits.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the distance from `position` to this position, modulo 2^`BITS`.
    #[inline]
    pub(crate) const fn beyond(self, position: u64) -> u32 {
        self.0.wrapping_sub(position as u32) & Self::MASK
    }

    /// Sorts a distance that is not allowed into too far, up to half of all, and backwards.
    #[cold]
    const fn refuse(ahead: u32, room: u32) -> CreditError {
        if ahead <= 1 << (BITS - 1) {
            return CreditError::Impossible { ahead, room };
        }
        CreditError::Backwards { by: (Self::MASK - ahead) + 1 }
    }
}

impl<const BITS: u32> fmt::Display for WirePosition<BITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A window that cannot be used: 0, or more than [`MAX_WINDOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a window of {window} messages is not between 1 and {max}", max = MAX_WINDOW)]
pub struct WindowError {
    /// The window asked for, in messages.
    pub window: u32,
}

const fn check_window(window: u32) -> Result<(), WindowError> {
    if window == 0 || window > MAX_WINDOW {
        return Err(WindowError { window });
    }
    Ok(())
}

/// Not enough credit: wait for the peer to grant some, then try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only {available} more messages fit the receiver's buffers")]
pub struct OutOfCredit {
    /// Messages that may be sent now.
    pub available: u32,
}

/// A credit that no honest receiver sends: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreditError {
    /// It revokes granted credits.
    #[error("the peer took {by} credits back")]
    Backwards {
        /// Messages by which it is below the present limit.
        by: u32,
    },
    /// It grants more buffers than the receiver has.
    #[error("the peer granted {ahead} credits where it has {room} buffers to grant")]
    Impossible {
        /// Messages by which it is above the present limit.
        ahead: u32,
        /// Messages by which it could have.
        room: u32,
    },
}

/// A refund of messages that cannot have stayed unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefundError {
    /// More than was ever consumed.
    #[error("refund of more credits than were consumed")]
    NotConsumed,
    /// The peer has granted buffers for them again, so it says that it had them.
    #[error("refund of messages that the peer has acknowledged")]
    AlreadyGranted,
}

/// The sender's view: the number of messages that may go. See the [module](self).
///
/// ```
/// use conn_core::credit::*;
///
/// let mut window = CreditWindow::new(2)?;
/// window.consume(2)?;
/// assert_eq!(window.consume(1), Err(OutOfCredit { available: 0 }));
/// assert_eq!(window.on_credit(CreditWire::of_position(3))?, 1);
/// window.consume(1)?;
///
/// let lie = window.on_credit(CreditWire::of_position(6));
/// assert_eq!(lie, Err(CreditError::Impossible { ahead: 3, room: 2 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: sent <= limit <= sent + window; 1 <= window <= MAX_WINDOW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditWindow {
    window: u32,
    sent: u64,
    limit: u64,
}

impl CreditWindow {
    /// The sender of a connection; the receiver has posted `window` buffers.
    ///
    /// # Errors
    /// [`WindowError`] when the window is 0 or more than [`MAX_WINDOW`].
    pub const fn new(window: u32) -> Result<Self, WindowError> {
        match check_window(window) {
            Ok(()) => Ok(Self { window, sent: 0, limit: window as u64 }),
            Err(error) => Err(error),
        }
    }

    /// As [`new`](Self::new), for a sender that at first has credit for the first `limit`
    /// messages only.
    ///
    /// # Errors
    /// [`WindowError`] also when `limit` is more than `window`.
    pub const fn with_limit(window: u32, limit: u32) -> Result<Self, WindowError> {
        match check_window(window) {
            Ok(()) if limit <= window => Ok(Self { window, sent: 0, limit: limit as u64 }),
            Ok(()) => Err(WindowError { window: limit }),
            Err(error) => Err(error),
        }
    }

    /// Messages that may be sent now.
    #[inline]
    pub fn available(&self) -> u32 {
        (self.limit - self.sent) as u32
    }

    /// Takes the credit of `n` messages that are about to be sent.
    ///
    /// # Errors
    /// [`OutOfCredit`] when there are fewer: retry after a credit.
    #[inline]
    pub fn consume(&mut self, n: u32) -> Result<(), OutOfCredit> {
        let available = self.available();
        if n > available {
            return Err(OutOfCredit { available });
        }
        self.sent += u64::from(n);
        Ok(())
    }

    /// Gives back the credit of `n` messages that could not be posted after all, the
    /// last ones consumed.
    ///
    /// # Errors
    /// [`RefundError`] when fewer messages can have stayed unsent.
    pub fn refund(&mut self, n: u32) -> Result<(), RefundError> {
        let sent = self.sent.checked_sub(u64::from(n)).ok_or(RefundError::NotConsumed)?;
        if self.limit > sent + u64::from(self.window) {
            return Err(RefundError::AlreadyGranted);
        }
        self.sent = sent;
        Ok(())
    }

    /// Takes the peer's new limit. Returns the number of further messages that may be sent: 0 for a
    /// credit that says nothing new.
    ///
    /// # Errors
    /// [`CreditError`] when the limit goes back, or beyond the peer's buffers.
    #[inline]
    pub fn on_credit(&mut self, wire: CreditWire) -> Result<u32, CreditError> {
        self.on_limit(wire)
    }

    /// The same, from a position of any width.
    #[inline]
    pub(crate) fn on_limit<const BITS: u32>(
        &mut self,
        wire: WirePosition<BITS>,
    ) -> Result<u32, CreditError> {
        let ahead = wire.beyond(self.limit);
        let room = self.window - self.available();
        if ahead > room {
            return Err(WirePosition::<BITS>::refuse(ahead, room));
        }
        self.limit += u64::from(ahead);
        Ok(ahead)
    }

    /// As if `already` messages had been sent and granted.
    #[cfg(any(test, feature = "oracle"))]
    pub(crate) fn skip_for_tests(&mut self, already: u64) {
        self.sent += already;
        self.limit += already;
    }

    /// Messages for which credit was taken.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The position up to which messages may be sent.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The receiver's buffers.
    #[inline]
    pub fn window(&self) -> u32 {
        self.window
    }
}

/// A window or threshold that makes no grantor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantorConfigError {
    /// The window is 0 or more than [`MAX_WINDOW`].
    #[error("{0}")]
    Window(WindowError),
    /// The threshold is 0.
    #[error("the credit threshold is 0")]
    EmptyThreshold,
}

/// A message without a credit: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent a message for which it had no credit")]
pub struct CreditOverrun;

/// More buffers reposted than messages received: the driver counts wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only {possible} received messages have a buffer to repost")]
pub struct RepostOverrun {
    /// Buffers that could have been reposted.
    pub possible: u32,
}

/// A credit marked as granted that could not have been: the driver made it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only {possible} buffers have been reposted and not granted")]
pub struct GrantError {
    /// Messages that could have been granted.
    pub possible: u32,
}

/// The receiver's view: decides when to grant credits, and how many. See the [module](self).
///
/// ```
/// use conn_core::credit::*;
///
/// let mut grantor = CreditGrantor::new(8, 4)?;
/// for _ in 0..4 {
///     grantor.on_receive()?;
/// }
/// grantor.on_reposted(3)?;
/// assert_eq!(grantor.due(), None, "below the threshold, and the sender has credit");
/// grantor.on_reposted(1)?;
/// let credit = grantor.due().unwrap();
/// assert_eq!(credit, CreditWire::of_position(12));
/// // … post it; only if that went well:
/// grantor.mark_granted(credit)?;
/// assert_eq!(grantor.due(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: received <= granted <= posted <= received + window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditGrantor {
    window: u32,
    threshold: u32,
    received: u64,
    /// The position up to which buffers have been posted: `window + reposted`.
    posted: u64,
    granted: u64,
}

impl CreditGrantor {
    /// The receiver of a connection that has posted `window` buffers, and that grants
    /// when `threshold` of them have gathered.
    ///
    /// # Errors
    /// A window of 0 or more than [`MAX_WINDOW`], or a threshold of 0.
    pub const fn new(window: u32, threshold: u32) -> Result<Self, GrantorConfigError> {
        if let Err(error) = check_window(window) {
            return Err(GrantorConfigError::Window(error));
        }
        if threshold == 0 {
            return Err(GrantorConfigError::EmptyThreshold);
        }
        let posted = window as u64;
        Ok(Self { window, threshold, received: 0, posted, granted: posted })
    }

    /// Credit messages that can be under way to the sender at once, at most: as many
    /// receives does it need for them. (A grant below the threshold is made only when
    /// the sender has used all earlier ones up, so at most the first is small. Grants
    /// that are not [`due`](Self::due) are not bounded by this.)
    ///
    /// # Panics
    /// When the threshold is 0.
    pub const fn max_grants_in_flight(window: u32, threshold: u32) -> u32 {
        1 + window.saturating_sub(1) / threshold
    }

    /// A message has arrived.
    ///
    /// # Errors
    /// [`CreditOverrun`] when the sender had no credit for it.
    #[inline]
    pub fn on_receive(&mut self) -> Result<(), CreditOverrun> {
        self.on_receive_many(1)
    }

    /// Books `n` messages that have arrived, up to [`expected`](Self::expected) of them at once.
    ///
    /// # Errors
    /// [`CreditOverrun`] when the sender had no credit for all of them.
    #[inline]
    pub fn on_receive_many(&mut self, n: u32) -> Result<(), CreditOverrun> {
        if n > self.expected() {
            return Err(CreditOverrun);
        }
        self.received += u64::from(n);
        Ok(())
    }

    /// Messages that the sender has credit for, and that have not arrived.
    #[inline]
    pub fn expected(&self) -> u32 {
        (self.granted - self.received) as u32
    }

    /// The buffers of `n` received messages have been posted again.
    ///
    /// # Errors
    /// [`RepostOverrun`] when fewer messages than that have a buffer to repost.
    #[inline]
    pub fn on_reposted(&mut self, n: u32) -> Result<(), RepostOverrun> {
        let possible = self.window - (self.posted - self.received) as u32;
        if n > possible {
            return Err(RepostOverrun { possible });
        }
        self.posted += u64::from(n);
        Ok(())
    }

    /// The credit to send now, if it is time: the threshold has been reached, or the
    /// sender has none left and there is something to give.
    #[inline]
    pub fn due(&self) -> Option<CreditWire> {
        if self.ungranted() < self.threshold && self.received != self.granted {
            return None;
        }
        self.grantable()
    }

    /// The credit that could be sent now, whether it is time or not; `None` when all buffers
    /// are advertised to the sender.
    #[inline]
    pub fn grantable(&self) -> Option<CreditWire> {
        (self.ungranted() != 0).then(|| CreditWire::of_position(self.posted))
    }

    /// The credit has been posted. If the post failed, do not call this: the credit,
    /// or a larger one, is due again.
    ///
    /// # Errors
    /// [`GrantError`] when [`due`](Self::due) and [`grantable`](Self::grantable) can
    /// not have given this credit.
    #[inline]
    pub fn mark_granted(&mut self, wire: CreditWire) -> Result<(), GrantError> {
        let (ahead, possible) = (wire.beyond(self.granted), self.ungranted());
        if ahead > possible {
            return Err(GrantError { possible });
        }
        self.granted += u64::from(ahead);
        Ok(())
    }

    /// Reposted buffers that were not granted to the sender yet.
    #[inline]
    pub fn ungranted(&self) -> u32 {
        (self.posted - self.granted) as u32
    }

    /// Messages received.
    #[inline]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The position granted to the sender.
    #[inline]
    pub fn granted(&self) -> u64 {
        self.granted
    }
}
