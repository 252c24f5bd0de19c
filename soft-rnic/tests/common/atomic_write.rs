//! Atomic writes, and what threads see of them.

use core::sync::atomic::{AtomicU64, Ordering};

use super::*;

pub const ATOMIC_WRITE: ibv_wr_opcode = ibv_wr_opcode::IBV_WR_ATOMIC_WRITE;

/// A request to write what `sges` have.
pub fn request(sges: &mut [ibv_sge], remote_addr: u64, rkey: u32) -> ibv_send_wr {
    let mut wr = send_wr(1, ATOMIC_WRITE, sges, SIGNALED);
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    wr
}

/// A word that others write.
///
/// # Safety
/// `at` is aligned, and alive as long as the reference is used.
pub unsafe fn word<'a>(at: u64) -> &'a AtomicU64 {
    // SAFETY: `at` is aligned, and alive as long as the reference is used (see # Safety).
    unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(at as usize)) }
}

/// A number whose halves are the same.
pub fn doubled(n: u32) -> u64 {
    u64::from(n) << 32 | u64::from(n)
}

/// Reads a word until it is `rounds`, doubled: each value is there as a whole, none before another
/// one that was written before it.
pub fn watch(word: &AtomicU64, rounds: u32) {
    let mut last = 0;
    while last != rounds {
        let seen = word.load(Ordering::Acquire);
        assert_eq!(seen >> 32, seen & 0xffff_ffff, "{seen:#x} is half of one");
        assert!(seen as u32 >= last, "{seen:#x} after {last:#x}");
        last = seen as u32;
    }
}
