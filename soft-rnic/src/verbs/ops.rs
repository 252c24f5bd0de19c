//! The operations of a context besides the data path: each runs with cancellation disabled.

use core::ffi::c_int;

use verbs_sys::*;

use crate::cancellation::Uncancelled;
use crate::objects::{advise_mr, dm, mw, null_mr, srq, target, xrc};

use super::{bind_mw, cq_ex, domain, qp_ex};

macro_rules! uncancelled {
    ($($module:ident::$name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => { $(
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            let _uncancelled = Uncancelled::new();
            // SAFETY: the function has the contract of this one.
            unsafe { $module::$name($($arg),*) }
        }
    )* };
}

uncancelled! {
    cq_ex::create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
    cq_ex::modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int;
    qp_ex::create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
    srq::create_srq_ex(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
    xrc::open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd;
    xrc::close_xrcd(xrcd: *mut ibv_xrcd) -> c_int;
    target::open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp;
    domain::alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td;
    domain::dealloc_td(td: *mut ibv_td) -> c_int;
    domain::alloc_parent_domain(
        context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr
    ) -> *mut ibv_pd;
    null_mr::alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr;
    advise_mr::advise_mr(
        pd: *mut ibv_pd, advice: ib_uverbs_advise_mr_advice, flags: u32, sg_list: *mut ibv_sge,
        num_sge: u32
    ) -> c_int;
    dm::alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm;
    dm::free_dm(dm: *mut ibv_dm) -> c_int;
    dm::reg_dm_mr(
        pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: u32
    ) -> *mut ibv_mr;
    mw::alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw;
    mw::dealloc_mw(mw: *mut ibv_mw) -> c_int;
    bind_mw::bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int;
}

/// Fills in what a context has of these.
pub(super) fn fill(abi: &mut verbs_context) {
    fill! { abi;
        create_cq_ex create_qp_ex create_srq_ex open_xrcd close_xrcd open_qp alloc_td dealloc_td
        alloc_parent_domain modify_cq alloc_null_mr advise_mr alloc_dm free_dm reg_dm_mr
    }
    fill! { abi.context.ops; alloc_mw bind_mw dealloc_mw }
}
