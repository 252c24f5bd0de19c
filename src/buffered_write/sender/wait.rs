//! Waiting, and ending.

use conn_core::wr::WrId;

use super::Sender;
use crate::error::{Full, SendError};
use crate::posting::field;
use crate::sending::{Driving, Sends};
use crate::wait::{Deadline, Idle};
use crate::waiting::WaitFor;
use crate::writing::{Writes, Writing};

impl Writes for Sender {
    field!(writing, writing_mut: Writing);

    fn listen(&mut self, is_last: bool) -> Result<bool, SendError> {
        self.look_for_head(is_last)
    }

    fn accepted(&self) -> u64 {
        self.stats.messages
    }

    fn push_staged(&mut self, awaited: bool) -> Result<(), SendError> {
        self.push(awaited)
    }

    fn stage_last(&mut self) -> Result<WrId, SendError> {
        self.core.close();
        self.push(true)?;
        // Its request is the last one of the push.
        let last = WrId(self.writing.half.posting.next_id().0 - 1);
        let is_said = self.core.has_said_goodbye();
        if is_said { Ok(last) } else { Err(SendError::Full(Full::Requests)) }
    }
}

impl Driving for Sender {
    fn look_for_room(&mut self, bytes: usize) -> Result<(), SendError> {
        self.grant(bytes).map(drop)
    }

    fn on_stall(&mut self, full: Full, stalled: bool, _: &mut Idle) -> bool {
        stalled || full == Full::Ring
    }

    fn end_stall(&mut self, counts: bool) {
        self.stats.ring_stalls += u64::from(counts);
    }
}

impl Sender {
    /// Waits until all that was accepted was pushed.
    #[cold]
    pub(super) fn pushed_until(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.writing.half.waiting.idle(deadline);
        loop {
            self.push(false)?;
            if self.core.gathered() == 0 {
                return Ok(());
            }
            self.await_news(&mut idle, WaitFor::Word)?;
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end();
    }
}
