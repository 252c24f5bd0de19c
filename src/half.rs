//! The halves of a connection: the calls of every protocol's sender and receiver.

pub mod driven;
mod recv;

use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::arm::Arm;
use crate::error::SendError;
use crate::ticket::Ticket;
use crate::wait::Deadline;

pub(crate) use recv::received_message;
pub use recv::{FromPeer, RecvHalf};

/// The half that sends. Accepted messages go out without further calls, unless the configuration
/// asks for gathering: then call [`flush`](SendHalf::flush) before you wait for a reply.
pub trait SendHalf: fmt::Debug + Send + Sized + driven::Sender {
    /// Room for a message, which is filled in place.
    type Room<'a>: Room
    where
        Self: 'a;

    /// Longest message that can be sent, in bytes.
    #[must_use]
    fn max_message_bytes(&self) -> usize;

    /// The peer's address on the stream that the connection was set up over, if that went over a
    /// network.
    #[must_use]
    fn peer_addr(&self) -> Option<SocketAddr> {
        self.qp().peer_addr()
    }

    /// This end's address on that stream.
    #[must_use]
    fn local_addr(&self) -> Option<SocketAddr> {
        self.qp().local_addr()
    }

    /// Accepts a message if there is room for it now; never waits. The calls that wait probe a
    /// silent peer. This one does so over Send/Receive only, where there is no credit: over other
    /// protocols a program that only tries may get [`SendError::Full`] from a peer that has died.
    ///
    /// # Errors
    /// [`SendError::Full`] when there is no room: nothing was sent, try again later.
    /// [`SendError::TooLong`], [`SendError::Ended`].
    fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError>;

    /// Sends gathered messages. Has no effect unless the configuration or a
    /// [`batch`](SendHalf::batch) asks for gathering. Over Buffered Write it waits while there is
    /// no room for a push ([`flush_timeout`](crate::buffered_write::Sender::flush_timeout) limits
    /// that).
    ///
    /// # Errors
    /// [`SendError::Ended`].
    fn flush(&mut self) -> Result<(), SendError>;

    /// As [`flush`](SendHalf::flush), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; messages that were not sent stay accepted.
    fn flush_timeout(&mut self, timeout: Duration) -> Result<(), SendError> {
        let _ = timeout; // only Buffered Write's waits
        self.flush()
    }

    /// Reports whether the message of `ticket`, and so every earlier one, is acknowledged: it lies
    /// in the receiver's memory. Never waits. If it is not acknowledged, the call sends gathered
    /// messages, and requests the acknowledgement.
    ///
    /// # Errors
    /// [`SendError::Ended`] when it never will be, [`SendError::UnknownTicket`].
    fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError>;

    /// Room for a message of up to `bytes` bytes, at the place that it is sent from, if there is
    /// some now.
    ///
    /// # Errors
    /// As [`try_send`](SendHalf::try_send).
    fn try_reserve(&mut self, bytes: usize) -> Result<Self::Room<'_>, SendError>;

