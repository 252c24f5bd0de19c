//! Waits of a receiving half, and its end. A protocol adds the detection of messages ([`Takes`]).

use crate::error::RecvError;
use crate::wait::{Deadline, Idle, WaitStep, WaitStrategy};
use crate::waiting::{WaitFor, Waits};

/// The part of [`Waits`] that all receivers have in common, by their fields `waiting` and `ended`.
macro_rules! waits_for_messages {
    () => {
        type Error = $crate::error::RecvError;

        $crate::posting::field!(waiting, waiting_mut: $crate::waiting::CqWaiting);

        #[cold]
        fn fail(&mut self, reason: $crate::error::CloseReason) -> $crate::error::RecvError {
            self.ended.get_or_insert(reason).clone().into()
        }

        fn timed_out(&self) -> $crate::error::RecvError {
            $crate::error::RecvError::TimedOut
        }
    };
}

pub(crate) use waits_for_messages;

/// A receiver that hands out messages.
pub(crate) trait Takes: Waits<Error = RecvError> {
    /// Senders that have joined so far.
    fn joined(&self) -> u32;

    /// Takes completions; returns their number.
    fn take_completions(&mut self) -> Result<usize, RecvError>;

    /// Looks, before the last try of a wait that goes to sleep, where a try does not each time.
    fn look_everywhere(&mut self) -> Result<(), RecvError> {
        Ok(())
    }

    /// Tries as often as is worth it between two steps of a wait.
    fn try_often<T>(
        &mut self,
        try_recv: &mut impl FnMut(&mut Self) -> Result<T, RecvError>,
    ) -> Result<T, RecvError> {
        try_recv(self)
    }

    /// Calls `try_recv` until it receives, and waits in between.
    #[cold]
    fn recv_with<T>(
        &mut self,
        deadline: Deadline,
        mut try_recv: impl FnMut(&mut Self) -> Result<T, RecvError>,
    ) -> Result<T, RecvError> {
        if self.joined() == 0 {
            // No peer can join while we wait: a wait would never end.
            return Err(RecvError::Closed);
        }
        let mut idle = self.waiting_mut().idle(deadline);
        loop {
            match self.try_often(&mut try_recv) {
                Err(RecvError::Empty) => {}
                done => return done,
            }
            let found = self.wait_a_little(&mut idle, 0, WaitFor::Completion, |receiver| {
                receiver.look_everywhere()?;
                match try_recv(receiver) {
                    Err(RecvError::Empty) => Ok(None),
                    done => done.map(Some),
                }
            });
            if let Some(found) = found? {
                return Ok(found);
            }
        }
    }

    /// Takes the completions that have arrived, at most the capacity of the queue: a sender may
    /// keep sending for ever.
    fn drain_queue(&mut self) -> Result<(), RecvError> {
        let mut left = self.waiting().cq.capacity() as usize;
        while left > 0
            && let polled @ 1.. = self.take_completions()?
        {
            left = left.saturating_sub(polled);
        }
        Ok(())
    }

    /// Polls until the senders have received STOP, or the deadline has passed.
    fn linger_until(&mut self, deadline: Deadline, mut is_heard: impl FnMut(&mut Self) -> bool) {
        let mut idle = Idle::new(WaitStrategy::Spin, deadline, self.waiting().common.linger);
        while !is_heard(self) {
            if self.take_completions().is_err() || idle.step() == WaitStep::TimedOut {
                return;
            }
        }
    }
}
