//! A channel from one thread to another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

#[derive(Debug)]
struct ChannelShared<T> {
    state: Mutex<ChannelState<T>>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct ChannelState<T> {
    values: VecDeque<T>,
    /// One of the ends was dropped.
    is_closed: bool,
}

/// The end that gives values.
#[derive(Debug)]
pub struct Sender<T>(Arc<ChannelShared<T>>);

/// The end that waits for values.
#[derive(Debug)]
pub struct Receiver<T>(Arc<ChannelShared<T>>);

/// A wait without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvError {
    /// Nothing has arrived in time.
    TimedOut,
    /// The sender was dropped, and its values were taken.
    Closed,
}

/// The value, which the receiver, dropped meanwhile, does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// A channel that holds any number of values.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// A channel that holds `capacity` values; the sender waits while it is full.
///
/// # Panics
/// The capacity is 0.
#[must_use]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert_ne!(capacity, 0, "a channel holds a value at least");
    let state = Mutex::new(ChannelState { values: VecDeque::new(), is_closed: false });
    let shared = Arc::new(ChannelShared { state, changed: Condvar::new(), capacity });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Gives a value, once there is room for it.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        while state.values.len() >= self.0.capacity && !state.is_closed {
            self.0.changed.wait(&mut state);
        }
        if state.is_closed {
            return Err(SendError(value));
        }
        state.values.push_back(value);
        drop(state);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    /// Waits for a value.
    ///
    /// # Errors
    /// [`RecvError::Closed`].
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_timeout(Duration::MAX)
    }

    /// Waits for a value, for `timeout` at most.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        let deadline = crate::time::now().checked_add(timeout);
        let mut state = self.0.state.lock();
        loop {
            if let Some(value) = state.values.pop_front() {
                drop(state);
                self.0.changed.notify_all();
                return Ok(value);
            }
            match deadline {
                _ if state.is_closed => return Err(RecvError::Closed),
                None => self.0.changed.wait(&mut state),
                Some(at) if crate::time::now() >= at => return Err(RecvError::TimedOut),
                Some(at) => _ = self.0.changed.wait_for(&mut state, crate::time::until(at)),
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        let values = std::mem::take(&mut state.values);
        drop(state);
        self.0.changed.notify_all();
        // Not under the lock: a value may do anything when it is dropped.
        drop(values);
    }
}

#[cfg(test)]
mod tests;
