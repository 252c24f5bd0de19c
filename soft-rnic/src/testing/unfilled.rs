//! Memory that its readers wait for.

use core::ptr::null_mut;
use std::os::fd::OwnedFd;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

#[path = "../../tests/common/held_back.rs"]
mod held_back;

/// A page of this process. Its readers wait until it is filled: no thread handles its faults.
pub(crate) struct Unfilled {
    faults: OwnedFd,
    at: u64,
}

impl Unfilled {
    /// None where the system does not have it, or does not let this user.
    pub(crate) fn new() -> Option<Unfilled> {
        let page = rustix::param::page_size();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which stays.
        let at = unsafe { mmap_anonymous(null_mut(), page, prot, MapFlags::PRIVATE) }.unwrap();
        let at = at.expose_provenance() as u64;
        Some(Unfilled { faults: held_back::hold_back(at, page as u64)?, at })
    }

    pub(crate) fn addr(&self) -> u64 {
        self.at
    }

    /// Readers that wait continue: the page is one of zeroes now.
    pub(crate) fn fill(self) {
        drop(self.faults);
    }
}
