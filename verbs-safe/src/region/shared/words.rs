//! Copying whole words of memory that others access meanwhile: every aligned word of eight
//! bytes is loaded, or stored, in one piece; relaxed.
//!
//! The bulk is moved by 16-byte accesses of inline assembly: they are the processor's own,
//! so that racing with them is no data race of the language, and their halves of eight
//! aligned bytes are never torn. For little it is atomics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes from which on the bulk is moved in blocks.
const BULK: usize = 128;

/// Copies shared words into `to`, which has a multiple of 8 bytes.
///
/// # Safety
/// As many bytes at `from` are mapped to be read and written, which is aligned to 8; concurrent
/// writes to them are atomic, in words.
#[inline]
pub(crate) unsafe fn load(to: &mut [u8], from: *const u8) {
    let first = to_alignment(from, to.len());
    // SAFETY: `to.len()` bytes at `from` can be read (see # Safety). `first` is no more, so that
    // the rests of both have as many bytes; that of `from`, if any, is aligned to 16.
    let done = unsafe {
        load_words(&mut to[..first], from);
        first + blocks(to.as_mut_ptr().add(first), from.add(first), to.len() - first)
    };
    // SAFETY: `to.len()` bytes at `from` can be read (see # Safety); `done` is no more, and a
    // multiple of 8.
    unsafe { load_words(&mut to[done..], from.add(done)) };
}

/// As [`load`], word by word.
#[inline]
unsafe fn load_words(to: &mut [u8], from: *const u8) {
    for (i, to) in to.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // SAFETY: the word is inside of the `to.len()` bytes at `from`, aligned, and written to in
        // whole words only: the contract of [`load`].
        let word = unsafe { AtomicU64::from_ptr(from.add(8 * i).cast_mut().cast()) };
        *to = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// Copies `from`, which has a multiple of 8 bytes, into shared words.
///
/// # Safety
/// As many bytes at `to` can be written, which is aligned to 8; concurrent accesses to
/// them are atomic, in words.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, from: &[u8]) {
    let first = to_alignment(to, from.len());
    // SAFETY: `from.len()` bytes at `to` can be written (see # Safety). `first` is no more, so that
    // the rests of both have as many bytes; that of `to`, if any, is aligned to 16.
    let done = unsafe {
        store_words(to, &from[..first]);
        first + blocks(to.add(first), from.as_ptr().add(first), from.len() - first)
    };
    // SAFETY: `from.len()` bytes at `to` can be written (see # Safety); `done` is no more, and a
    // multiple of 8.
    unsafe { store_words(to.add(done), &from[done..]) };
}

/// As [`store`], word by word.
#[inline]
unsafe fn store_words(to: *mut u8, from: &[u8]) {
    for (i, from) in from.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: the word is inside of the `from.len()` bytes at `to`, aligned, and accessed in
        // whole words only: the contract of [`store`].
        let word = unsafe { AtomicU64::from_ptr(to.add(8 * i).cast()) };
        word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
    }
}

/// Bytes to the next multiple of 16, where blocks begin; there are `len`.
#[inline]
fn to_alignment(shared: *const u8, len: usize) -> usize {
    (shared.addr() & 8).min(len)
}

/// Moves `$len` bytes, a multiple of 64 above 0, and advances both addresses behind them; executes
/// `$ahead` before each block.
macro_rules! blocks_of_64 {
    ($to:ident, $from:ident, $len:expr $(, $ahead:literal)?) => {
        std::arch::asm!(
            "2:",
            $($ahead,)?
            "movups {a}, [{f}]",
            "movups {b}, [{f} + 16]",
            "movups {c}, [{f} + 32]",
            "movups {d}, [{f} + 48]",
            "movups [{t}], {a}",
            "movups [{t} + 16], {b}",
            "movups [{t} + 32], {c}",
            "movups [{t} + 48], {d}",
            "add {f}, 64",
            "add {t}, 64",
            "sub {n}, 64",
            "jnz 2b",
            f = inout(reg) $from,
            t = inout(reg) $to,
            n = inout(reg) $len => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        )
    };
}

/// Fewest bytes for which the source is prefetched: lines that another processor has written take
/// long to arrive, and the hardware prefetcher does not cross a page.
const LONG: usize = 4096;
/// Distance of the prefetch ahead of the copying, within [`blocks`]. Nothing beyond the source's
/// end is prefetched, because another thread may be writing there.
const AHEAD: usize = 1024;

/// Moves as many blocks of 64 bytes as there are in `len`, if that is worth it; returns how many
/// bytes it has moved.
///
/// # Safety
/// `from .. from + len` can be read, `to .. to + len` written. The one that is shared is
/// aligned to 16.
#[inline]
unsafe fn blocks(mut to: *mut u8, mut from: *const u8, len: usize) -> usize {
    if len < BULK {
        return 0;
    }
    let bulk = len & !63;
    let mut left = bulk;
    // SAFETY: `len` bytes at `from` can be read, and at `to` written (see # Safety); `bulk` is no
    // more. Aligned accesses of 16 bytes are whole on every processor with AVX, and their 8-byte
    // halves are on all.
    unsafe {
        if left >= LONG {
            blocks_of_64!(to, from, left - AHEAD, "prefetcht0 [{f} + 1024]");
            left = AHEAD;
        }
        blocks_of_64!(to, from, left);
    }
    let _ = (to, from);
    bulk
}

#[cfg(test)]
mod tests;
