//! The receiver's end of one connection with loans as credits.

use super::{Due, LoanWire};
use crate::control::Control;
use crate::credit::{CreditOverrun, CreditWire};

/// Progress of the sender's WANT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerWantState {
    /// There is none.
    No,
    /// It has arrived, and has no answer.
    Unanswered,
    /// The sender got the answer that it waits.
    Waits,
}

/// Credits of one sender, and the control messages that are due to it. See the [module](super).
///
/// ```
/// use conn_core::control::Control;
/// use conn_core::loan::*;
///
/// let mut grantor = LoanGrantor::new();
/// grantor.on_receive_many(1)?; // the share
/// assert!(grantor.on_receive_many(1).is_err());
/// grantor.on_want()?;
/// grantor.lend(Due { credits: 4, ..Due::default() });
/// let answer = grantor.due().unwrap();
/// assert_eq!(answer, Control::Loan(LoanWire::of_position(5)));
/// // … post it; only if that went well:
/// grantor.mark_sent(answer);
/// assert_eq!(grantor.expected(), 4);
/// assert_eq!(grantor.on_return(LoanWire::of_position(4))?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: received <= told <= granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanGrantor {
    /// Messages that have arrived, and credits that were given back.
    received: u64,
    /// The position that was sent to the sender.
    told: u64,
    granted: u64,
    asked: PeerWantState,
    answer_due: bool,
    recall_due: bool,
}

/// A WANT that no honest sender sends: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WantError {
    /// The WANT before it is not answered, or its loan has not arrived.
    #[error("the peer asked twice for one loan")]
    Repeated,
    /// The sender still has credits.
    #[error("the peer asked for a loan with {credits} credits left")]
    Early {
        /// As many as it has, at least.
        credits: u32,
    },
}

/// A RETURN that no honest sender sends: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer gave credits back that it does not have (it has {possible})")]
pub struct ReturnError {
    /// Credits that it could have given back, at least one.
    pub possible: u32,
}

impl LoanGrantor {
    /// Creates the grantor of a sender that has its share.
    pub const fn new() -> Self {
        let (asked, answer_due, recall_due) = (PeerWantState::No, false, false);
        Self { received: 0, told: 1, granted: 1, asked, answer_due, recall_due }
    }

    /// Messages that the sender has credit for, and that have not arrived.
    #[inline]
    pub fn expected(&self) -> u32 {
        (self.told - self.received) as u32
    }

    /// Credits that are granted and not used, those not yet sent to the sender included: the
    /// argument of [`Lender::leave`](super::Lender::leave).
    pub fn unused(&self) -> u32 {
        (self.granted - self.received) as u32
    }

    /// `n` messages have arrived.
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

    /// WANT has arrived, and its buffer is posted again: tell
    /// [`Lender::want`](super::Lender::want).
    ///
    /// # Errors
    /// [`WantError`] when an honest sender has no reason, or no buffer, to send it.
    pub fn on_want(&mut self) -> Result<(), WantError> {
        if self.asked != PeerWantState::No || self.answer_due {
            return Err(WantError::Repeated);
        }
        // One credit may be its share, granted while WANT was in flight.
        if self.expected() > 1 {
            return Err(WantError::Early { credits: self.expected() });
        }
        self.asked = PeerWantState::Unanswered;
        Ok(())
    }

    /// RETURN has arrived, and its buffer is posted again. Returns the number of credits to pass to
    /// [`Lender::give_back`](super::Lender::give_back).
    ///
    /// # Errors
    /// [`ReturnError`] when it gives back nothing, or more than the sender has.
    pub fn on_return(&mut self, wire: LoanWire) -> Result<u32, ReturnError> {
        let (returned, possible) = (wire.beyond(self.received), self.expected());
        if returned == 0 || returned > possible {
            return Err(ReturnError { possible });
        }
        self.received += u64::from(returned);
        Ok(returned)
    }

    /// Takes a `Due` of the lender for this sender.
    pub fn lend(&mut self, due: Due) {
        self.granted += u64::from(due.credits);
        let is_answer = due.credits > 0 || due.heard;
        self.answer_due |= is_answer && self.asked == PeerWantState::Unanswered;
        if due.credits > 0 {
            (self.asked, self.recall_due) = (PeerWantState::No, false);
        } else if due.heard && self.asked == PeerWantState::Unanswered {
            self.asked = PeerWantState::Waits;
        }
        self.recall_due |= due.recall;
    }

    /// The lender has granted the share again.
    pub fn restore_share(&mut self) {
        self.granted += 1;
    }

    /// The control message to send now.
    #[inline]
    pub fn due(&self) -> Option<Control> {
        if self.answer_due {
            return Some(Control::Loan(LoanWire::of_position(self.granted)));
        }
        if self.granted != self.told {
            return Some(Control::Credit(CreditWire::of_position(self.granted)));
        }
        // The last credit is its share.
        (self.recall_due && self.expected() > 1).then_some(Control::Recall)
    }

    /// The message that was [`due`](Self::due) has been posted. If the post failed, do not
    /// call this: it is due again.
    pub fn mark_sent(&mut self, sent: Control) {
        match sent {
            Control::Recall => self.recall_due = false,
            Control::Loan(_) => (self.answer_due, self.told) = (false, self.granted),
            _ => self.told = self.granted,
        }
    }

    /// Reports whether the sender waits for a loan, as far as this end knows.
    pub fn is_wanting(&self) -> bool {
        self.asked != PeerWantState::No
    }

    /// Messages received, and credits given back.
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

impl Default for LoanGrantor {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(any(test, feature = "oracle"))]
impl LoanGrantor {
    /// As if `already` messages had been received and their buffers reposted.
    pub(super) fn skip_for_tests(&mut self, already: u64) {
        self.received += already;
        self.told += already;
        self.granted += already;
    }
}
