use super::*;
use crate::objects::state::ExecutionMode;
use core::ffi::c_int;
use verbs_sys::*;

/// Returns the result of a verb that has to wait until a look is over.
fn after_a_look(end: impl FnOnce() -> c_int + Send) -> c_int {
    std::thread::scope(|scope| {
        let held = look();
        let thread = scope.spawn(end);
        // It has all the time that it wants.
        for _ in 0..500 {
            host::thread::yield_now();
        }
        assert!(!thread.is_finished(), "the look is not over");
        drop(held);
        thread.join().unwrap()
    })
}

/// As long as a checker looks at a buffer, its keys stay what they are.
#[test]
fn regions_and_windows_end_after_the_looks_that_have_begun() {
    let v = crate::table();
    let mut bytes = [0_u8; 64];
    // SAFETY: the verbs are used as their manual pages say.
    unsafe {
        // One of its own: on the other one, other tests have processes in its memory.
        let device = Device::new("test", 1 << 50, ExecutionMode::Synchronous);
        let context = (v.open_device)(device.as_abi());
        let pd = (v.alloc_pd)(context);
        for kind in [ibv_mw_type::IBV_MW_TYPE_1, ibv_mw_type::IBV_MW_TYPE_2] {
            let mw = ibv_alloc_mw(pd, kind) as usize;
            assert_eq!(after_a_look(move || ibv_dealloc_mw(mw as *mut ibv_mw)), 0);
        }
        let mr = (v.reg_mr)(pd, bytes.as_mut_ptr().cast(), 64, 1) as usize;
        let dereg = v.dereg_mr;
        assert_eq!(after_a_look(move || dereg(mr as *mut ibv_mr)), 0);
        assert_eq!((v.dealloc_pd)(pd), 0);
        (v.close_device)(context);
    }
}
