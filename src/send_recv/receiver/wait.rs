//! Waiting, and ending.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::Receiver;
use crate::error::{CloseReason, RecvError};
use crate::half::{RecvHalf, driven};
use crate::keepalive::SILENT;
use crate::peer::Peer;
use crate::send_recv::Message;
use crate::send_recv::link::SendRecvLink;
use crate::send_recv::shared::{LoanClock, RECALL_AFTER};
use crate::taking::{Takes, waits_for_messages};
use crate::wait::{Deadline, SleepBackoff};
use crate::waiting::Waits;
use crate::wire::ConnectedQp;

impl Waits for Receiver {
    waits_for_messages!();

    fn ask(&mut self) -> Result<(), RecvError> {
        tracing::debug!("{SILENT}");
        self.links.iter_mut().for_each(SendRecvLink::ask);
        Ok(())
    }

    fn look_on(&mut self) {
        self.watch();
    }

    /// A buffer that another thread frees wakes it, too.
    fn before_sleep(&mut self, most: Duration) -> Result<Duration, RecvError> {
        self.look_after();
        let most = most.min(self.waiting.left());
        self.returns.wakeup().announce();
        if !self.pools.is_empty() {
            self.links.iter_mut().for_each(SendRecvLink::hurry);
        }
        Ok(most)
    }

    fn sleep_time(&self, most: Duration) -> Option<Duration> {
        let recalls = self.pools.iter().any(LoanClock::is_needed);
        let time = if recalls { most.min(RECALL_AFTER) } else { most };
        // Otherwise something has arrived, if not a message: it looks again.
        self.returns.wakeup().is_announced().then_some(time)
    }

    fn wakeup(&self) -> Option<BorrowedFd<'_>> {
        Some(self.returns.wakeup().as_fd())
    }

    fn after_sleep(&mut self) {
        self.returns.wakeup().retract();
    }
}

impl Takes for Receiver {
    fn joined(&self) -> u32 {
        self.links.joined()
    }

    fn take_completions(&mut self) -> Result<usize, RecvError> {
        self.absorb()
    }
}

impl driven::Receiver for Receiver {
    type Taken = Message;

    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        self.recv_with(deadline, Receiver::try_recv)
    }

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.links.iter().find(|link| link.peer() == peer).map(SendRecvLink::qp)
    }

    fn abandon(&mut self) {
        self.waiting.common.linger = Duration::ZERO;
    }
}

/// Ending.
impl Receiver {
    /// Tells the senders that this end stops, and waits until they know, for at most `linger`.
    fn stop(&mut self) {
        self.close_books();
        // A sender that has said goodbye needs no STOP from us. A dead queue is detected again
        // below.
        let _ = self.drain_queue();
        self.links.iter_mut().for_each(SendRecvLink::stop);
        // The STOPs are in flight; their completions report the delivery.
        let linger = self.waiting.common.linger;
        self.linger_until(Deadline::after(linger), |receiver| {
            // There may be room now for a STOP that found none.
            receiver.links.iter_mut().for_each(SendRecvLink::say_goodbye);
            !receiver.links.iter().any(SendRecvLink::is_saying_goodbye)
        });
        // Messages that arrive until the end may take buffers of a shared pool.
        self.links.forget_all();
        let mut backoff = SleepBackoff::default();
        loop {
            match self.absorb() {
                Ok(0) => self.links.release_stale(),
                Ok(_) => continue,
                Err(_) => return,
            }
            if self.links.stale.is_empty() || linger.is_zero() {
                return;
            }
            // Each has its own deadline, at most `linger`.
            if self.links.stale.wait_for_device() {
                backoff.wait(linger);
            }
        }
    }

    /// Closes the books: the remaining messages will not be handed out.
    fn close_books(&mut self) {
        let (run_of, run) = (self.run_of.1, self.run.len() as u32);
        // A pack that was handed out completely counts as any other message.
        let pack = self.open_pack.take();
        let pack_of = pack.and_then(|mut pack| (!pack.is_empty()).then_some(pack.place));
        // A message that was found when a sender joined, alone or the last one of its pack.
        let found = self.found.as_ref().map(|message| message.place);
        for link in self.links.iter_mut() {
            let place = link.place();
            let in_run = if place == run_of { run } else { 0 };
            let is_found = found == Some(place) && pack_of != found;
            link.close_books(in_run + u32::from(pack_of == Some(place)) + u32::from(is_found));
        }
        self.run.clear();
        self.found = None;
    }

    /// Books completions and drops their messages; returns the number of completions.
    fn absorb(&mut self) -> Result<usize, RecvError> {
        if self.batch.is_empty() {
            let polled = self.waiting.cq.poll(&mut self.batch);
            polled.map_err(|e| self.fail(CloseReason::device(e)))?;
        }
        let polled = self.batch.len();
        while let Some(completion) = self.batch.pop() {
            let place = self.links.find(completion.qp_num());
            match place.and_then(|place| self.links.get_mut(place)) {
                Some(link) => link.absorb(completion),
                None => self.links.stale.absorb(completion),
            }
        }
        Ok(polled)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}
