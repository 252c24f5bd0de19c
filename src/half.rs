//! The halves of a connection: what every protocol's sender and receiver can do.

use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::arm::Arm;
use crate::error::{RecvError, SendError};
use crate::peer::Peer;
use crate::ticket::Ticket;
use crate::wait::Deadline;

/// The half that sends. What is accepted goes out without further calls, unless the
/// configuration asks for gathering: then [`flush`](SendHalf::flush) before you wait for a reply.
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

    /// Sends what was accepted and is still being gathered: nothing, unless the configuration
    /// or a [`batch`](SendHalf::batch) asks for gathering. Over Buffered Write it waits while there
    /// is no room for a push ([`flush_timeout`](crate::buffered_write::Sender::flush_timeout)
    /// limits that).
    ///
    /// # Errors
    /// [`SendError::Ended`].
    fn flush(&mut self) -> Result<(), SendError>;

    /// As [`flush`](SendHalf::flush), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; what was not sent stays accepted.
    fn flush_timeout(&mut self, timeout: Duration) -> Result<(), SendError> {
        let _ = timeout; // only Buffered Write's waits
        self.flush()
    }

    /// Reports whether the message of `ticket`, and so every earlier one, is acknowledged: it lies
    /// in the receiver's memory. Never waits. Where the message is not acknowledged, the call sends
    /// what was accepted before, and asks for its acknowledgement.
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

    /// Gathers the messages that are sent through it, and sends them together when it is dropped
    /// or a message finds no room. It costs less than sending each by itself. An error of what was
    /// gathered comes with the next call. After `mem::forget` of it the sender goes on gathering,
    /// until `flush` each time. (Over Buffered Read messages lie where the receiver reads them, and
    /// there is nothing to gather.)
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
    /// ([`SendError::Full`]) or no acknowledgement: what to wait for before the next try. Call it
    /// before each such wait. It sends what a [`batch`](SendHalf::batch) has gathered, and probes a
    /// silent peer.
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
        // A result that is handed on as a whole is copied through memory, in wider loads than it
        // was stored by: each waits for its stores. (18 ns a message became 23 on an Intel Xeon:
        // `bench --protocol buffered-write --size 16 --wait spin --no-verify`.)
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

    /// Delivers what was accepted, says goodbye and ends the half. The peer's receiver hands out
    /// every message before it reports the end. A peer that has closed its receiver first is no
    /// error, unless messages are missing. (Buffered Read and Direct Read wait until the receiver
    /// has read all, as long as that is not called, or holds as many messages as may be held; the
    /// others need no call of the peer.)
    ///
    /// # Errors
    /// [`SendError::Ended`] when something accepted was not acknowledged:
    /// [`CloseReason::PeerClosed`](crate::error::CloseReason::PeerClosed) has the number of these
    /// messages. [`CloseReason::PeerLost`](crate::error::CloseReason::PeerLost) also when only the
    /// goodbye was not: the receiver has heard it, or finds this end lost.
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

/// Accepts a message once there is room for it, if that is what it was refused for.
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

    /// Writes `bytes` at `at`. Bytes that are not written are those of an earlier message.
    ///
    /// # Errors
    /// [`SendError::TooLong`] if that goes beyond what was reserved; nothing is written then.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError>;

    /// Sends the first `bytes` bytes.
    ///
    /// # Errors
    /// [`SendError::TooLong`] if that is more than was reserved; [`SendError::Ended`].
    fn commit(self, bytes: usize) -> Result<Ticket, SendError>;
}

/// Nothing, or what is wrong with the first `end` bytes of room for `limit`.
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

