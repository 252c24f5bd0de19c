//! Credits that are loans of a pool which the receiver shares among its connections.

use conn_core::control::Control;
use conn_core::loan::Borrower;
use conn_core::wr::WrClass;
use verbs_safe::SendOp;

use super::Sender;
use crate::error::SendError;
use crate::sending::Sends;

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
        // Nothing may follow FIN: the receiver returns this sender's credits.
        let is_over = self.has_finished || self.half.posting.ended().is_some();
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
        let op = SendOp::SendImm { len: 0, imm: control.encode() };
        let staged = self.half.posting.stage(op, WrClass::Control, false)?;
        let Some(staged) = staged else { return Ok(false) };
        self.controls.note(staged.id, self.half.posting.last_completed());
        Ok(true)
    }
}
