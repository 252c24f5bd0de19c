//! The operations of the two ends of a credit scheme, and naive models: of each end alone with a
//! hostile peer, and of both together with the wire between them.

use std::collections::VecDeque;

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a [`CreditWindow`].
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum CreditWindowOp {
    /// This number of messages are sent.
    Consume(u32),
    /// The last messages, this number of them, were not posted.
    Refund(u32),
    /// A credit arrives, this far from the present limit; it may be forged.
    Credit(i32),
}

/// The sender's end and its model: signed numbers that do not wrap.
#[derive(Clone, Debug)]
pub struct CheckedCreditWindow {
    machine: CreditWindow,
    window: i128,
    sent: i128,
    limit: i128,
}

impl CheckedCreditWindow {
    /// Both, as if `already` messages had been sent and granted before.
    ///
    /// # Errors
    /// As [`CreditWindow::new`].
    pub fn new(window: u32, already: u64) -> Result<Self, WindowError> {
        let mut machine = CreditWindow::new(window)?;
        machine.sent += already;
        machine.limit += already;
        let sent = i128::from(already);
        Ok(Self { machine, window: window.into(), sent, limit: sent + i128::from(window) })
    }

    fn consume(&mut self, n: u32) -> bool {
        let (result, room) = (self.machine.consume(n), self.limit - self.sent);
        if i128::from(n) > room {
            assert_eq!(result, Err(OutOfCredit { available: room as u32 }));
            return true;
        }
        assert_eq!(result, Ok(()));
        self.sent += i128::from(n);
        false
    }

    fn refund(&mut self, n: u32) -> bool {
        let (result, sent) = (self.machine.refund(n), self.sent - i128::from(n));
        if sent < 0 {
            assert_eq!(result, Err(RefundError::NotConsumed));
        } else if sent + self.window < self.limit {
            assert_eq!(result, Err(RefundError::AlreadyGranted));
        } else {
            assert_eq!(result, Ok(()));
            self.sent = sent;
        }
        result.is_err()
    }

    fn credit(&mut self, by: i32) -> bool {
        // The wire tells distances of less than a quarter turn apart, no more.
        let by = i128::from(by).clamp(-(1 << 30) + 1, 1 << 30);
        let position = (self.limit + by) as u64;
        let result = self.machine.on_credit(CreditWire::of_position(position));
        let room = self.sent + self.window - self.limit;
        if by < 0 {
            assert_eq!(result, Err(CreditError::Backwards { by: -by as u32 }));
        } else if by > room {
            let (ahead, room) = (by as u32, room as u32);
            assert_eq!(result, Err(CreditError::Impossible { ahead, room }));
        } else {
            assert_eq!(result, Ok(by as u32));
            self.limit += by;
        }
        result.is_err()
    }
}

impl CheckedMachine for CheckedCreditWindow {
    type Op = CreditWindowOp;

    fn apply(&mut self, op: CreditWindowOp) {
        let before = self.machine.clone();
        let refused = match op {
            CreditWindowOp::Consume(n) => self.consume(n),
            CreditWindowOp::Refund(n) => self.refund(n),
            CreditWindowOp::Credit(by) => self.credit(by),
        };
        let machine = &self.machine;
        assert!(!refused || *machine == before, "a refused operation changed something");
        assert_eq!(i128::from(machine.sent()), self.sent);
        assert_eq!(i128::from(machine.limit()), self.limit);
        assert_eq!(i128::from(machine.available()), self.limit - self.sent);
        assert!(self.sent <= self.limit && self.limit <= self.sent + self.window);
    }
}

/// An operation on a [`CreditGrantor`].
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum CreditGrantorOp {
    /// A message arrives, with credit or without.
    Receive,
    /// This number of messages arrive at once.
    ReceiveMany(u8),
    /// This number of buffers are posted again.
    Repost(u8),
    /// The credit that is due is granted.
    Grant,
    /// All that is grantable is granted, due or not.
    Flush,
    /// A credit this far from the last one is marked as granted.
    Mark(i8),
}

/// The receiver's end and its model.
#[derive(Clone, Debug)]
pub struct CheckedCreditGrantor {
    machine: CreditGrantor,
    threshold: u64,
    /// Credits that the sender has by our grants, or messages in flight from it.
    with_sender: u64,
    /// Arrived, and their buffers not posted again.
    held: u64,
    /// Buffers posted again, and not granted yet.
    unreported: u64,
    granted: u64,
}

