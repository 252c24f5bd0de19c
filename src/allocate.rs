//! Memory of a size that another process chooses: if it runs out, the set-up fails with an error
//! instead of aborting the process.

use std::io::{self, ErrorKind};

use conn_core::repost::{RepostQueue, RepostWord, words_for};
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

/// A queue by which `buffers` buffers are given back: a count of this end's own settings, for which the
/// process aborts where there is no memory.
pub(crate) fn repost_queue(buffers: u32) -> io::Result<RepostQueue<Box<[RepostWord]>>> {
    let words = (0..words_for(buffers)).map(|_| RepostWord::new());
    let made = RepostQueue::new(words.collect(), buffers);
    made.map_err(|e| io::Error::new(ErrorKind::InvalidInput, e.to_string()))
}

fn out_of_memory(what: &'static str) -> ConnectError {
    ConnectError::System { what, error: ErrorKind::OutOfMemory.into() }
}

#[cfg(test)]
mod tests;
