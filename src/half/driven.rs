//! Operations that the calls of the halves are made of: each protocol's own, for
//! [protocols](crate::Protocol) that are defined elsewhere. Programs call the methods of
//! [`SendHalf`](super::SendHalf) and [`RecvHalf`](super::RecvHalf).

use crate::error::{CloseReason, RecvError, SendError};
use crate::peer::Peer;
use crate::ticket::Ticket;
use crate::wait::Deadline;
use crate::wire::ConnectedQp;

/// Waits of a sender, and its end.
pub trait Sender {
    /// Waits until a message of `bytes` bytes has room.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::TimedOut`], [`SendError::Ended`].
    fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError>;

    /// From now on gathers accepted messages (`on`), or sends them as the configuration says.
    /// Returns the setting before.
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

    /// Delivers accepted messages, and says goodbye.
    ///
    /// # Errors
    /// As [`drain`](Sender::drain).
    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError>;

    /// Marks the sender as closed: dropping it then says no goodbye.
    fn abandon(&mut self);

    /// Its queue pair.
    fn qp(&self) -> &ConnectedQp;

    /// Delivers accepted messages, says goodbye and ends the half, even if it times out: dropping
    /// it does not wait again. A peer that closes at the same time is no error.
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
