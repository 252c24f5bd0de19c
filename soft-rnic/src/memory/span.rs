//! Pieces of memory that stay mapped, and how they are copied.

use core::convert::Infallible;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU8;

use crate::alloc::{self, OutOfMemory};
use crate::copy;
use crate::copy::Direction;
use crate::limits::MAX_SGE;

/// Bytes of this process that stay mapped for `'m`: a checked piece of a region, of a mapping
/// of a peer's region, or of a buffer of the device. The lifetime is that of the mapping, or of
/// the lock that deregistration waits for ([`Hold`]), so that no span outlives its memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemSpan<'m> {
    ptr: *mut u8,
    len: usize,
    /// Another process can access the bytes at any time, so that they are copied in order: they lie
    /// in its memory, in a ring that it maps, or in a region that peers may access. Or another
    /// region can have the bytes, too: they are device memory.
    is_shared: bool,
    mapping: PhantomData<&'m AtomicU8>,
}

impl<'m> MemSpan<'m> {
    /// Bytes that a peer may access at any time, or not.
    ///
    /// # Safety
    /// `ptr .. ptr + len` stays mapped, and is not freed, for `'m`.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *mut u8, len: usize, is_shared: bool) -> MemSpan<'m> {
        MemSpan { ptr, len, is_shared, mapping: PhantomData }
    }

    /// Bytes of this process that no peer may access.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    #[inline(always)]
    pub(crate) unsafe fn private(ptr: *mut u8, len: usize) -> MemSpan<'m> {
        MemSpan { ptr, len, is_shared: false, mapping: PhantomData }
    }

    /// Bytes that a peer may access at any time.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    #[inline(always)]
    pub(crate) unsafe fn shared(ptr: *mut u8, len: usize) -> MemSpan<'m> {
        MemSpan { ptr, len, is_shared: true, mapping: PhantomData }
    }

    /// Bytes of the device.
    #[inline(always)]
    pub(crate) fn from_slice(bytes: &'m mut [u8]) -> MemSpan<'m> {
        // SAFETY: borrowed for as long, and by nothing else.
        unsafe { MemSpan::private(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// The bytes behind the first `n`.
    #[inline]
    pub(crate) fn behind(self, n: usize) -> MemSpan<'m> {
        let n = n.min(self.len);
        MemSpan { ptr: self.ptr.wrapping_add(n), len: self.len - n, ..self }
    }

    /// The bytes of words of the device.
    #[inline(always)]
    pub(crate) fn from_words(words: &'m mut [u64]) -> MemSpan<'m> {
        let len = size_of_val(words);
        // SAFETY: as in `of`.
        unsafe { MemSpan::private(words.as_mut_ptr().cast(), len) }
    }

    #[inline(always)]
    pub(crate) fn ptr(self) -> *mut u8 {
        self.ptr
    }

    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Its first `n` bytes, of which there are as many at least.
    pub(crate) fn first(self, n: usize) -> MemSpan<'m> {
        MemSpan { len: n, ..self }
    }

    /// Reports whether another process can access it at any time.
    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.is_shared
    }

    /// The bytes behind the first `n`; it has at least `n`.
    #[inline(always)]
    fn skip(self, n: usize) -> MemSpan<'m> {
        MemSpan { ptr: self.ptr.wrapping_add(n), len: self.len - n, ..self }
    }
}

/// Proof that something is held for `'m` that deregistration waits for: the lock of a send queue,
/// or of what takes other processes' requests, or a look ([`Device::quiesce`]). What a valid key
/// covers stays registered meanwhile.
///
/// [`Device::quiesce`]: crate::objects::state::Device::quiesce
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold<'m>(PhantomData<&'m ()>);

/// Room for the pieces of one message; a list has at most `MAX_SGE` entries. It stays in one
/// place, because to move it would cost more than a short message does.
pub(crate) struct SpanBuf(SpanStorage<'static>);

// SAFETY: a piece is read only through the `Spans` that wrote it, which begins without any: what lies
// here between two loans is not looked at.
unsafe impl Send for SpanBuf {}

#[repr(C)]
struct SpanStorage<'m> {
    pieces: [MaybeUninit<MemSpan<'m>>; MAX_SGE as usize],
    /// Copy of a short message out of on-demand memory: [`STAGED`] bytes at most.
    staged: Vec<u8>,
}

/// Messages out of on-demand memory up to this length are copied before they are sent: it is as
/// much as is copied into the ring to another process.
pub(crate) const STAGED: u64 = 4 << 10;

impl SpanBuf {
    /// # Safety
    /// It is only borrowed while a lock is held as [`Hold`] says.
    #[inline]
    pub(crate) unsafe fn new() -> SpanBuf {
        let pieces = [const { MaybeUninit::uninit() }; MAX_SGE as usize];
        SpanBuf(SpanStorage { pieces, staged: Vec::new() })
    }

    /// No pieces yet.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> Spans<'_> {
        // SAFETY: the types differ by a lifetime only; what was written during another loan is
        // never read, because each begins without pieces.
        let room = unsafe { &mut *(&raw mut self.0).cast() };
        Spans { n: 0, on_demand: false, room }
    }

    #[inline(always)]
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold(PhantomData)
    }
}

