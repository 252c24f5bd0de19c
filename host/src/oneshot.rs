//! A channel of one value.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Waiting,
    Sent(T),
    /// The sender was dropped without a value, or the value was taken.
    Closed,
}

/// The end that gives the value.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// The end that waits for the value.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Shared<T>>);

/// A wait without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvError {
    /// Nothing has come in the time.
    TimedOut,
    /// Nothing comes any more.
    Closed,
}

/// A channel of one value.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Waiting), changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Gives the value.
    pub fn send(self, value: T) {
        *self.0.state.lock() = State::Sent(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::Closed;
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    /// Waits for the value, for `timeout` at most.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        let deadline = crate::time::now().checked_add(timeout);
        let mut state = self.0.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Closed) {
                State::Sent(value) => return Ok(value),
                State::Closed => return Err(RecvError::Closed),
                State::Waiting => *state = State::Waiting,
            }
            match deadline {
                None => self.0.changed.wait(&mut state),
                Some(at) if crate::time::now() >= at => return Err(RecvError::TimedOut),
                Some(at) => _ = self.0.changed.wait_until(&mut state, at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_once_and_a_dropped_sender_is_told() {
        let (sender, receiver) = channel();
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvError::TimedOut));
        let thread = crate::thread::spawn("sender", move || sender.send(7)).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(7));
        assert_eq!(receiver.recv_timeout(Duration::MAX), Err(RecvError::Closed));
        thread.join().unwrap();
        let (sender, receiver) = channel::<u8>();
        drop(sender);
        assert_eq!(receiver.recv_timeout(Duration::MAX), Err(RecvError::Closed));
    }
}
