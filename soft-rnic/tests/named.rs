//! Calls with structs of which the program has changed the `handle` or the `context`: they name no object.
//!
//! Not on rxe0: what is looked at there is the provider's business.

mod common;

use core::ffi::c_int;
use core::ptr::null_mut;

use common::mw::{TYPE_1, alloc};
use common::*;
use libc::ENOENT;
use verbs_sys::*;

/// The error of a call that creates something.
fn error_of<T>(made: *mut T) -> c_int {
    if made.is_null() { errno() } else { 0 }
}

/// Has calls refused while a struct has another handle, and while it has another context.
///
/// # Safety
/// The fields are those of a live struct.
unsafe fn refuses<const N: usize>(
    handle: *mut u32,
    (context, mut other): (*mut *mut ibv_context, *mut ibv_context),
    mut calls: impl FnMut() -> [c_int; N],
) {
    // SAFETY: the caller owns the object, so that both fields are writable (the function's `# Safety`).
    unsafe {
        *handle ^= 0x55;
        assert_eq!(calls(), [ENOENT; N], "another handle");
        *handle ^= 0x55;
        core::ptr::swap(context, &mut other);
        assert_eq!(calls(), [ENOENT; N], "another context");
        core::ptr::swap(context, &mut other);
    }
}

#[test]
fn a_struct_with_a_wrong_handle_or_context_is_refused() {
    let (p, other) = (QpPair::new(), Net::new());
    let (v, net) = (&p.net.v, &p.net);
    let cq = net.cq(16);
    let (qp, mr) = (net.qp(cq), p.mr[0]);
    let (ah, mw) = (net.ah(), alloc(net.pd, TYPE_1));
    let mut srq_attr = ibv_srq_init_attr {
        srq_context: null_mut(),
        attr: ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 },
    };
    let mut few = srq_attr.attr;
    let mut bytes = [0_u8; 64];
    let at = bytes.as_mut_ptr();
    let init = move || net.init_attr(cq);
    // SAFETY: all objects are alive, and their structs as they were made but for what is tried.
    unsafe {
        let srq = (v.create_srq)(net.pd, &mut srq_attr);
        refuses(&raw mut (*net.pd).handle, (&raw mut (*net.pd).context, other.ctx), || {
            [
                error_of((v.create_qp)(net.pd, &mut init())),
                error_of((v.reg_mr)(net.pd, at.cast(), bytes.len(), RW as c_int)),
                error_of((v.create_srq)(net.pd, &mut srq_attr)),
                error_of((*net.ctx).ops.alloc_mw.unwrap()(net.pd, TYPE_1)),
                (v.dealloc_pd)(net.pd),
            ]
        });
        refuses(&raw mut (*cq).handle, (&raw mut (*cq).context, other.ctx), || {
            [
                error_of((v.create_qp)(net.pd, &mut init())),
                ibv_req_notify_cq(cq, 0),
                (v.resize_cq)(cq, 32),
                (v.destroy_cq)(cq),
            ]
        });
        refuses(&raw mut (*srq).handle, (&raw mut (*srq).context, other.ctx), || {
            [
                error_of((v.create_qp)(net.pd, &mut ibv_qp_init_attr { srq, ..init() })),
                (v.query_srq)(srq, &mut few),
                (v.modify_srq)(srq, &mut few, 0),
                (v.destroy_srq)(srq),
            ]
        });
        refuses(&raw mut (*qp).handle, (&raw mut (*qp).context, other.ctx), || {
            let mut attr = ibv_qp_attr { qp_state: ibv_qp_state::IBV_QPS_ERR, ..init_state() };
            let state = ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
            [
                (v.modify_qp)(qp, &mut attr, state),
                (v.query_qp)(qp, &mut attr, state, &mut init()),
                (v.destroy_qp)(qp),
            ]
        });
        refuses(&raw mut (*mr).handle, (&raw mut (*mr).context, other.ctx), || [(v.dereg_mr)(mr)]);
        let dealloc = (*net.ctx).ops.dealloc_mw.unwrap();
        refuses(&raw mut (*mw).handle, (&raw mut (*mw).context, other.ctx), || [dealloc(mw)]);
        refuses(&raw mut (*ah).handle, (&raw mut (*ah).context, other.ctx), || {
            [(v.destroy_ah)(ah)]
        });
        assert_eq!((dealloc(mw), (v.destroy_srq)(srq)), (0, 0));
    }
    net.destroy_ah(ah);
    net.destroy_qp(qp);
    net.destroy_cq(cq);
    p.close();
    other.close();
}

fn init_state() -> ibv_qp_attr {
    // SAFETY: zero is a valid value of every field.
    unsafe { core::mem::zeroed() }
}