/// The half that receives, from one peer or from many.
pub trait RecvHalf:
    fmt::Debug + Send + Sized + driven::Receiver<Taken = <Self as RecvHalf>::Message>
{
    /// A message: derefs to its bytes. Dropping it, anywhere and in any order, frees its place.
    type Message: fmt::Debug + Deref<Target = [u8]> + FromPeer + Send + 'static;

    /// Senders that are connected now.
    #[must_use]
    fn peers(&self) -> usize;

    /// The address of a peer on the stream that it was set up over, if that went over a network and
    /// the peer has not gone. The only peer of a connection is `Peer(0)`.
    #[must_use]
    fn peer_addr(&self, peer: Peer) -> Option<SocketAddr> {
        self.qp_of(peer)?.peer_addr()
    }

    /// Bytes of memory registered now to receive into.
    #[must_use]
    fn registered_bytes(&self) -> u64;

    /// The next message if there is one; never waits.
    ///
    /// # Errors
    /// [`RecvError::Empty`] when there is none now, or as many are held as the configuration
    /// permits; [`RecvError::Peer`] once for each connection that failed; when there never will be
    /// one, [`RecvError::Closed`], or [`RecvError::Ended`] with the reason if its only peer was
    /// lost.
    fn try_recv(&mut self) -> Result<Self::Message, RecvError>;

    /// For a program with an event loop of its own, after [`try_recv`](RecvHalf::try_recv) has
    /// found nothing: what to wait for before the next try. Call it before each such wait.
    ///
    /// ```no_run
    /// use rdma_conn::error::RecvError;
    /// use rdma_conn::{Arm, RecvHalf};
    /// # fn poll_for(_: std::os::fd::BorrowedFd<'_>) {}
    ///
    /// fn serve(mut receiver: impl RecvHalf) -> Result<(), RecvError> {
    ///     loop {
    ///         match receiver.try_recv() {
    ///             Ok(message) => println!("{} bytes", message.len()),
    ///             Err(RecvError::Empty) => match receiver.arm()? {
    ///                 Arm::Ready => {}
    ///                 Arm::Fd(descriptor) => poll_for(descriptor), // and for what else there is
    ///                 Arm::Poll(after) => std::thread::sleep(after),
    ///             },
    ///             Err(RecvError::Closed) => return Ok(()),
    ///             Err(other) => return Err(other),
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`try_recv`](RecvHalf::try_recv), without `Empty` and `Closed`.
    fn arm(&mut self) -> Result<Arm<'_>, RecvError>;

    /// Receives messages that are there, and returns how many: `each` is called with the peer that
    /// sent a message, and its bytes, and the message is free when `each` returns. It costs less
    /// than [`try_recv`](RecvHalf::try_recv) and [`free`](RecvHalf::free) for each of them. If
    /// `each` panics, the messages after that one are still to be received.
    ///
    /// ```
    /// use rdma_conn::{BufferedRead, RecvHalf, SendHalf, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair::<BufferedRead>(&device, &device, &Default::default())?;
    /// for number in 0..100_u8 {
    ///     a.sender.send(&[number])?;
    /// }
    /// let mut sum = 0;
    /// while let Ok(count) = b.receiver.try_recv_each(|_, message| sum += u32::from(message[0])) {
    ///     assert!(count > 0);
    /// }
    /// assert_eq!(sum, 99 * 100 / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_recv`](RecvHalf::try_recv).
    fn try_recv_each(&mut self, each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError>;

    /// Frees a message on the receiver's own thread: what dropping it does, at less cost.
    #[inline]
    fn free(&mut self, message: Self::Message) {
        drop(message);
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// As [`try_recv`](RecvHalf::try_recv), without `Empty`; [`RecvError::Closed`] also when no
    /// sender has joined yet.
    #[inline]
    fn recv(&mut self) -> Result<Self::Message, RecvError> {
        match self.try_recv() {
            Ok(message) => Ok(message),
            Err(RecvError::Empty) => self.recv_until(Deadline::NEVER),
            Err(error) => Err(error),
        }
    }

    /// Waits for the next message, for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    fn recv_timeout(&mut self, timeout: Duration) -> Result<Self::Message, RecvError> {
        match self.try_recv() {
            Ok(message) => Ok(message),
            Err(RecvError::Empty) => self.recv_until(Deadline::after(timeout)),
            Err(error) => Err(error),
        }
    }

    /// Tells every sender that this end stops receiving, and ends. Messages that were not
    /// received are lost: receive until [`RecvError::Closed`] first.
    fn close(self) {
        drop(self);
    }

    /// As [`close`](RecvHalf::close), at once: a sender that does not answer is not waited for, and
    /// takes this end for lost if what tells it of the end does not arrive. The device may keep
    /// buffers of a shared pool.
    fn abort(mut self) {
        self.abandon();
    }
}

/// Message that tells which peer it came from.
pub trait FromPeer {
    /// The number of its sender.
    #[must_use]
    fn peer(&self) -> Peer;
}

/// Operations that the calls above are made of: each protocol's own, for
/// [protocols](crate::Protocol) that are defined elsewhere. Programs call the methods of
/// [`SendHalf`] and [`RecvHalf`].
pub mod driven {
    use super::{Deadline, Peer, RecvError, SendError, Ticket};
    use crate::error::CloseReason;
    use crate::wire::ConnectedQp;

    /// Waits of a sender, and its end.
    pub trait Sender {
        /// Waits until a message of so many bytes has room.
        ///
        /// # Errors
        /// [`SendError::TooLong`], [`SendError::TimedOut`], [`SendError::Ended`].
        fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError>;

        /// From now on gathers what is accepted; or sends it, as the configuration says.
        /// Returns whether it did so before.
        fn gather(&mut self, on: bool) -> bool;

        /// Waits until a message is acknowledged.
        ///
        /// # Errors
        /// [`SendError::UnknownTicket`], [`SendError::TimedOut`], [`SendError::Ended`].
        fn wait_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError>;

        /// Waits until all that was accepted is acknowledged.
        ///
        /// # Errors
        /// [`SendError::TimedOut`], [`SendError::Ended`].
        fn drain(&mut self, deadline: Deadline) -> Result<(), SendError>;

        /// Delivers what was accepted, and says goodbye.
        ///
        /// # Errors
        /// As [`drain`](Sender::drain).
        fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError>;

        /// Marks the sender as closed: dropping it then says no goodbye.
        fn abandon(&mut self);

        /// Its queue pair.
        fn qp(&self) -> &ConnectedQp;

        /// Delivers what was accepted, and says goodbye. The half has ended then, also where
        /// time was up: dropping it does not wait once more. A peer that closes at the same
        /// time is no error.
        ///
        /// # Errors
        /// As [`drain`](Sender::drain).
        fn goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
            match self.say_goodbye(deadline) {
                Err(SendError::Ended(CloseReason::Closed)) => Ok(()),
                Err(late @ SendError::TimedOut { .. }) => {
                    self.abandon();
                    Err(late)
                }
                done => done,
            }
        }
    }

    /// Waits of a receiver, and its end.
    pub trait Receiver {
        /// Its messages.
        type Taken;

        /// Waits for a message.
        ///
        /// # Errors
        /// As [`RecvHalf::recv_timeout`](super::RecvHalf::recv_timeout).
        fn recv_until(&mut self, deadline: Deadline) -> Result<Self::Taken, RecvError>;

        /// Has dropping it wait for nothing.
        fn abandon(&mut self);

        /// The queue pair of a peer, while that is there.
        fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp>;
    }
}
