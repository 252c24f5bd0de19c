//! The operations of a [`Lender`], and a model of it: lists, and sums made anew each time.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use crate::exhaustive::CheckedMachine;
use crate::loan::*;

/// An operation on a lender; members are numbers of places.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum LenderOp {
    /// A member joins, with loans of at most this many credits.
    Join(u8),
    /// A member leaves, with this number of unused credits.
    Leave(u8, u8),
    /// A member asks for a loan.
    Want(u8),
    /// This number of its buffers are posted again.
    Home(u8, u8),
    /// It gives this number of credits back.
    GiveBack(u8, u8),
    /// An interval has passed.
    Tick,
    /// The next member that may have something due.
    NextDue,
    /// Its due credits and notices are taken.
    Take(u8),
    /// Its share.
    TakeShare(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Vacant,
    Live,
    Left,
}

#[derive(Clone, Debug)]
struct Account {
    life: Life,
    used: u32,
    next_loan: u32,
    max_loan: u32,
    uses_up: bool,
    unanswered: bool,
    old: bool,
    recalled: bool,
    due: Due,
}

const VACANT: Account = Account {
    life: Life::Vacant,
    used: 0,
    next_loan: 0,
    max_loan: 0,
    uses_up: false,
    unanswered: false,
    old: false,
    recalled: false,
    due: Due { credits: 0, heard: false, recall: false },
};

impl Account {
    fn excess(&self) -> u32 {
        self.used.max(1) - 1
    }
}

/// The lender and its model.
#[derive(Clone, Debug)]
pub struct CheckedLender {
    machine: Lender<Vec<LenderSlot>>,
    buffers: u32,
    accounts: Vec<Account>,
    vacant: Vec<u32>,
    queue: VecDeque<u32>,
    due: VecDeque<u32>,
}

impl CheckedLender {
    /// Both, at the start.
    ///
    /// # Errors
    /// As [`Lender::new`].
    pub fn new(members: u32, buffers: u32) -> Result<Self, LenderConfigError> {
        Ok(Self {
            machine: Lender::new(vec![LenderSlot::new(); members as usize], buffers)?,
            buffers,
            accounts: vec![VACANT; members as usize],
            vacant: (0..members).rev().collect(),
            queue: VecDeque::new(),
            due: VecDeque::new(),
        })
    }

    fn lendable(&self) -> u32 {
        self.buffers - KEPT * self.accounts.len() as u32
    }

    fn free(&self) -> u32 {
        let lent: u32 = self.accounts.iter().map(Account::excess).sum();
        self.lendable().checked_sub(lent).expect("more is lent than there is")
    }

    fn silent(&self) -> u32 {
        let silent = |a: &&Account| a.recalled || a.life == Life::Left;
        self.accounts.iter().filter(silent).map(Account::excess).sum()
    }

    fn account(&mut self, member: u32) -> &mut Account {
        &mut self.accounts[member as usize]
    }

    fn live(&self, member: u32) -> Result<Account, LenderError> {
        let account = self.accounts.get(member as usize);
        account.filter(|a| a.life == Life::Live).cloned().ok_or(LenderError::NoMember)
    }

    fn note_due(&mut self, member: u32) {
        if !self.due.contains(&member) {
            self.due.push_back(member);
        }
    }

    fn use_now(&mut self, member: u32, used: u32) {
        let account = self.account(member);
        account.used = used;
        if account.excess() == 0 {
            (account.old, account.recalled, account.due.recall) = (false, false, false);
        }
        if account.life == Life::Left && used == 0 {
            account.life = Life::Vacant;
            self.vacant.push(member);
        }
    }

    fn grant(&mut self, member: u32, credits: u32) {
        self.queue.retain(|&m| m != member);
        let account = self.account(member);
        (account.recalled, account.old, account.unanswered) = (false, false, false);
        account.uses_up = credits == account.next_loan;
        account.due = Due { credits: account.due.credits + credits, heard: false, recall: false };
        account.used += credits;
        self.note_due(member);
    }

    /// Grants loans to the first in the queue, by the words of the module's docs.
    fn serve(&mut self) {
        while let Some(&first) = self.queue.front() {
            let account = self.accounts[first as usize].clone();
            let (lent, most) = (self.lendable() - self.free(), self.lendable() * 3 / 4);
            let available = self.free() + if account.used == 0 { 1 } else { 0 };
            let left = if most > self.silent() { most - self.silent() } else { 0 };
            let part = if left > 8 { left / 2 } else { left.min(4) };
            let size = account.next_loan.min(part).max(1);
            let is_all_silent = lent == self.silent();
            let is_ok = size <= available && (size == 1 || lent + size <= most);
            match () {
                () if is_ok => self.grant(first, size),
                () if is_all_silent && available > 0 => self.grant(first, available.min(size)),
                () => return,
            }
        }
    }

    fn serve_share(&mut self, member: u32) {
        let used = self.accounts[member as usize].used;
        if self.free() == 0 && used == 0 && self.queue.contains(&member) {
            self.grant(member, 1);
        }
    }

    fn join(&mut self, max_loan: u32) -> Result<u32, JoinError> {
        if max_loan == 0 {
            return Err(JoinError::EmptyLoan);
        }
        let member = self.vacant.pop().ok_or(JoinError::Full)?;
        let next_loan = max_loan.min(4);
        *self.account(member) =
            Account { life: Life::Live, used: 1, next_loan, max_loan, ..VACANT };
        Ok(member)
    }

