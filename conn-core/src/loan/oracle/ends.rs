//! The operations of both ends of one connection, and models of each with a hostile peer.

use arbitrary::Arbitrary;

use crate::control::Control;
use crate::credit::*;
use crate::exhaustive::CheckedMachine;
use crate::loan::*;

/// An operation on a [`Borrower`] and its window.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum BorrowerOp {
    /// This number of messages are sent.
    Consume(u32),
    /// WANT is sent, if it may be.
    Ask,
    /// LOAN arrives, this far from the present limit; it may be forged.
    Loan(i32),
    /// The same by a credit.
    Credit(i32),
    /// RECALL arrives.
    Recall,
    /// The sender gives back all that it can.
    GiveBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    No,
    Sent,
    Heard,
}

/// The sender's end and its model: signed numbers that do not wrap.
#[derive(Clone, Debug)]
pub struct CheckedBorrower {
    machine: Borrower,
    window: CreditWindow,
    room: i128,
    sent: i128,
    limit: i128,
    want: Want,
    recalled: bool,
}

impl CheckedBorrower {
    /// Both, as if `already` messages had been sent and granted before.
    ///
    /// # Errors
    /// As [`Borrower::new`].
    pub fn new(max_loan: u32, already: u64) -> Result<Self, WindowError> {
        let (machine, mut window) = Borrower::new(max_loan)?;
        window.skip_for_tests(already);
        let sent = i128::from(already);
        let (limit, room) = (sent + 1, i128::from(max_loan) + 1);
        Ok(Self { machine, window, room, sent, limit, want: Want::No, recalled: false })
    }

    fn judge(&self, by: i128) -> Result<u32, CreditError> {
        let room = self.sent + self.room - self.limit;
        match by {
            by if by < 0 => Err(CreditError::Backwards { by: -by as u32 }),
            by if by > room => Err(CreditError::Impossible { ahead: by as u32, room: room as u32 }),
            by => Ok(by as u32),
        }
    }

    fn gain(&mut self, by: u32) {
        self.limit += i128::from(by);
        self.recalled &= by == 0;
    }

    fn loan(&mut self, by: i32) -> bool {
        let by = i128::from(by).clamp(-(1 << 27) + 1, 1 << 27);
        let wire = LoanWire::of_position((self.limit + by) as u64);
        let result = self.machine.on_loan(&mut self.window, wire);
        if self.want != Want::Sent {
            assert_eq!(result, Err(LoanError::Unasked));
            return true;
        }
        let expected = self.judge(by);
        assert_eq!(result, expected.map_err(LoanError::Credit));
        if let Ok(by) = expected {
            self.gain(by);
            self.want = if by > 0 { Want::No } else { Want::Heard };
        }
        result.is_err()
    }

    fn credit(&mut self, by: i32) -> bool {
        let by = i128::from(by).clamp(-(1 << 30) + 1, 1 << 30);
        let wire = CreditWire::of_position((self.limit + by) as u64);
        let result = self.machine.on_credit(&mut self.window, wire);
        assert_eq!(result, self.judge(by));
        if let Ok(by) = result {
            self.gain(by);
            if by > 0 && self.want == Want::Heard {
                self.want = Want::No;
            }
        }
        result.is_err()
    }

    fn give_back(&mut self) {
        let wire = self.machine.returnable(&self.window);
        let unused = self.limit - self.sent - 1;
        if unused > 0 {
            assert_eq!(wire, Some(LoanWire::of_position((self.limit - 1) as u64)));
            self.machine.mark_returned(&mut self.window);
            (self.sent, self.recalled) = (self.limit - 1, false);
        } else {
            assert_eq!(wire, None);
        }
    }
}

impl CheckedMachine for CheckedBorrower {
    type Op = BorrowerOp;

    fn apply(&mut self, op: BorrowerOp) {
        let before = (self.machine.clone(), self.window.clone());
        let refused = match op {
            BorrowerOp::Consume(n) => {
                let result = self.window.consume(n);
                assert_eq!(result.is_ok(), i128::from(n) <= self.limit - self.sent);
                self.sent += if result.is_ok() { n.into() } else { 0 };
                result.is_err()
            }
            BorrowerOp::Ask => {
                let may = self.machine.wants(&self.window);
                assert_eq!(may, self.want == Want::No && self.limit == self.sent);
                if may {
                    self.machine.mark_asked();
                    self.want = Want::Sent;
                }
                false
            }
            BorrowerOp::Loan(by) => self.loan(by),
            BorrowerOp::Credit(by) => self.credit(by),
            BorrowerOp::Recall => {
                self.machine.on_recall();
                self.recalled = true;
                false
            }
            BorrowerOp::GiveBack => {
                self.give_back();
                false
            }
        };
        let now = (self.machine.clone(), self.window.clone());
        assert!(!refused || now == before, "a refused operation changed something");
        assert_eq!(self.machine.is_recalled(), self.recalled);
        assert_eq!(i128::from(self.window.sent()), self.sent);
        assert_eq!(i128::from(self.window.limit()), self.limit);
        assert!(self.sent <= self.limit && self.limit <= self.sent + self.room);
    }
}

