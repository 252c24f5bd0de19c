//! On-demand memory: regions whose pages may be gone, or protected, when the device accesses them.
//!
//! If this process accessed such a page itself, it would get a signal: SIGSEGV where nothing is
//! mapped any more, SIGBUS where the file behind a mapping has become shorter, or its disk is full.
//! If the kernel copies, the copy fails with an error. So all copies are `process_vm_writev` to
//! this very process. Before that, `madvise` populates the pages, so that a missing one is found
//! before anything changes, and few copies wait for a disk. A page that is unmapped in between
//! makes the copy fail.
//!
//! Other processes do not map such regions either: they attach to them, as to all memory that lies
//! in no sealed memory file.

use core::sync::atomic::AtomicU64;

use host::sync::{Mutex, OnceLock};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use verbs_sys::*;

use crate::alloc;
use crate::memory::attach::{AttachDirection, attach};
use crate::memory::span::{BufferOwnership, MemSpan, Spans, copy_spans, in_pairs};

/// A piece of memory, and whether it may have gone.
pub(crate) type OnDemandPiece<'m> = (MemSpan<'m>, bool);

/// The side that has lost its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoneSide {
    /// The requester's own.
    Here,
    /// The memory that the request reaches: what it names, or the buffers of a receive request.
    There,
}

/// Copies `from` to `to`, which have room for as many bytes; any of them may have gone.
///
/// # Safety
/// The pieces of `to` were checked; programs access all of them atomically only.
pub(crate) unsafe fn copy<'m>(
    to: &[MemSpan<'m>],
    from: impl Iterator<Item = MemSpan<'m>>,
) -> Result<(), Errno> {
    // SAFETY: `to` was checked, and programs access all pieces atomically only (see # Safety).
    unsafe { copy_pieces(to.iter().copied(), from) }
}

/// [`copy`] to pieces that are in no list.
///
/// # Safety
/// As there.
pub(crate) unsafe fn copy_pieces<'m>(
    to: impl Iterator<Item = MemSpan<'m>>,
    from: impl Iterator<Item = MemSpan<'m>>,
) -> Result<(), Errno> {
    let pid = std::process::id().cast_signed();
    in_pairs(to, from, |to, from, n| {
        // SAFETY: `to` was checked, and programs access all pieces atomically only (see # Safety);
        // the kernel checks what is mapped.
        unsafe { attach(pid, AttachDirection::Into, &[from.first(n)], to.ptr().addr() as u64, n) }
    })
}

