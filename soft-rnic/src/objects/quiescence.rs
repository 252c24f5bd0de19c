//! Accesses under way, which the end of a key, or of an object, waits for.
//!
//! A key is made invalid first: what looks for it afterwards does not find it. What has found it
//! before holds something until it is over, and the end of the key takes that once:
//!
//! | what has found a key | holds |
//! |---|---|
//! | a request of this process | the lock of its send queue |
//! | a request of another process that is executed here | the lock of the progress engine |
//! | a request from the network | the lock of its receiver (below: beside the progress engine) |
//! | an answer to a READ that is sent later | that lock, or that of the send queue that sends it |
//! | either of them, if the key is a memory window's | the lock of the receiving side, too |
//! | a checker that looks at a buffer, `ibv_advise_mr` | what [`look`] returns |
//! | another process that uses our memory | a word of its directory (`peers::process::outside`) |
//!
//! Each end waits for those that can have found what ends:
//!
//! | end | send queues | progress engine | receiving sides | looks | other processes |
//! |---|---|---|---|---|---|
//! | `ibv_dereg_mr`, `ibv_rereg_mr` | all | yes | | yes | all |
//! | a binding of a memory window | | | those that can use it | | those that can use it |
//! | `ibv_dealloc_mw`, after its binding | all that are not blocked | | all | yes | |
//! | `ibv_destroy_srq`, over XRC | all | yes | | yes | |
//! | `ibv_destroy_qp` | its own | | its own | | those that read its messages |
//!
//! Memory that a window gives access to is its region's, which cannot be deregistered while windows
//! are bound to it. So the end of a binding waits only for what uses the window. Its deallocation
//! gives the slot in the table of keys to another key, and waits for everything that may still read
//! that slot, wrong requests and the looks at their buffers included.

use host::sync::{RwLock, RwLockReadGuard};
use rustix::io::Errno;

use crate::objects::state::{Device, PeerProcesses};

/// Held by those that look at keys without the lock of a queue.
static LOOKS: RwLock<()> = RwLock::new(());

/// While this is held, what a valid key covers stays registered, and its slot is its own. It is not
/// held together with the lock of the table of keys, nor taken twice by a thread.
pub(crate) fn look() -> RwLockReadGuard<'static, ()> {
    LOOKS.read()
}

/// Waits until all looks that have begun are over.
fn end_looks() {
    drop(LOOKS.write());
}

impl Device {
    /// Waits until no access is under way under keys of regions that were made invalid before;
    /// `EBUSY` if another process stays in their memory.
    pub(crate) fn end_accesses(&self) -> Result<(), Errno> {
        self.quiesce();
        self.peers.as_ref().map_or(Ok(()), PeerProcesses::wait_outside)
    }

    /// Waits until all that this process executes, or looks at, has ended that was under way. What
    /// was made unreachable before the call is unused after it.
    pub(crate) fn quiesce(&self) {
        for qp in self.qps.all() {
            drop(qp.sq.lock());
        }
        if let Some(peers) = &self.peers {
            peers.quiesce();
        }
        if let Some(wire) = self.wire() {
            drop(wire.rx.lock());
        }
        end_looks();
    }

    /// Waits until no thread of this process reads the slot of a window whose binding is over. (One
    /// that waits for another process's memory reads none.)
    pub(crate) fn end_lookups(&self) {
        for qp in self.qps.all() {
            drop(qp.sq_unless_blocked());
            drop(qp.responder.lock());
        }
        end_looks();
    }
}

#[cfg(test)]
mod tests;
