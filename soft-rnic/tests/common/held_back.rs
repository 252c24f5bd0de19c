//! Memory that has its readers and writers wait (`userfaultfd`).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The kernel's `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// The kernel's `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

const UFFDIO_API: u64 = 3 << 30 | (size_of::<Api>() as u64) << 16 | 0xaa << 8 | 0x3f;
const UFFDIO_REGISTER: u64 = 3 << 30 | (size_of::<Register>() as u64) << 16 | 0xaa << 8;
const MISSING: u64 = 1;

/// Has accesses to pages that hold nothing yet wait until what this returns is dropped: they are zeroes then.
/// They begin at an address, and are private. `None` where the system does not have it, or does not let this
/// user.
pub(crate) fn hold_back(start: u64, len: u64) -> Option<OwnedFd> {
    // SAFETY: the call makes a descriptor.
    let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    if faults < 0 {
        let error = std::io::Error::last_os_error();
        let is_wanted = std::env::var_os("SOFT_RNIC_SKIPS_NOTHING").is_some();
        assert!(
            !is_wanted,
            "no userfaultfd: {error} (root has it, or vm.unprivileged_userfaultfd)"
        );
        eprintln!("skipped: no userfaultfd ({error})");
        return None;
    }
    // SAFETY: it is new, and no other value owns it.
    let faults = unsafe { OwnedFd::from_raw_fd(faults as i32) };
    let mut api = Api { api: 0xaa, features: 0, ioctls: 0 };
    let mut register = Register { start, len, mode: MISSING, ioctls: 0 };
    // SAFETY: the structures that the calls take; the memory is the test's.
    unsafe {
        assert_eq!(libc::ioctl(faults.as_raw_fd(), UFFDIO_API as _, &raw mut api), 0);
        assert_eq!(libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER as _, &raw mut register), 0);
    }
    Some(faults)
}