/// [`copy`] of words of ours.
///
/// # Safety
/// As there.
pub(crate) unsafe fn copy_word(to: &[MemSpan<'_>], word: u64) -> Result<(), Errno> {
    let mut word = [word];
    // SAFETY: `to` was checked (see # Safety); `word` is a local variable.
    unsafe { copy(to, core::iter::once(MemSpan::from_words(&mut word))) }
}

/// The bytes of a message, put together.
///
/// # Safety
/// Programs access the pieces atomically only.
pub(crate) unsafe fn to_vec(from: &[MemSpan<'_>]) -> Result<Vec<u8>, Errno> {
    let mut bytes = alloc::zeroes(from.iter().map(|span| span.len()).sum())?;
    // SAFETY: programs access the pieces atomically only (see # Safety); `bytes` is a local
    // variable.
    unsafe { copy(&[MemSpan::from_slice(&mut bytes)], from.iter().copied()) }?;
    Ok(bytes)
}

impl Spans<'_> {
    /// Copies them, which may have gone if they are on demand.
    ///
    /// # Safety
    /// They were checked, and `to` may be accessed; programs access them atomically only.
    pub(crate) unsafe fn copy_to(&self, to: &[MemSpan<'_>]) -> Result<(), Errno> {
        // SAFETY: the pieces were checked, and `to` may be accessed (see # Safety).
        unsafe {
            match self.on_demand {
                true => copy(to, self.as_slice().iter().copied()),
                false => {
                    copy_spans(to, self.as_slice(), BufferOwnership::Shared);
                    Ok(())
                }
            }
        }
    }

    /// Copies a message of at most [`STAGED`](crate::memory::span::STAGED) bytes out of memory
    /// that may have gone. From now on it lies in memory of ours.
    pub(crate) fn stage(&mut self) -> Result<(), Errno> {
        let len = self.as_slice().iter().map(|span| span.len()).sum();
        // SAFETY: a list is staged once: afterwards its one piece is that room.
        let to = unsafe { self.staging(len) };
        // SAFETY: the pieces were checked; the room is ours.
        unsafe { copy(&[to], self.as_slice().iter().copied()) }?;
        self.clear();
        self.push(to);
        Ok(())
    }
}

/// Has the kernel bring all pages of these pieces, to be read or to be written. False if some have
/// gone, or do not permit it; where it cannot be asked (before Linux 5.14), the copy is the judge.
pub(crate) fn bring(pieces: &[MemSpan<'_>], is_written: bool) -> bool {
    pieces.iter().all(|piece| bring_at(piece.ptr().addr(), piece.len(), is_written).is_ok())
}

/// [`bring`] of `addr .. addr + len`.
pub(crate) fn bring_at(addr: usize, len: usize, is_written: bool) -> Result<(), Errno> {
    match is_written {
        _ if !can_ask() => Ok(()),
        false => populate(addr, len, Advice::LinuxPopulateRead),
        true => populate(addr, len, Advice::LinuxPopulateWrite),
    }
}

/// Reports whether a page has memory that can be written; true where it cannot be asked. Like
/// pinning, it gives the page memory.
pub(crate) fn is_writable(addr: usize) -> bool {
    bring_at(addr, 1, true) != Err(Errno::INVAL)
}

/// Reports whether the kernel knows the advice.
fn can_ask() -> bool {
    static CAN_ASK: OnceLock<bool> = OnceLock::new();
    *CAN_ASK.get_or_init(|| {
        let page = core::ptr::without_provenance_mut(0);
        let advice = Advice::LinuxPopulateWrite;
        // SAFETY: the range is empty, so that the call touches no memory of any owner.
        unsafe { madvise(page, 0, advice) }.is_ok()
    })
}

fn populate(addr: usize, len: usize, advice: Advice) -> Result<(), Errno> {
    let within = addr % rustix::param::page_size();
    let from = core::ptr::without_provenance_mut(addr - within);
    // SAFETY: pages are faulted in, as an access would; their contents stay unchanged.
    match unsafe { madvise(from, len.saturating_add(within), advice) } {
        Err(error @ (Errno::NOMEM | Errno::FAULT | Errno::INVAL | Errno::HWPOISON)) => Err(error),
        // Others say nothing of the pages, but that it may not be asked.
        _ => Ok(()),
    }
}

/// Reports whether [`copy`] does what it says: some sandboxes forbid it.
pub(crate) fn can_copy() -> bool {
    let mut seen = [0_u64];
    // SAFETY: it is our own.
    let copied = unsafe { copy_word(&[MemSpan::from_words(&mut seen)], 1) };
    copied.is_ok() && seen == [1]
}

/// Reports whether regions may be on demand for every use. (Those that only READs land in need no
/// more than [`can_copy`].)
pub(crate) fn is_supported() -> bool {
    can_ask() && can_copy()
}

/// Changes a word of on-demand memory, and returns what was there. The kernel has no such access:
/// atomics of this memory are atomic with each other, by this lock, and with nothing else.
///
/// # Safety
/// The word was checked; programs access it atomically only.
pub(crate) unsafe fn exchange(
    word: MemSpan<'_>,
    change: impl FnOnce(&AtomicU64) -> u64,
) -> Result<u64, Errno> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _this_one = ONE_AT_A_TIME.lock();
    let mut seen = [0_u64];
    // SAFETY: `word` was checked (see # Safety), and `seen` is a local variable.
    unsafe { copy(&[MemSpan::from_words(&mut seen)], core::iter::once(word)) }?;
    let new = AtomicU64::new(seen[0]);
    let old = change(&new);
    let new = new.into_inner();
    if new != old {
        // SAFETY: `word` was checked, and programs access it atomically only (see # Safety).
        unsafe { copy_word(&[word], new) }?;
    }
    Ok(old)
}

/// Capabilities for on-demand memory that the device reports.
pub(crate) fn caps() -> (ibv_odp_caps, u32) {
    use ibv_odp_general_caps as General;
    use ibv_odp_transport_cap_bits as Bit;
    let mut caps = ibv_odp_caps::default();
    if !is_supported() {
        return (caps, 0);
    }
    let all = |bits: &[Bit]| bits.iter().fold(0, |sum, bit| sum | bit.0);
    let (send, recv) = (Bit::IBV_ODP_SUPPORT_SEND, Bit::IBV_ODP_SUPPORT_RECV);
    let (write, read) = (Bit::IBV_ODP_SUPPORT_WRITE, Bit::IBV_ODP_SUPPORT_READ);
    let (atomic, srq) = (Bit::IBV_ODP_SUPPORT_ATOMIC, Bit::IBV_ODP_SUPPORT_SRQ_RECV);
    let general = General::IBV_ODP_SUPPORT.0 | General::IBV_ODP_SUPPORT_IMPLICIT.0;
    caps.general_caps = general.into();
    caps.per_transport_caps.rc_odp_caps = all(&[send, recv, write, read, atomic, srq]);
    caps.per_transport_caps.uc_odp_caps = all(&[send, recv, write, srq]);
    caps.per_transport_caps.ud_odp_caps = all(&[send, recv, srq]);
    (caps, all(&[send, write, read, atomic, srq]))
}

#[cfg(test)]
mod tests;
