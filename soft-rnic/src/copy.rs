//! Moving bytes.
//!
//! All of it is inline assembly, whose accesses are the processor's own: another access to the
//! bytes meanwhile is no data race in Rust's terms. No look at a key could rule that out: the
//! bytes of a region that no peer may access can be registered a second time, or be mapped at a
//! second address, and written to by peers there.
//!
//! Buffers of sends and receives belong to the device while they are posted: [`owned`] copies them
//! in any order. The targets of one-sided operations do not: the program may poll them, or write
//! what a peer reads, with atomic accesses. [`in_order`] is for those. It stores from the first
//! byte to the last, so that a thread that sees a byte sees all before it (what
//! `ibv_query_qp_data_in_order` promises), and an aligned word of eight bytes is never torn when
//! source and target are aligned alike.
//!
//! Stores of x86-64 become visible in program order. String instructions are the exception to that
//! rule, so that [`in_order`] does not use them. Long copies store as many bytes at a time as the
//! processor stores in one piece ([`Width`]).

mod summed;
mod width;

pub(crate) use summed::{sum, summed, summed_bytes};
use width::Width;

/// Says that a cache line will be read soon. A hint: any address is fine.
#[inline(always)]
pub(crate) fn will_read(line: *const u8) {
    // SAFETY: the instruction accesses nothing that the program can see, and
    // ignores addresses without memory.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
}

/// Says that a cache line will be written soon. A hint: any address is fine.
#[inline(always)]
pub(crate) fn will_write(line: *const u8) {
    // SAFETY: as in `will_read`; processors without the instruction skip it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
}

/// Copies between buffers where no thread reads a partial copy. They may overlap: that is a
/// mistake of the application, which must not become undefined behaviour here.
///
/// # Safety
/// `from .. from + len` can be read, `to .. to + len` written; threads of the program access either
/// with atomic operations only, or not at all.
#[inline]
pub(crate) unsafe fn owned(to: *mut u8, from: *const u8, len: usize) {
    use core::arch::asm;
    // Small messages are moved in two pieces that overlap in the middle: no call,
    // no loop. All is loaded before anything is stored.
    // SAFETY: `from` can be read and `to` written for `len` bytes (see # Safety). Each access lies
    // within the first or the last part of `len` bytes, and the assembly changes no register but
    // those that it declares.
    unsafe {
        match len {
            0 => {}
            1 => asm!(
                "movzx {f:e}, byte ptr [{f}]",
                "mov byte ptr [{t}], {f:l}",
                f = inout(reg) from => _, t = in(reg) to,
                options(nostack, preserves_flags)
            ),
            2..=3 => asm!(
                "movzx {b:e}, byte ptr [{f} + {n} - 1]",
                "movzx {f:e}, word ptr [{f}]",
                "mov word ptr [{t}], {f:x}",
                "mov byte ptr [{t} + {n} - 1], {b:l}",
                b = out(reg) _, f = inout(reg) from => _, t = in(reg) to, n = in(reg) len,
                options(nostack, preserves_flags)
            ),
            4..=7 => asm!(
                "mov {b:e}, [{f} + {n} - 4]",
                "mov {f:e}, [{f}]",
                "mov [{t}], {f:e}",
                "mov [{t} + {n} - 4], {b:e}",
                b = out(reg) _, f = inout(reg) from => _, t = in(reg) to, n = in(reg) len,
                options(nostack, preserves_flags)
            ),
            8..=15 => asm!(
                "mov {b}, [{f} + {n} - 8]",
                "mov {f}, [{f}]",
                "mov [{t}], {f}",
                "mov [{t} + {n} - 8], {b}",
                b = out(reg) _, f = inout(reg) from => _, t = in(reg) to, n = in(reg) len,
                options(nostack, preserves_flags)
            ),
            16..=32 => asm!(
                "movups {a}, [{f}]",
                "movups {b}, [{f} + {n} - 16]",
                "movups [{t}], {a}",
                "movups [{t} + {n} - 16], {b}",
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                f = in(reg) from, t = in(reg) to, n = in(reg) len,
                options(nostack, preserves_flags)
            ),
            _ => by_call(to, from, len),
        }
    }
}

/// The C library's move. The call is assembly as well: the compiler would take it for accesses of
/// this program's.
///
/// # Safety
/// As [`owned`].
#[inline(always)]
unsafe fn by_call(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: `from` and `to` have `len` bytes (see # Safety of `owned`); `memmove` keeps to the C
    // ABI, and the stack is aligned for it.
    unsafe {
        core::arch::asm!(
            "call {memmove}@PLT",
            memmove = sym libc::memmove,
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rdx") len => _,
            clobber_abi("C"),
        );
    }
}

/// Stores a word.
///
/// # Safety
/// Eight bytes can be written at `to`.
#[inline(always)]
pub(crate) unsafe fn put_word(to: *mut u8, word: u64) {
    // SAFETY: eight bytes can be written at `to` (see # Safety); nothing but these bytes is
    // written.
    unsafe {
        core::arch::asm!("mov [{t}], {w}", t = in(reg) to, w = in(reg) word, options(nostack, preserves_flags));
    }
}

/// Direction of a copy, which decides what a long copy prefetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To this process's own memory: the source is mostly a peer's.
    Pull,
    /// To a peer's memory. Its lines are left to it until they are stored to.
    Push,
}

