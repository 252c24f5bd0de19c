//! Requests, in the order of their arrival.

use std::collections::VecDeque;

use conn_core::direct_read::Refusal;
use verbs_safe::Buffer;

use super::Receiver;
use crate::arm::Arm;
use crate::direct_read::Request;
use crate::direct_read::link::Landed;
use crate::direct_read::message::{Message, Reading, message};
use crate::direct_read::room::ReadSink;
use crate::error::{CloseReason, RecvError};
use crate::wait::Deadline;
use crate::zero_copy::{NotRead, NotReadReason, OfferedMessage, ReadError, ZeroCopyRecv, driven};

impl ZeroCopyRecv for Receiver {
    type Request<'a> = Request<'a>;
    type Reading = Reading;

    fn try_next_request(&mut self) -> Result<Request<'_>, RecvError> {
        self.probe_now_and_then();
        if self.arrived.is_empty() {
            self.progress()?;
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if self.arrived.is_empty() {
            return Err(self.report().unwrap_or(RecvError::Empty));
        }
        self.seen = self.arrivals;
        Ok(Request::new(self))
    }

    fn is_done(&mut self, reading: Reading) -> Result<bool, ReadError> {
        self.has_landed(reading.receiver, reading.ticket)
    }

    fn try_take(&mut self) -> Result<Option<(Reading, Message)>, ReadError> {
        // One that has landed in a file stays until `wait_file` takes it.
        let next = |landed: &VecDeque<Landed>| {
            landed.iter().position(|l| matches!(l.room, ReadSink::Buffer(_)))
        };
        let mut at = next(&self.landed);
        if at.is_none() {
            self.probe_now_and_then();
            self.progress()?;
            at = next(&self.landed);
        }
        let Some(landed) = at.and_then(|at| self.landed.remove(at)) else { return Ok(None) };
        let reading = Reading { receiver: self.serial, ticket: landed.ticket };
        message(landed).map(|message| Some((reading, message)))
    }

    fn arm_requests(&mut self) -> Result<Arm<'_>, RecvError> {
        self.arm_for(false, |receiver| {
            let is_of_program = |l: &Landed| !matches!(l.room, ReadSink::Message(_));
            receiver.has_new_requests() || receiver.landed.iter().any(is_of_program)
        })
    }
}

impl driven::Receiver for Receiver {
    type Token = Reading;

    fn request_until(&mut self, deadline: Deadline) -> Result<(), RecvError> {
        if self.peers_so_far == 0 {
            // No peer can join while we wait: a wait would never end.
            return Err(RecvError::Closed);
        }
        let mut idle = self.waiting.idle(deadline);
        // Also while other peers are busy.
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        while self.arrived.is_empty() {
            let events = self.watch()?;
            if events == 0
                && let Some(end) = self.report()
            {
                return Err(end);
            }
            self.await_more(&mut idle, events)?;
        }
        Ok(())
    }

    fn read_until(&mut self, reading: Reading, deadline: Deadline) -> Result<Message, ReadError> {
        self.landed_until(reading.receiver, reading.ticket, deadline).and_then(message)
    }
}

impl Receiver {
    /// Waits for a request and reads its message into `buffer`, as in Fischer's design. A
    /// message that is longer is refused.
    ///
    /// ```
    /// use rdma_conn::direct_read::{BufferConfig, Config, pair};
    /// use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut sender, mut receiver) = pair(&device, &device, &Config::default())?;
    /// let mut message = device.pd().register_buffer(4096, BufferConfig::READABLE)?;
    /// message[..5].copy_from_slice(b"hello");
    /// sender.offer_part(message, 0..5, b"").map_err(|e| e.error)?;
    /// let place = device.pd().register_buffer(4096, BufferConfig::default())?;
    /// let reading = receiver.read_next_into(place)?;
    /// assert_eq!(&*receiver.wait(reading)?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`next_request`](Self::next_request) (the buffer is dropped then), and
    /// [`ReadError::BufferTooShort`] with the buffer.
    pub fn read_next_into(&mut self, buffer: Buffer) -> Result<Reading, ReadError> {
        let request = self.next_request()?;
        match request.read_into(buffer) {
            Ok(reading) => Ok(reading),
            Err(not_read) => {
                let NotRead { request, buffer, error } = not_read;
                match (error, request) {
                    (NotReadReason::BufferTooShort { len, .. }, Some(request)) => {
                        request.refuse_with(Refusal::TooLong);
                        Err(ReadError::BufferTooShort { buffer, len })
                    }
                    (NotReadReason::Ended(ended), _) => Err(ended.into()),
                    (error, _) => Err(CloseReason::Device(error.to_string()).into()),
                }
            }
        }
    }
}
