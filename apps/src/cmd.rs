//! The subcommands.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod copy;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod figures;
pub(crate) mod multicast;
pub(crate) mod pingpong;
pub(crate) mod pipe;
pub(crate) mod raw;
pub(crate) mod roced;
pub(crate) mod soft;
pub(crate) mod sweep;
pub(crate) mod trace;
