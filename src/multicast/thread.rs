//! A member with a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conn_core::multicast::Counts;
use host::channel::{Receiver, RecvError, channel};
use host::thread::JoinHandle;

use super::backoff::IdleBackoff;
use super::error::GroupError;
use super::group::{Group, Message};
use super::sender::Sender;
use crate::wait::Deadline;

/// Time for which a member that leaves, or that is in a finished group, waits for its goodbye to
/// arrive.
const GOODBYE: Duration = Duration::from_secs(1);

/// A member that a thread drives. Dropping it makes the member leave, and waits for that: about a
/// second at most, and for the delivery that is under way.
#[derive(Debug)]
pub struct Running {
    sender: Sender,
    stop: Arc<AtomicBool>,
    /// The group's result, sent when the thread is about to end.
    ended: Receiver<GroupResult>,
    thread: Option<JoinHandle<()>>,
}

type GroupResult = Result<Counts, GroupError>;

impl Group {
    /// Gives the member a thread that drives it, and hands every message to `deliver`.
    ///
    /// Sending a message, or flushing, wakes the thread: it takes the message in at once, and
    /// pushes it as the policy says. Writes of the other members wake no thread: this one polls
    /// while there is traffic; when nothing arrives for 50 µs it sleeps, for at most a millisecond,
    /// and sees writes that arrive meanwhile only then. A deadline ends the sleep, later by the
    /// timer slack of the system (Linux: 50 µs by default). A program that needs the other
    /// members' messages at once drives the member with [`poll`](Self::poll).
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(
        self,
        deliver: impl FnMut(Message<'_>) + Send + 'static,
    ) -> std::io::Result<Running> {
        let (sender, stop) = (self.sender(), Arc::new(AtomicBool::new(false)));
        let (stopped, (tell, ended)) = (stop.clone(), channel());
        let thread = host::thread::spawn(&format!("multicast {}", self.rank().0), move || {
            self.driven_here();
            // A member that was dropped waits for the thread, and not for its result.
            let _ = tell.send(drive(self, &stopped, deliver));
        })?;
        Ok(Running { sender, stop, ended, thread: Some(thread) })
    }
}

fn drive(mut group: Group, stop: &AtomicBool, mut deliver: impl FnMut(Message<'_>)) -> GroupResult {
    let mut backoff = IdleBackoff::default();
    // Relaxed: it publishes nothing else.
    while !stop.load(Ordering::Relaxed) && !group.is_finished() {
        group.pass(&mut backoff, Deadline::NEVER, &mut deliver);
        if matches!(group.error(), Some(GroupError::Excluded { .. })) {
            break;
        }
    }
    match group.is_finished() {
        true => group.finish(GOODBYE, deliver),
        false => group.leave(GOODBYE, deliver),
    }
}

impl Running {
    /// The sender of this member's messages.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Ends the stream of this member, and waits until all streams have ended and all is delivered.
    /// It waits for as long as others send; once a member has failed, for as long as the survivors
    /// wait for one another ([`Config::suspect_after`](super::Config::suspect_after)).
    ///
    /// # Errors
    /// [`GroupError`]: the group has failed, and the messages that the survivors agreed on were
    /// delivered.
    pub fn finish(self) -> Result<Counts, GroupError> {
        self.finish_timeout(Duration::MAX)
    }

    /// As [`finish`](Self::finish), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`GroupError::TimedOut`]: the member then leaves, and this does not wait for that.
    pub fn finish_timeout(mut self, timeout: Duration) -> Result<Counts, GroupError> {
        self.sender.end();
        self.join(timeout)
    }

    /// Leaves while others may still be sending. That takes about a second at most, and as long as
    /// the delivery that is under way.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn leave(self) -> Result<Counts, GroupError> {
        self.leave_timeout(Duration::MAX)
    }

    /// As [`leave`](Self::leave), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`GroupError::TimedOut`]: the member still leaves, and this does not wait for that.
    pub fn leave_timeout(mut self, timeout: Duration) -> Result<Counts, GroupError> {
        self.stop();
        self.join(timeout)
    }

    fn stop(&self) {
        // Relaxed: it publishes nothing else.
        self.stop.store(true, Ordering::Relaxed);
        self.sender.interrupt();
    }

    fn join(&mut self, timeout: Duration) -> GroupResult {
        match self.ended.recv_timeout(timeout) {
            Ok(ended) => ended,
            Err(RecvError::TimedOut) => {
                self.stop();
                self.thread = None; // detached: it ends on its own
                Err(GroupError::TimedOut { unsent: self.sender.unsent() })
            }
            Err(RecvError::Closed) => {
                let thread = self.thread.take().expect("it is joined once");
                std::panic::resume_unwind(thread.join().expect_err("a panic"))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a member has panicked");
        }
    }
}

#[cfg(test)]
mod tests;
