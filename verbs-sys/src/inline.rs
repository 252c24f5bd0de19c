//! Inline functions and macros of `verbs.h`, in Rust. A call goes through the operations of the
//! object's context, without looking anything up.

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};

use crate::*;

/// `ENOSYS`/`EOPNOTSUPP` as this crate returns them (Linux).
const EOPNOTSUPP: c_int = 95;

/// Calls an operation that every context has to have, or says that it has not.
macro_rules! op {
    ($ctx:expr, $op:ident ( $($arg:expr),* )) => {
        match (*$ctx).ops.$op {
            Some(f) => f($($arg),*),
            None => EOPNOTSUPP,
        }
    };
}

/// Posts a list of send work requests. Returns 0, or an errno with `*bad_wr` at
/// the first request that was not posted.
///
/// # Safety
/// `qp` is alive; `wr` heads a list of valid requests whose scatter/gather
/// entries stay registered, and whose memory is not written otherwise, until
/// they complete.
#[inline]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller keeps `qp` alive, so its context and operations are too.
    unsafe { op!((*qp).context, post_send(qp, wr, bad_wr)) }
}

/// Posts a list of receive work requests. Returns 0, or an errno with `*bad_wr`
/// at the first request that was not posted.
///
/// # Safety
/// As [`ibv_post_send`]; the memory is not read or written otherwise.
#[inline]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller keeps `qp` alive, so its context and operations are too.
    unsafe { op!((*qp).context, post_recv(qp, wr, bad_wr)) }
}

/// Posts a list of receive work requests to a shared receive queue.
///
/// # Safety
/// As [`ibv_post_recv`], for `srq`.
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller keeps `srq` alive, so its context and operations are too.
    unsafe { op!((*srq).context, post_srq_recv(srq, wr, bad_wr)) }
}

/// Takes up to `num_entries` completions. Returns how many, or a negative value.
///
/// # Safety
/// `cq` is alive, `wc` has room for `num_entries`.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller keeps `cq` alive.
    unsafe {
        match (*(*cq).context).ops.poll_cq {
            Some(f) => f(cq, num_entries, wc),
            None => -EOPNOTSUPP,
        }
    }
}

/// Asks for one event on the completion channel at the next completion (the next
/// solicited one, if `solicited_only`). One-shot: arm, poll once more, then sleep.
///
/// # Safety
/// `cq` is alive and was created with a channel.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller keeps `cq` alive.
    unsafe { op!((*cq).context, req_notify_cq(cq, solicited_only)) }
}

/// The extended context that embeds `ctx`, if it has one that reaches down to the
/// member at `offset` (the struct grows upward, `sz` is what the library has).
///
/// # Safety
/// `ctx` is alive.
#[inline]
unsafe fn verbs_get_ctx(ctx: *mut ibv_context, offset: usize) -> Option<*mut verbs_context> {
    // SAFETY: a context whose `abi_compat` is all ones is embedded in a
    // `verbs_context` at `offset_of!(verbs_context, context)`, by the ABI; `sz`
    // tells how far that struct reaches below the context.
    unsafe {
        if (*ctx).abi_compat != VERBS_ABI_IS_EXTENDED {
            return None;
        }
        let vctx = ctx.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        ((*vctx).sz >= size_of::<verbs_context>() - offset).then_some(vctx)
    }
}

