//! Memory that a child of fork has in the place of the memory files that only its parent writes.
//!
//! The files' mappings are kept from it: it would tell others things in its parent's
//! name. But it has the values that refer to them, and runs destructors, if it does not
//! call exec. So it gets memory of its own at their addresses, all zero: no process sends
//! through it, and none reads it.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use host::sync::OnceLock;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Addresses that a child gets memory at. Mappings are used again and never freed, so that
/// the list can be walked after a fork, whatever other threads were doing.
#[derive(Debug)]
pub(crate) struct ForkMapping {
    /// 0 is "none".
    base: AtomicUsize,
    len: AtomicUsize,
    next: AtomicPtr<ForkMapping>,
}

static FORK_MAPPINGS: AtomicPtr<ForkMapping> = AtomicPtr::new(null_mut());

fn mappings() -> impl Iterator<Item = &'static ForkMapping> {
    // Acquire: what is in the list is complete.
    let at = |mapping: &AtomicPtr<ForkMapping>| {
        let mapping = mapping.load(Ordering::Acquire);
        // SAFETY: a mapping is never freed.
        unsafe { mapping.as_ref() }
    };
    core::iter::successors(at(&FORK_MAPPINGS), move |mapping| at(&mapping.next))
}

/// Lets children have memory of their own at these addresses, until
/// [`forget`](ForkMapping::forget).
pub(crate) fn fill_in(base: NonNull<c_void>, len: usize) -> &'static ForkMapping {
    static HANDLER: OnceLock<()> = OnceLock::new();
    // Without memory for the handler a child that still uses the device dies of it.
    // SAFETY: the handler does what may be done in a child of a process with threads.
    HANDLER.get_or_init(|| unsafe { _ = libc::pthread_atfork(None, None, Some(in_the_child)) });
    let mapping =
        mappings().find(|mapping| mapping.claim(base)).unwrap_or_else(|| ForkMapping::append(base));
    mapping.len.store(len, Ordering::Release);
    mapping
}

impl ForkMapping {
    /// Takes the mapping, if it is free; its length is 0 until it is set.
    fn claim(&self, base: NonNull<c_void>) -> bool {
        let (free, taken) = (0, base.as_ptr().addr());
        self.base.compare_exchange(free, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn append(base: NonNull<c_void>) -> &'static ForkMapping {
        let base = AtomicUsize::new(base.as_ptr().addr());
        let next = AtomicPtr::new(FORK_MAPPINGS.load(Ordering::Acquire));
        let mapping = Box::leak(Box::new(ForkMapping { base, len: AtomicUsize::new(0), next }));
        loop {
            let next = mapping.next.load(Ordering::Relaxed);
            // Release: the mapping is complete.
            match FORK_MAPPINGS.compare_exchange(
                next,
                mapping,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return mapping,
                Err(first) => mapping.next.store(first, Ordering::Relaxed),
            }
        }
    }

    /// The addresses are going to be given back.
    pub(crate) fn forget(&self) {
        self.len.store(0, Ordering::Release);
        self.base.store(0, Ordering::Release);
    }
}

extern "C" fn in_the_child() {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // Never over anything that another handler has put there meanwhile.
    let fixed = MapFlags::from_bits_retain(libc::MAP_FIXED_NOREPLACE as u32);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | fixed;
    for mapping in mappings() {
        let (base, len) =
            (mapping.base.load(Ordering::Acquire), mapping.len.load(Ordering::Acquire));
        if len > 0 {
            // SAFETY: nothing is there: the mapping was kept from the child.
            let _ = unsafe {
                mmap_anonymous(core::ptr::without_provenance_mut(base), len, protection, flags)
            };
        }
    }
}
