//! `ibv_bind_mw`: posts a request to bind a window of type 1, whose key is drawn anew.

use core::ffi::c_int;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::mr::ZERO_BASED;
use crate::objects::mw::Mw;
use crate::objects::state::Pd;
use crate::verbs::post;

type BindMwAttr = ibv_send_wr__bindgen_ty_4__bindgen_ty_1;

/// The window has its new key when this returns; it is valid when the request is done, and the old
/// one until then.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { post_bind(qp, mw, bind) })
}

/// # Safety
/// The pointers, and the region that `bind` names, are NULL or live objects of ours, and of the
/// caller.
unsafe fn post_bind(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> Result<(), Errno> {
    // SAFETY: `mw` and `bind` are NULL, or live and the caller's (see # Safety).
    let (object, bind) = unsafe { (Mw::from_abi(mw)?, bind.as_ref().ok_or(errno::EINVAL)?) };
    let bind_info = bind.bind_info;
    // SAFETY: `bind_info.mr` is NULL, or a live region of ours (see # Safety).
    unsafe { check(object, &bind_info) }?;
    let rkey = object.new_key().ok_or(errno::EINVAL)?;
    // SAFETY: zero is a valid value of every field.
    let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
    (wr.wr_id, wr.send_flags) = (bind.wr_id, bind.send_flags);
    wr.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
    wr.__bindgen_anon_2.bind_mw = BindMwAttr { mw, rkey, bind_info };
    // SAFETY: `qp` is NULL or live (see # Safety); the list is `wr`, with a live window.
    unsafe { post::send::<false>(qp, &mut wr, &mut core::ptr::null_mut()) }?;
    object.set_key(rkey);
    Ok(())
}

/// Makes the checks of rxe's library, before anything is posted.
///
/// # Safety
/// The region is NULL or one of ours.
unsafe fn check(mw: &Mw, info: &ibv_mw_bind_info) -> Result<(), Errno> {
    if mw.is_type_2 || info.mw_access_flags & ZERO_BASED != 0 {
        return Err(errno::EINVAL);
    }
    // SAFETY: `info.mr` is NULL or a region of ours (see # Safety).
    let Some(mr) = (unsafe { info.mr.as_ref() }) else {
        return if info.addr == 0 && info.length == 0 { Ok(()) } else { Err(errno::EINVAL) };
    };
    // SAFETY: the domain of a live region.
    let pd = unsafe { Pd::from_abi(mr.pd) }?;
    if pd.id == mw.pd.id { Ok(()) } else { Err(errno::EPERM) }
}
