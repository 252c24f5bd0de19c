//! The verbs of rdma-core, for Rust: declarations, and a table of the functions.
//!
//! Nothing here links against libibverbs. The functions that create and destroy
//! objects are reached through a [`Table`] of [`Verbs`], which has two makers: [`load()`]
//! opens `libibverbs.so.1` at run time, and the crate `soft-rnic` hands out a
//! software device behind the same table. The data path ([`ibv_post_send`],
//! [`ibv_poll_cq`], …) goes through `context->ops`, as rdma-core's own inline
//! functions do, and so costs the same on both.
//!
//! A program uses the table in this order:
//!
//! 1. obtain it (`load()`, or `soft_rnic::table()`);
//! 2. `get_device_list`, `open_device`, `free_device_list`;
//! 3. `alloc_pd`, [`ibv_reg_mr`], `create_cq`, `create_qp`;
//! 4. `modify_qp` to INIT, RTR and RTS;
//! 5. [`ibv_post_recv`], [`ibv_post_send`], [`ibv_poll_cq`];
//! 6. destroy in the opposite order.
//!
//! **Contract: every pointer handed to a function of a table was made by a
//! function of the same table, and is still alive.** The crate `verbs-safe` keeps
//! it; use that one unless you are writing a device or a driver layer.
//!
//! Values that come from C are newtypes over integers, never Rust enums: a newer
//! device may send a value that this crate does not know, and that must not be
//! undefined behaviour.
//!
//! Without the default feature `load` the crate needs no std.
#![cfg_attr(not(feature = "load"), no_std)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
#[rustfmt::skip]
mod bindings;
mod inline;
mod layout;
#[cfg(feature = "load")]
mod load;
mod names;
mod table;

pub use bindings::*;
pub use inline::*;
#[cfg(feature = "load")]
pub use load::{LoadError, load};
pub use names::{async_event_name, port_state_name, qp_state_name, wc_opcode_name, wc_status_name};
pub use table::{Table, Verbs};

/// `ibv_context.abi_compat` of every context that is embedded in a
/// [`verbs_context`] (rdma-core's `__VERBS_ABI_IS_EXTENDED`).
pub const VERBS_ABI_IS_EXTENDED: *mut core::ffi::c_void = usize::MAX as *mut _;

/// Bits of an access mask that a device may ignore when it does not know them
/// (rdma-core's `IBV_ACCESS_OPTIONAL_RANGE`).
pub const ACCESS_OPTIONAL_RANGE: u32 = 0x3ff0_0000;
