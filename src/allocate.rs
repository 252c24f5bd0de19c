//! Memory whose size depends on another process: where there is none, the set-up fails with an
//! error instead of aborting the process.

use std::io::ErrorKind;

use zerocopy::FromZeros;

use crate::error::ConnectError;

/// `bytes` zeroed bytes. The system provides their pages when they are first written.
pub(crate) fn zeroed(what: &'static str, bytes: usize) -> Result<Box<[u8]>, ConnectError> {
    <[u8]>::new_box_zeroed_with_elems(bytes).map_err(|_| out_of_memory(what))
}

/// `count` values that `make` makes.
pub(crate) fn filled<T>(
    what: &'static str,
    count: usize,
    make: impl FnMut() -> T,
) -> Result<Box<[T]>, ConnectError> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| out_of_memory(what))?;
    values.resize_with(count, make);
    Ok(values.into_boxed_slice())
}

fn out_of_memory(what: &'static str) -> ConnectError {
    ConnectError::System { what, error: ErrorKind::OutOfMemory.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_system_has_is_an_error() {
        let bytes = zeroed("a copy", isize::MAX as usize).unwrap_err();
        assert_eq!(bytes.to_string(), "a copy: out of memory");
        let values = filled("a list", isize::MAX as usize / 8, || 0_u64).unwrap_err();
        assert_eq!(values.to_string(), "a list: out of memory");
        assert_eq!(*zeroed("a copy", 3).unwrap(), [0; 3]);
        assert_eq!(*filled("a list", 2, || 7).unwrap(), [7; 2]);
    }
}
