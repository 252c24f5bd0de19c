//! The copy of a request whose checks are done.

use core::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::engine::responder::datagram::grh;
use crate::engine::responder::delivery::{Begun, RequestDelivery};
use crate::limits::LONG;
use crate::memory::on_demand;
use crate::memory::span::{
    BufferOwnership, MemSpan, Spans, copy_pieces, copy_spans, copy_with_header,
};
use crate::queues::wqe::{SqOp, Wqe};

/// Carries an operation on memory out: `there` is what the request names, `local` the
/// requester's.
///
/// # Safety
/// Both sides are as long as the request, and may be accessed so; that of an operation on a word is
/// aligned. Programs access them atomically only.
#[inline(always)]
pub(crate) unsafe fn access(there: MemSpan<'_>, local: &[MemSpan<'_>], op: SqOp, wqe: &Wqe) {
    // SAFETY: both sides fit the request, an operand that is a word is aligned, and programs access
    // them atomically only (see # Safety); a landing place may be polled, too.
    unsafe {
        match op {
            SqOp::Read => copy_spans(local, &[there], BufferOwnership::Shared),
            SqOp::Write | SqOp::Send => copy_spans(&[there], local, BufferOwnership::Shared),
            SqOp::BindMw | SqOp::LocalInv => {}
            SqOp::AtomicWrite => {
                // Release: a reader that sees the word sees what was written before it.
                AtomicU64::from_ptr(there.ptr().cast()).store(word(local, wqe), Ordering::Release);
            }
            SqOp::CompareSwap | SqOp::FetchAdd => {
                let mut old = exchange(AtomicU64::from_ptr(there.ptr().cast()), wqe);
                let old = MemSpan::from_words(core::slice::from_mut(&mut old));
                copy_spans(local, &[old], BufferOwnership::Shared);
            }
        }
    }
}

/// The word that an atomic write stores: the requester's data, or what its request has of them.
///
/// # Safety
/// `local` is empty, or may be accessed; programs access it atomically only.
unsafe fn word(local: &[MemSpan<'_>], wqe: &Wqe) -> u64 {
    let mut word = wqe.compare_add;
    if !local.is_empty() {
        let to = MemSpan::from_words(core::slice::from_mut(&mut word));
        // SAFETY: `local` is not empty, so it may be accessed (see # Safety); `word` is a local
        // variable.
        unsafe { copy_spans(&[to], local, BufferOwnership::Shared) };
    }
    word
}

/// Carries an atomic operation out, and returns the word that was there before.
pub(crate) fn exchange(word: &AtomicU64, wqe: &Wqe) -> u64 {
    // AcqRel: an atomic synchronises all users of the word.
    let was = match wqe.op {
        SqOp::FetchAdd => word.fetch_add(wqe.compare_add, Ordering::AcqRel),
        _ => word
            .compare_exchange(wqe.compare_add, wqe.swap, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_else(|seen| seen),
    };
    host::notify_changed(word, 8);
    was
}

/// Returns the pieces of a list behind its first `skip` bytes.
pub(crate) fn behind<'s>(
    list: &'s [MemSpan<'s>],
    mut skip: usize,
) -> impl Iterator<Item = MemSpan<'s>> {
    list.iter().filter_map(move |span| {
        let before = skip.min(span.len());
        skip -= before;
        (before < span.len()).then(|| span.behind(before))
    })
}

/// Copies what a response brings to the requester's memory, behind its first `offset` bytes. An
/// error says that this has gone.
///
/// # Safety
/// The list was checked, and the lock of the send queue is held since; programs access it
/// atomically only: it may be polled.
pub(crate) unsafe fn land(
    local: &Spans<'_>,
    offset: usize,
    from: MemSpan<'_>,
) -> Result<(), Errno> {
    let (to, from) = (behind(local.as_slice(), offset), core::iter::once(from));
    // SAFETY: `local` was checked, and the lock of the send queue, for which deregistration waits,
    // is held since; programs access it atomically only: this function's contract (see # Safety).
    unsafe {
        match local.on_demand {
            true => on_demand::copy_pieces(to, from),
            false => {
                copy_pieces(to, from, BufferOwnership::Shared);
                Ok(())
            }
        }
    }
}

impl<const XRC: usize> RequestDelivery<'_, '_, XRC> {
    /// Copies a part of a SEND to where it belongs.
    pub(super) fn place_part(&mut self, offset: usize, part: MemSpan<'_>) {
        self.writer.release();
        let room = behind(self.room.as_slice(), offset);
        // SAFETY: the receive request was checked, and its buffers are the device's while it is
        // posted, which it stays as long as the lock of its queue is held; the part is as well.
        unsafe { copy_pieces(room, core::iter::once(part), BufferOwnership::Owned) }
    }

    /// Copies what the request carries, or asks for.
    #[inline(always)]
    pub(super) fn place(&mut self, op: SqOp, begun: &Begun<'_>) {
        if self.message.len as usize >= LONG {
            // Others should not wait for the completion queue meanwhile.
            self.writer.release();
        }
        let local = self.message.local;
        // SAFETY: both lists were checked; the buffers of sends and receives are the device's
        // while they are posted, and programs access the memory of others atomically only.
        unsafe {
            match (begun.target, self.message.to) {
                (Some(target), _) => access(target, local, op, self.message.wqe),
                (None, _) if op != SqOp::Send => {}
                (None, None) => copy_spans(self.room.as_slice(), local, BufferOwnership::Owned),
                (None, Some((to, _))) => {
                    let mut header = grh(self.message, to, self.peer.pd.context.device.gid());
                    copy_with_header(self.room.as_slice(), MemSpan::from_slice(&mut header), local);
                }
            }
        }
    }
}
