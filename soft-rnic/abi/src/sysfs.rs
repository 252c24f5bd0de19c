//! Files of sysfs, of which the device has none: programs that read those of other devices can.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the path at which sysfs is mounted.
pub(crate) extern "C" fn get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// `ibv_read_sysfs_file`: how many bytes the file has, without a line feed at its end.
pub(crate) unsafe extern "C" fn read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    let _uncancelled = soft_rnic::Uncancelled::new();
    if dir.is_null() || file.is_null() || buf.is_null() {
        return super::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's strings, which end with zero, and room for `size` bytes.
    let (dir, file, buf) = unsafe {
        // A slice refers to initialised bytes.
        buf.write_bytes(0, size);
        let buf = core::slice::from_raw_parts_mut(buf.cast::<u8>(), size);
        (CStr::from_ptr(dir), CStr::from_ptr(file), buf)
    };
    match read(&path(dir).join(path(file)), buf) {
        Ok(len) => len as c_int,
        Err(error) => super::minus_one(error),
    }
}

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// Reads the file, which is followed by a zero: in the place of its last line feed, or behind it.
fn read(path: &Path, buf: &mut [u8]) -> Result<usize, c_int> {
    let errno = |e: std::io::Error| e.raw_os_error().unwrap_or(libc::EIO);
    let mut len = std::fs::File::open(path).and_then(|mut f| f.read(buf)).map_err(errno)?;
    if buf[..len].ends_with(b"\n") {
        len -= 1;
    }
    *buf.get_mut(len).ok_or(libc::ENOSPC)? = 0;
    Ok(len)
}
