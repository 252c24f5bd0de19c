//! The sleeper: nobody sleeps through work, and one announcement brings one wake-up.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::sleeper::Sleeper;
use loom::{
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};

/// A sleeper and `N` publishers. Sleeping is remembered, not done: the model then asks
/// whether a wake-up came.
fn nobody_sleeps_through_work<const N: u32>() {
    loom::model(|| {
        let shared = Arc::new((Sleeper::new(), AtomicU32::new(0)));
        let publishers: Vec<_> = (0..N)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.fetch_add(1, Relaxed);
                    shared.0.should_wake()
                })
            })
            .collect();
        let (sleeper, work) = &*shared;
        sleeper.announce();
        let sleeps = work.load(Relaxed) == 0;
        let retracted = !sleeps && sleeper.retract();
        let wakes = publishers.into_iter().filter_map(|p| p.join().ok()).filter(|&w| w).count();
        assert!(!sleeps || wakes == 1, "sleeps, and {wakes} wake-ups come");
        assert!(sleeps || wakes == usize::from(!retracted), "retract tells of wake-ups");
    });
}

#[test]
fn one_publisher() {
    nobody_sleeps_through_work::<1>();
}

#[test]
fn two_publishers_wake_once() {
    nobody_sleeps_through_work::<2>();
}
