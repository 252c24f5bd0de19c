//! The tables of a port: GIDs with their types, and partition keys.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use verbs_sys::*;

use crate::device;

/// Returns the attributes that the exported `ibv_query_port` fills, behind which the rest is zero.
///
/// # Safety
/// `context` is NULL or open.
unsafe fn port(context: *mut ibv_context, port_num: u8) -> Result<ibv_port_attr, c_int> {
    let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
    // SAFETY: `context` is NULL or open (see # Safety); zeroes are valid values of what is left.
    unsafe {
        match device::query_port(context, port_num, attr.as_mut_ptr()) {
            0 => Ok(attr.assume_init()),
            error => Err(error),
        }
    }
}

/// One entry of the GID table.
///
/// # Safety
/// `context` is NULL or open.
unsafe fn gid(context: *mut ibv_context, port_num: u8, index: u32) -> Result<ibv_gid_entry, c_int> {
    let mut entry = MaybeUninit::<ibv_gid_entry>::zeroed();
    let (to, size) = (entry.as_mut_ptr(), size_of::<ibv_gid_entry>());
    // SAFETY: `context` is NULL or open (see # Safety); `to` has room for one entry, which is all
    // zero at first.
    unsafe {
        match device::query_gid_ex(context, port_num.into(), index, to, 0, size) {
            0 => Ok(entry.assume_init()),
            error => Err(error),
        }
    }
}

/// `_ibv_query_gid_table`: the entries of all ports; returns their number, or a negative errno,
/// which is set as well.
pub(crate) unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    if context.is_null() || flags != 0 || entry_size < size_of::<ibv_gid_entry>() {
        return -(super::set_errno(libc::EINVAL) as isize);
    }
    let mut found = 0;
    for port_num in 1..=u8::MAX {
        // SAFETY: the caller's context.
        let Ok(attr) = (unsafe { port(context, port_num) }) else { break };
        for index in 0..u32::try_from(attr.gid_tbl_len).unwrap_or(0) {
            if found == max_entries || entries.is_null() {
                return -(super::set_errno(libc::EINVAL) as isize);
            }
            // SAFETY: the caller's array has room for `max_entries` of `entry_size` bytes.
            let error = unsafe {
                let entry = entries.byte_add(found * entry_size);
                device::query_gid_ex(context, port_num.into(), index, entry, 0, entry_size)
            };
            if error != 0 {
                return -(error as isize);
            }
            found += 1;
        }
    }
    found as isize
}

/// `ibv_query_gid_type`: 0 for InfiniBand and RoCE v1, 1 for RoCE v2, as sysfs has them.
pub(crate) unsafe extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: u32,
    gid_type: *mut c_int,
) -> c_int {
    if gid_type.is_null() {
        return super::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's context, and its place for the type.
    unsafe {
        match gid(context, port_num, index) {
            Ok(entry) => {
                *gid_type = (entry.gid_type == ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0).into();
                0
            }
            Err(error) => super::minus_one(error),
        }
    }
}

/// The index of the entry for RoCE v2 that has this GID.
///
/// # Safety
/// `context` is NULL or open.
pub(crate) unsafe fn find(
    context: *mut ibv_context,
    port_num: u8,
    wanted: [u8; 16],
) -> Result<u8, c_int> {
    for index in 0..=u8::MAX {
        // SAFETY: `context` is NULL or open (see # Safety); the members of the union are bytes.
        unsafe {
            let entry = gid(context, port_num, index.into())?;
            if entry.gid.raw == wanted {
                return Ok(index);
            }
        }
    }
    Err(libc::ENOENT)
}

/// `ibv_get_pkey_index`: where the key is in the port's table, or -1.
pub(crate) unsafe extern "C" fn get_pkey_index(
    context: *mut ibv_context,
    port_num: u8,
    wanted: __be16,
) -> c_int {
    for index in 0..=c_int::from(u16::MAX) {
        let mut pkey = 0;
        // SAFETY: the caller's context, and room for one key.
        if unsafe { device::query_pkey(context, port_num, index, &mut pkey) } != 0 {
            break;
        }
        if pkey == wanted {
            return index;
        }
    }
    -1
}
