//! `soft0` behind the symbols of libibverbs.so.1: verbs programs that are not written for it use it
//! unmodified.
//!
//! The library has the SONAME, the version nodes and all default-version symbols of rdma-core 44's
//! libibverbs.so.1. It is preloaded, or stands in a folder of `LD_LIBRARY_PATH` as
//! `libibverbs.so.1`; `rdma-conn soft -- COMMAND` does the former. A program that runs under it
//!
//! 1. finds the devices of [`soft_rnic::table`], and none of the kernel's;
//! 2. creates objects through `device`, which forwards to that table;
//! 3. posts and polls through `context->ops`, as under rdma-core, past this crate.
//!
//! **Contract: a symbol that the library exports answers.** What `soft0` offers is forwarded, what
//! needs no device is done here, and everything else fails with `EOPNOTSUPP`: never with 0, which
//! makes callers spin, and never by a missing symbol, which ends programs when they are loaded.
//!
//! | modules | |
//! |---|---|
//! | `exports` | which function is which symbol, and of which version |
//! | `device` | what `soft_rnic` does: more functions of the device are added here |
//! | `events` | the waits for events |
//! | `gids`, `address`, `rate`, `names` | what libibverbs does without a device, or by asking one |
//! | `kernel_structs`, `fork`, `sysfs` | the same |
//! | `unsupported` | what is for providers of rdma-core, or not offered |
//!
//! The old symbols of version 1.0, whose structs are those of libibverbs 1.0, are not exported.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod address;
mod device;
mod events;
mod exports;
mod fork;
mod gids;
mod kernel_structs;
mod names;
mod rate;
mod sysfs;
mod unsupported;

use core::ffi::c_int;

/// Sets the calling thread's `errno`; returns it.
fn set_errno(error: c_int) -> c_int {
    // SAFETY: the location is the calling thread's own, valid for its life.
    unsafe { *libc::__errno_location() = error };
    error
}

/// Sets `errno`, and returns -1.
fn minus_one(error: c_int) -> c_int {
    set_errno(error);
    -1
}
