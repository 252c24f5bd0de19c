//! Waiting, and ending.

use std::time::Duration;

use super::Receiver;
use crate::buffered_write::Message;
use crate::error::RecvError;
use crate::half::{RecvHalf, driven};
use crate::keepalive::SILENT;
use crate::peer::Peer;
use crate::taking::{Takes, waits_for_messages};
use crate::wait::{Deadline, POLL_SLEEP, shares_processor};
use crate::waiting::Waits;
use crate::wire::ConnectedQp;

impl Waits for Receiver {
    waits_for_messages!();

    fn ask(&mut self) -> Result<(), RecvError> {
        tracing::debug!("{SILENT}");
        self.places.ask(|_| true);
        self.waiting.watch.asks(true);
        Ok(())
    }

    fn before_sleep(&mut self, most: Duration) -> Result<Duration, RecvError> {
        self.look_after();
        Ok(most.min(self.waiting.left()))
    }

    /// A tail that is written makes no event.
    fn sleep_time(&self, most: Duration) -> Option<Duration> {
        Some(if self.polled.is_empty() { most } else { most.min(POLL_SLEEP) })
    }

    fn woken(&mut self) -> Result<(), RecvError> {
        self.polls |= Self::LOOK_NOW;
        Ok(())
    }
}

impl Receiver {
    /// Looks between two pauses of a wait: a pause takes as long as a few looks.
    const TRIES_PER_STEP: u32 = 8;
}

impl Takes for Receiver {
    fn joined(&self) -> u32 {
        self.places.joined()
    }

    fn take_completions(&mut self) -> Result<usize, RecvError> {
        self.poll_completions()
    }

    fn look_everywhere(&mut self) -> Result<(), RecvError> {
        self.polls |= Self::LOOK_NOW;
        self.poll_all_tails();
        Ok(())
    }

    fn try_often<T>(
        &mut self,
        try_recv: &mut impl FnMut(&mut Receiver) -> Result<T, RecvError>,
    ) -> Result<T, RecvError> {
        // On a shared processor, further looks cannot find anything.
        let tries = if shares_processor() { 1 } else { Self::TRIES_PER_STEP };
        for _ in 0..tries {
            match try_recv(self) {
                Err(RecvError::Empty) => self.await_tail(),
                done => return done,
            }
        }
        Err(RecvError::Empty)
    }
}

impl driven::Receiver for Receiver {
    type Taken = Message;

    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        self.recv_with(deadline, Receiver::try_recv)
    }

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.places.qp_of(peer)
    }

    fn abandon(&mut self) {
        self.waiting.common.linger = Duration::ZERO;
    }
}

impl Receiver {
    /// Tells the senders that this end stops, and waits until they know, for at most `linger`.
    fn stop(&mut self) {
        self.open = None;
        // A peer that has said goodbye needs no STOP from us.
        if self.drain_queue().is_err() {
            return;
        }
        self.places.iter_mut().for_each(|place| place.link.stop(place.messages));
        // The STOPs are in flight; their completions report the delivery.
        let deadline = Deadline::after(self.waiting.common.linger);
        self.linger_until(deadline, |receiver| {
            receiver.places.iter_mut().all(|place| place.link.is_heard())
        });
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}
