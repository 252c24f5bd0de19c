//! Moving bytes.
//!
//! Buffers of sends and receives belong to the device while they are posted: a
//! plain copy does. The targets of one-sided operations do not: the program may
//! poll them, or write what a peer reads, with atomic accesses. [`in_order`] is
//! for those. It stores from the first byte to the last, so that whoever sees a
//! byte sees all before it (what `ibv_query_qp_data_in_order` promises), and an
//! aligned word of eight bytes is never torn when source and target are aligned
//! alike.
//!
//! On x86-64 the copy is inline assembly: its accesses are the processor's own,
//! and stores there become visible in program order. String instructions are not
//! used, because their stores are the exception to that rule. Elsewhere every
//! piece is stored with release.

/// Says that a cache line will be read soon. A hint: any address is fine.
#[inline(always)]
pub(crate) fn will_read(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction accesses nothing that the program can see, and
    // ignores addresses without memory.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Says that a cache line will be written soon. A hint: any address is fine.
#[inline(always)]
pub(crate) fn will_write(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `will_read`; processors without the instruction skip it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Copies between buffers that nobody else accesses. They may overlap (that is
/// the program's mistake, but must not be ours).
///
/// # Safety
/// `from .. from + len` can be read, `to .. to + len` written.
#[inline]
pub(crate) unsafe fn owned(to: *mut u8, from: *const u8, len: usize) {
    // Small messages are moved in two pieces that overlap in the middle: no call,
    // no loop. All is loaded before anything is stored.
    // SAFETY: each access lies within the first or the last part of `len` bytes.
    unsafe {
        match len {
            0 => {}
            1..=3 => {
                let (a, b, c) = (*from, *from.add(len / 2), *from.add(len - 1));
                *to = a;
                *to.add(len / 2) = b;
                *to.add(len - 1) = c;
            }
            4..=7 => ends::<u32>(to, from, len),
            8..=15 => ends::<u64>(to, from, len),
            16..=32 => ends::<u128>(to, from, len),
            _ => core::ptr::copy(from, to, len),
        }
    }
}

/// Moves the first and the last `T` of `len` bytes.
///
/// # Safety
/// As [`owned`], and `size_of::<T>() <= len`.
#[inline(always)]
unsafe fn ends<T: Copy>(to: *mut u8, from: *const u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both lie within `len` bytes.
    unsafe {
        let a = from.cast::<T>().read_unaligned();
        let b = from.add(last).cast::<T>().read_unaligned();
        to.cast::<T>().write_unaligned(a);
        to.add(last).cast::<T>().write_unaligned(b);
    }
}

/// Copies to or from memory that the program accesses meanwhile: in order, the
/// last byte last (with release), aligned words whole.
///
/// # Safety
/// `from .. from + len` can be read, `to .. to + len` written; other threads
/// access either with atomic operations only.
#[inline]
pub(crate) unsafe fn in_order(mut to: *mut u8, mut from: *const u8, mut len: usize) {
    // SAFETY: every step stays within what is left.
    unsafe {
        // A few whole words: a counter with its seal, a short message.
        if len <= 64 && (to.addr() | len).is_multiple_of(8) {
            while len > 0 {
                store(to, from, 8);
                (to, from, len) = (to.add(8), from.add(8), len - 8);
            }
            return;
        }
        // Up to the first address where the big steps are aligned.
        while len > 0 && !to.addr().is_multiple_of(16) {
            let n = step(to, len);
            store(to, from, n);
            (to, from, len) = (to.add(n), from.add(n), len - n);
        }
        let bulk = len & !63;
        if bulk > 0 {
            blocks(to, from, bulk);
            (to, from, len) = (to.add(bulk), from.add(bulk), len - bulk);
        }
        while len > 0 {
            let n = step(to, len);
            store(to, from, n);
            (to, from, len) = (to.add(n), from.add(n), len - n);
        }
    }
}

/// The largest power of two, up to 8, that is aligned at `to` and not over `len`.
#[inline]
fn step(to: *mut u8, len: usize) -> usize {
    let aligned = 1 << (to.addr() | 8).trailing_zeros();
    let fits = 1 << (usize::BITS - 1 - len.leading_zeros());
    if aligned < fits { aligned } else { fits }
}

/// One store of `n` = 1, 2, 4 or 8 bytes at an aligned address.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn store(to: *mut u8, from: *const u8, n: usize) {
    use core::arch::asm;
    // SAFETY: the caller's promise; the assembly touches these bytes and one
    // register. It is no `nomem`, so the compiler keeps its order.
    unsafe {
        match n {
            8 => {
                asm!("mov {r}, [{f}]", "mov [{t}], {r}", r = out(reg) _, f = in(reg) from, t = in(reg) to, options(nostack, preserves_flags))
            }
            4 => {
                asm!("mov {r:e}, [{f}]", "mov [{t}], {r:e}", r = out(reg) _, f = in(reg) from, t = in(reg) to, options(nostack, preserves_flags))
            }
            2 => {
                asm!("mov {r:x}, [{f}]", "mov [{t}], {r:x}", r = out(reg) _, f = in(reg) from, t = in(reg) to, options(nostack, preserves_flags))
            }
            _ => {
                asm!("mov {r}, [{f}]", "mov [{t}], {r}", r = out(reg_byte) _, f = in(reg) from, t = in(reg) to, options(nostack, preserves_flags))
            }
        }
    }
}

/// Moves `$len` bytes, more than none and a multiple of 64, and both addresses behind them;
/// before each block it does what else is said.
#[cfg(target_arch = "x86_64")]
macro_rules! blocks_of_64 {
    ($to:ident, $from:ident, $len:expr $(, $ahead:literal)?) => {
        core::arch::asm!(
            "2:",
            $($ahead,)?
            "movups {a}, [{f}]",
            "movups {b}, [{f} + 16]",
            "movups {c}, [{f} + 32]",
            "movups {d}, [{f} + 48]",
            "movaps [{t}], {a}",
            "movaps [{t} + 16], {b}",
            "movaps [{t} + 32], {c}",
            "movaps [{t} + 48], {d}",
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

/// From how many bytes on the source is fetched ahead: what another processor has written
/// comes from far, and no processor looks beyond a page by itself.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 4096;
/// How far ahead: the distance within [`blocks`]. Behind the source nothing is fetched, where
/// somebody may be writing.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 1024;

/// `len` bytes, a multiple of 64, to a target aligned to 16.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn blocks(mut to: *mut u8, mut from: *const u8, mut len: usize) {
    // SAFETY: the caller's promise. Aligned 16-byte stores are whole on every
    // processor with AVX, and their 8-byte halves are on all.
    unsafe {
        if len >= LONG {
            blocks_of_64!(to, from, len - AHEAD, "prefetcht0 [{f} + 1024]");
            len = AHEAD;
        }
        blocks_of_64!(to, from, len);
    }
    let _ = (to, from);
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn store(to: *mut u8, from: *const u8, n: usize) {
    use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
    macro_rules! one {
        ($atomic:ty, $int:ty) => {{
            let value = if from.addr().is_multiple_of(size_of::<$int>()) {
                // SAFETY: aligned, and the caller's promise.
                unsafe { <$atomic>::from_ptr(from.cast_mut().cast()) }.load(Ordering::Relaxed)
            } else {
                // SAFETY: each byte can be read.
                <$int>::from_ne_bytes(core::array::from_fn(|i| {
                    unsafe { AtomicU8::from_ptr(from.add(i).cast_mut()) }.load(Ordering::Relaxed)
                }))
            };
            // Release: after everything before it.
            // SAFETY: aligned (see `step`), and the caller's promise.
            unsafe { <$atomic>::from_ptr(to.cast()) }.store(value, Ordering::Release);
        }};
    }
    match n {
        8 => one!(AtomicU64, u64),
        4 => one!(AtomicU32, u32),
        2 => one!(AtomicU16, u16),
        _ => one!(AtomicU8, u8),
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn blocks(to: *mut u8, from: *const u8, len: usize) {
    for at in (0..len).step_by(8) {
        // SAFETY: within `len`, aligned to 8.
        unsafe { store(to.add(at), from.add(at), 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies every length and alignment and looks at what is around, too.
    fn check(copy: unsafe fn(*mut u8, *const u8, usize)) {
        let source: Vec<u8> = (0..400_u32).map(|i| (i * 7 + 1) as u8).collect();
        for len in (0..80).chain([127, 128, 129, 255, 300]) {
            for (t, f) in (0..17).flat_map(|t| (0..17).map(move |f| (t, f))) {
                let mut target = [0xee_u8; 400];
                // SAFETY: 17 + 300 < 400.
                unsafe { copy(target.as_mut_ptr().add(t), source.as_ptr().add(f), len) };
                assert_eq!(&target[t..t + len], &source[f..f + len], "{len} {t} {f}");
                assert!(target[..t].iter().chain(&target[t + len..]).all(|&b| b == 0xee));
            }
        }
    }

    #[test]
    fn both_copies_move_exactly_the_bytes() {
        check(owned);
        check(in_order);
    }

    #[test]
    fn long_copies_move_exactly_the_bytes_too() {
        let source: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in [4095, 4096, 4159, 4160, 4161, 8192, 19_000] {
            for (t, f) in [(0, 0), (0, 5), (8, 8), (9, 3), (16, 1)] {
                let mut target = vec![0xee_u8; 20_000];
                // SAFETY: 16 + 19,000 < 20,000.
                unsafe { in_order(target.as_mut_ptr().add(t), source.as_ptr().add(f), len) };
                assert!(target[t..t + len] == source[f..f + len], "{len} {t} {f}");
                assert!(target[..t].iter().chain(&target[t + len..]).all(|&b| b == 0xee));
            }
        }
    }

    #[test]
    fn an_overlapping_copy_is_a_move() {
        for len in [5, 20, 40] {
            let mut bytes: Vec<u8> = (0..64).collect();
            let expected: Vec<u8> = bytes[..len].to_vec();
            // SAFETY: 3 + 40 < 64.
            unsafe { owned(bytes.as_mut_ptr().add(3), bytes.as_ptr(), len) };
            assert_eq!(bytes[3..3 + len], expected);
        }
    }

    /// A page in the middle of the target stops the copy: all before it has been
    /// stored then, and nothing behind it.
    #[test]
    #[cfg(target_os = "linux")]
    fn nothing_is_stored_before_what_comes_earlier() {
        let page = rustix::param::page_size();
        for (before, after) in [(page, page), (100, 7), (7, 100), (1, 1)] {
            let pages = Pages::new(3 * page);
            let source = vec![0x55_u8; page + before + after];
            let to = pages.0.wrapping_add(page - before);
            // SAFETY: our own mapping; the child does nothing but copy and end.
            unsafe {
                assert_eq!(libc::mprotect(pages.0.add(page).cast(), page, libc::PROT_NONE), 0);
                let child = libc::fork();
                if child == 0 {
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    in_order(to, source.as_ptr(), source.len());
                    libc::_exit(0);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert!(libc::WIFSIGNALED(status), "the page stopped it");
                let first = core::slice::from_raw_parts(to, before);
                let last = core::slice::from_raw_parts(pages.0.add(2 * page), page);
                assert!(first.iter().all(|&b| b == 0x55), "{before}");
                assert!(last.iter().all(|&b| b == 0), "{after}");
            }
        }
    }

    /// Shared memory, so that a parent sees what its child did.
    struct Pages(*mut u8, usize);

    impl Pages {
        fn new(len: usize) -> Pages {
            let (prot, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping.
            let ptr = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
            assert_ne!(ptr, libc::MAP_FAILED);
            Pages(ptr.cast(), len)
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: our own mapping.
            unsafe { libc::munmap(self.0.cast(), self.1) };
        }
    }
}
