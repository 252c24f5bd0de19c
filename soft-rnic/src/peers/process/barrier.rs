//! Barriers that only one side pays for.
//!
//! A thread puts something into a ring, or goes into another process's memory, all the
//! time; a thread goes to sleep, or takes memory away, rarely. Both have to store
//! something and then look at what the other has stored, and one must see the other. Of
//! the two barriers that this takes, the kernel can execute the frequent side's on
//! behalf of the rare one (`membarrier`), on all processors that run a process which has
//! registered for it. A list of 8 messages of 16 bytes then does not wait until the ring's
//! lines have arrived.

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
use host::sync::OnceLock;

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

#[expect(clippy::disallowed_methods, reason = "it waits for no thread that has no processor")]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Reports whether this process has registered, so that others can execute its barriers, and can
/// execute theirs: both, or none.
pub(crate) fn is_asymmetric() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED
        .get_or_init(|| membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED))
}

/// True if the kernel has refused a barrier after it had executed one: a filter of system calls
/// that was installed later does that, or a lack of memory.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// The rare side's barrier, and those of all processes that rely on it. False if the others'
/// were not executed: what they have just stored may not be seen yet.
#[must_use]
pub(crate) fn heavy() -> bool {
    if is_asymmetric() {
        let executed = membarrier(GLOBAL_EXPEDITED);
        HAS_FAILED.fetch_or(!executed, Ordering::Relaxed);
        return executed;
    }
    fence(Ordering::SeqCst);
    true
}

/// Reports whether [`heavy`] has ever failed.
pub(crate) fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// The frequent side's barrier, towards a process that executes the heavy one or does
/// not.
#[inline]
pub(crate) fn light(other_is_asymmetric: bool) {
    if other_is_asymmetric {
        // The compiler keeps the order, and the other process makes the processor.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
