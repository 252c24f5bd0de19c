//! Zero copy: a message is a registered buffer of the program. The sender owns it while it is on
//! offer, and the receiver reads it into a buffer of its choice. [`ZeroCopySend`] and
//! [`ZeroCopyRecv`] correspond to [`SendHalf`](crate::SendHalf) and [`RecvHalf`] for copied
//! messages. [`direct_read`](crate::direct_read) implements both, and also reads into files.
//!
//! ```
//! use rdma_conn::direct_read::{BufferConfig, Config, Outcome, pair};
//! use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
//!
//! let device = rdma_conn::device::soft()?;
//! let (mut sender, mut receiver) = pair(&device, &device, &Config::default())?;
//! let mut message = device.pd().register_buffer(1 << 20, BufferConfig::READABLE)?;
//! message.fill(7);
//! let ticket = sender.offer(message, b"block 3")?;
//!
//! let request = receiver.next_request()?;
//! assert_eq!((request.bytes(), request.app()), (1 << 20, &b"block 3"[..]));
//! let place = device.pd().register_buffer(1 << 20, BufferConfig::default())?;
//! let reading = request.read_into(place).map_err(|e| e.error)?;
//! let message = receiver.wait(reading)?;
//! assert!(message.iter().all(|byte| *byte == 7));
//!
//! let sent = sender.wait_sent(ticket)?; // the buffer is ours again
//! assert_eq!(sent.outcome, Outcome::Read);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod offer;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use conn_core::direct_read::Refusal;
use verbs_safe::Buffer;

use crate::arm::Arm;
use crate::error::{RecvError, SendError};
use crate::half::RecvHalf;
use crate::peer::Peer;
use crate::ticket::Ticket;
use crate::wait::Deadline;
pub use error::{NotRead, NotReadReason, NotSent, OfferError, ReadError};
pub use offer::{Offer, Sent};