    /// As [`try_reserve`](SendHalf::try_reserve), waiting for room as long as that takes.
    ///
    /// ```
    /// use rdma_conn::{BufferedWrite, RecvHalf, Room, SendHalf, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair::<BufferedWrite>(&device, &device, &Default::default())?;
    /// let mut message = a.sender.reserve(64)?;
    /// message.write(0, b"head, ")?;
    /// message.write(6, b"and tail")?;
    /// message.commit(14)?; // less than was reserved
    /// assert_eq!(&*b.receiver.recv()?, b"head, and tail");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Ended`].
    fn reserve(&mut self, bytes: usize) -> Result<Self::Room<'_>, SendError> {
        self.room_until(bytes, Deadline::NEVER)?;
        self.try_reserve(bytes)
    }

    /// As [`reserve`](SendHalf::reserve), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`].
    fn reserve_timeout(
        &mut self,
        bytes: usize,
        timeout: Duration,
    ) -> Result<Self::Room<'_>, SendError> {
        self.room_until(bytes, Deadline::after(timeout))?;
        self.try_reserve(bytes)
    }

    /// Waits until a message of `bytes` bytes has room.
    ///
    /// # Errors
    /// As [`reserve`](SendHalf::reserve).
    fn wait_for_room(&mut self, bytes: usize) -> Result<(), SendError> {
        self.room_until(bytes, Deadline::NEVER)
    }

    /// As [`wait_for_room`](SendHalf::wait_for_room), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`].
    fn wait_for_room_timeout(&mut self, bytes: usize, timeout: Duration) -> Result<(), SendError> {
        self.room_until(bytes, Deadline::after(timeout))
    }

    /// Gathers the messages that are sent through it, and sends them together when it is dropped or
    /// a message finds no room. It costs less than sending each by itself. The next call returns an
    /// error of gathered messages. After `mem::forget` of it the sender keeps gathering, and each
    /// batch needs a `flush`. (Over Buffered Read it has no effect: the receiver reads messages
    /// from the ring.)
    ///
    /// ```
    /// use rdma_conn::{RecvHalf, SendHalf, SendRecv, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair::<SendRecv>(&device, &device, &Default::default())?;
    /// let mut batch = a.sender.batch();
    /// batch.send(b"one")?;
    /// batch.send(b"two")?;
    /// drop(batch); // both are on their way
    /// assert_eq!(&*b.receiver.recv()?, b"one");
    /// assert_eq!(&*b.receiver.recv()?, b"two");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn batch(&mut self) -> Batch<'_, Self> {
        let gathered = self.gather(true);
        Batch { sender: self, gathered }
    }

    /// For a program with an event loop of its own, after a call that has found no room
    /// ([`SendError::Full`]) or no acknowledgement: returns the event to wait for before the next
    /// try. Call it before each such wait. It sends the messages of a [`batch`](SendHalf::batch),
    /// and probes a silent peer.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    fn arm(&mut self) -> Result<Arm<'_>, SendError>;

    /// Accepts a message, waiting for room as long as that takes.
    ///
    /// ```
    /// use rdma_conn::{RecvHalf, SendHalf, SendRecv, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair::<SendRecv>(&device, &device, &Default::default())?;
    /// let ticket = a.sender.send(b"one")?;
    /// a.sender.wait_acked(ticket)?; // it lies in b's memory
    /// assert_eq!(&*b.receiver.recv()?, b"one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Ended`].
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        // A result that is passed on as a whole is copied through memory, in wider loads than its
        // stores: each load waits for its stores. (It costs 23 instead of 18 ns per message on an
        // Intel Xeon: `bench --protocol buffered-write --size 16 --wait spin --no-verify`.)
        match self.try_send(message) {
            Ok(ticket) => Ok(ticket),
            Err(error) => send_when_free(self, message, error, Deadline::NEVER),
        }
    }

    /// As [`send`](SendHalf::send), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the message was then not accepted.
    fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<Ticket, SendError> {
        match self.try_send(message) {
            Ok(ticket) => Ok(ticket),
            Err(error) => send_when_free(self, message, error, Deadline::after(timeout)),
        }
    }

    /// Sends a message and waits until it is acknowledged: [`send`](SendHalf::send) and
    /// [`wait_acked`](SendHalf::wait_acked).
    ///
    /// # Errors
    /// As these two.
    fn send_acked(&mut self, message: &[u8]) -> Result<(), SendError> {
        let ticket = self.send(message)?;
        self.wait_acked(ticket)
    }

    /// As [`send_acked`](SendHalf::send_acked), for at most `timeout` in all.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]: the message may have been accepted, or not. Where that
    /// matters, call [`send_timeout`](SendHalf::send_timeout) and
    /// [`wait_acked_timeout`](SendHalf::wait_acked_timeout).
    fn send_acked_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
        let deadline = Deadline::after(timeout);
        let ticket = self.send_timeout(message, timeout)?;
        self.wait_until(ticket, deadline)
    }

    /// Waits until the message of `ticket`, and so every earlier one, is acknowledged. (A
    /// Buffered Read or Direct Read receiver acknowledges in the calls that receive: a thread
    /// that drives both ends waits for ever.)
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`].
    fn wait_acked(&mut self, ticket: Ticket) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::NEVER)
    }

    /// As [`wait_acked`](SendHalf::wait_acked), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the ticket stays good.
    fn wait_acked_timeout(&mut self, ticket: Ticket, timeout: Duration) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::after(timeout))
    }

    /// Waits until everything accepted is acknowledged.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    fn wait_all(&mut self) -> Result<(), SendError> {
        self.drain(Deadline::NEVER)
    }

    /// As [`wait_all`](SendHalf::wait_all), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`].
    fn wait_all_timeout(&mut self, timeout: Duration) -> Result<(), SendError> {
        self.drain(Deadline::after(timeout))
    }

    /// Delivers accepted messages, says goodbye and ends the half. The peer's receiver hands out
    /// every message before it reports the end. A peer that has closed its receiver first is no
    /// error, unless messages are missing. (Buffered Read and Direct Read wait until the receiver
    /// has read all: for as long as the peer makes no call, or holds the maximum of messages. The
    /// others need no call of the peer.)
    ///
    /// # Errors
    /// [`SendError::Ended`] when an accepted message was not acknowledged:
    /// [`CloseReason::PeerClosed`](crate::error::CloseReason::PeerClosed) has the number of these
    /// messages. [`CloseReason::PeerLost`](crate::error::CloseReason::PeerLost) also when only the
    /// goodbye was not acknowledged: the receiver has it, or reports this end as lost.
    fn close(mut self) -> Result<(), SendError> {
        self.goodbye(Deadline::NEVER)
    }

    /// Ends the half at once, and waits for nothing, where dropping it waits for its peer for at
    /// most [`linger`](crate::Common::linger): messages that are not acknowledged may be lost, and
    /// the receiver takes this end for lost.
    fn abort(mut self) {
        self.abandon();
    }

    /// As [`close`](SendHalf::close), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]: the half has then ended without a goodbye, and its receiver
    /// finds it lost.
    fn close_timeout(mut self, timeout: Duration) -> Result<(), SendError> {
        self.goodbye(Deadline::after(timeout))
    }
}

