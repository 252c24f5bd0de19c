//! A budget for mapping other processes' regions here.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Regions of all processes that are mapped: at most half of the kernel's mappings. The other
/// half is for the program's own memory, its threads' stacks among it.
pub(crate) const WINDOWS: usize = 16_384;

/// Bytes of all regions that are mapped: a quarter of the addresses, so that the program never
/// lacks any.
pub(crate) const BYTES: u64 = 32 << 40;

/// Numbers of windows and of bytes that are mapped.
#[derive(Debug)]
pub(crate) struct MapBudget {
    windows: AtomicUsize,
    bytes: AtomicU64,
}

pub(crate) static BUDGET: MapBudget =
    MapBudget { windows: AtomicUsize::new(0), bytes: AtomicU64::new(0) };

impl MapBudget {
    /// Takes a part of it for a window of `len` bytes; false if it does not suffice.
    pub(crate) fn take(&self, len: u64) -> bool {
        // Relaxed: counts that guard no memory. One that is given back at once may keep another
        // thread from a place that there is: it is the last one, and attaching does, too.
        let windows = self.windows.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.fetch_add(len, Ordering::Relaxed);
        let fits = windows < WINDOWS && bytes.checked_add(len).is_some_and(|sum| sum <= BYTES);
        if !fits {
            self.give_back(len);
        }
        fits
    }

    fn give_back(&self, len: u64) {
        self.windows.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(len, Ordering::Relaxed);
    }
}

/// A window's part of what may be mapped.
#[derive(Debug)]
pub(crate) struct Share(pub(crate) u64);

impl Drop for Share {
    fn drop(&mut self) {
        BUDGET.give_back(self.0);
    }
}

#[cfg(test)]
mod tests;
