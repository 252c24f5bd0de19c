//! Driving the device: doorbells, completions, and what they change.

use conn_core::control::Control;
use conn_core::credit::{CreditWindow, CreditWire};
use conn_core::wr::WrId;
use verbs_safe::{Completion, RecvQueue, SendQueue};

use super::{Sender, SenderStats};
use crate::send_recv::{Ended, SendError, Violation, ended_by};
use crate::wire::{Patience, Tracker};

/// Driving the device.
impl Sender {
    /// Rings the doorbell for everything staged.
    pub(super) fn post(&mut self) -> Result<(), SendError> {
        self.book();
        let mut limit = Patience::default();
        while self.queue.staged() > 0 {
            match self.queue.post() {
                Ok(_) => {}
                // A full send queue is backpressure: completions make room. Our
                // own accounting keeps below the depth, so this is rare.
                Err(e) if e.retry && !limit.is_over() => {
                    if self.progress()? == 0 {
                        std::thread::yield_now();
                    }
                }
                Err(e) => return Err(self.fail_device(&e)),
            }
        }
        self.open_run();
        Ok(())
    }

    /// Takes completions: acknowledgements of messages, and credits. Returns how
    /// many there were.
    pub(super) fn progress(&mut self) -> Result<usize, SendError> {
        let polled = match self.cq.poll(&mut self.batch) {
            Ok(polled) => polled,
            Err(e) => return Err(self.fail_device(&e)),
        };
        self.book();
        let mut spent = [0u32; Self::POLL_BATCH];
        let (mut spent_count, mut failure) = (0, None);
        for completion in self.batch.drain() {
            let taken = Books {
                queue: &mut self.queue,
                credits: &mut self.credits,
                tracker: &mut self.tracker,
                window: &mut self.window,
                stats: &mut self.stats,
                use_credits: self.config.credits,
            }
            .take(completion);
            match taken {
                Ok(Some(slot)) => {
                    spent[spent_count] = slot;
                    spent_count += 1;
                }
                Ok(None) => {}
                // The first error is the reason, the flushed rest follows from it.
                Err(ended) => failure = failure.or(Some(ended)),
            }
        }
        if let Some(ended) = failure {
            self.fail(ended);
        }
        self.repost_credit_buffers(&spent[..spent_count]);
        Ok(polled)
    }

    /// Before anything more is sent: the peer counts on these buffers for the
    /// credits of what we send next.
    fn repost_credit_buffers(&mut self, slots: &[u32]) {
        if slots.is_empty() || self.ended.is_some() {
            return;
        }
        if let Err(e) = self.credits.post(slots) {
            self.fail_device(&e);
        }
    }

    #[cold]
    pub(super) fn fail_device(&mut self, error: &dyn std::error::Error) -> SendError {
        self.fail(Ended::Device(error.to_string()))
    }

    /// Ends this half with a reason, unless it has ended already; the reason that holds.
    #[cold]
    fn fail(&mut self, ended: Ended) -> SendError {
        self.queue.close_run();
        if self.ended.is_none() && !matches!(ended, Ended::PeerStopped) {
            // Or its device would go on answering for it when the peer asks after it.
            if let Err(e) = self.control.to_error() {
                tracing::debug!(qp = self.qp_num(), error = %e, "not moved to ERR");
            }
        }
        self.ended.get_or_insert(ended).clone().into()
    }
}

/// What a completion changes.
struct Books<'a> {
    queue: &'a mut SendQueue,
    credits: &'a mut RecvQueue<()>,
    tracker: &'a mut Tracker,
    window: &'a mut CreditWindow,
    stats: &'a mut SenderStats,
    use_credits: bool,
}

impl Books<'_> {
    /// Books one completion. A buffer that brought a credit is returned, to be
    /// posted again.
    fn take(&mut self, completion: Completion<'_>) -> Result<Option<u32>, Ended> {
        if completion.queue_id() == self.queue.queue_id() {
            return self.acknowledge(&completion).map(|()| None);
        }
        self.credit(completion).map(Some)
    }

    fn acknowledge(&mut self, completion: &Completion<'_>) -> Result<(), Ended> {
        if let Some(error) = completion.error() {
            return Err(Ended::PeerLost(error));
        }
        let violation = Ended::Protocol(Violation::Completion);
        let retired = self.queue.retire(completion).map_err(|_| violation.clone())?;
        self.tracker.complete(WrId(retired)).map_err(|_| violation)?;
        Ok(())
    }

    fn credit(&mut self, completion: Completion<'_>) -> Result<u32, Ended> {
        let imm = completion.imm();
        let buffer = match self.credits.take(completion) {
            Ok(buffer) => buffer,
            Err(e) => return Err(ended_by(&e)),
        };
        // Nobody shares an empty buffer, so its slot comes home at once.
        let slot = self.credits.reclaim(buffer).ok_or(Ended::Protocol(Violation::Completion))?;
        let imm = imm.ok_or(Ended::Protocol(Violation::Overrun))?;
        match Control::decode(imm) {
            Ok(Control::Credit(credit)) => self.add(credit)?,
            Ok(Control::Stop) => return Err(Ended::PeerStopped),
            _ => return Err(Ended::Protocol(Violation::Control(imm))),
        }
        Ok(slot)
    }

    fn add(&mut self, credit: CreditWire) -> Result<(), Ended> {
        self.stats.credits_received += 1;
        if self.use_credits {
            self.window.on_credit(credit).map_err(|e| Ended::Protocol(Violation::Credit(e)))?;
        }
        Ok(())
    }
}
