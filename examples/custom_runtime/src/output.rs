//! Standard output and the end of the program, by libc: the only unsafe code.

use core::fmt;

unsafe extern "C" {
    fn write(descriptor: i32, bytes: *const u8, count: usize) -> isize;
    /// Ends the process.
    safe fn _exit(status: i32) -> !;
}

/// Standard output, without a buffer.
pub(crate) struct Output;

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the bytes live during the call, which only reads them.
            let written = unsafe { write(1, rest.as_ptr(), rest.len()) };
            let written = usize::try_from(written).map_err(|_| fmt::Error)?;
            rest = rest.get(written..).ok_or(fmt::Error)?;
        }
        Ok(())
    }
}

pub(crate) fn exit(status: i32) -> ! {
    _exit(status)
}
