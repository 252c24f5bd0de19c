use super::*;
use crate::objects::device::default_device;
use crate::objects::state::PeerProcesses;
use crate::objects::state::{Device, ExecutionMode, Qp};
use crate::verbs::import::{import_mr, unimport_mr};

/// While an execution is under way, the key is invalid, and the region as the execution has
/// found it.
#[test]
fn no_execution_finds_a_region_half_changed() {
    let v = crate::table();
    let (mut old, mut new) = ([0_u8; 64], [0_u8; 128]);
    // SAFETY: the verbs are used as their manual pages say.
    unsafe {
        let qp = crate::testing::queue_pair();
        let ibv_qp { context, pd, send_cq: cq, .. } = *qp;
        let mr = (v.reg_mr)(pd, old.as_mut_ptr().cast(), 64, 1);
        let (device, key) = (default_device(), (*mr).lkey);
        let slot = device.mrs.slot(key).unwrap();
        let (mr, new) = (mr as usize, new.as_mut_ptr() as usize);
        std::thread::scope(|scope| {
            let object = Qp::from_abi(qp).unwrap();
            let execution = object.sq.lock();
            let thread = scope.spawn(move || {
                let (flags, pd) = (TRANSLATION as c_int, core::ptr::null_mut());
                rereg_mr(mr as *mut ibv_mr, flags, pd, new as *mut c_void, 128, 0)
            });
            while slot.key.load(Ordering::Acquire) != 0 && !thread.is_finished() {
                host::thread::yield_now();
            }
            // It has all the time that it wants.
            for _ in 0..10_000 {
                host::thread::yield_now();
            }
            let seen = (slot.key.load(Ordering::Acquire), slot.published());
            assert_eq!((seen.0, seen.1.length, thread.is_finished()), (0, 64, false));
            assert_eq!(seen.1.addr, old.as_ptr() as u64);
            drop(execution);
            assert_eq!(thread.join().unwrap(), 0);
        });
        assert_eq!((slot.key.load(Ordering::Acquire), slot.published().length), (key, 128));
        let gone = [(v.dereg_mr)(mr as *mut ibv_mr), (v.destroy_qp)(qp), (v.destroy_cq)(cq)];
        assert_eq!((gone, (v.dealloc_pd)(pd)), ([0; 3], 0));
        (v.close_device)(context);
    }
}

/// Time that a call which should not wait may take before the test fails.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Reports whether a key is valid, in this process and as others see it.
fn is_valid(device: &Device, key: u32) -> [bool; 2] {
    let slot = device.mrs.slot(key).unwrap();
    let here = device.peers.as_ref().and_then(PeerProcesses::claimed).expect("a slot");
    [slot.key.load(Ordering::Acquire) == key, here.directory.version(key).is_some()]
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Rereg,
    Dereg,
}

/// The error of a call, by the address of a struct; 0 for none.
fn call(which: Call, mr: usize) -> c_int {
    let (mr, flags, none) = (mr as *mut ibv_mr, ACCESS as c_int, core::ptr::null_mut());
    // SAFETY: the struct is the calling thread's, and the region's memory stays.
    unsafe {
        match which {
            Call::Dereg => crate::objects::mr::dereg_mr(mr),
            Call::Rereg => match rereg_mr(mr, flags, none, none.cast(), 0, 1) {
                0 => 0,
                _ => *libc::__errno_location(),
            },
        }
    }
}

/// A call waits for an execution, and the other one is made through another struct meanwhile.
fn collide(device: &Device, qp: *mut ibv_qp, key: u32, calls: [(Call, usize); 2]) -> [c_int; 2] {
    // SAFETY: the queue pair is alive.
    let object = unsafe { Qp::from_abi(qp) }.unwrap();
    std::thread::scope(|scope| {
        let execution = object.sq.lock();
        let [first, second] = calls;
        let first = scope.spawn(move || call(first.0, first.1));
        while is_valid(device, key)[0] && !first.is_finished() {
            host::thread::yield_now();
        }
        let second = scope.spawn(move || call(second.0, second.1));
        // It waits for nothing; if it does, then for the execution.
        let began = host::time::now();
        while !second.is_finished() && host::time::since(began) < PATIENCE {
            host::thread::yield_now();
        }
        drop(execution);
        [first, second].map(|thread| thread.join().unwrap())
    })
}

/// Whichever calls meet, a region that was deregistered has no key any more.
#[test]
fn no_key_is_valid_after_its_end() {
    use Call::{Dereg, Rereg};
    let v = crate::table();
    let device = Device::new("test", 1 << 50, ExecutionMode::Synchronous);
    let qp = crate::testing::queue_pair_on(&device);
    device.mrs.publish_all(device.peers.as_ref().unwrap());
    let mut memory = [0_u8; 64];
    // SAFETY: the verbs are used as their manual pages say.
    unsafe {
        let ibv_qp { context, pd, send_cq: cq, .. } = *qp;
        for calls in [[Rereg, Dereg], [Rereg, Rereg], [Dereg, Rereg], [Dereg, Dereg]] {
            let mr = (v.reg_mr)(pd, memory.as_mut_ptr().cast(), 64, 1);
            let (key, again) = ((*mr).lkey, import_mr(pd, (*mr).handle));
            assert_eq!(is_valid(&device, key), [true; 2]);
            let structs = [mr as usize, again as usize];
            let met = collide(&device, qp, key, [0, 1].map(|i| (calls[i], structs[i])));
            let was_deregistered = matches!(calls[0], Dereg);
            assert_eq!(is_valid(&device, key), [!was_deregistered; 2], "{calls:?}: {met:?}");
            assert_eq!(met, [0, libc::EBUSY], "{calls:?}");
            let left = if was_deregistered { again } else { mr } as usize;
            if !was_deregistered {
                assert_eq!(call(Dereg, again as usize), 0);
            }
            assert_eq!([Rereg, Dereg].map(|which| call(which, left)), [libc::ENOENT; 2]);
            assert_eq!(is_valid(&device, key), [false; 2], "{calls:?}");
            unimport_mr(left as *mut ibv_mr);
        }
        let gone = [(v.destroy_qp)(qp), (v.destroy_cq)(cq), (v.dealloc_pd)(pd)];
        assert_eq!(gone, [0; 3]);
        (v.close_device)(context);
    }
}
