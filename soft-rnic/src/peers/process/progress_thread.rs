//! The state that a process's progress thread shares with the threads of the program.

use core::sync::atomic::{AtomicBool, AtomicU32};
use host::sync::OnceLock;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use host::sync::Mutex;

/// The thread, and what it knows.
#[derive(Debug, Default)]
pub(crate) struct ProgressThread {
    pub(crate) started: Mutex<bool>,
    /// The epoll set that it waits for; there once it was started.
    pub(crate) epoll: OnceLock<Arc<OwnedFd>>,
    /// Wakes the progress thread only; the doorbell wakes other threads, too. The thread has it,
    /// too: the end of the device wakes it.
    pub(crate) wakeup: OnceLock<Arc<OwnedFd>>,
    /// The program has polled since the last look.
    pub(crate) polled: AtomicBool,
    /// Polls since the process was armed.
    pub(crate) polls: AtomicU32,
    /// The program has armed: it waits for an event, or is going to.
    pub(crate) waits: AtomicBool,
    /// Number of times that the process was armed, each by a number of its own.
    pub(crate) armings: AtomicU32,
    /// A thread waits for the doorbell inside a call: one of them is enough.
    pub(crate) is_watched: AtomicBool,
    /// The thread takes received messages.
    pub(crate) works: AtomicBool,
    /// The completion channel that the doorbell wakes.
    pub(crate) woken: Mutex<Option<Arc<OwnedFd>>>,
}
