//! Registered memory: keys, what they permit to access, and the copies. It knows no object that a
//! program makes.

pub(crate) mod attach;
pub(crate) mod denial;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod mr_table;
pub(crate) mod mws;
pub(crate) mod null_memory;
pub(crate) mod on_demand;
pub(crate) mod paging;
pub(crate) mod published;
pub(crate) mod residency;
pub(crate) mod span;
