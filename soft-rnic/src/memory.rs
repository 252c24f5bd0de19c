//! Scatter/gather lists: checked against the memory regions, then copied.

use core::mem::MaybeUninit;

use verbs_sys::ibv_sge;

use crate::copy;
use crate::limits::MAX_SGE;
use crate::mr::MrTable;

/// Bytes of this process: a checked piece of a region, or data posted inline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
}

/// The pieces of one message, in order; at most as many as a list has entries.
pub(crate) struct Spans {
    n: usize,
    /// They may have gone: only the kernel may access them ([`land`]).
    pub(crate) on_demand: bool,
    pieces: [MaybeUninit<Span>; MAX_SGE as usize],
}

impl Spans {
    #[inline]
    pub(crate) fn new() -> Spans {
        Spans {
            n: 0,
            on_demand: false,
            pieces: [const { MaybeUninit::uninit() }; MAX_SGE as usize],
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.n = 0;
        self.on_demand = false;
    }

    #[inline]
    pub(crate) fn push(&mut self, span: Span) {
        self.pieces[self.n].write(span);
        self.n += 1;
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Span] {
        // SAFETY: the first `n` have been written.
        unsafe { core::slice::from_raw_parts(self.pieces.as_ptr().cast(), self.n) }
    }
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
    spans: &mut Spans,
) -> Option<()> {
    spans.clear();
    let mut left = len;
    for sge in list {
        let n = u64::from(sge.length).min(left);
        if n == 0 {
            continue;
        }
        let ptr = mrs.check(sge.lkey, pd, sge.addr, n, access)?;
        spans.push(Span { ptr, len: n as usize });
        left -= n;
    }
    Some(())
}

/// [`resolve`] for a list of one entry, which nearly all lists are.
#[inline(always)]
pub(crate) fn resolve_one(
    mrs: &MrTable,
    pd: u32,
    sge: ibv_sge,
    len: u64,
    access: u32,
    spans: &mut Spans,
) -> Option<()> {
    spans.clear();
    if len > 0 {
        let ptr = mrs.check(sge.lkey, pd, sge.addr, len, access)?;
        spans.push(Span { ptr, len: len as usize });
    }
    Some(())
}

/// How the bytes of a message are laid down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Both buffers belong to the device until their work completes.
    Owned,
    /// The program may look at either, or write it, at any time.
    Shared,
}

/// Copies `from` to `to`, which have room for as many bytes.
///
/// # Safety
/// All pieces are valid memory; with [`Copying::Owned`] nobody else accesses it.
#[inline]
pub(crate) unsafe fn copy_spans(to: &[Span], from: &[Span], how: Copying) {
    if let ([to], [from]) = (to, from) {
        // SAFETY: the caller's promise; a receive buffer may be longer.
        return unsafe { copy_piece(to.ptr, from.ptr, from.len.min(to.len), how) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_pieces(to.iter().copied(), from.iter().copied(), how) }
}

/// Copies `from`, which is memory of this process, to pieces that may have gone: the file
/// that they are mapped from has become shorter, or its disk is full. An access of ours
/// would be SIGBUS then; one of the kernel's is an error.
///
/// # Safety
/// `from` is valid memory, and `to` were; the program accesses both atomically only.
pub(crate) unsafe fn land(to: &[Span], from: Span) -> Result<(), rustix::io::Errno> {
    let pid = std::process::id().cast_signed();
    // SAFETY: the caller's promise; the kernel checks what is mapped.
    unsafe { crate::process::attach(pid, crate::process::Way::From, to, from.ptr as u64, from.len) }
}

/// Has the kernel bring the pages of on-demand memory, so that [`land`] does not wait for a
/// disk with the peer's memory, or its queue pair, in hand. Where it cannot be asked (before
/// Linux 5.14), or there is nothing to bring, `land` is the judge.
pub(crate) fn populate(pieces: &[Span]) {
    let page = rustix::param::page_size();
    for piece in pieces {
        let over = piece.ptr.addr() % page;
        let from = piece.ptr.wrapping_sub(over).cast();
        let advice = rustix::mm::Advice::LinuxPopulateWrite;
        // SAFETY: pages that are registered are faulted in, as an access to them would;
        // what they hold stays as it is.
        let _ = unsafe { rustix::mm::madvise(from, piece.len + over, advice) };
    }
}

/// Whether [`land`] does what it says: some sandboxes forbid it.
pub(crate) fn can_land() -> bool {
    let (mut to, mut from) = (0_u64, 1_u64);
    let span = |word: &mut u64| Span { ptr: (&raw mut *word).cast(), len: 8 };
    // SAFETY: both are our own.
    unsafe { land(&[span(&mut to)], span(&mut from)) }.is_ok() && to == from
}

/// The bytes of a message, put together.
///
/// # Safety
/// All pieces are valid memory; the program accesses it atomically only.
pub(crate) unsafe fn to_vec(from: &[Span]) -> Vec<u8> {
    let mut bytes = vec![0; from.iter().map(|span| span.len).sum()];
    let to = Span { ptr: bytes.as_mut_ptr(), len: bytes.len() };
    // What a WRITE sends, the program may write to meanwhile.
    // SAFETY: the caller's promise; the bytes are ours.
    unsafe { copy_spans(&[to], from, Copying::Shared) };
    bytes
}

/// Copies `header` and then `from` to `to`, which have room for both. All belong to
/// the device.
///
/// # Safety
/// All pieces are valid memory, which nobody else accesses.
pub(crate) unsafe fn copy_with_header(to: &[Span], header: Span, from: &[Span]) {
    let from = core::iter::once(header).chain(from.iter().copied());
    // SAFETY: the caller's promise.
    unsafe { copy_pieces(to.iter().copied(), from, Copying::Owned) }
}

unsafe fn copy_pieces(
    mut to: impl Iterator<Item = Span>,
    mut from: impl Iterator<Item = Span>,
    how: Copying,
) {
    let (mut target, mut source) = (to.next(), from.next());
    while let (Some(t), Some(s)) = (&mut target, &mut source) {
        let n = t.len.min(s.len);
        // SAFETY: both have `n` bytes left.
        unsafe {
            copy_piece(t.ptr, s.ptr, n, how);
            *t = Span { ptr: t.ptr.add(n), len: t.len - n };
            *s = Span { ptr: s.ptr.add(n), len: s.len - n };
        }
        if t.len == 0 {
            target = to.next();
        }
        if s.len == 0 {
            source = from.next();
        }
    }
}

#[inline]
unsafe fn copy_piece(to: *mut u8, from: *const u8, len: usize, how: Copying) {
    // SAFETY: the caller's promise.
    unsafe {
        match how {
            Copying::Owned => copy::owned(to, from, len),
            Copying::Shared => copy::in_order(to, from, len),
        }
    }
}
