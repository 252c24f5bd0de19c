//! State that a process has if its environment asks for it. A child of fork has its own.

use std::ffi::OsString;

use host::sync::Mutex;

/// A value, and the number of the process that it is of.
pub(crate) struct PerProcess<T>(Mutex<Option<(u32, T)>>);

impl<T: Clone> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess(Mutex::new(None))
    }

    /// The value of this process, if there is one.
    pub(crate) fn get(&self) -> Option<T> {
        let known = self.0.lock();
        known.as_ref().filter(|(of, _)| *of == std::process::id()).map(|(_, value)| value.clone())
    }

    /// The value of this process, which is made, for its number, if there is none.
    pub(crate) fn get_or_make(&self, make: impl FnOnce(u32) -> T) -> T {
        let process = std::process::id();
        let mut known = self.0.lock();
        if let Some((_, value)) = known.as_ref().filter(|(of, _)| *of == process) {
            return value.clone();
        }
        known.insert((process, make(process))).1.clone()
    }
}

/// The value of an environment variable; none if it is empty, or the program has rights that its
/// user does not have.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    // SAFETY: it reads the auxiliary vector, which the process owns and nothing changes.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    std::env::var_os(name).filter(|value| !value.is_empty() && !has_more_rights)
}
