//! Presence of this process's pages, which the kernel reports without bringing them (`pagemap`).
//!
//! `mincore` would not do: it says of all pages of a file that the program may not write to that
//! they are there. A page that is there may go before it is accessed, if the program gives it back
//! or the kernel needs its memory; between a look and the access that follows at once, a peer can
//! do nothing for that.

use std::os::fd::OwnedFd;

use host::sync::OnceLock;
use rustix::fs::{Mode, OFlags};

/// The kernel's table of this process's pages: eight bytes each.
fn pages() -> Option<&'static OwnedFd> {
    static PAGES: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/pagemap", flags, Mode::empty()).ok()
    };
    PAGES.get_or_init(open).as_ref()
}

const ENTRY: usize = size_of::<u64>();
/// Entries that are read at once.
const AT_ONCE: usize = 256;
const IS_PRESENT: u64 = 1 << 63;
/// A write to the page waits for a thread of the program (`userfaultfd`).
const IS_WRITE_PROTECTED: u64 = 1 << 57;

/// Reports whether all pages of `addr .. addr + len` are there; `None` if the kernel does not say.
pub(crate) fn are_present(addr: usize, len: usize, is_written: bool) -> Option<bool> {
    let page = rustix::param::page_size();
    let (mut next, end) = (addr / page, addr.saturating_add(len).div_ceil(page));
    while len > 0 && next < end {
        let mut entries = [0; AT_ONCE * ENTRY];
        let n = AT_ONCE.min(end - next);
        let entries = &mut entries[..n * ENTRY];
        // (That of the standard library is a cancellation point.)
        let read = rustix::io::pread(pages()?, &mut *entries, (next * ENTRY) as u64);
        if read != Ok(entries.len()) {
            return None;
        }
        let (entries, _) = entries.as_chunks();
        if !entries.iter().all(|entry| is_there(u64::from_ne_bytes(*entry), is_written)) {
            return Some(false);
        }
        next += n;
    }
    Some(true)
}

fn is_there(entry: u64, is_written: bool) -> bool {
    entry & IS_PRESENT != 0 && !(is_written && entry & IS_WRITE_PROTECTED != 0)
}

#[cfg(test)]
mod tests;
