//! A member with a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use conn_core::multicast::Counts;

use super::error::GroupError;
use super::group::{Group, Message};
use super::lull::Lull;
use super::sender::Sender;

/// A member that a thread drives. Dropping it makes the member leave.
#[derive(Debug)]
pub struct Running {
    sender: Sender,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Ended>>,
}

type Ended = Result<Counts, GroupError>;

impl Group {
    /// Gives the member a thread that drives it, and hands every message to `deliver`.
    ///
    /// The thread looks all the time while there is traffic. When nothing comes for 50 µs it
    /// sleeps, for a millisecond at most: what comes then is seen so much later. A deadline ends
    /// the sleep, later by what the system adds to one (Linux: 50 µs, unless told otherwise). Who
    /// needs it at once drives the member with [`poll`](Self::poll).
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(
        self,
        deliver: impl FnMut(Message<'_>) + Send + 'static,
    ) -> std::io::Result<Running> {
        let (sender, stop) = (self.sender(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name(format!("multicast {}", self.rank().0));
        let thread = thread.spawn(move || drive(self, &stopped, deliver))?;
        Ok(Running { sender, stop, thread: Some(thread) })
    }
}

fn drive(mut group: Group, stop: &AtomicBool, mut deliver: impl FnMut(Message<'_>)) -> Ended {
    let mut lull = Lull::default();
    // Relaxed: nothing else is told by it.
    while !stop.load(Ordering::Relaxed) && !group.is_finished() {
        group.pass(&mut lull, &mut deliver);
        if matches!(group.error(), Some(GroupError::Excluded { .. })) {
            break;
        }
    }
    match group.is_finished() {
        true => group.finish(Duration::from_secs(1), deliver),
        false => group.leave(Duration::from_secs(1), deliver),
    }
}

impl Running {
    /// What sends the messages of this member.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Ends the stream of this member, and waits until all streams have ended and all is
    /// delivered. That is as long as others send; once a member has failed, no longer than the
    /// survivors wait for one another ([`Config::suspect_after`](super::Config::suspect_after)).
    ///
    /// # Errors
    /// [`GroupError`]: the group has failed, and what the survivors agree on was delivered.
    pub fn finish(mut self) -> Ended {
        self.sender.end();
        self.join()
    }

    /// Leaves while others may still be sending.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn leave(mut self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    fn join(&mut self) -> Ended {
        let thread = self.thread.take().expect("it is joined once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a member has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use conn_core::multicast::Policy;

    use super::super::{Config, in_process};

    #[test]
    fn what_is_inhibited_has_happened() {
        let device = crate::device::soft().expect("a device");
        let policy = Policy::Every(100);
        let deadline = std::time::Duration::from_secs(3600);
        let config = Config { members: 2, policy, deadline, ..Config::default() };
        let mut members = in_process(&device, &config).expect("a group");
        assert!(!members[0].work(|_| {}), "nothing was sent");
        members[0].sender().try_send(b"alone").expect("room");
        assert!(members[0].work(|_| {}), "a message was");
        assert_eq!(members[0].counts().writes(), 0);
        assert!(!members[0].work(|_| {}), "it waits for others");
    }
}
