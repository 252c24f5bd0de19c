//! Other processes: what each shares with the others, and how they find each other. It names no
//! queue pair and no device; `fabric::process` has the overview.

pub(crate) mod backoff;
pub(crate) mod barrier;
pub(crate) mod budget;
pub(crate) mod connection;
pub(crate) mod directory;
pub(crate) mod liveness;
pub(crate) mod mapped;
pub(crate) mod maps;
pub(crate) mod marker;
pub(crate) mod multicast;
pub(crate) mod names;
pub(crate) mod outside;
pub(crate) mod pair;
pub(crate) mod peer_not_found;
pub(crate) mod progress_thread;
pub(crate) mod region;
pub(crate) mod regions;
pub(crate) mod remote;
pub(crate) mod rendezvous;
pub(crate) mod ring;
pub(crate) mod serving;
pub(crate) mod shared_sockets;
pub(crate) mod side;
pub(crate) mod windows;
pub(crate) mod workers;
