//! Who has how many buffers of a pool.

use std::sync::atomic::{AtomicU64, Ordering};

use super::SharedConfig;
use crate::send_recv::ConnectError;

/// Each member's buffers. Invariant: `free` and what all members have are together all
/// that there are.
#[derive(Debug)]
pub(super) struct Ledger {
    buffers: u32,
    free: u32,
    members: Vec<Membership>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    Vacant,
    Live {
        buffers: u32,
    },
    /// Gone, but messages of it are still alive: its buffers come back when the
    /// last one was freed.
    Leaving {
        buffers: u32,
        received: u64,
    },
}

impl Ledger {
    pub(super) fn new(config: &SharedConfig) -> Ledger {
        let members = vec![Membership::Vacant; config.max_peers as usize];
        Ledger { buffers: config.buffers, free: config.buffers, members }
    }

    /// Sets buffers aside for one more member; its number. `reposted` counts, by member,
    /// the buffers that were posted again.
    pub(super) fn join(
        &mut self,
        buffers: u32,
        reposted: &[AtomicU64],
    ) -> Result<u32, ConnectError> {
        self.collect(reposted);
        let max = self.members.len() as u32;
        let vacant = self.members.iter().position(|m| *m == Membership::Vacant);
        let index = vacant.ok_or(ConnectError::TooManyPeers(max))?;
        if buffers > self.free {
            return Err(ConnectError::SharedPoolFull {
                free: self.free,
                buffers: self.buffers,
                wanted: buffers,
            });
        }
        self.free -= buffers;
        self.members[index] = Membership::Live { buffers };
        Ok(index as u32)
    }

    /// A member goes, having received so many messages in all.
    pub(super) fn leave(&mut self, member: u32, received: u64) {
        let member = &mut self.members[member as usize];
        if let Membership::Live { buffers } = *member {
            *member = Membership::Leaving { buffers, received };
        }
    }

    /// Takes back the buffers of members whose last message is freed by now.
    fn collect(&mut self, reposted: &[AtomicU64]) {
        for (member, reposted) in self.members.iter_mut().zip(reposted) {
            if let Membership::Leaving { buffers, received } = *member
                && reposted.load(Ordering::Acquire) == received
            {
                self.free += buffers;
                *member = Membership::Vacant;
            }
        }
    }
}