    fn leave(&mut self, member: u32, unused: u32) -> Result<(), LenderError> {
        let account = self.live(member)?;
        let possible = account.used - account.due.credits;
        if unused > possible {
            return Err(LenderError::Miscount { possible });
        }
        self.queue.retain(|&m| m != member);
        let account = self.account(member);
        (account.life, account.due, account.unanswered) = (Life::Left, Due::default(), false);
        self.use_now(member, possible - unused);
        self.serve();
        Ok(())
    }

    fn want(&mut self, member: u32) -> Result<(), LenderError> {
        self.live(member)?;
        if self.queue.contains(&member) {
            return Err(LenderError::AlreadyWaits);
        }
        let account = self.account(member);
        if std::mem::take(&mut account.uses_up) {
            account.next_loan = (2 * account.next_loan).min(account.max_loan);
        }
        account.unanswered = true;
        account.recalled = account.excess() > 0;
        self.queue.push_back(member);
        self.serve();
        self.serve_share(member);
        Ok(())
    }

    fn home(&mut self, member: u32, n: u32) -> Result<(), LenderError> {
        let account = self.accounts.get(member as usize).filter(|a| a.life != Life::Vacant);
        let Account { used, due, .. } = *account.ok_or(LenderError::NoMember)?;
        let possible = used - due.credits;
        if n > possible {
            return Err(LenderError::Miscount { possible });
        }
        self.use_now(member, used - n);
        self.serve();
        self.serve_share(member);
        if self.share_is_due(member) {
            self.note_due(member);
        }
        Ok(())
    }

    fn give_back(&mut self, member: u32, n: u32) -> Result<(), LenderError> {
        self.live(member)?;
        self.home(member, n)?;
        let account = self.account(member);
        (account.uses_up, account.next_loan) = (false, (account.next_loan / 2).max(1));
        Ok(())
    }

    fn tick(&mut self) {
        for member in 0..self.accounts.len() as u32 {
            let account = self.account(member);
            let before = account.due;
            if account.life == Life::Live && account.excess() > 0 && !account.recalled {
                account.recalled = account.old;
                account.due.recall |= account.old;
                account.old = true;
            }
            account.due.heard |= std::mem::take(&mut account.unanswered);
            if account.due != before {
                self.note_due(member);
            }
        }
        self.serve();
        (0..self.accounts.len() as u32).for_each(|member| self.serve_share(member));
    }

    fn share_is_due(&self, member: u32) -> bool {
        self.live(member).is_ok_and(|a| a.used == 0) && !self.queue.contains(&member)
    }

    fn take_share(&mut self, member: u32) -> Result<bool, LenderError> {
        self.live(member)?;
        let is_due = self.share_is_due(member);
        if is_due {
            self.account(member).used = 1;
        }
        Ok(is_due)
    }

    fn take(&mut self, member: u32) -> Result<Due, LenderError> {
        self.live(member)?;
        Ok(std::mem::take(&mut self.account(member).due))
    }

    fn check(&self) {
        let machine = &self.machine;
        assert_eq!(machine.free(), self.free());
        assert_eq!(machine.silent(), self.silent());
        assert_eq!(machine.waiting() as usize, self.queue.len());
        assert_eq!(machine.lendable(), self.lendable());
        for (member, account) in self.accounts.iter().enumerate() {
            let used = (account.life != Life::Vacant).then_some(account.used);
            assert_eq!(machine.used(member as u32), used);
        }
        let kept: u32 = self.accounts.iter().map(|a| a.used.max(1) + KEPT - 1).sum();
        assert_eq!(kept + self.free(), self.buffers);
        // A member waits only for loans that are in use, or that a tick makes silent.
        let is_stuck = |&m: &u32| self.accounts[m as usize].used == 0;
        let is_all_silent = self.free() + self.silent() == self.lendable();
        assert!(!is_all_silent || !self.queue.front().is_some_and(is_stuck), "it waits in vain");
    }
}

impl CheckedMachine for CheckedLender {
    type Op = LenderOp;

    fn apply(&mut self, op: LenderOp) {
        use LenderOp::*;
        let before = self.machine.clone();
        let refused = match op {
            Join(max) => {
                let result = self.machine.join(max.into());
                assert_eq!(result, self.join(max.into()));
                result.is_err()
            }
            Leave(m, n) => {
                let result = self.machine.leave(m.into(), n.into());
                assert_eq!(result, self.leave(m.into(), n.into()));
                result.is_err()
            }
            Want(m) => {
                let result = self.machine.want(m.into());
                assert_eq!(result, self.want(m.into()));
                result.is_err()
            }
            Home(m, n) => {
                let result = self.machine.home(m.into(), n.into());
                assert_eq!(result, self.home(m.into(), n.into()));
                result.is_err()
            }
            GiveBack(m, n) => {
                let result = self.machine.give_back(m.into(), n.into());
                assert_eq!(result, self.give_back(m.into(), n.into()));
                result.is_err()
            }
            Tick => {
                self.machine.tick();
                self.tick();
                false
            }
            NextDue => {
                assert_eq!(self.machine.next_due(), self.due.pop_front());
                false
            }
            Take(m) => {
                let result = self.machine.take(m.into());
                assert_eq!(result, self.take(m.into()));
                result.is_err()
            }
            TakeShare(m) => {
                let result = self.machine.take_share(m.into());
                assert_eq!(result, self.take_share(m.into()));
                result.is_err()
            }
        };
        assert!(!refused || self.machine == before, "a refused operation changed something");
        self.check();
    }
}
