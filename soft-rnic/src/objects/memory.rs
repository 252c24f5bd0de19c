//! Scatter/gather lists, checked against the memory regions; and memory that may have gone.

use verbs_sys::ibv_sge;

use crate::objects::mr_table::MrTable;
use crate::objects::span::{Span, Spans};

/// [`resolve`] for a list of one entry, which nearly all lists are: a WRITE in lists of 8 takes
/// 589 instructions instead of 613, a SEND with immediate 843 instead of 906.
#[inline(always)]
pub(crate) fn resolve_one(
    mrs: &MrTable,
    pd: u32,
    sge: ibv_sge,
    len: u64,
    access: u32,
    spans: &mut Spans<'_>,
) -> Option<()> {
    spans.clear();
    if len > 0 {
        spans.push(mrs.check(spans.hold(), sge.lkey, pd, sge.addr, len, access)?);
    }
    Some(())
}

/// Copies `from`, which is memory of this process, to pieces that may have gone: the file
/// that they are mapped from has become shorter, or its disk is full. An access of ours
/// would be SIGBUS then; one of the kernel's is an error.
///
/// # Safety
/// `from` is valid memory, and `to` were; the program accesses both atomically only.
pub(crate) unsafe fn land(to: &[Span<'_>], from: Span<'_>) -> Result<(), rustix::io::Errno> {
    let pid = std::process::id().cast_signed();
    // SAFETY: the caller's promise; the kernel checks what is mapped.
    unsafe {
        crate::fabric::process::memory::attach(
            pid,
            crate::fabric::process::memory::Way::From,
            to,
            from.ptr() as u64,
            from.len(),
        )
    }
}

/// Has the kernel bring the pages of on-demand memory, so that [`land`] does not wait for a
/// disk with the peer's memory, or its queue pair, in hand. Where it cannot be asked (before
/// Linux 5.14), or there is nothing to bring, `land` is the judge.
pub(crate) fn populate(pieces: &[Span<'_>]) {
    let page = rustix::param::page_size();
    for piece in pieces {
        let over = piece.ptr().addr() % page;
        let from = piece.ptr().wrapping_sub(over).cast();
        let advice = rustix::mm::Advice::LinuxPopulateWrite;
        // SAFETY: pages that are registered are faulted in, as an access to them would;
        // what they hold stays as it is.
        let _ = unsafe { rustix::mm::madvise(from, piece.len() + over, advice) };
    }
}

/// Whether [`land`] does what it says: some sandboxes forbid it.
pub(crate) fn can_land() -> bool {
    let (mut to, mut from) = (0_u64, 1_u64);
    let (target, source) = (core::slice::from_mut(&mut to), core::slice::from_mut(&mut from));
    // SAFETY: both are our own.
    unsafe { land(&[Span::of_words(target)], Span::of_words(source)) }.is_ok() && to == from
}

/// Checks the first `len` bytes of a list against the regions of a domain, and
/// puts the pieces into `spans`. `None` if one is not covered; entries of zero
/// length need no key. (The pieces go to a place that the caller keeps: moving
/// them would cost more than a short message does.)
#[inline]
pub(crate) fn resolve(
    mrs: &MrTable,
    pd: u32,
    list: impl Iterator<Item = ibv_sge>,
    len: u64,
    access: u32,
    spans: &mut Spans<'_>,
) -> Option<()> {
    spans.clear();
    let mut left = len;
    for sge in list {
        let n = u64::from(sge.length).min(left);
        if n == 0 {
            continue;
        }
        spans.push(mrs.check(spans.hold(), sge.lkey, pd, sge.addr, n, access)?);
        left -= n;
    }
    Some(())
}
