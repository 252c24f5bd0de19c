//! Loading rdma-core at run time, so that a program starts where it is missing.

use crate::{Table, Verbs};

/// Reasons why rdma-core could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The dynamic linker did not find or accept the library.
    #[error(
        "rdma-core is not usable: {reason}; install it (Debian, Ubuntu: libibverbs1 \
         ibverbs-providers; Fedora, RHEL: libibverbs; Arch: rdma-core)"
    )]
    Library {
        /// The message of the dynamic linker.
        reason: String,
    },
    /// The library lacks a function that every libibverbs.so.1 has.
    #[error(
        "libibverbs.so.1 has no {name}: it is not rdma-core's, or is damaged; reinstall \
         rdma-core"
    )]
    Symbol {
        /// Its name.
        name: &'static str,
    },
}

/// Loads `libibverbs.so.1`, once in a process; it is never unloaded, because its
/// providers do not survive that.
///
/// ```
/// match verbs_sys::load() {
///     Ok(_verbs) => println!("rdma-core is here"),
///     Err(e) => println!("{e}"), // says what to install
/// }
/// ```
///
/// # Errors
/// [`LoadError`], whose message says what to install.
#[expect(clippy::disallowed_types, reason = "it is below `host`, and of no world")]
pub fn load() -> Result<Table, LoadError> {
    static LOADED: std::sync::OnceLock<Result<Verbs, LoadError>> = std::sync::OnceLock::new();
    let verbs = LOADED.get_or_init(|| open("libibverbs.so.1")).as_ref().map_err(Clone::clone)?;
    // SAFETY: libibverbs.so.1 is what the manual pages describe.
    Ok(unsafe { Table::new(verbs) })
}

fn open(name: &str) -> Result<Verbs, LoadError> {
    // SAFETY: rdma-core's initialisers have no preconditions.
    let library = unsafe { libloading::Library::new(name) }
        .map_err(|e| LoadError::Library { reason: innermost(&e) })?;
    // SAFETY: the name is that of ABI 1; the library is leaked just below.
    let verbs = unsafe { Verbs::from_library(&library) };
    std::mem::forget(library);
    verbs.map_err(|name| LoadError::Symbol { name })
}

/// Returns the dynamic linker's own message: the end of the chain of causes.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}

#[cfg(test)]
mod tests;