impl CheckedCreditGrantor {
    /// Both, as if `already` messages had been received and reposted before.
    ///
    /// # Errors
    /// As [`CreditGrantor::new`].
    pub fn new(window: u32, threshold: u32, already: u64) -> Result<Self, GrantorConfigError> {
        let mut machine = CreditGrantor::new(window, threshold)?;
        machine.received += already;
        machine.posted += already;
        machine.granted += already;
        let granted = machine.granted;
        let (threshold, with_sender) = (threshold.into(), window.into());
        Ok(Self { machine, threshold, with_sender, held: 0, unreported: 0, granted })
    }

    fn grantable(&self) -> Option<CreditWire> {
        (self.unreported > 0).then(|| CreditWire::of_position(self.granted + self.unreported))
    }

    fn due(&self) -> Option<CreditWire> {
        self.grantable().filter(|_| self.unreported >= self.threshold || self.with_sender == 0)
    }

    fn told(&mut self, n: u64) {
        self.unreported -= n;
        self.with_sender += n;
        self.granted += n;
    }

    fn receive(&mut self) -> bool {
        let result = self.machine.on_receive();
        assert_eq!(result, if self.with_sender == 0 { Err(CreditOverrun) } else { Ok(()) });
        if result.is_ok() {
            self.with_sender -= 1;
            self.held += 1;
        }
        result.is_err()
    }

    fn receive_many(&mut self, n: u8) -> bool {
        let result = self.machine.on_receive_many(n.into());
        let refused = u64::from(n) > self.with_sender;
        assert_eq!(result, if refused { Err(CreditOverrun) } else { Ok(()) });
        if !refused {
            self.with_sender -= u64::from(n);
            self.held += u64::from(n);
        }
        refused
    }

    fn repost(&mut self, n: u8) -> bool {
        let result = self.machine.on_reposted(n.into());
        if u64::from(n) > self.held {
            assert_eq!(result, Err(RepostOverrun { possible: self.held as u32 }));
        } else {
            assert_eq!(result, Ok(()));
            self.held -= u64::from(n);
            self.unreported += u64::from(n);
        }
        result.is_err()
    }

    fn mark(&mut self, by: i8) -> bool {
        let wire = CreditWire::of_position(self.granted.wrapping_add_signed(by.into()));
        let result = self.machine.mark_granted(wire);
        if i64::from(by) < 0 || i64::from(by) > self.unreported as i64 {
            assert_eq!(result, Err(GrantError { possible: self.unreported as u32 }));
        } else {
            assert_eq!(result, Ok(()));
            self.told(by as u64);
        }
        result.is_err()
    }

    fn grant(&mut self, wire: Option<CreditWire>) -> bool {
        if let Some(wire) = wire {
            assert_eq!(self.machine.mark_granted(wire), Ok(()));
            self.told(self.unreported);
        }
        false
    }
}

impl CheckedMachine for CheckedCreditGrantor {
    type Op = CreditGrantorOp;

    fn apply(&mut self, op: CreditGrantorOp) {
        let before = self.machine.clone();
        let refused = match op {
            CreditGrantorOp::Receive => self.receive(),
            CreditGrantorOp::ReceiveMany(n) => self.receive_many(n),
            CreditGrantorOp::Repost(n) => self.repost(n),
            CreditGrantorOp::Grant => self.grant(self.machine.due()),
            CreditGrantorOp::Flush => self.grant(self.machine.grantable()),
            CreditGrantorOp::Mark(by) => self.mark(by),
        };
        assert!(!refused || self.machine == before, "a refused operation changed something");
        assert_eq!(self.machine.due(), self.due());
        assert_eq!(self.machine.grantable(), self.grantable());
        assert_eq!(u64::from(self.machine.ungranted()), self.unreported);
        assert_eq!(self.machine.granted(), self.granted);
        assert_eq!(u64::from(self.machine.expected()), self.with_sender);
    }
}

