//! As many objects as the device says, and not one more (but for queue pairs: the destruction of one
//! looks at all). One test: it has to be the only user of the device.
//!
//! Not on rxe0: it asks how many objects soft0 has.

mod common;

use core::ptr::null_mut;

use common::xrc::*;
use common::*;
use libc::ENOMEM;
use verbs_sys::*;

/// Makes `most` objects, `there` of which exist, asks for one more, and destroys them.
fn fill<T>(
    what: &str,
    (most, there): (i32, i32),
    make: impl Fn() -> *mut T,
    destroy: impl Fn(*mut T) -> i32,
) {
    let all: Vec<_> = (there..most).map(|_| make()).collect();
    assert!(all.iter().all(|object| !object.is_null()), "{what}: there are fewer than {most}");
    assert!(make().is_null(), "{what}: there are more than {most}");
    assert_eq!(errno(), ENOMEM, "{what}");
    for object in all {
        assert_eq!(destroy(object), 0, "{what}");
    }
    let one = make();
    assert!(!one.is_null(), "{what}: there is room again");
    assert_eq!(destroy(one), 0, "{what}");
}

#[test]
fn there_are_as_many_objects_as_the_device_says() {
    if !is_softs_own("its limits") {
        return;
    }
    let net = Net::new();
    let mut most = ibv_device_attr::default();
    let (v, ctx, pd) = (net.v, net.ctx, net.pd);
    // SAFETY: the context and the domain live; each object is destroyed once.
    unsafe {
        assert_eq!((v.query_device)(ctx, &mut most), 0);
        fill("domains", (most.max_pd, 1), || (v.alloc_pd)(ctx), |pd| (v.dealloc_pd)(pd));
        let attr = net.ah_attr();
        let ah = || (v.create_ah)(pd, &mut { attr });
        fill("address handles", (most.max_ah, 0), ah, |ah| (v.destroy_ah)(ah));
        let cq = || (v.create_cq)(ctx, 1, null_mut(), null_mut(), 0);
        fill("completion queues", (most.max_cq, 0), cq, |cq| (v.destroy_cq)(cq));
        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        attr.attr.max_wr = 1;
        let srq = || (v.create_srq)(pd, &mut { attr });
        fill("shared queues", (most.max_srq, 0), srq, |srq| (v.destroy_srq)(srq));
        if most.device_cap_flags & ibv_device_cap_flags::IBV_DEVICE_XRC.0 != 0 {
            let (xrcd, cq) = (open_xrcd(ctx, -1, libc::O_CREAT).unwrap(), net.cq(1));
            let attr = ibv_srq_init_attr_ex { attr: attr.attr, ..srq_attr(pd, xrcd, cq) };
            let srq = || create_srq(ctx, attr).unwrap_or(null_mut());
            // The limit of XRC receive queues, which no attribute tells.
            fill("XRC receive queues", (1 << 14, 0), srq, |srq| (v.destroy_srq)(srq));
            assert_eq!(close_xrcd(xrcd), 0);
            net.destroy_cq(cq);
        }
        let mw = || ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_1);
        fill("windows", (most.max_mw, 0), mw, |mw| ibv_dealloc_mw(mw));
    }
    net.close();
}
