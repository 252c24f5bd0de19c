//! Making room for a sender that joins.

use super::Receiver;
use crate::error::RecvError;
use crate::wait::{Deadline, SILENT_DEVICE, SleepBackoff};

impl Receiver {
    /// Forgets links that have ended, were reported, and have nothing in the queues. If the next
    /// link needs the place of such a link, or its share of the buffers, waits until the device has
    /// completed the requests of one of them, for at most twice [`SILENT_DEVICE`].
    pub(crate) fn sweep(&mut self) {
        // A link waits up to `SILENT_DEVICE` for a silent device, from the first look on.
        let until = Deadline::after(2 * SILENT_DEVICE);
        let mut backoff = SleepBackoff::default();
        loop {
            // The next call that receives reports the failure.
            if self.take_all().is_err() {
                return;
            }
            self.let_go();
            let one_leaves = self.links.iter().any(|link| link.reported && link.is_idle());
            if !self.is_full() || !one_leaves || until.has_passed(host::time::now()) {
                return;
            }
            backoff.wait(SILENT_DEVICE);
        }
    }

    /// Takes all completions that have arrived.
    fn take_all(&mut self) -> Result<(), RecvError> {
        let mut left = self.waiting.cq.capacity() as usize;
        while left > 0
            && let polled @ 1.. = self.progress()?
        {
            left = left.saturating_sub(polled);
        }
        Ok(())
    }

    /// All that had completed was taken a moment ago.
    fn let_go(&mut self) {
        let (links, past, linger) =
            (&mut self.links, &mut self.past_requests, self.waiting.common.linger);
        let unaccounted = &mut self.stats.unaccounted_buffers;
        links.retain_mut(|link| {
            // A sender that has said goodbye has all its acknowledgements.
            let is_done = link.reported && link.is_idle() && (link.is_over() || link.is_empty());
            let gone = is_done && link.keeps_no_buffer(linger);
            if gone {
                *past += link.posting.posted_total();
                *unaccounted += u64::from(link.is_unaccounted);
            }
            !gone
        });
    }

    /// Reports whether there is no place for another link, or too few shared buffers.
    fn is_full(&self) -> bool {
        let links = self.links.len() as u32;
        let slots = self.shared.as_ref().and_then(|poster| poster.shared()).map(|s| s.slots());
        links >= self.max_peers || slots.is_some_and(|slots| (links + 1) * self.share > slots)
    }
}
