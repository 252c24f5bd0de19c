//! STOP of the receiver: the messages that it has taken, and those that are missing.
//!
//! A receiver that closes reports the number of messages taken. Completions do not: few requests
//! are signalled, and none completes after the receiver has left. Taken messages are acknowledged
//! by STOP; the others are missing, unless they have completed.

use conn_core::control::{Control, Taken};
use conn_core::wr::WrId;

use super::Sender;
use crate::error::{CloseReason, ProtocolError};

impl Sender {
    /// Requests with messages that were staged.
    pub(super) fn data_sent(&self) -> u64 {
        self.half.posting.next_id().0 - 1 - self.controls.total
    }

    /// Ends the half after a STOP that counts `taken` requests with messages; returns the reason.
    pub(super) fn peer_stopped(&mut self, taken: Taken) -> CloseReason {
        self.book();
        let (sent, completed) = (self.data_sent(), self.half.posting.last_completed());
        let missing = taken.missing_of(sent);
        if u64::from(missing) > sent {
            return CloseReason::Protocol(ProtocolError::Control(Control::Stop(taken).encode()));
        }
        let outstanding = self.half.posting.outstanding() - self.controls.outstanding(completed);
        let unacked = missing.min(outstanding);
        self.taken = self.last_before(unacked);
        let gathering = self.packer.as_ref().map_or(0, conn_core::pack::Packer::count);
        CloseReason::by_peer(self.packs.messages(sent, unacked) + u64::from(gathering))
    }

    /// The request before the last `unacked` ones that carry messages.
    fn last_before(&self, mut unacked: u32) -> WrId {
        let mut id = WrId(self.half.posting.next_id().0 - 1);
        while unacked > 0 {
            unacked -= u32::from(!self.controls.ids.contains(&id));
            id.0 -= 1;
        }
        id
    }
}
