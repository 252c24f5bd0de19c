//! Waking a receiver that sleeps: see [`conn_core::buffered_read::wake`].

use conn_core::buffered_read::wake::Waker;
use conn_core::ring::offer::WAKE_AT;
use conn_core::wr::WrClass;
use verbs_safe::SendOp;

use super::Sender;
use crate::buffered_read::setup::SENDER_DEPTH;

/// A message of no bytes: its completion wakes the receiver.
const WAKE_UP: SendOp = SendOp::SendImm { len: 0, imm: 0 };

impl Sender {
    /// Sends the wake-up that the receiver has asked for, if its request is whole and new. The
    /// next call reports a failure.
    #[cold]
    pub(super) fn wake_receiver(&mut self) {
        if self.half.posting.ended().is_some() || self.hear_answers().is_err() {
            return;
        }
        let is_full = self.on_their_way() >= SENDER_DEPTH.into();
        // Without room, the next message tries again. An honest receiver makes no new request
        // before it has received the last wake-up.
        let Some([request]) = self.block.observe(WAKE_AT).filter(|_| !is_full) else { return };
        if self.waker.answer(request) {
            let staged = self.half.posting.stage(WAKE_UP, WrClass::Control, true);
            let _ = staged.and_then(|_| self.half.posting.post()); // what fails ends the half
        }
    }

    /// As [`wake_receiver`](Self::wake_receiver), and misses no request that the receiver has
    /// made before it saw what this thread has published. That takes a memory barrier.
    pub(super) fn wake_receiver_for_certain(&mut self) {
        if self.is_asked() {
            // The next call reports a failure.
            let _ = self.look();
            if self.source.has_unread() {
                self.wake_receiver();
            }
        }
    }

    /// True if the receiver has asked for a wake-up that it has not had. That takes a memory barrier.
    pub(super) fn is_asked(&self) -> bool {
        Waker::barrier();
        self.waker.is_news(self.block.wake_word())
    }
}
