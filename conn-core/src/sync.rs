//! The atomics of this crate: core's, or loom's where the models of `loom-tests` run.

#[cfg(not(rdma_conn_loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(rdma_conn_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// An ordering that one mutant weakens: `ordering!("name", Acquire => Relaxed)` is
/// `Acquire`, or `Relaxed` when built with `--cfg rdma_conn_mutant="name"`. The loom
/// models must fail under each of these.
macro_rules! ordering {
    ($mutant:literal, $strong:ident => $weak:ident) => {
        if cfg!(rdma_conn_mutant = $mutant) {
            $crate::sync::Ordering::$weak
        } else {
            $crate::sync::Ordering::$strong
        }
    };
}
pub(crate) use ordering;
