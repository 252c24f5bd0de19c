//! Waking a receiver that sleeps: see [`conn_core::buffered_read::wake`].

use conn_core::buffered_read::wake::Waker;
use conn_core::ring::offer::WAKE_AT;
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
        if self.ended.is_some() || self.hear_answers().is_err() {
            return;
        }
        let is_full = self.queue.posted_total() - self.queue.retired_total() >= SENDER_DEPTH.into();
        // Where there is no room, the next message tries again. An honest receiver makes no
        // request before it has had the wake-up of the last one.
        let Some([request]) = self.block.observe(WAKE_AT).filter(|_| !is_full) else { return };
        if self.waker.answer(request) {
            let _ = self.post_signalled(WAKE_UP); // it ends the half
        }
    }

    /// As [`wake_receiver`](Self::wake_receiver), and misses no request that the receiver has
    /// made before it saw what this thread has published. That takes a memory barrier.
    pub(super) fn wake_receiver_for_certain(&mut self) {
        Waker::barrier();
        if self.waker.is_news(self.block.wake_word()) {
            self.wake_receiver();
        }
    }
}
