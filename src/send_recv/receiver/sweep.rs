//! Making room for a sender that joins.

use super::Receiver;
use crate::error::{ConnectError, RecvError};
use crate::send_recv::SharedPool;
use crate::send_recv::link::SendRecvLink;
use crate::send_recv::shared::{LinkAddress, PoolMember};
use crate::wait::{Deadline, SILENT_DEVICE, SleepBackoff};

impl Receiver {
    /// The place of the next link. If ended links hold the last places, waits until the device has
    /// completed the requests of one of them, for at most [`SILENT_DEVICE`]. It does not wait for
    /// messages that the caller has not received or not freed.
    pub(in crate::send_recv) fn make_place(&mut self) -> Result<u32, ConnectError> {
        let until = Deadline::after(SILENT_DEVICE);
        let mut backoff = SleepBackoff::default();
        loop {
            let is_idle = self.sweep();
            if let Some(place) = self.links.vacancy() {
                return Ok(place);
            }
            if !is_idle
                || !self.links.iter().any(SendRecvLink::is_leaving)
                || until.has_passed(host::time::now())
            {
                return Err(ConnectError::TooManyPeers(self.links.max_peers()));
            }
            backoff.wait(SILENT_DEVICE);
        }
    }

    /// Releases links that have ended or failed at set-up, as far as their device permits: the next
    /// sender may need their place or their share of a pool, and the receiver may not be called
    /// meanwhile. Returns false if a message or an error has to be handed out first.
    pub(in crate::send_recv) fn sweep(&mut self) -> bool {
        // A link of a pool is released when the queue is empty once more after its device has
        // said that it keeps no buffer.
        self.progress() && self.progress()
    }

    /// Takes completions, as a call that receives does, until the queue is empty. Returns false if
    /// a message or an error has to be handed out first.
    fn progress(&mut self) -> bool {
        loop {
            if !self.run.is_empty() {
                return false;
            }
            self.go_on();
            match &self.trouble {
                Some(end)
                    if *end == RecvError::Empty || *end == self.losses.end(self.links.joined()) =>
                {
                    self.has_untold_close |= *end != RecvError::Empty;
                    self.trouble = None;
                    return true;
                }
                Some(_) => return false,
                None if self.found.is_some() => return false,
                None => {}
            }
        }
    }

    /// Joins a pool. While that is full, or too many queue pairs are waited for, it waits for
    /// links of this receiver that have ended: each has its own deadline, of a second at most.
    pub(in crate::send_recv) fn join_pool(
        &mut self,
        pool: &SharedPool,
        address: &LinkAddress,
        max_loan: Option<u32>,
    ) -> Result<PoolMember, ConnectError> {
        let mut backoff = SleepBackoff::default();
        loop {
            let may_wait = !self.links.stale.is_empty();
            if self.links.stale.has_room() || !may_wait {
                match pool.join(address, max_loan) {
                    Err(ConnectError::TooManyPeers(_)) if may_wait => {}
                    done => return done,
                }
            }
            if !self.sweep() {
                return pool.join(address, max_loan);
            }
            if self.links.stale.wait_for_device() {
                backoff.wait(self.waiting.common.linger);
            }
        }
    }
}
