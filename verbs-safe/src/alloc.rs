//! Allocation of a size that the program or a peer chooses. `Vec` and `Box` abort the process if
//! memory runs out; these functions return an error. (`cargo xtask check` finds sized allocations
//! elsewhere: `xtask/src/sized.rs`.)

use crate::errno::Errno;
use crate::error::MapError;

/// An empty list with room for `len` values; `step` names the allocation in the error.
pub(crate) fn list<T>(step: &'static str, len: usize) -> Result<Vec<T>, MapError> {
    let bytes = len.saturating_mul(size_of::<T>());
    let mut list = Vec::new();
    let no_memory = |_| MapError::new(step, bytes, Errno::ENOMEM);
    list.try_reserve_exact(len).map_err(no_memory)?;
    Ok(list)
}

/// The values of an iterator that knows how many there are.
pub(crate) fn collected<T>(
    step: &'static str,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<Vec<T>, MapError> {
    let mut list = list(step, values.len())?;
    list.extend(values);
    Ok(list)
}

/// A list of `len` values.
pub(crate) fn filled<T>(
    step: &'static str,
    len: usize,
    value: impl FnMut() -> T,
) -> Result<Vec<T>, MapError> {
    let mut list = list(step, len)?;
    list.resize_with(len, value);
    Ok(list)
}

#[cfg(test)]
mod tests;
