//! The atomics of this crate: core's, or loom's where the models of `loom-tests` run.
//!
//! No other module names core's atomics. Modules that need 64-bit atomics are left out where the
//! target has none, and with `--cfg rdma_conn_no_atomic64`: `proof/run.sh` builds and tests the
//! crate with it.

#[cfg(not(rdma_conn_loom))]
use core::sync::atomic as atomics;
#[cfg(rdma_conn_loom)]
use loom::sync::atomic as atomics;

#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
pub(crate) use atomics::AtomicU64;
pub(crate) use atomics::{AtomicU32, Ordering, fence};

/// A word of bits, as wide as one atomic operation can change.
#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
pub(crate) type Bits = u64;
#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
pub(crate) type AtomicBits = AtomicU64;

/// A word of bits, as wide as one atomic operation can change.
#[cfg(not(all(target_has_atomic = "64", not(rdma_conn_no_atomic64))))]
pub(crate) type Bits = u32;
#[cfg(not(all(target_has_atomic = "64", not(rdma_conn_no_atomic64))))]
pub(crate) type AtomicBits = AtomicU32;

/// True in the mutant of this name: where the loom models run, the variable [`MUTANT`] names one, and elsewhere
/// it is `false`. The models must fail under each.
#[cfg(rdma_conn_loom)]
macro_rules! is_mutant {
    ($mutant:literal) => {
        $crate::sync::mutant() == Some($mutant)
    };
}
#[cfg(not(rdma_conn_loom))]
macro_rules! is_mutant {
    ($mutant:literal) => {
        false
    };
}
pub(crate) use is_mutant;

/// Names the mutant.
#[cfg(rdma_conn_loom)]
const MUTANT: &str = "RDMA_CONN_MUTANT";

#[cfg(rdma_conn_loom)]
pub(crate) fn mutant() -> Option<&'static str> {
    // std is there, because loom needs it; no other build has this function.
    static NAME: std::sync::OnceLock<Option<std::string::String>> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var(MUTANT).ok()).as_deref()
}

/// Orderings that correctness needs; a mutant weakens each. `publish = Release, "name" => Relaxed;`
/// makes a function `publish`, which gives `Release`, and `Relaxed` in the mutant of that name.
macro_rules! orderings {
    ($($(#[$doc:meta])* $name:ident = $strong:ident, $mutant:literal => $weak:ident;)+) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            fn $name() -> $crate::sync::Ordering {
                if $crate::sync::is_mutant!($mutant) {
                    $crate::sync::Ordering::$weak
                } else {
                    $crate::sync::Ordering::$strong
                }
            }
        )+
    };
}
pub(crate) use orderings;

#[cfg(test)]
mod tests;
