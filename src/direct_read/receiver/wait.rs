//! Waiting, and ending.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::Receiver;
use crate::direct_read::link::DirectReadLink;
use crate::error::RecvError;
use crate::keepalive::SILENT;
use crate::taking::waits_for_messages;
use crate::wait::{Deadline, Idle};
use crate::waiting::{WaitFor, Waits};

impl Receiver {
    /// Waits on, after a look with `events` events that do not end the wait.
    pub(in crate::direct_read) fn await_more(
        &mut self,
        idle: &mut Idle,
        events: usize,
    ) -> Result<(), RecvError> {
        let waited = self.wait_a_little(idle, events, WaitFor::Completion, |receiver| {
            // A message that another thread frees gives a buffer for the next one.
            let goes_on = receiver.landing.announce() && !receiver.arrived.is_empty();
            Ok((receiver.progress()? > 0 || goes_on).then_some(()))
        });
        waited.map(drop)
    }
}

impl Waits for Receiver {
    waits_for_messages!();

    fn ask(&mut self) -> Result<(), RecvError> {
        tracing::debug!("{SILENT}");
        self.links.iter_mut().for_each(DirectReadLink::ask);
        Ok(())
    }

    fn before_sleep(&mut self, most: Duration) -> Result<Duration, RecvError> {
        self.probe_silent_peers();
        Ok(most.min(self.waiting.left()))
    }

    fn wakeup(&self) -> Option<BorrowedFd<'_>> {
        self.landing.wakeup()
    }

    fn after_sleep(&mut self) {
        self.landing.retract();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let deadline = Deadline::after(self.waiting.common.linger);
        let mut idle = self.waiting.idle(deadline);
        loop {
            self.links.iter_mut().filter(|link| !link.is_over()).for_each(DirectReadLink::stop);
            if self.links.iter().all(DirectReadLink::is_quiet) {
                break;
            }
            match self.progress() {
                Ok(events) if self.await_more(&mut idle, events).is_err() => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}
