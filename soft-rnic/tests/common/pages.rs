//! Memory whose pages are removed and restored, and regions that permit it.

use core::ffi::c_void;

use super::*;

pub const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;

/// Bytes of a page, on the machines that the device runs on.
pub const PAGE: usize = 4096;

/// Pages of this process.
pub struct MappedPages {
    pub at: *mut u8,
    pub n: usize,
}

// SAFETY: addresses; the tests order their accesses.
unsafe impl Send for MappedPages {}
// SAFETY: `at` is an address; the tests order their accesses.
unsafe impl Sync for MappedPages {}

const RW_PAGE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Far below where the kernel puts what has no address: a hole stays one.
fn next_place() -> *mut u8 {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 44);
    NEXT.fetch_add(1 << 30, Ordering::Relaxed) as *mut u8
}

impl MappedPages {
    /// Anonymous memory.
    pub fn new(n: usize) -> MappedPages {
        let pages = MappedPages { at: next_place(), n };
        pages.map_at(0, n, ANONYMOUS | libc::MAP_FIXED_NOREPLACE, -1);
        pages
    }

    /// Maps a file, from its first byte on.
    pub fn map_file(file: &impl std::os::fd::AsRawFd, n: usize) -> MappedPages {
        let pages = MappedPages { at: next_place(), n };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        pages.map_at(0, n, flags, file.as_raw_fd());
        pages
    }

    /// Has accesses to pages that hold nothing yet wait until what this returns is dropped.
    pub fn hold_back(&self) -> Option<std::os::fd::OwnedFd> {
        super::held_back::hold_back(self.addr(0), (self.n * PAGE) as u64)
    }

    fn map_at(&self, first: usize, n: usize, flags: c_int, fd: c_int) {
        let at = self.addr(first * PAGE) as *mut c_void;
        // SAFETY: a new mapping, or one in the place of pages of ours.
        let mapped = unsafe { libc::mmap(at, n * PAGE, RW_PAGE, flags, fd, 0) };
        assert_eq!(mapped, at);
    }

    pub fn addr(&self, offset: usize) -> u64 {
        self.at.wrapping_add(offset) as u64
    }

    /// A page is gone.
    pub fn unmap(&self, page: usize) {
        // SAFETY: a page of ours.
        unsafe { assert_eq!(libc::munmap(self.addr(page * PAGE) as *mut c_void, PAGE), 0) };
    }

    /// A new page is there, in the place of what was.
    pub fn map(&self, page: usize) {
        self.map_at(page, 1, ANONYMOUS | libc::MAP_FIXED, -1);
    }

    pub fn protect(&self, page: usize, prot: c_int) {
        let at = self.addr(page * PAGE) as *mut c_void;
        // SAFETY: a page of ours.
        unsafe { assert_eq!(libc::mprotect(at, PAGE, prot), 0) };
    }

    pub fn make_writable(&self, page: usize) {
        self.protect(page, RW_PAGE);
    }

    /// Writes to pages that are there.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        // SAFETY: within the pages.
        unsafe { self.at.add(offset).write_bytes(byte, len) };
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        // SAFETY: within the pages.
        unsafe { core::slice::from_raw_parts(self.at.add(offset), len).to_vec() }
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.at.cast(), self.n * PAGE) };
    }
}

/// Returns the configuration of queue pairs with requests that reach on-demand memory: on a
/// network, a page that has to be paged in first is answered as a missing receive request is.
pub fn waits_for_pages() -> ConnectConfig {
    ConnectConfig::PATIENT
}

/// Registers addresses, with or without memory behind them; or the errno.
pub fn register(net: &Net, (addr, len): (u64, usize), access: u32) -> Result<*mut ibv_mr, c_int> {
    // SAFETY: the domain is alive; the memory is the test's, if there is any.
    let mr = unsafe { (net.v.reg_mr)(net.pd, addr as *mut c_void, len, access as c_int) };
    if mr.is_null() { Err(errno()) } else { Ok(mr) }
}

/// An on-demand region of all pages.
pub fn explicit(net: &Net, pages: &MappedPages, access: u32) -> *mut ibv_mr {
    register(net, (pages.addr(0), pages.n * PAGE), access | ON_DEMAND).unwrap()
}

/// One of all addresses.
pub fn implicit(net: &Net, access: u32) -> *mut ibv_mr {
    register(net, (0, usize::MAX), access | ON_DEMAND).unwrap()
}

/// `len` bytes of pages, by the key of a region.
pub fn piece(pages: &MappedPages, mr: *mut ibv_mr, offset: usize, len: u32) -> ibv_sge {
    // SAFETY: the region is alive.
    ibv_sge { addr: pages.addr(offset), length: len, lkey: unsafe { (*mr).lkey } }
}

/// An operation on memory at a place that the peer has registered.
pub fn rdma_wr(opcode: ibv_wr_opcode, sges: &mut [ibv_sge], to: ibv_sge) -> ibv_send_wr {
    let mut wr = send_wr(1, opcode, sges, SIGNALED);
    let (remote_addr, rkey) = (to.addr, to.lkey);
    if is_atomic(opcode) {
        let (compare_add, swap) = (5, 9);
        wr.wr.atomic =
            ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
    } else {
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    }
    wr
}

pub fn is_atomic(opcode: ibv_wr_opcode) -> bool {
    use ibv_wr_opcode as W;
    [W::IBV_WR_ATOMIC_FETCH_AND_ADD, W::IBV_WR_ATOMIC_CMP_AND_SWP].contains(&opcode)
}

/// Advice about pieces of regions of a domain; the errno.
pub fn advise(net: &Net, pd: *mut ibv_pd, advice: u32, flags: u32, list: &mut [ibv_sge]) -> c_int {
    let advise = later(net.ctx).advise_mr.unwrap();
    let advice = ib_uverbs_advise_mr_advice(advice);
    // SAFETY: the domain is alive, and the list as long as it says.
    unsafe { advise(pd, advice, flags, list.as_mut_ptr(), list.len() as u32) }
}