/// Copies to or from memory that the program accesses meanwhile: in order, the
/// last byte last (with release), aligned words whole.
///
/// # Safety
/// `from .. from + len` can be read, `to .. to + len` written; other threads
/// access either with atomic operations only.
#[inline]
pub(crate) unsafe fn in_order(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: `from` and `to` have `len` bytes, which others access atomically only (see # Safety).
    unsafe { in_order_to(to, from, len, Direction::Pull) }
}

/// As [`in_order`], for copies that may be long.
///
/// # Safety
/// As [`in_order`].
#[inline]
pub(crate) unsafe fn in_order_to(to: *mut u8, from: *const u8, len: usize, direction: Direction) {
    // SAFETY: `from` and `to` are as `in_order` asks (see # Safety), and `of_this_processor`
    // returns a width that this processor has.
    unsafe { in_order_by(to, from, len, direction, Width::of_this_processor) }
}

/// As [`in_order_to`], with stores as wide as `width` says if the copy is long.
///
/// # Safety
/// As [`in_order`], and the processor has the instructions of that width.
#[inline(always)]
unsafe fn in_order_by(
    mut to: *mut u8,
    mut from: *const u8,
    mut len: usize,
    direction: Direction,
    width: impl FnOnce() -> Width,
) {
    // SAFETY: every step stays within what is left.
    unsafe {
        // A few whole words: a counter with its checksum, a short message.
        if len <= 64 && (to.addr() | len).is_multiple_of(8) {
            while len > 0 {
                store(to, from, 8);
                (to, from, len) = (to.add(8), from.add(8), len - 8);
            }
            return;
        }
        // Up to the first address where the big steps are aligned.
        let alignment = if len >= LONG { LINE } else { 16 };
        while len > 0 && !to.addr().is_multiple_of(alignment) {
            let n = step(to, len);
            store(to, from, n);
            (to, from, len) = (to.add(n), from.add(n), len - n);
        }
        let bulk = len & !(LINE - 1);
        if bulk > 0 {
            blocks(to, from, bulk, direction, width);
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

/// Stores `n` = 1, 2, 4 or 8 bytes at an aligned address.
///
/// # Safety
/// `n` bytes can be read at `from` and written at `to`; other threads access them with atomic
/// operations only.
#[inline]
unsafe fn store(to: *mut u8, from: *const u8, n: usize) {
    use core::arch::asm;
    // SAFETY: `from` and `to` have `n` bytes (see # Safety); the assembly touches these bytes and
    // one register. It is no `nomem`, so the compiler keeps its order.
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

/// Bytes of a cache line, and of the blocks of a copy.
const LINE: usize = 64;

/// Length from which a copy uses the widest stores, and prefetches its source: lines that another
/// processor wrote take long to arrive, and the hardware prefetcher does not cross a page.
const LONG: usize = 4096;

/// A loop over `$len` bytes, more than none and a multiple of `$step`, that leaves both
/// addresses behind them. `$ahead` prefetches the source.
///
/// `$register` are the vector registers that it changes. A function without AVX or AVX-512 may
/// declare them as well: for the compiler, which does not use the upper parts there, they are
/// the lower parts.
macro_rules! move_blocks {
    (
        $to:ident, $from:ident, $len:expr, $step:literal,
        [$($ahead:literal),*], [$($move:literal),+], [$($register:tt),*] $(, $clean_up:literal)?
    ) => {
        core::arch::asm!(
            "2:",
            $($ahead,)*
            $($move,)+
            concat!("add {f}, ", $step),
            concat!("add {t}, ", $step),
            concat!("sub {n}, ", $step),
            "jnz 2b",
            $($clean_up,)?
            f = inout(reg) $from,
            t = inout(reg) $to,
            n = inout(reg) $len => _,
            $(out($register) _,)*
            options(nostack),
        )
    };
}

/// 64 bytes at a time in four stores of 16.
macro_rules! move_by_16 {
    ($to:ident, $from:ident, $len:expr, [$($ahead:literal),*]) => {
        move_blocks!(
            $to, $from, $len, 64, [$($ahead),*],
            [
                "movups xmm0, [{f}]",
                "movups xmm1, [{f} + 16]",
                "movups xmm2, [{f} + 32]",
                "movups xmm3, [{f} + 48]",
                "movaps [{t}], xmm0",
                "movaps [{t} + 16], xmm1",
                "movaps [{t} + 32], xmm2",
                "movaps [{t} + 48], xmm3"
            ],
            ["xmm0", "xmm1", "xmm2", "xmm3"]
        )
    };
}

/// 128 bytes at a time in four stores of 32. `vzeroupper` changes the upper halves of the first
/// sixteen registers, so that all of them are declared.
macro_rules! move_by_32 {
    ($to:ident, $from:ident, $len:expr, [$($ahead:literal),*]) => {
        move_blocks!(
            $to, $from, $len, 128, [$($ahead),*],
            [
                "vmovdqu ymm0, [{f}]",
                "vmovdqu ymm1, [{f} + 32]",
                "vmovdqu ymm2, [{f} + 64]",
                "vmovdqu ymm3, [{f} + 96]",
                "vmovdqa [{t}], ymm0",
                "vmovdqa [{t} + 32], ymm1",
                "vmovdqa [{t} + 64], ymm2",
                "vmovdqa [{t} + 96], ymm3"
            ],
            [
                "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
                "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15"
            ],
            "vzeroupper"
        )
    };
}

/// 256 bytes at a time in four stores of 64. The registers are those that no instruction without
/// AVX-512 reaches: their upper halves slow none down, and need not be zeroed.
macro_rules! move_by_64 {
    ($to:ident, $from:ident, $len:expr, [$($ahead:literal),*]) => {
        move_blocks!(
            $to, $from, $len, 256, [$($ahead),*],
            [
                "vmovdqu64 zmm16, [{f}]",
                "vmovdqu64 zmm17, [{f} + 64]",
                "vmovdqu64 zmm18, [{f} + 128]",
                "vmovdqu64 zmm19, [{f} + 192]",
                "vmovdqa64 [{t}], zmm16",
                "vmovdqa64 [{t} + 64], zmm17",
                "vmovdqa64 [{t} + 128], zmm18",
                "vmovdqa64 [{t} + 192], zmm19"
            ],
            ["zmm16", "zmm17", "zmm18", "zmm19"]
        )
    };
}

/// Moves `len` bytes, a multiple of 64.
///
/// # Safety
/// As [`in_order_by`]; `to` is aligned to 16, and to a line from [`LONG`] bytes on.
#[inline]
unsafe fn blocks(
    mut to: *mut u8,
    mut from: *const u8,
    mut len: usize,
    direction: Direction,
    width: impl FnOnce() -> Width,
) {
    // SAFETY: `from` and `to` have `len` bytes, and `to` is aligned (see # Safety); `long_blocks`
    // moves less than `len`, a multiple of 64, and what is left is one as well. Aligned 16-byte
    // stores are whole on every processor with AVX, and their 8-byte halves are on all.
    unsafe {
        if len >= LONG {
            let moved = long_blocks(to, from, len, width(), direction);
            (to, from, len) = (to.add(moved), from.add(moved), len - moved);
        }
        if len > 0 {
            move_by_16!(to, from, len, []);
        }
    }
    let _ = (to, from);
}

/// Copies a source of [`LONG`] bytes or more except its end, so that nothing beyond the source is
/// prefetched: a peer may be writing there. The distances are the best of those tried between two
/// cores of an AMD EPYC (16 bytes) and an Intel Xeon (64 bytes). Returns the number of bytes that
/// it moved.
///
/// # Safety
/// As [`in_order`]; `len` is [`LONG`] at least, `to` is aligned to a line, and the processor has
/// the instructions of `width`.
#[inline(never)]
unsafe fn long_blocks(
    mut to: *mut u8,
    mut from: *const u8,
    len: usize,
    width: Width,
    direction: Direction,
) -> usize {
    let ahead = if width == Width::Bytes16 { 1024 } else { 2048 };
    let moved = (len - ahead) & !255;
    // SAFETY: `from` and `to` have `len` bytes, `to` is aligned, and the processor has the
    // instructions of `width` (see # Safety). Both addresses move by `moved`, less than `len`; each
    // block declares all registers that it changes, and stores to multiples of its store's size.
    unsafe {
        match width {
            Width::Bytes16 => move_by_16!(to, from, moved, ["prefetcht0 [{f} + 1024]"]),
            Width::Bytes32 => {
                move_by_32!(to, from, moved, ["prefetcht2 [{f} + 2048]", "prefetcht2 [{f} + 2112]"])
            }
            Width::Bytes64 if direction == Direction::Pull => move_by_64!(
                to,
                from,
                moved,
                [
                    "prefetcht2 [{f} + 2048]",
                    "prefetchw [{t} + 1024]",
                    "prefetcht2 [{f} + 2112]",
                    "prefetchw [{t} + 1088]",
                    "prefetcht2 [{f} + 2176]",
                    "prefetchw [{t} + 1152]",
                    "prefetcht2 [{f} + 2240]",
                    "prefetchw [{t} + 1216]"
                ]
            ),
            Width::Bytes64 => move_by_64!(
                to,
                from,
                moved,
                [
                    "prefetcht2 [{f} + 2048]",
                    "prefetcht2 [{f} + 2112]",
                    "prefetcht2 [{f} + 2176]",
                    "prefetcht2 [{f} + 2240]"
                ]
            ),
        }
    }
    let _ = (to, from);
    moved
}

#[cfg(test)]
mod tests;