/// A sender that owns an offered buffer until [`wait_sent`](ZeroCopySend::wait_sent) returns it:
/// until the receiver has read it, the program cannot change or free it, and nothing copies it.
pub trait ZeroCopySend:
    fmt::Debug + Send + Sized + driven::Sender<Offered = <Self as ZeroCopySend>::Buffer>
{
    /// Type of the memory that is offered.
    type Buffer: Offer;

    /// Offers a part of a buffer, with application data for the receiver to decide by, if there
    /// is room now.
    ///
    /// # Errors
    /// [`NotSent`] with the buffer: [`SendError::Full`] when there is no room (try again later).
    fn try_offer_part(
        &mut self,
        buffer: Self::Buffer,
        range: Range<usize>,
        app: &[u8],
    ) -> Result<Ticket, NotSent<Self::Buffer>>;

    /// Takes the next message that the receiver is done with, in order, if there is one;
    /// never waits.
    ///
    /// # Errors
    /// [`SendError::Ended`] when nothing more will be acknowledged.
    #[expect(clippy::type_complexity, reason = "an alias would have to be looked up")]
    fn try_take(&mut self) -> Result<Option<(Ticket, Sent<Self::Buffer>)>, SendError>;

    /// After the connection has ended, takes the buffer of a message that was not
    /// acknowledged. `None` before, and when it was taken.
    fn take_back(&mut self, ticket: Ticket) -> Option<Self::Buffer>;

    /// As [`SendHalf::arm`](crate::SendHalf::arm), after
    /// [`try_offer_part`](ZeroCopySend::try_offer_part) has found no room or
    /// [`try_take`](ZeroCopySend::try_take) nothing.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    fn arm_sent(&mut self) -> Result<Arm<'_>, SendError>;

    /// Offers a whole buffer, as [`offer_part`](ZeroCopySend::offer_part).
    ///
    /// # Errors
    /// [`NotSent`] with the buffer.
    fn offer(&mut self, buffer: Self::Buffer, app: &[u8]) -> Result<Ticket, NotSent<Self::Buffer>> {
        let range = 0..buffer.bytes();
        self.offer_until(buffer, range, app, Deadline::NEVER)
    }

    /// As [`offer`](ZeroCopySend::offer), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`], in the [`NotSent`].
    fn offer_timeout(
        &mut self,
        buffer: Self::Buffer,
        app: &[u8],
        timeout: Duration,
    ) -> Result<Ticket, NotSent<Self::Buffer>> {
        let range = 0..buffer.bytes();
        self.offer_until(buffer, range, app, Deadline::after(timeout))
    }

    /// Offers a part of a buffer, waiting for room as long as that takes.
    ///
    /// # Errors
    /// [`NotSent`] with the buffer.
    fn offer_part(
        &mut self,
        buffer: Self::Buffer,
        range: Range<usize>,
        app: &[u8],
    ) -> Result<Ticket, NotSent<Self::Buffer>> {
        self.offer_until(buffer, range, app, Deadline::NEVER)
    }

    /// As [`offer_part`](ZeroCopySend::offer_part), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`], in the [`NotSent`].
    fn offer_part_timeout(
        &mut self,
        buffer: Self::Buffer,
        range: Range<usize>,
        app: &[u8],
        timeout: Duration,
    ) -> Result<Ticket, NotSent<Self::Buffer>> {
        self.offer_until(buffer, range, app, Deadline::after(timeout))
    }

    /// Waits until the receiver has read the message of `ticket`, or has refused it, and
    /// takes the buffer.
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`].
    fn wait_sent(&mut self, ticket: Ticket) -> Result<Sent<Self::Buffer>, SendError> {
        self.take_until(ticket, Deadline::NEVER)
    }

    /// As [`wait_sent`](ZeroCopySend::wait_sent), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the ticket stays good.
    fn wait_sent_timeout(
        &mut self,
        ticket: Ticket,
        timeout: Duration,
    ) -> Result<Sent<Self::Buffer>, SendError> {
        self.take_until(ticket, Deadline::after(timeout))
    }

    /// Waits for the next message that the receiver is done with, in order.
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`] when nothing is on offer and
    /// nothing to be taken.
    fn wait_next(&mut self) -> Result<Sent<Self::Buffer>, SendError> {
        self.wait_sent(self.next_ticket()?)
    }

    /// As [`wait_next`](ZeroCopySend::wait_next), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`].
    fn wait_next_timeout(&mut self, timeout: Duration) -> Result<Sent<Self::Buffer>, SendError> {
        self.wait_sent_timeout(self.next_ticket()?, timeout)
    }

    /// Waits for all that was offered, says goodbye and ends the half; gives the buffers
    /// back that were not taken, in order.
    ///
    /// # Errors
    /// [`SendError::Ended`] when something offered was not acknowledged:
    /// [`CloseReason::PeerClosed`](crate::error::CloseReason::PeerClosed) has the number of these
    /// messages. [`CloseReason::PeerLost`](crate::error::CloseReason::PeerLost) also when only the
    /// goodbye was not: the receiver has heard it, or finds this end lost. All buffers are dropped
    /// then: [`try_take`](ZeroCopySend::try_take) those that the receiver is done with first.
    fn close_and_take(self) -> Result<Vec<Sent<Self::Buffer>>, SendError> {
        self.close_until(Deadline::NEVER)
    }

    /// As [`close_and_take`](ZeroCopySend::close_and_take), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]: the half has then ended without a goodbye, and its receiver
    /// finds it lost.
    fn close_and_take_timeout(
        self,
        timeout: Duration,
    ) -> Result<Vec<Sent<Self::Buffer>>, SendError> {
        self.close_until(Deadline::after(timeout))
    }
}

