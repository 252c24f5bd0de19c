//! Sleeps: the preparation, and the events that end them.

use host::thread::pause;

use conn_core::buffered_read::{ReaderState, wake};
use verbs_safe::{Armed, CompletionChannel};

use super::{BufferedReadLink, PAUSES};
use crate::buffered_read::landing::ReadRing;
use crate::error::CloseReason;

impl<R: ReadRing> BufferedReadLink<R> {
    /// The channel that announces its completions.
    pub(in crate::buffered_read) fn channel(&self) -> Option<&CompletionChannel> {
        self.channel.as_ref()
    }

    /// Requests an event for the next completion; returns the token to wait with.
    pub(in crate::buffered_read) fn arm(&mut self) -> Option<Armed> {
        let armed = self.cq.arm(false);
        armed.map_err(|e| self.fail(CloseReason::Device(e.to_string()))).ok()
    }

    /// Does the work that is due before a sleep, as far as it completes at once: later
    /// completions wake the receiver. False: there is work instead of a sleep.
    pub(in crate::buffered_read) fn prepare_sleep(&mut self) -> bool {
        self.poll();
        self.take_in_frees();
        for _ in 0..=wake::LOOKS {
            if self.has_news() {
                return false;
            }
            if self.reader.prepare_sleep() || self.reader.on_their_way() > 0 {
                self.post();
                break;
            }
            self.post();
            // A store that was not visible to the first look has time to become so.
            pause(PAUSES);
            self.poll();
        }
        !self.has_news()
    }

    /// Reports whether there is work that no completion will announce. Where messages are held that
    /// have to be freed first, the sleep is [short](Self::awaits_frees) instead.
    fn has_news(&mut self) -> bool {
        if self.has_whole() {
            // A record comes before everything else, also before the end.
            return self.ring.can_lend();
        }
        let is_done = self.reader.on_their_way() == 0;
        let is_due = self.reader.is_behind() || self.reader.state() != ReaderState::Open;
        self.end().is_some() || is_done && is_due && !self.awaits_frees()
    }

    /// Reports whether messages are held: nothing wakes the receiver when they are freed.
    pub(in crate::buffered_read) fn awaits_frees(&mut self) -> bool {
        self.ring.freed() < self.reader.ring().read_pointer()
    }
}
