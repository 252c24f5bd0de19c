//! Waiting, and ending.

use std::time::Duration;

use super::Receiver;
use crate::buffered_write::Message;
use crate::buffered_write::link::Link;
use crate::error::RecvError;
use crate::half::{RecvHalf, driven};
use crate::keepalive::SILENT;
use crate::peer::Peer;
use crate::wait::{Deadline, Idle, POLL_SLEEP, Step, WaitStrategy, shares_processor};
use crate::wire::ConnectedQp;

impl Receiver {
    /// Looks between two pauses of a wait: a pause takes as long as a few looks.
    const TRIES_PER_STEP: u32 = 8;

    #[cold]
    pub(super) fn recv_with<T>(
        &mut self,
        deadline: Deadline,
        mut try_recv: impl FnMut(&mut Receiver) -> Result<T, RecvError>,
    ) -> Result<T, RecvError> {
        if self.joined == 0 {
            // No peer can join while we wait: a wait would never end.
            return Err(RecvError::Closed);
        }
        let mut idle = self.waiting.idle(deadline);
        loop {
            // On a shared processor, each look more is one that cannot find anything.
            let tries = if shares_processor() { 1 } else { Self::TRIES_PER_STEP };
            for _ in 0..tries {
                match try_recv(self) {
                    Err(RecvError::Empty) => self.await_tail(),
                    done => return done,
                }
            }
            match idle.step() {
                Step::Again => {}
                Step::Sleep(time) => {
                    self.look_after();
                    let time = time.min(self.waiting.left());
                    if let Some(done) = self.sleep(time, &mut try_recv)? {
                        return Ok(done);
                    }
                }
                Step::Probe => {
                    tracing::debug!("{SILENT}");
                    self.ask(|link| {
                        link.probe();
                        true
                    });
                }
                Step::TimedOut => {
                    self.waiting.time_out(&idle);
                    return Err(RecvError::TimedOut);
                }
            }
        }
    }

    /// Arms the queue, looks once more, and sleeps: what comes after the look does wake us.
    /// A tail that is written makes no event: with such peers it sleeps for `POLL_SLEEP` at most.
    fn sleep<T>(
        &mut self,
        time: Duration,
        mut try_recv: impl FnMut(&mut Receiver) -> Result<T, RecvError>,
    ) -> Result<Option<T>, RecvError> {
        if self.waiting.channel.is_none() {
            return Ok(None);
        }
        let armed = self.waiting.arm()?;
        self.polls |= Self::LOOK_NOW;
        self.poll_all_tails();
        match try_recv(self) {
            Err(RecvError::Empty) => {}
            done => return done.map(Some),
        }
        let time = if self.polled.is_empty() { time } else { time.min(POLL_SLEEP) };
        self.waiting.wait(&armed, None, time)?;
        self.polls |= Self::LOOK_NOW;
        Ok(None)
    }
}

impl driven::Receiver for Receiver {
    type Taken = Message;

    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        self.recv_with(deadline, Receiver::try_recv)
    }

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.links.iter().flatten().find(|link| link.peer == peer).map(|link| link.qp())
    }

    fn abandon(&mut self) {
        self.waiting.common.linger = Duration::ZERO;
    }
}

impl Receiver {
    /// Tells the senders that this end stops, and waits until they know, for at most `linger`.
    fn stop(&mut self) {
        self.open = None;
        // A peer that has said goodbye needs none from us. The loop takes no more completions
        // than the queue holds: a sender may keep sending for ever.
        let mut left = self.waiting.cq.capacity() as usize;
        while left > 0 {
            match self.poll_completions() {
                Ok(0) => break,
                Ok(polled) => left = left.saturating_sub(polled),
                Err(_) => return,
            }
        }
        self.links.iter_mut().flatten().for_each(Link::stop);
        // The goodbyes are on their way; their completions say when they are there.
        let linger = self.waiting.common.linger;
        let mut idle = Idle::new(WaitStrategy::Spin, Deadline::after(linger), linger);
        while !self.links.iter_mut().flatten().all(Link::is_heard) {
            if self.poll_completions().is_err() || idle.step() == Step::TimedOut {
                return;
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}
