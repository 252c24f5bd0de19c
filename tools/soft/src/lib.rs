//! The commands of `rdma-conn` that know the software device: its tools.
//!
//! | command | |
//! |---|---|
//! | [`soft`] | runs a verbs program on `soft0`, unmodified: traced, checked, with faults |
//! | [`trace`] | says what a traced program has posted and never seen complete, and why |
//! | [`doctor`] | tests what a device on the network needs: here, and on the path to a peer |
//! | [`roced`] | keeps an address bound for programs of this user that speak RoCE over UDP |
//!
//! 1. `soft --trace` names a file to the processes of a program, by the environment.
//! 2. The device in each of them (`soft_rnic::trace`) writes down there what is posted, and what
//!    becomes of it.
//! 3. `trace` reads the files at any time, also when the processes were killed.
//!
//! **Contract: a program that runs under `soft` is left as it is**: its arguments, its exit status and
//! its signals are its own, unless it is checked for mistakes and has some.
#![forbid(unsafe_code)]
// It panics where standard error is closed: `remark!` does not.
#![deny(clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod cli;
pub mod doctor;
pub mod roced;
pub mod soft;
pub mod trace;

pub use cli::{DoctorArgs, RocedArgs, SoftArgs, TraceArgs};
