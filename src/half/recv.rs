//! The half that receives.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use super::driven;
use crate::arm::Arm;
use crate::error::RecvError;
use crate::peer::Peer;
use crate::wait::Deadline;

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
    /// found nothing: returns the event to wait for before the next try. Call it before each such
    /// wait.
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

    /// Receives the messages that have arrived, and returns their number: `each` is called with the
    /// peer that sent a message, and its bytes, and the message is free when `each` returns. It
    /// costs less than [`try_recv`](RecvHalf::try_recv) and [`free`](RecvHalf::free) for each of
    /// them. If `each` panics, the messages after that one are still to be received.
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

    /// Frees a message on the receiver's own thread: cheaper than dropping it.
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

    /// As [`close`](RecvHalf::close), at once: does not wait for the senders' answers. A sender
    /// that does not receive the STOP reports this end as lost. The device may keep buffers of a
    /// shared pool.
    fn abort(mut self) {
        self.abandon();
    }
}

/// Makes a type with a field `peer` a message, which derefs to its bytes.
macro_rules! received_message {
    ($message:ty, |$this:ident| $bytes:expr) => {
        impl $message {
            /// The peer that sent it.
            #[inline]
            #[must_use]
            pub fn peer(&self) -> $crate::peer::Peer {
                self.peer
            }
        }

        impl std::ops::Deref for $message {
            type Target = [u8];

            #[inline]
            fn deref(&self) -> &[u8] {
                let $this = self;
                $bytes
            }
        }

        impl AsRef<[u8]> for $message {
            #[inline]
            fn as_ref(&self) -> &[u8] {
                self
            }
        }

        impl $crate::half::FromPeer for $message {
            fn peer(&self) -> $crate::peer::Peer {
                self.peer
            }
        }
    };
}

pub(crate) use received_message;

/// Message that tells which peer it came from.
pub trait FromPeer {
    /// The number of its sender.
    #[must_use]
    fn peer(&self) -> Peer;
}
