//! A copy that computes the CRC-32 of what it copies.
//!
//! Each byte is loaded once: what is stored is what was counted, also while other threads write to
//! the source. Blocks of 256 bytes stay in registers, and each is multiplied onto the next one
//! (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction",
//! 2009). Of the last one, halves are multiplied onto halves in the same way. What remains is 16
//! bytes with the same CRC as all, which crc32fast computes.

use core::mem::MaybeUninit;

use crc32fast::Hasher;

use super::{Direction, in_order_to};

/// Bytes of one step.
const BLOCK: usize = 256;
/// Bytes that remain.
const REST: usize = 16;
/// x^(n+32) and x^(n-32) modulo the polynomial, for the n = 2,048 bits of a block, of its half, and
/// so on: what the lower and the upper half of 16 bytes are multiplied by to stand for bytes that
/// far behind them. (Bits are reflected, one place higher than in a CRC.)
static ONTO: [[u64; 2]; 5] = [
    [0x1_1542_778a, 0x1_322d_1430],
    [0x1_e88e_f372, 0x1_4a7f_e880],
    [0x1_5444_2bd4, 0x1_c6e4_1596],
    [0x0_f1da_05aa, 0x1_5a54_6366],
    [0x1_7519_97d0, 0x0_ccaa_009e],
];

/// The same for each 32 bytes of a block.
macro_rules! each_of_block {
    ($before:literal, $between:literal, $after:literal) => {
        concat!(
            $before, "0", $between, "0", $after, "\n", $before, "1", $between, "32", $after, "\n",
            $before, "2", $between, "64", $after, "\n", $before, "3", $between, "96", $after, "\n",
            $before, "4", $between, "128", $after, "\n", $before, "5", $between, "160", $after,
            "\n", $before, "6", $between, "192", $after, "\n", $before, "7", $between, "224",
            $after
        )
    };
    (store $before:literal, $between:literal) => {
        concat!(
            $before, "0", $between, "0\n", $before, "32", $between, "1\n", $before, "64", $between,
            "2\n", $before, "96", $between, "3\n", $before, "128", $between, "4\n", $before, "160",
            $between, "5\n", $before, "192", $between, "6\n", $before, "224", $between, "7"
        )
    };
}

/// The product of 32 bytes and the constant, in `ymm8`: what they add to bytes behind them.
macro_rules! product {
    ($register:literal) => {
        concat!(
            "vpclmulqdq ymm8, ymm",
            $register,
            ", ymm11, 0x00\n",
            "vpclmulqdq ymm9, ymm",
            $register,
            ", ymm11, 0x11\n",
            "vpxor ymm8, ymm8, ymm9\n"
        )
    };
}

/// Multiplies 32 bytes onto those of the next block, which are stored on their way.
macro_rules! fold_step {
    ($register:literal, $offset:literal) => {
        concat!(
            product!($register),
            "vmovdqu ymm10, [{f} + ",
            $offset,
            "]\n",
            "vmovdqu [{t} + ",
            $offset,
            "], ymm10\n",
            "vpxor ymm",
            $register,
            ", ymm8, ymm10"
        )
    };
}

/// Multiplies 32 bytes onto others.
macro_rules! fold_onto {
    ($register:literal, $onto:literal) => {
        concat!(product!($register), "vpxor ymm", $onto, ", ymm", $onto, ", ymm8")
    };
}

