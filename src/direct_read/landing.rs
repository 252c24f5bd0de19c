//! Buffers that messages are read into, and that come back when the messages are freed: for
//! programs that receive messages and have no buffers of their own to offer.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use host::sync::Mutex;

use verbs_safe::{Buffer, BufferConfig, ProtectionDomain};

use crate::error::CloseReason;
use crate::wakeup::EventfdWakeup;

/// Place where messages that are freed on any thread leave their buffers.
#[derive(Debug)]
pub(super) struct FreedBuffers {
    /// `None`: a buffer that its user has kept. Under a lock, which is free but while a buffer
    /// is put in or all are taken out: it costs little beside the READ of a message.
    /// `None` in place of all: the receiver has gone.
    freed: Mutex<Option<Vec<Option<Buffer>>>>,
    wakeup: EventfdWakeup,
}

impl FreedBuffers {
    fn new() -> std::io::Result<Arc<FreedBuffers>> {
        Ok(Arc::new(FreedBuffers {
            freed: Mutex::new(Some(Vec::new())),
            wakeup: EventfdWakeup::new()?,
        }))
    }

    pub(super) fn give(&self, buffer: Option<Buffer>) {
        // Dropped without the lock, if the receiver was dropped.
        let mut buffer = Some(buffer);
        if let Some(freed) = &mut *self.freed.lock() {
            freed.extend(buffer.take());
        }
        self.wakeup.wake();
    }
}

/// The buffers of one receiver. They are registered when they are first needed, so that a receiver
/// with buffers of the program takes no memory for them.
#[derive(Debug)]
pub(super) struct LandingBuffers {
    pd: ProtectionDomain,
    buffer_bytes: usize,
    /// Buffers at most: free ones, those that are read into, and those of messages.
    most: usize,
    made: usize,
    free: Vec<Buffer>,
    /// The receiver waits for a message, and so for a buffer.
    pub(super) is_wanted: bool,
    returns: Option<Arc<FreedBuffers>>,
}

impl LandingBuffers {
    pub(super) fn new(pd: ProtectionDomain, buffer_bytes: u32, most: usize) -> LandingBuffers {
        let (buffer_bytes, free) = (buffer_bytes as usize, Vec::new());
        LandingBuffers { pd, buffer_bytes, most, made: 0, free, is_wanted: false, returns: None }
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Bytes that are registered for messages.
    pub(super) fn registered_bytes(&self) -> u64 {
        (self.made * self.buffer_bytes) as u64
    }

    /// A buffer, if one is free or may still be made. There is a [`home`](Self::home) for it.
    pub(super) fn take(&mut self) -> Result<Option<Buffer>, CloseReason> {
        if self.free.is_empty() {
            self.collect();
        }
        if let Some(buffer) = self.free.pop() {
            return Ok(Some(buffer));
        }
        if self.made == self.most {
            return Ok(None);
        }
        // First of all, so that handing out a message that was read needs no more memory.
        self.home()?;
        match self.pd.register_buffer(self.buffer_bytes, BufferConfig::default()) {
            Ok(buffer) => {
                self.made += 1;
                Ok(Some(buffer))
            }
            // Continues with the existing buffers.
            Err(e) if self.made > 0 => {
                tracing::warn!(buffers = self.made, error = %e, "no more buffers for messages");
                self.most = self.made;
                Ok(None)
            }
            Err(e) => Err(CloseReason::Device(e.to_string())),
        }
    }

    /// Takes back a buffer that was not used, or was freed on this thread.
    pub(super) fn put_back(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    /// Returns the place where a message leaves its buffer.
    pub(super) fn home(&mut self) -> Result<Arc<FreedBuffers>, CloseReason> {
        let returns = match self.returns.take() {
            Some(returns) => returns,
            None => FreedBuffers::new().map_err(|e| CloseReason::Device(e.to_string()))?,
        };
        Ok(Arc::clone(self.returns.insert(returns)))
    }

    pub(super) fn is_home(&self, returns: &Arc<FreedBuffers>) -> bool {
        self.returns.as_ref().is_some_and(|ours| Arc::ptr_eq(ours, returns))
    }

    fn collect(&mut self) {
        let Some(returns) = &self.returns else { return };
        let mut freed = returns.freed.lock();
        for buffer in freed.iter_mut().flat_map(|freed| freed.drain(..)) {
            match buffer {
                Some(buffer) => self.free.push(buffer),
                None => self.made -= 1,
            }
        }
    }

    /// Notes that `buffers` buffers will not come back.
    pub(super) fn lost(&mut self, buffers: usize) {
        self.made -= buffers;
    }

    /// Says that the receiver is about to sleep. True: it waits for a message, and has a buffer.
    pub(super) fn announce(&mut self) -> bool {
        if let Some(returns) = &self.returns {
            returns.wakeup.announce();
        }
        self.collect();
        self.is_wanted && (!self.free.is_empty() || self.made < self.most)
    }

    pub(super) fn retract(&self) {
        if let Some(returns) = &self.returns {
            returns.wakeup.retract();
        }
    }

    /// Returns the descriptor that becomes readable when a message is freed.
    pub(super) fn wakeup(&self) -> Option<BorrowedFd<'_>> {
        self.returns.as_ref().map(|returns| returns.wakeup.as_fd())
    }
}

impl Drop for LandingBuffers {
    fn drop(&mut self) {
        if let Some(returns) = &self.returns {
            let freed = returns.freed.lock().take();
            drop(freed);
        }
    }
}