/// An operation on a connection between two honest ends.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum CreditLinkOp {
    /// The sender sends, if it may.
    Send,
    /// The oldest message on the wire arrives, if there is one.
    Arrive,
    /// The application frees its oldest message.
    Free,
    /// Freed buffers are posted again, if that is due; with the pool's rule.
    Repost,
    /// A credit is sent, if one is due.
    Grant,
    /// The oldest credit on the wire arrives.
    Credit,
}

/// Both ends, and the wire. The model is three rules: every message finds a buffer, the credits in
/// flight stay within their bound, and after any history the sender gets credit again.
#[derive(Clone, Debug)]
pub struct CheckedCreditLink {
    sender: CreditWindow,
    receiver: CreditGrantor,
    pool: crate::pool::BufferPool<[crate::pool::PoolSlot; 4]>,
    threshold: u32,
    messages: u32,
    credits: VecDeque<CreditWire>,
    lent: VecDeque<u32>,
    device: VecDeque<u32>,
}

impl CheckedCreditLink {
    /// A connection of four buffers; `already` as for the two ends.
    ///
    /// # Panics
    /// When the threshold or the batch is 0.
    pub fn new(threshold: u32, repost_batch: u32, already: u64) -> Self {
        use crate::pool::{BufferPool, PoolConfig, PoolSlot};
        let mut pool =
            BufferPool::new([PoolSlot::new(); 4], PoolConfig { repost_batch }).expect("a pool");
        let mut ids = [0; 4];
        pool.take_repost(&mut ids);
        Self {
            sender: CheckedCreditWindow::new(4, already).expect("a window").machine,
            receiver: CheckedCreditGrantor::new(4, threshold, already).expect("a grantor").machine,
            pool,
            threshold,
            messages: 0,
            credits: VecDeque::new(),
            lent: VecDeque::new(),
            device: ids.into(),
        }
    }

    fn step(&mut self, op: CreditLinkOp) {
        match op {
            CreditLinkOp::Send => self.messages += u32::from(self.sender.consume(1).is_ok()),
            CreditLinkOp::Arrive => self.arrive(),
            CreditLinkOp::Free => {
                if let Some(id) = self.lent.pop_front() {
                    assert_eq!(self.pool.free(id), Ok(()));
                }
            }
            CreditLinkOp::Repost => self.repost(),
            CreditLinkOp::Grant => {
                if let Some(wire) = self.receiver.due() {
                    assert_eq!(self.receiver.mark_granted(wire), Ok(()));
                    self.credits.push_back(wire);
                }
            }
            CreditLinkOp::Credit => {
                if let Some(wire) = self.credits.pop_front() {
                    assert!(self.sender.on_credit(wire).is_ok_and(|gained| gained > 0));
                }
            }
        }
    }

    fn arrive(&mut self) {
        if self.messages == 0 {
            return;
        }
        self.messages -= 1;
        let id = self.device.pop_front().expect("RNR: a message found no buffer");
        assert_eq!(self.receiver.on_receive(), Ok(()));
        assert_eq!(self.pool.lend(id), Ok(()));
        self.lent.push_back(id);
    }

    fn repost(&mut self) {
        while self.pool.due() {
            let mut ids = [0; 4];
            let count = self.pool.take_repost(&mut ids);
            self.device.extend(&ids[..count]);
            assert_eq!(self.receiver.on_reposted(count as u32), Ok(()));
        }
    }

    fn check(&self) {
        let bound = CreditGrantor::max_grants_in_flight(4, self.threshold) as usize;
        assert!(self.credits.len() <= bound, "more credits under way than receives for them");
        assert!(self.receiver.received() <= self.sender.sent());
        assert!(self.sender.limit() <= self.receiver.granted());
    }

    /// Lets everything happen that can, without a message being sent.
    fn settle(&mut self) {
        for _ in 0..16 {
            for op in [
                CreditLinkOp::Arrive,
                CreditLinkOp::Free,
                CreditLinkOp::Repost,
                CreditLinkOp::Grant,
                CreditLinkOp::Credit,
            ] {
                self.step(op);
            }
        }
    }
}

impl CheckedMachine for CheckedCreditLink {
    type Op = CreditLinkOp;

    fn apply(&mut self, op: CreditLinkOp) {
        self.step(op);
        self.check();
        let mut end = self.clone();
        end.settle();
        assert!(end.sender.available() > 0, "the sender waits for ever");
    }
}
