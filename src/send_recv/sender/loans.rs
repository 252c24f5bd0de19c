//! Credits that are loans of a pool which the receiver shares among its connections.

use std::time::{Duration, Instant};

use conn_core::control::Control;
use conn_core::loan::Borrower;
use conn_core::wr::WrClass;
use verbs_safe::SendOp;

use super::Sender;
use crate::error::SendError;
use crate::wait::WaitStrategy;

/// History of waits for loans. Where many senders share a pool, a loan comes when the others have
/// used theirs up: polling for it would take the processor from them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoanWaits {
    /// Consecutive waits, up to the last one, that were longer than `SHORT`.
    long: u32,
}

impl LoanWaits {
    /// Longest wait that an adaptive strategy spends polling.
    const SHORT: Duration = Duration::from_micros(50);
    /// Every 8th long wait polls, to notice that loans come soon again.
    const POLLED: u32 = 8;

    /// The strategy of the next wait, where the program asks for `asked`.
    pub(super) fn strategy(self, asked: WaitStrategy) -> WaitStrategy {
        let polls = self.long.is_multiple_of(Self::POLLED);
        match asked {
            WaitStrategy::Adaptive if !polls => WaitStrategy::Block,
            asked => asked,
        }
    }

    /// Records the wait that began at this time, once.
    pub(super) fn end(&mut self, since: &mut Option<Instant>) {
        if let Some(since) = since.take() {
            self.note(host::time::since(since));
        }
    }

    /// Records the length of a wait.
    fn note(&mut self, time: Duration) {
        self.long = if time > Self::SHORT { self.long.wrapping_add(1) } else { 0 };
    }
}

impl Sender {
    /// Asks for a loan, once: no credit is left.
    pub(super) fn ask_for_loan(&mut self) -> Result<(), SendError> {
        let wants = |borrower: &Borrower| borrower.wants(&self.window);
        if !self.borrower.as_ref().is_some_and(wants) || !self.stage_control(Control::Want)? {
            return Ok(());
        }
        self.borrower.iter_mut().for_each(Borrower::mark_asked);
        self.post()
    }

    /// Gives back the credits that are not used: this sender may make no call for a while.
    pub(super) fn give_back(&mut self) -> Result<(), SendError> {
        // A pack that is open has the next id and the next slot.
        let is_packing = self.packer.as_ref().is_some_and(|packer| packer.count() > 0);
        // Behind FIN nothing may come: the receiver gives back what this sender has.
        let is_over = self.has_finished || self.ended.is_some();
        if self.borrower.is_none() || is_over || is_packing {
            return Ok(());
        }
        self.book();
        let returnable = |borrower: &Borrower| borrower.returnable(&self.window);
        let Some(wire) = self.borrower.as_ref().and_then(returnable) else { return Ok(()) };
        if !self.stage_control(Control::Return(wire))? {
            return Ok(());
        }
        let window = &mut self.window;
        self.borrower.iter_mut().for_each(|borrower| borrower.mark_returned(window));
        self.post()
    }

    /// Gives credits back if others wait for them.
    pub(super) fn answer_recall(&mut self) -> Result<(), SendError> {
        if self.borrower.as_ref().is_some_and(Borrower::is_recalled) {
            return self.give_back();
        }
        Ok(())
    }

    /// Posts a batch, and checks whether other members wait for credits.
    pub(super) fn post_batch(&mut self) -> Result<(), SendError> {
        self.post()?;
        if self.borrower.is_some() {
            self.progress()?;
        }
        Ok(())
    }

    /// Stages a message without payload. False when there is no room for it now.
    fn stage_control(&mut self, control: Control) -> Result<bool, SendError> {
        self.book();
        let Ok(planned) = self.tracker.plan(WrClass::Control) else { return Ok(false) };
        self.controls.note(planned.id, self.tracker.last_completed());
        let op = SendOp::SendImm { len: 0, imm: control.encode() };
        self.queue.stage(op, planned.signalled).map_err(|e| self.fail_device(&e))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_that_come_late_are_slept_for_until_one_comes_soon() {
        const ADAPTIVE: WaitStrategy = WaitStrategy::Adaptive;
        let (late, soon) = (Duration::from_millis(1), Duration::from_micros(10));
        let mut waits = LoanWaits::default();
        assert_eq!(waits.strategy(ADAPTIVE), ADAPTIVE);
        let mut polled = 0;
        for _ in 0..4 * LoanWaits::POLLED {
            waits.note(late);
            polled += u32::from(waits.strategy(ADAPTIVE) == ADAPTIVE);
            assert_eq!(waits.strategy(WaitStrategy::Spin), WaitStrategy::Spin, "as asked for");
        }
        assert_eq!(polled, 4);
        waits.note(late);
        assert_eq!(waits.strategy(ADAPTIVE), WaitStrategy::Block);
        waits.note(soon);
        assert_eq!(waits.strategy(ADAPTIVE), ADAPTIVE);
    }
}
