//! The park flag: its thread sleeps through no work, and one announcement brings one wake-up.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::park_flag::ParkFlag;
use loom::{
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};

/// A sleeper and `N` publishers. The sleeper only records that it sleeps: the model then
/// checks whether a wake-up arrived.
fn the_sleeper_misses_no_work<const N: u32>() {
    loom::model(|| {
        let shared = Arc::new((ParkFlag::new(), AtomicU32::new(0)));
        let publishers: Vec<_> = (0..N)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.fetch_add(1, Relaxed);
                    shared.0.should_wake()
                })
            })
            .collect();
        let (flag, work) = &*shared;
        flag.announce();
        let sleeps = work.load(Relaxed) == 0;
        let retracted = !sleeps && flag.retract();
        let wakes = publishers.into_iter().filter_map(|p| p.join().ok()).filter(|&w| w).count();
        assert!(!sleeps || wakes == 1, "sleeps, and {wakes} wake-ups arrive");
        assert!(sleeps || wakes == usize::from(!retracted), "retract tells of wake-ups");
    });
}

#[test]
fn one_publisher() {
    the_sleeper_misses_no_work::<1>();
}

#[test]
fn two_publishers_wake_once() {
    the_sleeper_misses_no_work::<2>();
}
