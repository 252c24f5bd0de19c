//! The sender of a connection with loans as credits.

use super::LoanWire;
use crate::credit::{CreditError, CreditWindow, CreditWire, WindowError};

/// Progress of a WANT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantState {
    /// There is none.
    No,
    /// It was sent, and has no answer.
    Sent,
    /// It was answered: the sender waits in the lender's queue.
    Queued,
}

/// State that a sender keeps beside its [`CreditWindow`] when its credits are loans.
///
/// ```
/// use conn_core::loan::*;
///
/// let (mut borrower, mut window) = Borrower::new(8)?;
/// window.consume(1)?; // its share
/// assert!(borrower.wants(&window));
/// borrower.mark_asked();
/// assert!(!borrower.wants(&window), "once");
/// assert_eq!(borrower.on_loan(&mut window, LoanWire::of_position(5))?, 4);
/// window.consume(1)?;
/// let wire = borrower.returnable(&window).unwrap(); // … post it; then:
/// borrower.mark_returned(&mut window);
/// assert_eq!((wire, window.available()), (LoanWire::of_position(4), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Borrower {
    asked: WantState,
    recalled: bool,
}

/// A LOAN that no honest receiver sends: the peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoanError {
    /// It answers no WANT.
    #[error("the peer sent a loan that was not asked for")]
    Unasked,
    /// Its credits are impossible.
    #[error("{0}")]
    Credit(CreditError),
}

impl Borrower {
    /// A sender that has its share, and may have loans of up to `max_loan` credits; its
    /// window is that of the share and one loan.
    ///
    /// # Errors
    /// [`WindowError`] when `max_loan` is 0, or the window is more than
    /// [`MAX_WINDOW`](crate::credit::MAX_WINDOW).
    pub const fn new(max_loan: u32) -> Result<(Self, CreditWindow), WindowError> {
        if max_loan == 0 {
            return Err(WindowError { window: 0 });
        }
        match CreditWindow::with_limit(max_loan.saturating_add(1), 1) {
            Ok(window) => Ok((Self { asked: WantState::No, recalled: false }, window)),
            Err(error) => Err(error),
        }
    }

    /// Reports whether a sender without credit has to send WANT now.
    #[inline]
    pub fn wants(&self, window: &CreditWindow) -> bool {
        self.asked == WantState::No && window.available() == 0
    }

    /// WANT was posted.
    pub fn mark_asked(&mut self) {
        self.asked = WantState::Sent;
    }

    /// Takes LOAN, the answer to WANT. Returns the number of further messages that may be sent; 0
    /// when the loan itself arrives later, as a credit.
    ///
    /// # Errors
    /// [`LoanError`] when there is no WANT, or for impossible credits.
    pub fn on_loan(&mut self, window: &mut CreditWindow, wire: LoanWire) -> Result<u32, LoanError> {
        if self.asked != WantState::Sent {
            return Err(LoanError::Unasked);
        }
        let ahead = window.on_limit(wire).map_err(LoanError::Credit)?;
        self.asked = if ahead > 0 { WantState::No } else { WantState::Queued };
        self.recalled &= ahead == 0;
        Ok(ahead)
    }

    /// A credit: the share, or the loan that was waited for. Returns how many messages more
    /// may be sent.
    ///
    /// # Errors
    /// As [`CreditWindow::on_credit`].
    pub fn on_credit(
        &mut self,
        window: &mut CreditWindow,
        wire: CreditWire,
    ) -> Result<u32, CreditError> {
        let gained = window.on_credit(wire)?;
        if gained > 0 {
            // A share that was granted before WANT arrived is not its answer.
            if self.asked == WantState::Queued {
                self.asked = WantState::No;
            }
            self.recalled = false;
        }
        Ok(gained)
    }

    /// RECALL: others wait for credits.
    pub fn on_recall(&mut self) {
        self.recalled = true;
    }

    /// Reports whether credits have to be returned in this call.
    #[inline]
    pub fn is_recalled(&self) -> bool {
        self.recalled
    }

    /// The RETURN to send, if there is something to give back: all but one credit, which
    /// is kept as the share.
    #[inline]
    pub fn returnable(&self, window: &CreditWindow) -> Option<LoanWire> {
        (window.available() > 1).then(|| LoanWire::of_position(window.limit() - 1))
    }

    /// RETURN was posted.
    pub fn mark_returned(&mut self, window: &mut CreditWindow) {
        let unused = window.available().saturating_sub(1);
        let returned = window.consume(unused);
        debug_assert!(returned.is_ok(), "they were available");
        self.recalled = false;
    }
}
