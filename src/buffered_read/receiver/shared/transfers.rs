//! A thread of its own for the transfers of a shared receiver.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use host::thread::JoinHandle;

use super::{SharedReceiver, SharedReceiverInner};
use crate::common::Common;
use crate::error::CloseReason;
use crate::wait::{Deadline, Idle, SleepBackoff, WaitStep};

/// A thread that does the transfers of a [`SharedReceiver`]. It ends with the connection,
/// or when the last receiver is dropped. Dropping this ends it at once, and the threads that
/// receive do the transfers again.
#[derive(Debug)]
pub struct Transfers {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), CloseReason>>>,
}

impl SharedReceiver {
    /// Spawns a thread for the transfers, so that the receiving threads only claim landed messages.
    ///
    /// ```
    /// use rdma_conn::buffered_read::Config;
    /// use rdma_conn::{BufferedRead, RecvHalf, SendHalf, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, b) = pair::<BufferedRead>(&device, &device, &Config::default())?;
    /// let receiver = b.receiver.into_shared().expect("nothing was received yet");
    /// let transfers = receiver.spawn_transfers()?;
    /// a.sender.send(b"hello")?;
    /// assert_eq!(&*receiver.recv()?, b"hello");
    /// a.sender.close()?;
    /// assert_eq!(transfers.join(), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`, when there is one; else the system's reason for not making a thread.
    pub fn spawn_transfers(&self) -> io::Result<Transfers> {
        // Relaxed: it says which thread looks at the device, and the lock orders their looks.
        if self.inner.has_transfers.swap(true, Ordering::Relaxed) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let stand_in = StandIn(Arc::downgrade(&self.inner));
        let told = is_over.clone();
        let thread = host::thread::spawn("transfers", move || stand_in.transfer(&told))?;
        Ok(Transfers { is_over, thread: Some(thread) })
    }
}

impl Transfers {
    /// Waits until all that the sender has sent before its goodbye has arrived, or the last
    /// receiver is dropped.
    ///
    /// # Errors
    /// The reason for which the connection has failed.
    pub fn join(mut self) -> Result<(), CloseReason> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(CloseReason::Device("the thread of the transfers panicked".into())),
            None => Ok(()),
        }
    }
}

impl Transfers {
    /// As [`join`](Transfers::join), for at most `timeout`.
    ///
    /// # Errors
    /// The transfers, which continue, when the timeout passed first.
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<(), CloseReason>, Transfers> {
        let (deadline, mut backoff) = (Deadline::after(timeout), SleepBackoff::new());
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let left = deadline.remaining(host::time::now());
            if left.is_zero() {
                return Err(self);
            }
            backoff.wait(left);
        }
        Ok(self.join())
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        // Relaxed: it is seen soon.
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic is no reason for another one
        }
    }
}

/// Does the transfers while it lives. Once it is dropped, for any reason, the receiving threads do.
struct StandIn(Weak<SharedReceiverInner>);

impl StandIn {
    fn transfer(&self, is_over: &AtomicBool) -> Result<(), CloseReason> {
        let (mut waits, mut progress) = (None::<Idle>, (0, 0));
        loop {
            let Some(inner) = self.0.upgrade() else { return Ok(()) };
            // Relaxed: it is seen soon.
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut link = inner.lock();
            // Landed messages may wait long for a claim, and more may follow them.
            link.look_ahead();
            inner.drive(&mut link);
            let now = link.progress();
            drop(link);
            match inner.ended.get() {
                Some(CloseReason::Closed) => return Ok(()),
                Some(ended) => return Err(ended.clone()),
                None => {}
            }
            if now != progress {
                (waits, progress) = (None, now);
                continue;
            }
            let Common { wait, keepalive, .. } = inner.common;
            let new = || Idle::new(wait, Deadline::NEVER, keepalive);
            let idle = waits.get_or_insert_with(new);
            if let WaitStep::Sleep(time) = idle.step() {
                inner.lock().tell_all();
                // Dropped before the sleep: so the drop of the last receiver ends the connection at
                // once, not when this thread wakes.
                drop(inner);
                host::time::sleep(idle.short_sleep(time));
            }
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            // Relaxed: as where it was set.
            inner.has_transfers.store(false, Ordering::Relaxed);
        }
    }
}
