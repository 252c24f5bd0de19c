//! Waiting until other processes have left this one's memory, and looking whether they have.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;

use crate::errno;

use super::barrier;
use super::pair::ProcessPair;

/// Longest time that this process waits for another one that is inside its memory and does not go
/// on.
pub(crate) const INSIDE: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };

pub(crate) fn wait_for<'a>(
    pair: &ProcessPair,
    words: impl Iterator<Item = &'a core::sync::atomic::AtomicU32>,
) -> Result<(), Errno> {
    let mut since = None;
    // The other side of the barrier in `QpEntry::enter`.
    let is_seen = barrier::heavy();
    for word in words {
        // Acquire: a process that has left has finished its accesses.
        let seen = word.load(Ordering::Acquire);
        while seen & 1 == 1 && word.load(Ordering::Acquire) == seen {
            let since = *since.get_or_insert_with(host::time::now);
            if pair.has_gone() {
                return Ok(());
            }
            if host::time::since(since) > INSIDE {
                return Err(errno::EBUSY);
            }
            host::thread::yield_now();
        }
    }
    // If not, other processes may be inside unseen.
    if is_seen { Ok(()) } else { Err(errno::EBUSY) }
}

/// Accesses of other processes that a look finds under way, and that are remembered until the next
/// one. If there are more, those are looked for when these have ended.
pub(crate) const MAX_INSIDERS: usize = 64;

/// A queue pair of another process that is inside this one's memory.
#[derive(Debug)]
struct Insider {
    /// One of those that were declared dead and are kept no longer is not waited for.
    pair: Weak<ProcessPair>,
    qpn: u32,
    /// The value that its word had.
    seen: u32,
}

impl Insider {
    fn from_pair(pair: &Arc<ProcessPair>, qpn: u32) -> Insider {
        // Acquire: a process that has left has finished its accesses.
        let seen = pair.theirs.qp(qpn).inside().load(Ordering::Acquire);
        Insider { pair: Arc::downgrade(pair), qpn, seen }
    }

    fn stays(&self) -> bool {
        let Some(pair) = self.pair.upgrade() else { return false };
        // Acquire: as above.
        let now = || pair.theirs.qp(self.qpn).inside().load(Ordering::Acquire);
        self.seen & 1 == 1 && now() == self.seen && !pair.has_gone()
    }
}

/// Queue pairs of other processes that were inside this one's memory when they were looked at.
#[derive(Debug, Default)]
pub(crate) struct Insiders {
    found: Vec<Insider>,
    /// There may be more.
    is_partial: bool,
}

impl Insiders {
    /// Reports whether all that were inside have left.
    pub(crate) fn have_left(&mut self) -> bool {
        self.found.retain(Insider::stays);
        self.found.is_empty() && !self.is_partial
    }

    /// Reports whether those that are known have left, and there may be more.
    pub(crate) fn is_to_be_repeated(&self) -> bool {
        self.is_partial && !self.found.iter().any(Insider::stays)
    }
}

/// Finds those of these queue pairs that are inside.
pub(crate) fn look<'p, I: Iterator<Item = u32>>(
    pairs: &'p [Arc<ProcessPair>],
    of: impl Fn(&'p Arc<ProcessPair>) -> I,
) -> Insiders {
    // The other side of the barrier in `QpEntry::enter`: without it they may be inside unseen.
    let is_partial = !pairs.is_empty() && !barrier::heavy();
    let mut looked = Insiders { found: Vec::new(), is_partial };
    if is_partial {
        return looked;
    }
    for pair in pairs {
        for insider in of(pair).map(|qpn| Insider::from_pair(pair, qpn)).filter(Insider::stays) {
            looked.is_partial = looked.found.len() == MAX_INSIDERS;
            if looked.is_partial {
                return looked;
            }
            looked.found.push(insider);
        }
    }
    looked
}