/// Room where the pieces of a request's buffers are put together. It stays in one place: half a
/// kilobyte is too much to move for a message of 16 bytes.
pub(crate) struct RequestScratch {
    /// The requester's.
    pub(crate) local: SpanBuf,
    /// Those of the receive request that takes it.
    pub(crate) remote: SpanBuf,
}

impl RequestScratch {
    pub(crate) fn new() -> RequestScratch {
        // SAFETY: a send queue owns it, and hands it out under its lock.
        let [local, remote] = [(); 2].map(|()| unsafe { SpanBuf::new() });
        RequestScratch { local, remote }
    }
}

/// The pieces of one message, in order.
pub(crate) struct Spans<'m> {
    n: usize,
    /// They may have gone: only the kernel may access them
    /// ([`on_demand`](crate::memory::on_demand)).
    pub(crate) on_demand: bool,
    room: &'m mut SpanStorage<'m>,
}

impl<'m> Spans<'m> {
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.n = 0;
        self.on_demand = false;
    }

    #[inline]
    pub(crate) fn push(&mut self, span: MemSpan<'m>) {
        self.room.pieces[self.n].write(span);
        self.n += 1;
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[MemSpan<'m>] {
        // SAFETY: the first `n` have been written.
        unsafe { core::slice::from_raw_parts(self.room.pieces.as_ptr().cast(), self.n) }
    }

    /// Room for `len` bytes, at most [`STAGED`], in place of which the pieces will be sent.
    ///
    /// # Safety
    /// No span of an earlier call is used any more.
    pub(crate) unsafe fn staging(&mut self, len: usize) -> MemSpan<'m> {
        let staged = &mut self.room.staged;
        // Bounded: by `STAGED`.
        staged.resize(len, 0);
        // SAFETY: the room is borrowed for `'m`, and no other span of these bytes is used (see #
        // Safety).
        unsafe { MemSpan::private(staged.as_mut_ptr(), len) }
    }

    /// The lock that the room for the pieces is borrowed under.
    #[inline(always)]
    pub(crate) fn hold(&self) -> Hold<'m> {
        Hold(PhantomData)
    }
}

/// Accesses that the program may make to the buffers of a message while they are copied. (What
/// other processes can do, the spans say.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferOwnership {
    /// Nothing: both belong to the device until their work completes.
    Owned,
    /// The program may look at either, or write it, at any time.
    Shared,
}

/// Copies `from` to `to`, which have room for as many bytes.
///
/// # Safety
/// All pieces are valid memory. With [`BufferOwnership::Owned`] the program does not access it;
/// otherwise, and where it is shared, others access it atomically only.
#[inline(always)]
pub(crate) unsafe fn copy_spans(to: &[MemSpan<'_>], from: &[MemSpan<'_>], how: BufferOwnership) {
    if let ([to], [from]) = (to, from) {
        // SAFETY: all pieces are valid, and accessed only as `how` says (see # Safety); a receive
        // buffer may be longer.
        return unsafe { copy_piece(*to, *from, from.len.min(to.len), how) };
    }
    // SAFETY: all pieces are valid, and accessed only as `how` says (see # Safety).
    unsafe { copy_lists(to, from, how) }
}

/// # Safety
/// As [`copy_spans`].
#[inline(never)]
unsafe fn copy_lists(to: &[MemSpan<'_>], from: &[MemSpan<'_>], how: BufferOwnership) {
    // SAFETY: all pieces are valid, and accessed only as `how` says (see # Safety).
    unsafe { copy_pieces(to.iter().copied(), from.iter().copied(), how) }
}

