//! Pointers to objects that verbs have made, and their destruction.

use std::ptr::NonNull;

use crate::errno::{Errno, leaked};

/// A pointer to an object that a verb has made, a struct of verbs.h. The code that dereferences it,
/// or hands it to a verb, says why the object is alive.
#[derive(Clone, Copy)]
pub(crate) struct ObjectPtr<T>(NonNull<T>);

// SAFETY: any thread may call verbs on an object that another one has made: see `Table::new`.
unsafe impl<T> Send for ObjectPtr<T> {}
// SAFETY: several threads may call verbs on one object at once: see `Table::new`. A shared reference
// gives out the pointer only.
unsafe impl<T> Sync for ObjectPtr<T> {}

impl<T> ObjectPtr<T> {
    /// Takes over the result of a verb; NULL is an error, read from the thread's errno.
    pub(crate) fn new(made: *mut T) -> Result<ObjectPtr<T>, Errno> {
        NonNull::new(made).map(ObjectPtr).ok_or_else(Errno::last)
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

/// Looks at the `result` of the verb that destroys an object, when its owner is dropped. An object
/// that could not be destroyed is leaked, with a reference to all that it `uses`: the device may
/// still access that.
pub(crate) fn destroyed<U>(what: &str, result: Result<(), Errno>, uses: impl FnOnce() -> U) {
    if let Err(errno) = result {
        // First: the report runs code of the program, which may panic.
        std::mem::forget(uses());
        leaked(what, errno);
    }
}
