//! A device on the network: its state and that of its queue pairs, which `fabric::wire` drives.

pub(crate) mod answers;
pub(crate) mod port_state;
pub(crate) mod state;
pub(crate) mod symptoms;
