//! Messages over Direct Read, as every protocol has them: copied into registered buffers by the
//! sender, and read into registered buffers by the receiver. For zero copy, see
//! [`zero_copy`](crate::zero_copy).

use std::time::Duration;

use verbs_safe::{Buffer, BufferConfig};

use conn_core::direct_read::{Refusal, SignalAt};

use super::link::Landed;
use super::message::Message;
use super::room::ReadSink;
use super::{NotReadReason, OfferError, Receiver, Sender};
use crate::arm::Arm;
use crate::error::{CloseReason, Full, RecvError, SendError};
use crate::half::{RecvHalf, Room, SendHalf, check_within, driven};
use crate::peer::Peer;
use crate::sending::{Driving, Sends};
use crate::ticket::Ticket;
use crate::wait::Deadline;
use crate::waiting::Waits;
use crate::wire::ConnectedQp;

impl Sender<Buffer> {
    /// A buffer for a message, if one is free or may still be made: as many as the window has.
    fn message_buffer(&mut self) -> Result<Buffer, SendError> {
        if self.pool.is_empty() && self.pooled == self.config.window {
            self.find_room(|sender| !sender.pool.is_empty())?;
        }
        if let Some(buffer) = self.pool.pop() {
            return Ok(buffer);
        }
        if self.pooled == self.config.window {
            return Err(SendError::Full(Full::Window));
        }
        let signal = self.config.ack.signals() && self.config.signal_at == SignalAt::Tail;
        let bytes = self.message_limit;
        let made = self.pd.register_buffer(bytes, BufferConfig { peers_read: true, signal });
        let buffer = made.map_err(|e| match self.pooled {
            0 => self.half.posting.fail(CloseReason::device(e)).into(),
            // Continues with the existing buffers, once one is acknowledged.
            _ => match self.find_room(|sender| !sender.pool.is_empty()) {
                Ok(()) => SendError::Full(Full::Window),
                Err(ended) => ended,
            },
        })?;
        self.pooled += 1;
        Ok(buffer)
    }

    /// Offers the first bytes of one of the sender's own buffers.
    fn send_buffer(&mut self, buffer: Buffer, bytes: usize) -> Result<Ticket, SendError> {
        match self.post_offer(&buffer, 0..bytes, b"") {
            Ok(number) => Ok(self.offered(buffer, number, true)),
            Err(error) => {
                self.pool.push(buffer);
                match error {
                    OfferError::Send(error) => Err(error),
                    other => Err(self.half.posting.fail(CloseReason::device(other)).into()),
                }
            }
        }
    }
}

/// Room for one message in one of the sender's buffers.
#[derive(Debug)]
#[must_use = "nothing is sent before `commit`"]
pub struct Reserved<'a> {
    /// The last one of its free buffers is filled.
    sender: &'a mut Sender,
    bytes: usize,
}

impl Room for Reserved<'_> {
    fn capacity(&self) -> usize {
        self.bytes
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError> {
        check_within(at.saturating_add(bytes.len()), self.bytes)?;
        if let Some(buffer) = self.sender.pool.last_mut() {
            buffer[at..][..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn commit(self, bytes: usize) -> Result<Ticket, SendError> {
        check_within(bytes, self.bytes)?;
        let buffer = self.sender.pool.pop().ok_or(SendError::Full(Full::Window))?;
        self.sender.send_buffer(buffer, bytes)
    }
}

impl SendHalf for Sender<Buffer> {
    type Room<'a> = Reserved<'a>;

    fn max_message_bytes(&self) -> usize {
        self.message_limit
    }

    fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        let bytes = message.len();
        check_within(bytes, self.message_limit)?;
        self.look_after_peer()?;
        self.half.posting.check()?;
        let mut buffer = self.message_buffer()?;
        buffer[..bytes].copy_from_slice(message);
        self.send_buffer(buffer, bytes)
    }

    fn try_reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        check_within(bytes, self.message_limit)?;
        self.look_after_peer()?;
        self.half.posting.check()?;
        self.make_room()?;
        let buffer = self.message_buffer()?;
        self.pool.push(buffer);
        Ok(Reserved { sender: self, bytes })
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.look_after_peer()?;
        self.half.posting.check()?;
        Ok(self.half.posting.post()?)
    }

    fn arm(&mut self) -> Result<Arm<'_>, SendError> {
        self.arm_by(|_| Ok(false))
    }

    fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        Sender::is_acked(self, ticket)
    }
}

impl Driving for Sender<Buffer> {
    fn look_for_room(&mut self, bytes: usize) -> Result<(), SendError> {
        self.try_reserve(bytes).map(drop)
    }

    fn check_outcome(&self, number: u64) -> Result<(), SendError> {
        self.check_read(number)
    }
}

