//! Memory and its registration. Nothing here depends on queue pairs.

pub(crate) mod buffer;
pub(crate) mod file;
pub(crate) mod file_mapping;
pub(crate) mod memory;
pub(crate) mod mirrored;
pub(crate) mod registration;
pub(crate) mod shared;