/// An operation on a [`LoanGrantor`].
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum LoanGrantorOp {
    /// This number of messages arrive, with credits or without.
    Receive(u8),
    /// WANT arrives.
    Want,
    /// RETURN arrives, this far from what was received.
    Return(i32),
    /// The lender has something for the sender.
    Lend {
        /// Credits.
        credits: u8,
        /// It waits.
        heard: bool,
        /// Others wait.
        recall: bool,
    },
    /// The share is granted again.
    Share,
    /// The message that is due is sent.
    Send,
}

/// The receiver's end and its model.
#[derive(Clone, Debug)]
pub struct CheckedLoanGrantor {
    machine: LoanGrantor,
    received: u64,
    with_sender: u64,
    unreported: u64,
    want: Want,
    answer: bool,
    recall: bool,
}

impl CheckedLoanGrantor {
    /// Both, as if `already` messages had arrived before.
    pub fn new(already: u64) -> Self {
        let mut machine = LoanGrantor::new();
        machine.skip_for_tests(already);
        let (want, answer, recall) = (Want::No, false, false);
        Self { machine, received: already, with_sender: 1, unreported: 0, want, answer, recall }
    }

    fn want(&mut self) -> bool {
        let result = self.machine.on_want();
        if self.want != Want::No || self.answer {
            assert_eq!(result, Err(WantError::Repeated));
        } else if self.with_sender > 1 {
            assert_eq!(result, Err(WantError::Early { credits: self.with_sender as u32 }));
        } else {
            assert_eq!(result, Ok(()));
            self.want = Want::Sent;
        }
        result.is_err()
    }

    fn give_back(&mut self, by: i32) -> bool {
        let by = i64::from(by).clamp(-(1 << 27), 1 << 27);
        let wire = LoanWire::of_position(self.received.wrapping_add_signed(by));
        let result = self.machine.on_return(wire);
        if by < 1 || by > self.with_sender as i64 {
            assert_eq!(result, Err(ReturnError { possible: self.with_sender as u32 }));
            return true;
        }
        assert_eq!(result, Ok(by as u32));
        self.with_sender -= by as u64;
        self.received += by as u64;
        false
    }

    fn lend(&mut self, due: Due) {
        self.machine.lend(due);
        self.unreported += u64::from(due.credits);
        let is_answer = self.want == Want::Sent && (due.credits > 0 || due.heard);
        self.answer |= is_answer;
        match (due.credits > 0, is_answer) {
            (true, _) => (self.want, self.recall) = (Want::No, false),
            (false, true) => self.want = Want::Heard,
            (false, false) => {}
        }
        self.recall |= due.recall;
    }

    fn expected_due(&self) -> Option<Control> {
        let position = self.received + self.with_sender + self.unreported;
        match () {
            () if self.answer => Some(Control::Loan(LoanWire::of_position(position))),
            () if self.unreported > 0 => Some(Control::Credit(CreditWire::of_position(position))),
            () if self.recall && self.with_sender > 1 => Some(Control::Recall),
            () => None,
        }
    }

    fn send(&mut self) {
        let Some(due) = self.expected_due() else { return };
        self.machine.mark_sent(due);
        match due {
            Control::Recall => self.recall = false,
            _ => {
                self.with_sender += std::mem::take(&mut self.unreported);
                self.answer &= !matches!(due, Control::Loan(_));
            }
        }
    }
}

impl CheckedMachine for CheckedLoanGrantor {
    type Op = LoanGrantorOp;

    fn apply(&mut self, op: LoanGrantorOp) {
        let before = self.machine.clone();
        let refused = match op {
            LoanGrantorOp::Receive(n) => {
                let result = self.machine.on_receive_many(n.into());
                let refused = u64::from(n) > self.with_sender;
                assert_eq!(result, if refused { Err(CreditOverrun) } else { Ok(()) });
                if !refused {
                    self.with_sender -= u64::from(n);
                    self.received += u64::from(n);
                }
                refused
            }
            LoanGrantorOp::Want => self.want(),
            LoanGrantorOp::Return(by) => self.give_back(by),
            LoanGrantorOp::Lend { credits, heard, recall } => {
                self.lend(Due { credits: credits.into(), heard, recall });
                false
            }
            LoanGrantorOp::Share => {
                self.machine.restore_share();
                self.unreported += 1;
                false
            }
            LoanGrantorOp::Send => {
                self.send();
                false
            }
        };
        assert!(!refused || self.machine == before, "a refused operation changed something");
        assert_eq!(self.machine.due(), self.expected_due());
        assert_eq!(u64::from(self.machine.expected()), self.with_sender);
        assert_eq!(u64::from(self.machine.unused()), self.with_sender + self.unreported);
        assert_eq!(self.machine.received(), self.received);
        assert_eq!(self.machine.is_wanting(), self.want != Want::No);
    }
}
