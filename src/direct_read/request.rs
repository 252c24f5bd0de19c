//! A request that is to be decided.

use std::fmt;

use conn_core::direct_read::Refusal;
use verbs_safe::Buffer;

use super::{NotRead, Peer, Reading, Receiver};

/// The oldest message that is offered and not decided: what is known of it before it is
/// read. Dropping it decides nothing: it stays the oldest one.
pub struct Request<'r> {
    receiver: &'r mut Receiver,
}

impl<'r> Request<'r> {
    /// The receiver has one.
    pub(super) fn new(receiver: &'r mut Receiver) -> Request<'r> {
        Request { receiver }
    }

    /// Who offers it.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.receiver.oldest().map_or(Peer(u32::MAX), |arrived| arrived.peer)
    }

    /// Bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.receiver.oldest().map_or(0, |arrived| arrived.len)
    }

    /// What the sender's application has said of it.
    #[must_use]
    pub fn app(&self) -> &[u8] {
        self.receiver.oldest().map_or(&[], |arrived| &arrived.app)
    }

    /// Reads the message to the beginning of `buffer`; does not wait until it is there.
    ///
    /// # Errors
    /// [`NotRead`] with the buffer and the request, as when the buffer is too short.
    pub fn read_into(self, buffer: Buffer) -> Result<Reading, NotRead<'r>> {
        match self.receiver.read_oldest(buffer) {
            Ok(reading) => Ok(reading),
            Err((buffer, why)) => Err(NotRead { request: Some(self), buffer, why }),
        }
    }

    /// Takes a message without bytes, whose application data are all that there is: its
    /// sender sees it as read.
    ///
    /// # Errors
    /// The request again, which has bytes.
    pub fn take_empty(self) -> Result<(), Request<'r>> {
        match self.receiver.take_empty_oldest() {
            true => Ok(()),
            false => Err(self),
        }
    }

    /// Refuses the message: its sender gets its buffer back, and is told.
    pub fn refuse(self) {
        self.refuse_with(Refusal::NotWanted);
    }

    /// Refuses the message for this reason.
    pub fn refuse_with(self, why: Refusal) {
        self.receiver.refuse_oldest(why);
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