/// Twelve registers of 32 bytes: eight for a block, two for products, one for what is stored, and
/// the constants.
macro_rules! fold_blocks {
    ($to:expr, $from:expr, $len:expr, $register:expr, $folded:expr) => {
        core::arch::asm!(
            "vbroadcasti128 ymm11, [{k}]",
            "vmovd xmm8, {r:e}",
            each_of_block!("vmovdqu ymm", ", [{f} + ", "]"),
            each_of_block!(store "vmovdqu [{t} + ", "], ymm"),
            // What precedes the first bytes counts with them.
            "vpxor ymm0, ymm0, ymm8",
            "jmp 3f",
            "2:",
            fold_step!(0, 0),
            fold_step!(1, 32),
            fold_step!(2, 64),
            fold_step!(3, 96),
            fold_step!(4, 128),
            fold_step!(5, 160),
            fold_step!(6, 192),
            fold_step!(7, 224),
            "3:",
            "add {f}, 256",
            "add {t}, 256",
            "sub {n}, 256",
            "jnz 2b",
            "vbroadcasti128 ymm11, [{k} + 16]",
            fold_onto!(0, 4),
            fold_onto!(1, 5),
            fold_onto!(2, 6),
            fold_onto!(3, 7),
            "vbroadcasti128 ymm11, [{k} + 32]",
            fold_onto!(4, 6),
            fold_onto!(5, 7),
            "vbroadcasti128 ymm11, [{k} + 48]",
            fold_onto!(6, 7),
            "vmovdqu xmm11, [{k} + 64]",
            "vextracti128 xmm10, ymm7, 1",
            "vpclmulqdq xmm8, xmm7, xmm11, 0x00",
            "vpclmulqdq xmm9, xmm7, xmm11, 0x11",
            "vpxor xmm10, xmm10, xmm8",
            "vpxor xmm10, xmm10, xmm9",
            "vmovdqu [{d}], xmm10",
            "vzeroupper",
            k = in(reg) &raw const ONTO,
            r = in(reg) $register,
            d = in(reg) $folded,
            f = inout(reg) $from => _,
            t = inout(reg) $to => _,
            n = inout(reg) $len => _,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack),
        )
    };
}

/// Reports whether the processor has the instructions of `fold`.
fn folds() -> bool {
    std::is_x86_feature_detected!("vpclmulqdq") && std::is_x86_feature_detected!("avx2")
}

/// Copies `to.len()` bytes, and returns the CRC-32 behind them, if that before them is `crc`.
///
/// # Safety
/// As many bytes can be read from `from` on; other threads write to them with atomic operations
/// only.
pub(crate) unsafe fn summed(to: &mut [u8], from: *const u8, crc: u32) -> u32 {
    // SAFETY: `from` has `to.len()` bytes (see # Safety), and `folds` has checked the processor.
    unsafe { summed_by(to, from, crc, folds()) }
}

/// [`summed`] of bytes of the device, of which there are as many.
pub(crate) fn summed_bytes(to: &mut [u8], from: &[u8], crc: u32) -> u32 {
    let to = &mut to[..from.len()];
    // SAFETY: borrowed, and as long.
    unsafe { summed(to, from.as_ptr(), crc) }
}

/// As [`summed`], by this means.
///
/// # Safety
/// As [`summed`]; and the processor has the instructions, if it `folds`.
unsafe fn summed_by(to: &mut [u8], from: *const u8, mut crc: u32, folds: bool) -> u32 {
    let whole = if folds { to.len() / BLOCK * BLOCK } else { 0 };
    let (blocks, rest) = to.split_at_mut(whole);
    if whole > 0 {
        // SAFETY: `from` has `to.len()` bytes (see # Safety), of which `blocks` is the first part;
        // `folds` is true, so the processor has the instructions.
        let folded = unsafe { fold(blocks, from, crc) };
        // What precedes it counts as nothing.
        crc = sum(&folded, u32::MAX);
    }
    if rest.is_empty() {
        return crc;
    }
    // SAFETY: `from` has `to.len()` bytes (see # Safety), of which `rest` is what follows `whole`.
    unsafe { in_order_to(rest.as_mut_ptr(), from.add(whole), rest.len(), Direction::Pull) };
    sum(rest, crc)
}

/// The CRC-32 behind bytes, if that before them is `crc`.
pub(crate) fn sum(bytes: &[u8], crc: u32) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// Copies whole blocks, at least one, and returns bytes with their CRC.
///
/// # Safety
/// As [`summed`]; the processor has the instructions.
unsafe fn fold(to: &mut [u8], from: *const u8, crc: u32) -> [u8; REST] {
    let mut folded = MaybeUninit::<[u8; REST]>::uninit();
    // SAFETY: `from` has `to.len()` bytes, and the processor has the instructions (see # Safety).
    // The loop moves by whole blocks, of which there are as many as it counts; all of `folded` is
    // written; all registers that change are declared.
    unsafe {
        fold_blocks!(to.as_mut_ptr(), from, to.len(), !crc, folded.as_mut_ptr());
        folded.assume_init()
    }
}

#[cfg(test)]
mod tests;
