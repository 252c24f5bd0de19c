//! `Send` and `Sync` of the objects, and the reasons.

use super::{CompChannel, Context, Cq, Device, Pd, Qp, Srq, Td, Xrcd};

// SAFETY: the ABI's struct is written before the device is shared and then only read; everything
// else may be sent.
unsafe impl Send for Device {}

// SAFETY: the ABI's struct is only read once the device is shared; everything else is Sync.
unsafe impl Sync for Device {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Xrcd {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Xrcd {}

// SAFETY: the ABI's struct is written before it is shared; later only callers
// read it. Everything else is Sync by itself.
unsafe impl Send for Context {}

// SAFETY: the ABI's struct is only read once it is shared; everything else is Sync.
unsafe impl Sync for Context {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Pd {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Pd {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Td {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Td {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for CompChannel {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for CompChannel {}

// SAFETY: the slots are guarded as `objects::cq` says; the ABI's struct is written before it is
// shared, `cqe` later under both locks, and `wr_id` and `status` under the lock of `entry`; the
// pointers in slots are of queue pairs that stay while their entries are in the ring (`purge`).
unsafe impl Send for Cq {}

// SAFETY: the slots are guarded as `objects::cq` says; the ABI's struct is written before it is
// shared, `cqe` later under both locks, and `wr_id` and `status` by polls under the lock of
// `entry`.
unsafe impl Sync for Cq {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Srq {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Srq {}

// SAFETY: the ABI's struct is written before the program has it, then of it `state` under the send
// queue's lock (`set_state`, `query`, `show_state`), and `wr_id` and `wr_flags` by the program
// between calls of one batch, in which they are read; everything else may be sent.
unsafe impl Send for Qp {}

// SAFETY: the ABI's struct is written as said above, each field by one holder at a time; everything
// else is guarded or Sync.
unsafe impl Sync for Qp {}