/// Accepts a message that was refused for lack of room, once there is room for it.
#[cold]
pub(crate) fn send_when_free<S: SendHalf>(
    sender: &mut S,
    message: &[u8],
    mut error: SendError,
    deadline: Deadline,
) -> Result<Ticket, SendError> {
    while let SendError::Full(_) = error {
        sender.room_until(message.len(), deadline)?;
        match sender.try_send(message) {
            Ok(ticket) => return Ok(ticket),
            Err(again) => error = again,
        }
    }
    Err(error)
}

/// Room for one message, at the place that it is sent from. Nothing is sent if it is dropped.
pub trait Room {
    /// Bytes that were reserved.
    #[must_use]
    fn capacity(&self) -> usize;

    /// Writes `bytes` at `at`. Bytes that are never written have contents of an earlier message.
    ///
    /// # Errors
    /// [`SendError::TooLong`] if they exceed the reserved room; nothing is written then.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError>;

    /// Sends the first `bytes` bytes.
    ///
    /// # Errors
    /// [`SendError::TooLong`] if that is more than was reserved; [`SendError::Ended`].
    fn commit(self, bytes: usize) -> Result<Ticket, SendError>;
}

/// Checks that `end` bytes fit room for `limit` bytes.
pub(crate) fn check_within(end: usize, limit: usize) -> Result<(), SendError> {
    if end <= limit { Ok(()) } else { Err(SendError::TooLong { bytes: end, limit }) }
}

/// A sender that gathers messages until this is dropped ([`SendHalf::batch`]).
#[derive(Debug)]
pub struct Batch<'a, S: SendHalf> {
    sender: &'a mut S,
    /// It is part of another batch.
    gathered: bool,
}

impl<S: SendHalf> Deref for Batch<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.sender
    }
}

impl<S: SendHalf> DerefMut for Batch<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.sender
    }
}

impl<S: SendHalf> Drop for Batch<'_, S> {
    fn drop(&mut self) {
        if !self.gathered {
            self.sender.gather(false);
        }
    }
}