/// The bytes of a message, put together.
///
/// # Safety
/// All pieces are valid memory; the program accesses it atomically only.
pub(crate) unsafe fn to_vec(from: &[MemSpan<'_>]) -> Result<Vec<u8>, OutOfMemory> {
    let mut bytes = alloc::zeroes(from.iter().map(|span| span.len).sum())?;
    // What a WRITE sends, the program may write to meanwhile.
    // SAFETY: all pieces are valid, and accessed atomically only (see # Safety); `bytes` is a local
    // variable.
    unsafe { copy_spans(&[MemSpan::from_slice(&mut bytes)], from, BufferOwnership::Shared) };
    Ok(bytes)
}

/// Copies `header` and then `from` to `to`, which have room for both. All belong to
/// the device, but for what spans share with other processes.
///
/// # Safety
/// As [`copy_spans`] with [`BufferOwnership::Owned`].
pub(crate) unsafe fn copy_with_header(
    to: &[MemSpan<'_>],
    header: MemSpan<'_>,
    from: &[MemSpan<'_>],
) {
    let from = core::iter::once(header).chain(from.iter().copied());
    // SAFETY: all pieces are valid, and the program does not access them (see # Safety).
    unsafe { copy_pieces(to.iter().copied(), from, BufferOwnership::Owned) }
}

/// Copies pieces one behind the other. Returns the CRC-32 behind them, if that before them is
/// `crc`.
///
/// # Safety
/// Threads of the program access the pieces with atomic operations only.
pub(crate) unsafe fn copy_summed<'m>(
    to: &mut [u8],
    from: impl Iterator<Item = MemSpan<'m>>,
    mut crc: u32,
) -> u32 {
    let mut left = to;
    for piece in from {
        let n = piece.len.min(left.len());
        let (to, rest) = left.split_at_mut(n);
        // SAFETY: `piece` has `n` bytes, which stay mapped as long as the span, and threads of the
        // program access them atomically only (see # Safety).
        crc = unsafe { copy::summed(to, piece.ptr, crc) };
        left = rest;
    }
    crc
}

/// # Safety
/// As [`copy_spans`].
pub(crate) unsafe fn copy_pieces<'m>(
    to: impl Iterator<Item = MemSpan<'m>>,
    from: impl Iterator<Item = MemSpan<'m>>,
    how: BufferOwnership,
) {
    let Ok(()) = in_pairs(to, from, |t, s, n| {
        // SAFETY: both have `n` bytes.
        unsafe { copy_piece(t, s, n, how) };
        Ok::<(), Infallible>(())
    });
}

/// Goes through two lists at once: `each` gets two pieces and how many of their first bytes belong
/// together.
#[inline(always)]
pub(crate) fn in_pairs<'m, E>(
    mut to: impl Iterator<Item = MemSpan<'m>>,
    mut from: impl Iterator<Item = MemSpan<'m>>,
    mut each: impl FnMut(MemSpan<'m>, MemSpan<'m>, usize) -> Result<(), E>,
) -> Result<(), E> {
    let (mut target, mut source) = (to.next(), from.next());
    while let (Some(t), Some(s)) = (&mut target, &mut source) {
        let n = t.len.min(s.len);
        each(*t, *s, n)?;
        (*t, *s) = (t.skip(n), s.skip(n));
        if t.len == 0 {
            target = to.next();
        }
        if s.len == 0 {
            source = from.next();
        }
    }
    Ok(())
}

/// Copies the first `len` bytes.
///
/// # Safety
/// As [`copy_spans`]; both have as many.
#[inline(always)]
pub(crate) unsafe fn copy_piece(
    to: MemSpan<'_>,
    from: MemSpan<'_>,
    len: usize,
    how: BufferOwnership,
) {
    let is_owned = how == BufferOwnership::Owned && !(to.is_shared | from.is_shared);
    #[cfg(test)]
    plain::count(if is_owned { len } else { 0 });
    // SAFETY: both have `len` bytes, which are accessed only as `how` says (see # Safety).
    unsafe {
        if is_owned {
            copy::owned(to.ptr, from.ptr, len);
        } else {
            let direction = if to.is_shared { Direction::Push } else { Direction::Pull };
            copy::in_order_to(to.ptr, from.ptr, len, direction);
        }
    }
    host::notify_changed(to.ptr, len);
}

/// Number of bytes that this thread has copied by plain accesses.
#[cfg(test)]
pub(crate) mod plain {
    use core::cell::Cell;

    thread_local! {
        static BYTES: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn count(len: usize) {
        BYTES.set(BYTES.get() + len);
    }

    /// Since the last call.
    pub(crate) fn bytes() -> usize {
        BYTES.take()
    }
}