/// Queries a port through the context's operation, which fills the whole struct.
/// The exported `ibv_query_port` knows only an older, shorter one: it is the
/// fallback, and the tail is then zero.
///
/// # Safety
/// `ctx` is alive and belongs to `verbs`; `attr` is writable.
pub unsafe fn ibv_query_port(
    verbs: &Verbs,
    ctx: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: `ctx` is alive and belongs to `verbs`, and `attr` is writable (see # Safety); zero is
    // a valid value of every field.
    unsafe {
        attr.write_bytes(0, 1);
        if let Some(vctx) = verbs_get_ctx(ctx, offset_of!(verbs_context, query_port))
            && let Some(op) = (*vctx).query_port
        {
            return op(ctx, port_num, attr, size_of::<ibv_port_attr>());
        }
        (verbs.query_port)(ctx, port_num, attr)
    }
}

/// Queries a device with the extended capabilities; where the library or the
/// device does not know those, they are zero.
///
/// # Safety
/// `ctx` is alive and belongs to `verbs`; `attr` is writable.
pub unsafe fn ibv_query_device_ex(
    verbs: &Verbs,
    ctx: *mut ibv_context,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: `ctx` is alive and belongs to `verbs`, and `attr` is writable (see # Safety); zero is
    // a valid value of every field.
    unsafe {
        attr.write_bytes(0, 1);
        if let Some(vctx) = verbs_get_ctx(ctx, offset_of!(verbs_context, query_device_ex))
            && let Some(op) = (*vctx).query_device_ex
        {
            let err = op(ctx, core::ptr::null(), attr, size_of::<ibv_device_attr_ex>());
            if err != EOPNOTSUPP {
                return err;
            }
        }
        (verbs.query_device)(ctx, &raw mut (*attr).orig_attr)
    }
}

/// Advises about pieces of on-demand regions; an errno.
///
/// # Safety
/// `pd` is alive and belongs to an open context; `sg_list` has `num_sge` entries.
pub unsafe fn ibv_advise_mr(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: the caller keeps `pd` alive, and with it its context; `sg_list` is as long as the
    // caller says.
    unsafe {
        match verbs_get_ctx((*pd).context, offset_of!(verbs_context, advise_mr)) {
            Some(vctx) => match (*vctx).advise_mr {
                Some(op) => op(pd, advice, flags, sg_list, num_sge),
                None => EOPNOTSUPP,
            },
            None => EOPNOTSUPP,
        }
    }
}

/// Registers memory, with every access bit that was asked for: optional bits need
/// `ibv_reg_mr_iova2`, the plain symbol would drop them. A library that lacks it
/// may ignore them, by their definition.
///
/// # Safety
/// `addr .. addr + length` stays mapped until the region is deregistered.
pub unsafe fn ibv_reg_mr(
    verbs: &Verbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: ibv_access_flags,
) -> *mut ibv_mr {
    let optional = access.0 & ACCESS_OPTIONAL_RANGE;
    // SAFETY: `addr .. addr + length` stays mapped (see # Safety); `pd` is alive and of the same
    // table, by the crate's contract.
    unsafe {
        match verbs.reg_mr_iova2 {
            Some(f) if optional != 0 => f(pd, addr, length, addr as u64, access.0),
            _ => (verbs.reg_mr)(pd, addr, length, (access.0 & !ACCESS_OPTIONAL_RANGE) as c_int),
        }
    }
}

/// The GID at `index` with its type and network device; `None` where the library
/// is too old to tell.
///
/// # Safety
/// `ctx` is alive and belongs to `verbs`; `entry` is writable.
pub unsafe fn ibv_query_gid_ex(
    verbs: &Verbs,
    ctx: *mut ibv_context,
    port_num: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
) -> Option<c_int> {
    // SAFETY: `ctx` is alive and belongs to `verbs`, and `entry` is writable (see # Safety); the
    // size bounds what is written.
    verbs
        .query_gid_ex
        .map(|f| unsafe { f(ctx, port_num, index, entry, 0, size_of::<ibv_gid_entry>()) })
}

/// Allocates a memory window, which is bound to nothing yet; NULL with `errno` if it cannot.
///
/// # Safety
/// `pd` is alive.
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller keeps `pd` alive, so its context is too.
    unsafe {
        match (*(*pd).context).ops.alloc_mw {
            Some(f) => f(pd, kind),
            None => core::ptr::null_mut(),
        }
    }
}

/// Frees a memory window; a binding ends.
///
/// # Safety
/// `mw` was made by [`ibv_alloc_mw`], and is not used afterwards.
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: `mw` was made by `ibv_alloc_mw`, and is not used afterwards (see # Safety).
    unsafe { op!((*mw).context, dealloc_mw(mw)) }
}

/// Posts a request to bind a window of type 1, which has its new key when this returns 0. (Those of
/// type 2 are bound by [`ibv_post_send`].)
///
/// # Safety
/// All are alive; the memory stays registered while the window is bound.
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    const EINVAL: c_int = 22;
    // SAFETY: `qp`, `mw` and `bind` are alive, and the memory stays registered (see # Safety).
    unsafe {
        if (*mw).type_ != ibv_mw_type::IBV_MW_TYPE_1 {
            return EINVAL;
        }
        op!((*mw).context, bind_mw(qp, mw, bind))
    }
}

/// The next key of a window of type 2: the low 8 bits are the program's.
#[must_use]
pub fn ibv_inc_rkey(rkey: u32) -> u32 {
    const TAG: u32 = 0xff;
    rkey & !TAG | rkey.wrapping_add(1) & TAG
}
