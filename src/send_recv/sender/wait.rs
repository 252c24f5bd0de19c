//! Waiting, and ending.

use conn_core::control::Control;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::SendOp;

use super::Sender;
use crate::error::{Full, SendError};
use crate::half::SendHalf;
use crate::posting::field;
use crate::sending::{Driving, Half, Sends};
use crate::wait::Idle;

impl Sends for Sender {
    field!(half, half_mut: Half);

    fn progress(&mut self) -> Result<usize, SendError> {
        self.take_completions()
    }

    fn heard(&self) -> u64 {
        self.stats.messages
    }

    fn gathered(&self) -> u64 {
        self.unflushed()
    }

    /// The pack that is open will get the next number.
    fn last(&self) -> u64 {
        let open = self.packer.as_ref().is_some_and(|packer| packer.count() > 0);
        self.half.posting.queue().staged_total() + u64::from(open)
    }

    fn was_acked(&self, number: u64) -> bool {
        let id = WrId(number);
        self.half.posting.is_complete(id) || id <= self.taken
    }

    fn push_all(&mut self, _awaited: bool) -> Result<(), SendError> {
        self.push()
    }

    /// An unsignalled request completes with the next signalled one: when none is on its way,
    /// a zero-length write is sent behind it, which is answered when everything before it was.
    fn nudge(&mut self, number: u64) -> Result<(), SendError> {
        if self.half.posting.will_complete(WrId(number)) { Ok(()) } else { self.ask_peer() }
    }

    fn before_wait(&mut self, number: u64) -> Result<(), SendError> {
        // It is the last one: there may be no call for a while.
        let is_last = number >= self.half.posting.queue().staged_total();
        if self.borrower.is_some() && is_last { self.flush() } else { Ok(()) }
    }

    fn before_drain(&mut self) -> Result<(), SendError> {
        // After the end, it depends on the last message.
        let is_open = self.half.posting.ended().is_none();
        if is_open || self.unflushed() > 0 { self.flush() } else { Ok(()) }
    }

    /// Looks first, also after the end: that may spare the probe.
    fn ask_for(&mut self, number: u64) -> Result<(), SendError> {
        self.progress()?;
        if self.half.posting.ended().is_some() || self.was_acked(number) {
            return Ok(());
        }
        self.push()?;
        self.nudge(number)?;
        self.progress().map(drop)
    }

    fn stage_goodbye(&mut self) -> Result<WrId, SendError> {
        // A peer that has stopped does not receive the goodbye.
        self.progress()?;
        self.half.posting.check()?;
        let op = SendOp::SendImm { len: 0, imm: Control::Fin.encode() };
        let staged = self.half.posting.stage(op, WrClass::Control, true)?;
        let fin = staged.ok_or(SendError::Full(Full::Requests))?.id;
        self.controls.note(fin, self.half.posting.last_completed());
        self.has_finished = true;
        Ok(fin)
    }

    /// A write of no bytes needs no buffer, no key and no credit.
    fn ask_peer(&mut self) -> Result<(), SendError> {
        // A pack that is open has been promised the next id.
        self.end_pack()?;
        self.book();
        // A full control share has a signalled request on its way already.
        if let Some(probe) = self.half.posting.probe()? {
            self.controls.note(probe, self.half.posting.last_completed());
        }
        self.open_run();
        Ok(())
    }
}

impl Driving for Sender {
    fn look_for_room(&mut self, bytes: usize) -> Result<(), SendError> {
        self.prepare(bytes)
    }

    fn set_gathers(&mut self, on: bool) -> bool {
        self.book();
        let before = std::mem::replace(&mut self.half.gathers, on);
        self.open_run();
        before
    }

    fn on_stall(&mut self, full: Full, stalled: bool, idle: &mut Idle) -> bool {
        if full != Full::Credits {
            self.loan_waits.end();
            return stalled;
        }
        if !stalled && self.borrower.is_some() {
            idle.set_strategy(self.loan_waits.strategy(self.half.waiting.common.wait));
            self.loan_waits.begin();
        }
        true
    }

    fn end_stall(&mut self, counts: bool) {
        self.stats.credit_stalls += u64::from(counts);
        self.loan_waits.end();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end();
    }
}
