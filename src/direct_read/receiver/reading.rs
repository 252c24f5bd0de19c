//! Messages that are being read, and those that have landed.

use std::collections::VecDeque;
use std::time::Duration;

use verbs_safe::FileRegion;

use super::Receiver;
use crate::direct_read::ReadError;
use crate::direct_read::link::Landed;
use crate::direct_read::message::FileReading;
use crate::direct_read::room::ReadSink;
use crate::error::RecvError;
use crate::wait::Deadline;

impl Receiver {
    /// Reports whether the message of `reading` is in its file, or cannot be, as
    /// [`is_done`](crate::ZeroCopyRecv::is_done).
    ///
    /// # Errors
    /// [`ReadError::UnknownReading`].
    pub fn is_file_done(&mut self, reading: FileReading) -> Result<bool, ReadError> {
        self.has_landed(reading.receiver, reading.ticket)
    }

    /// Waits until the message of `reading` is in its file, and gives back the registration.
    /// Read the file itself to see the bytes.
    ///
    /// # Errors
    /// [`RecvError::Peer`] when it could not be read: there may be a part of it.
    /// [`ReadError::UnknownReading`].
    pub fn wait_file(&mut self, reading: FileReading) -> Result<FileRegion, ReadError> {
        self.wait_file_until(reading, Deadline::NEVER)
    }

    /// As [`wait_file`](Self::wait_file), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`]; the ticket stays good.
    pub fn wait_file_timeout(
        &mut self,
        reading: FileReading,
        timeout: Duration,
    ) -> Result<FileRegion, ReadError> {
        self.wait_file_until(reading, Deadline::after(timeout))
    }

    fn wait_file_until(
        &mut self,
        reading: FileReading,
        deadline: Deadline,
    ) -> Result<FileRegion, ReadError> {
        let FileReading { receiver, ticket } = reading;
        let Landed { peer, room, ended, .. } = self.landed_until(receiver, ticket, deadline)?;
        match (room, ended) {
            (_, Some(ended)) => Err(RecvError::Peer { peer, reason: ended }.into()),
            (ReadSink::File(region), None) => Ok(region),
            (_, None) => Err(ReadError::UnknownReading),
        }
    }

    pub(super) fn has_landed(&mut self, receiver: u32, ticket: u64) -> Result<bool, ReadError> {
        let is_here = |landed: &VecDeque<Landed>| landed.iter().any(|l| l.ticket == ticket);
        if receiver != self.serial {
            return Err(ReadError::UnknownReading);
        }
        if is_here(&self.landed) {
            return Ok(true);
        }
        self.probe_now_and_then();
        self.progress()?;
        let is_reading = self.links.iter().any(|link| link.is_reading(ticket));
        match is_here(&self.landed) {
            false if !is_reading => Err(ReadError::UnknownReading),
            is_here => Ok(is_here),
        }
    }

    /// Waits for a message by the numbers of its receiver and of itself.
    pub(super) fn landed_until(
        &mut self,
        receiver: u32,
        ticket: u64,
        deadline: Deadline,
    ) -> Result<Landed, ReadError> {
        if receiver != self.serial {
            return Err(ReadError::UnknownReading);
        }
        let mut idle = self.waiting.idle(deadline);
        loop {
            if let Some(at) = self.landed.iter().position(|l| l.ticket == ticket) {
                return self.landed.remove(at).ok_or(ReadError::UnknownReading);
            }
            if !self.links.iter().any(|link| link.is_reading(ticket)) {
                return Err(ReadError::UnknownReading);
            }
            let events = self.watch()?;
            self.await_more(&mut idle, events)?;
        }
    }
}
