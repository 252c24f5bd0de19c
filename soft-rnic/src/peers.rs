//! State of peers, and state shared with them: memory files and rings of other processes
//! ([`process`]), and the state of a device on the network ([`wire`]). The links to them are in
//! `fabric`, above the objects, which have their part of this state.

pub(crate) mod process;
pub(crate) mod wire;