/// A receiver that decides for each message which buffer it is read into.
pub trait ZeroCopyRecv:
    RecvHalf<Message: Into<Buffer>> + driven::Receiver<Token = <Self as ZeroCopyRecv>::Reading>
{
    /// The oldest message that is offered and not decided. Dropping it decides nothing: it stays
    /// the oldest one.
    type Request<'a>: OfferedMessage<Reading = <Self as ZeroCopyRecv>::Reading>
    where
        Self: 'a;

    /// The handle of a message that is being read.
    type Reading: fmt::Debug + Copy;

    /// The oldest request that is not decided, if there is one.
    ///
    /// # Errors
    /// [`RecvError::Empty`], [`RecvError::Peer`], [`RecvError::Closed`].
    fn try_next_request(&mut self) -> Result<Self::Request<'_>, RecvError>;

    /// As [`RecvHalf::arm`], after [`try_next_request`](ZeroCopyRecv::try_next_request) and
    /// [`try_take`](ZeroCopyRecv::try_take) have found nothing: returns the event to wait for
    /// before the next try. A request that was seen and left undecided causes no event.
    ///
    /// # Errors
    /// As [`try_next_request`](ZeroCopyRecv::try_next_request), without `Empty` and `Closed`.
    fn arm_requests(&mut self) -> Result<Arm<'_>, RecvError>;

    /// Waits for a request: the oldest one that is not decided. Its length and
    /// application data are seen before anything is read.
    ///
    /// # Errors
    /// [`RecvError::Peer`], [`RecvError::Closed`].
    fn next_request(&mut self) -> Result<Self::Request<'_>, RecvError> {
        self.request_until(Deadline::NEVER)?;
        self.try_next_request()
    }

    /// As [`next_request`](ZeroCopyRecv::next_request), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    fn next_request_timeout(&mut self, timeout: Duration) -> Result<Self::Request<'_>, RecvError> {
        self.request_until(Deadline::after(timeout))?;
        self.try_next_request()
    }

    /// Reports whether the message of `reading` has been read, or cannot be:
    /// [`wait`](ZeroCopyRecv::wait) does not wait then. Never waits.
    ///
    /// # Errors
    /// [`ReadError::UnknownReading`].
    fn is_done(&mut self, reading: Self::Reading) -> Result<bool, ReadError>;

    /// The next message that was read into a buffer, in the order in which they were
    /// finished, if there is one; never waits.
    ///
    /// # Errors
    /// [`ReadError::Unread`] with the buffer when one could not be read.
    #[expect(clippy::type_complexity, reason = "an alias would have to be looked up")]
    fn try_take(&mut self) -> Result<Option<(Self::Reading, Self::Message)>, ReadError>;

    /// Waits until the message of `reading` has been read.
    ///
    /// # Errors
    /// [`ReadError::Unread`] with the buffer when it could not be,
    /// [`ReadError::UnknownReading`].
    fn wait(&mut self, reading: Self::Reading) -> Result<Self::Message, ReadError> {
        self.read_until(reading, Deadline::NEVER)
    }

    /// As [`wait`](ZeroCopyRecv::wait), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`ReadError::Recv`] with [`RecvError::TimedOut`]; `reading` stays valid.
    fn wait_timeout(
        &mut self,
        reading: Self::Reading,
        timeout: Duration,
    ) -> Result<Self::Message, ReadError> {
        self.read_until(reading, Deadline::after(timeout))
    }
}

/// A message on offer, before it is read.
pub trait OfferedMessage: fmt::Debug + Sized {
    /// Its handle while it is being read.
    type Reading;

    /// The peer that offers it.
    #[must_use]
    fn peer(&self) -> Peer;

    /// Bytes of the message.
    #[must_use]
    fn bytes(&self) -> u64;

    /// Returns the application data of the message.
    #[must_use]
    fn app(&self) -> &[u8];

    /// Reads the message to the beginning of `buffer`; does not wait until it is there.
    ///
    /// # Errors
    /// [`NotRead`] with the buffer and the request, as when the buffer is too short. It borrows the
    /// receiver: `map_err(|e| e.error)` leaves the reason alone.
    fn read_into(self, buffer: Buffer) -> Result<Self::Reading, NotRead<Self>>;

    /// Refuses the message: its sender gets its buffer back, with
    /// [`Outcome::Refused`](conn_core::direct_read::Outcome::Refused).
    fn refuse(self) {
        self.refuse_with(Refusal::NotWanted);
    }

    /// As [`refuse`](OfferedMessage::refuse), for this reason.
    fn refuse_with(self, why: Refusal);
}

/// Operations that the calls above are made of, as in [`half`](crate::half).
pub(crate) mod driven {
    use std::ops::Range;

    use super::error::{NotSent, ReadError};
    use super::offer::Sent;
    use crate::error::{RecvError, SendError};
    use crate::half::driven::Receiver as Takes;
    use crate::ticket::Ticket;
    use crate::wait::Deadline;

    pub trait Sender: Sized {
        /// Type of the memory that is offered.
        type Offered;

        /// Offers a part of a buffer once there is room.
        fn offer_until(
            &mut self,
            buffer: Self::Offered,
            range: Range<usize>,
            app: &[u8],
            deadline: Deadline,
        ) -> Result<Ticket, NotSent<Self::Offered>>;

        /// Takes a buffer once the receiver is done with it.
        fn take_until(
            &mut self,
            ticket: Ticket,
            deadline: Deadline,
        ) -> Result<Sent<Self::Offered>, SendError>;

        /// The ticket of the next message that the receiver is, or will be, done with.
        fn next_ticket(&self) -> Result<Ticket, SendError>;

        /// Waits for all that was offered, and says goodbye: the buffers.
        fn close_until(self, deadline: Deadline) -> Result<Vec<Sent<Self::Offered>>, SendError>;
    }

    pub trait Receiver: Takes {
        /// The handle of a message that is being read.
        type Token;

        /// Waits until a request is there.
        fn request_until(&mut self, deadline: Deadline) -> Result<(), RecvError>;

        /// Waits until a message has been read.
        fn read_until(
            &mut self,
            reading: Self::Token,
            deadline: Deadline,
        ) -> Result<Self::Taken, ReadError>;
    }
}