impl Receiver {
    /// Begins to read requests that have arrived, as far as buffers are free; returns their number.
    fn read_into_buffers(&mut self) -> Result<usize, RecvError> {
        let mut decided = 0;
        while let Some(len) = self.oldest().map(|arrived| arrived.len) {
            if len > self.landing.buffer_bytes() as u64 {
                tracing::debug!(bytes = len, "a message longer than message_bytes was refused");
                self.refuse_oldest(Refusal::TooLong);
                decided += 1;
                continue;
            }
            let buffer = match self.landing.take() {
                Ok(Some(buffer)) => buffer,
                Ok(None) => break,
                Err(reason) => {
                    self.fail_oldest(reason);
                    continue;
                }
            };
            let Err((room, why)) = self.read_oldest(ReadSink::Message(buffer)) else {
                decided += 1;
                continue;
            };
            if let ReadSink::Message(buffer) = room {
                self.landing.put_back(buffer);
            }
            match why {
                // The peer was lost: its request is dropped when the loss is reported.
                NotReadReason::Ended(_) => break,
                why => self.fail_oldest(CloseReason::Device(why.to_string())),
            }
        }
        Ok(decided)
    }

    /// The oldest request cannot be read: there is no memory for a buffer, or its connection was
    /// accepted on another device than the receiver's. The connection ends, and no other one.
    fn fail_oldest(&mut self, reason: CloseReason) {
        let Some(peer) = self.oldest().map(|arrived| arrived.peer) else { return };
        self.arrived.retain(|arrived| arrived.peer != peer);
        if let Some(link) = self.links.iter_mut().find(|link| link.peer == peer) {
            link.fail(reason);
        }
    }

    /// The error of a failed peer, once all its messages that were read have been handed out.
    fn failure_behind_messages(&mut self) -> Option<RecvError> {
        self.failure_unless(|landed, peer| {
            let is_message =
                |l: &Landed| matches!(l.room, ReadSink::Message(_)) && l.ended.is_none();
            landed.iter().any(|l| l.peer == peer && is_message(l))
        })
    }

    /// The next message that has been read into a buffer of the receiver's.
    fn next_message(&mut self) -> Result<Option<Message>, RecvError> {
        while let Some(at) = self.landed.iter().position(|l| matches!(l.room, ReadSink::Message(_)))
        {
            let home = self.landing.home().map_err(|reason| self.fail(reason))?;
            let Some(Landed { peer, len, room, ended, .. }) = self.landed.remove(at) else { break };
            let ReadSink::Message(buffer) = room else { break };
            if ended.is_some() {
                // Reported once, for its peer.
                self.landing.put_back(buffer);
                continue;
            }
            return Ok(Some(Message::lent(buffer, len as usize, peer, home)));
        }
        Ok(None)
    }
}

impl RecvHalf for Receiver {
    type Message = Message;

    fn peers(&self) -> usize {
        self.links.iter().filter(|link| !link.reported).count()
    }

    fn registered_bytes(&self) -> u64 {
        let shared = self.shared.as_ref().and_then(|poster| poster.shared()).map(|s| s.slots());
        let requests = shared.unwrap_or(self.links.len() as u32 * self.share);
        let request_bytes = u64::from(self.config.request_bytes());
        self.landing.registered_bytes() + u64::from(requests) * request_bytes
    }

    fn try_recv(&mut self) -> Result<Message, RecvError> {
        // Also while other peers are busy.
        if self.probe_now_and_then()
            && let Some(failure) = self.failure_behind_messages()
        {
            return Err(failure);
        }
        // A READ may complete before its post returns: polls once more.
        for _ in 0..2 {
            if let Some(message) = self.next_message()? {
                return Ok(message);
            }
            self.progress()?;
            self.read_into_buffers()?;
        }
        if let Some(message) = self.next_message()? {
            return Ok(message);
        }
        match self.oldest() {
            None if self.peers_so_far == 0 => Err(RecvError::Empty),
            None => Err(self.report().unwrap_or(RecvError::Empty)),
            Some(_) => Err(self.failure().unwrap_or(RecvError::Empty)),
        }
    }

    fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        self.arm_for(true, |receiver| {
            receiver.landed.iter().any(|l| matches!(l.room, ReadSink::Message(_)))
        })
    }

    fn try_recv_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        let mut count = 0;
        let mut next = Some(self.try_recv()?);
        while let Some(message) = next {
            each(message.peer(), &message);
            self.free(message);
            count += 1;
            next = self.next_message()?;
        }
        Ok(count)
    }

    fn free(&mut self, message: Message) {
        if let Some(buffer) = message.free_into(&self.landing) {
            self.landing.put_back(buffer);
        }
    }
}

impl driven::Receiver for Receiver {
    type Taken = Message;

    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        if self.peers_so_far == 0 {
            // No peer can join while we wait: a wait would never end.
            return Err(RecvError::Closed);
        }
        let mut idle = self.waiting.idle(deadline);
        loop {
            match self.try_recv() {
                Err(RecvError::Empty) => {
                    self.landing.is_wanted = true;
                    let waited = self.await_more(&mut idle, 0);
                    self.landing.is_wanted = false;
                    waited?;
                }
                done => return done,
            }
        }
    }

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.links.iter().find(|link| link.peer == peer).map(|link| link.posting.qp())
    }

    fn abandon(&mut self) {
        self.waiting.common.linger = Duration::ZERO;
    }
}
