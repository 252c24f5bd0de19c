//! A pool, its members and the wires to their senders. The model is three rules: every message
//! finds a buffer, messages in flight to a sender fit its receives, and after any history every
//! active sender gets credit.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use crate::control::Control;
use crate::credit::CreditWindow;
use crate::exhaustive::CheckedMachine;
use crate::loan::*;

/// An operation on the pool, its members or the wires; members are numbers of places.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum BankOp {
    /// A sender sends a message, or asks for a loan if it has no credit.
    Send(u8),
    /// A sender gives back what it does not use.
    GiveBack(u8),
    /// The oldest message from a sender arrives.
    Arrive(u8),
    /// A message of this member is freed.
    Free(u8),
    /// Freed buffers are posted again.
    Repost,
    /// A busy (false) or idle (true) receiver sends a member its due control messages.
    Settle(u8, bool),
    /// The oldest control message to a sender arrives.
    Hear(u8),
    /// Members have waited for an interval.
    Tick,
    /// A sender says goodbye.
    Finish(u8),
    /// A sender dies, with all that is under way from it.
    Die(u8),
    /// Another sender takes the place of one that has gone.
    Join(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BankMessage {
    Data,
    Want,
    Return(LoanWire),
    Fin,
}

/// A connection: the sender, the receiver's end, and the wires.
#[derive(Clone, Debug)]
struct BankConnection {
    member: u32,
    borrower: Borrower,
    window: CreditWindow,
    grantor: LoanGrantor,
    to_receiver: VecDeque<BankMessage>,
    to_sender: VecDeque<Control>,
    has_finished: bool,
    /// FIN has arrived.
    is_closed: bool,
    sent: u32,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Bank {
    lender: Lender<Vec<LenderSlot>>,
    places: Vec<Option<BankConnection>>,
    max_loan: u32,
    buffers: u32,
    posted: u32,
    /// Messages that are held, and freed ones that are not posted again, by member.
    held: Vec<u32>,
    freed: Vec<u32>,
    /// For each place, true if the lender knows its member.
    is_member: Vec<bool>,
}

impl Bank {
    /// A bank of `connections` connections that share `buffers` buffers; loans have at most
    /// `max_loan` credits.
    ///
    /// # Errors
    /// As [`Lender::new`].
    ///
    /// # Panics
    /// When `max_loan` is 0.
    pub fn new(connections: u32, buffers: u32, max_loan: u32) -> Result<Self, LenderConfigError> {
        let members = connections as usize;
        let mut bank = Self {
            lender: Lender::new(vec![LenderSlot::new(); members], buffers)?,
            places: vec![None; members],
            max_loan,
            buffers,
            posted: buffers,
            held: vec![0; members],
            freed: vec![0; members],
            is_member: vec![false; members],
        };
        (0..members).for_each(|at| bank.join(at));
        Ok(bank)
    }

    fn join(&mut self, at: usize) {
        if self.places[at].is_some() {
            return;
        }
        let Ok(member) = self.lender.join(self.max_loan) else { return };
        let (borrower, window) = Borrower::new(self.max_loan).expect("a loan of some credits");
        self.is_member[member as usize] = true;
        self.places[at] = Some(BankConnection {
            member,
            borrower,
            window,
            grantor: LoanGrantor::new(),
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            has_finished: false,
            is_closed: false,
            sent: 0,
        });
    }

    fn send(&mut self, at: usize) {
        let Some(c) = self.places[at].as_mut().filter(|c| !c.has_finished) else { return };
        if c.window.consume(1).is_ok() {
            c.to_receiver.push_back(BankMessage::Data);
            c.sent += 1;
        } else if c.borrower.wants(&c.window) {
            c.borrower.mark_asked();
            c.to_receiver.push_back(BankMessage::Want);
        }
    }

    fn give_back(&mut self, at: usize) {
        let Some(c) = self.places[at].as_mut().filter(|c| !c.has_finished) else { return };
        if let Some(wire) = c.borrower.returnable(&c.window) {
            c.borrower.mark_returned(&mut c.window);
            c.to_receiver.push_back(BankMessage::Return(wire));
        }
    }

    fn finish(&mut self, at: usize) {
        let Some(c) = self.places[at].as_mut().filter(|c| !c.has_finished) else { return };
        c.has_finished = true;
        c.to_receiver.push_back(BankMessage::Fin);
    }

    fn arrive(&mut self, at: usize) {
        let Some(c) = &mut self.places[at] else { return };
        let Some(message) = c.to_receiver.pop_front() else { return };
        let member = c.member;
        self.posted -= 1;
        match message {
            BankMessage::Data => {
                assert_eq!(c.grantor.on_receive_many(1), Ok(()));
                self.held[member as usize] += 1;
            }
            BankMessage::Want => {
                assert_eq!(c.grantor.on_want(), Ok(()));
                self.posted += 1;
                assert_eq!(self.lender.want(member), Ok(()));
            }
            BankMessage::Return(wire) => {
                let returned = c.grantor.on_return(wire).expect("an honest return");
                self.posted += 1;
                assert_eq!(self.lender.give_back(member, returned), Ok(()));
            }
            BankMessage::Fin => {
                self.posted += 1;
                assert!(c.to_receiver.is_empty(), "FIN is the last message");
                c.is_closed = true;
            }
        }
    }

    fn leave(&mut self, at: usize) {
        let Some(c) = self.places[at].take() else { return };
        assert_eq!(self.lender.leave(c.member, c.grantor.unused()), Ok(()));
        self.note_gone(c.member);
    }

    fn note_gone(&mut self, member: u32) {
        if self.lender.used(member).is_none() {
            self.is_member[member as usize] = false;
        }
    }

    fn free(&mut self, member: usize) {
        if self.held[member] > 0 {
            self.held[member] -= 1;
            self.freed[member] += 1;
        }
    }

    fn repost(&mut self) {
        for member in 0..self.freed.len() {
            let n = std::mem::take(&mut self.freed[member]);
            self.posted += n;
            if n > 0 {
                assert_eq!(self.lender.home(member as u32, n), Ok(()));
                self.note_gone(member as u32);
            }
        }
    }

    fn settle(&mut self, at: usize, idle: bool) {
        let Some(c) = &mut self.places[at] else { return };
        if c.is_closed {
            // A busy receiver lets it go later.
            return if idle {
                self.leave(at)
            };
        }
        c.grantor.lend(self.lender.take(c.member).expect("a live member"));
        if idle && self.lender.take_share(c.member) == Ok(true) {
            c.grantor.restore_share();
        }
        while let Some(control) = c.grantor.due() {
            c.grantor.mark_sent(control);
            c.to_sender.push_back(control);
        }
    }

    fn hear(&mut self, at: usize) {
        let Some(c) = &mut self.places[at] else { return };
        match c.to_sender.pop_front() {
            Some(Control::Loan(wire)) => drop(c.borrower.on_loan(&mut c.window, wire).unwrap()),
            Some(Control::Credit(wire)) => {
                assert!(c.borrower.on_credit(&mut c.window, wire).is_ok_and(|gained| gained > 0));
            }
            Some(Control::Recall) => c.borrower.on_recall(),
            Some(other) => panic!("{other:?} to a sender"),
            None => {}
        }
    }

    fn step(&mut self, op: BankOp) {
        let at = |place: u8| usize::from(place) % self.places.len();
        match op {
            BankOp::Send(place) => self.send(at(place)),
            BankOp::GiveBack(place) => self.give_back(at(place)),
            BankOp::Arrive(place) => self.arrive(at(place)),
            BankOp::Free(member) => self.free(at(member)),
            BankOp::Repost => self.repost(),
            BankOp::Settle(place, idle) => self.settle(at(place), idle),
            BankOp::Hear(place) => self.hear(at(place)),
            BankOp::Tick => self.lender.tick(),
            BankOp::Finish(place) => self.finish(at(place)),
            BankOp::Die(place) => self.leave(at(place)),
            BankOp::Join(place) => self.join(at(place)),
        }
    }

    fn check(&self) {
        let live = || self.places.iter().flatten();
        let under_way: usize = live().map(|c| c.to_receiver.len()).sum();
        assert!(under_way <= self.posted as usize, "RNR: a message finds no buffer");
        let out: u32 = self.held.iter().sum::<u32>() + self.freed.iter().sum::<u32>();
        assert_eq!(self.posted + out, self.buffers);
        let credits: u32 = live().map(|c| c.grantor.unused()).sum();
        assert!(
            credits + (KEPT - 1) * live().count() as u32 + out <= self.buffers,
            "more lent than there is"
        );
        for c in live() {
            let to_sender = c.to_sender.len() as u32;
            assert!(to_sender < MAX_IN_FLIGHT, "more to a sender than it has receives for");
            assert!(c.window.available() <= self.max_loan + 1);
            assert!(c.window.limit() <= c.grantor.granted());
        }
    }

    /// Delivers and frees all messages, and sends all due control messages. Senders in `active`
    /// return recalled credits, and send `each` messages more.
    fn go_on(&mut self, active: u32, each: u32) {
        let places = self.places.len();
        let is_active = |at: usize| active >> at & 1 == 1;
        let start: Vec<u32> =
            self.places.iter().map(|p| p.as_ref().map_or(0, |c| c.sent)).collect();
        let has_sent = |bank: &Bank, at: usize| {
            let place = bank.places[at].as_ref().filter(|c| !c.has_finished);
            place.is_none_or(|c| c.sent >= start[at] + each)
        };
        // A tick happens when nothing else happens any more.
        for round in 1..=64 * (each + 4) {
            for at in 0..places {
                (0..self.buffers + 4).for_each(|_| self.arrive(at));
                (0..self.buffers).for_each(|_| self.free(at));
                self.repost();
                self.settle(at, true);
                (0..MAX_IN_FLIGHT).for_each(|_| self.hear(at));
                let recalled = self.places[at].as_ref().is_some_and(|c| c.borrower.is_recalled());
                if is_active(at) && (recalled || has_sent(self, at)) {
                    self.give_back(at);
                }
                if is_active(at) && !has_sent(self, at) {
                    self.send(at);
                }
                self.check();
            }
            if (0..places).all(|at| !is_active(at) || has_sent(self, at)) {
                return;
            }
            if round % 8 == 0 {
                self.lender.tick();
            }
        }
        panic!("a sender waits for ever");
    }
}

impl CheckedMachine for Bank {
    type Op = BankOp;

    fn apply(&mut self, op: BankOp) {
        self.step(op);
        self.check();
        // All senders are active; then all but one, which stays silent with its credits.
        let all = (1 << self.places.len()) - 1;
        self.clone().go_on(all, 3);
        self.clone().go_on(all & !1, 3);
    }
}

impl Bank {
    /// As [`apply`](CheckedMachine::apply), without checking possible continuations.
    pub fn apply_only(&mut self, op: BankOp) {
        self.step(op);
        self.check();
    }

    /// Checks possible continuations as [`apply`](CheckedMachine::apply) does: whether all senders
    /// can proceed, and whether those in `active` can while the others are silent.
    pub fn look_ahead(&self, active: u32) {
        let all = (1 << self.places.len()) - 1;
        self.clone().go_on(all, 9);
        self.clone().go_on(active & all, 9);
    }
}
