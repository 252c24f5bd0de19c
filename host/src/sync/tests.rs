use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
fn no_thread_passes_a_barrier_before_all_have_come() {
    let (barrier, came) = (Barrier::new(3), AtomicU32::new(0));
    crate::thread::scope(|scope| {
        for _ in 0..3 {
            let passes = || {
                for round in 1..=50 {
                    came.fetch_add(1, Ordering::Relaxed);
                    barrier.wait().unwrap();
                    assert_eq!(came.load(Ordering::Relaxed), 3 * round);
                    barrier.wait().unwrap();
                }
            };
            scope.spawn(passes).unwrap();
        }
    });
}

#[test]
fn no_thread_waits_at_a_barrier_for_one_that_does_not_come() {
    let barrier = Barrier::new(3);
    crate::thread::scope(|scope| {
        let waiting = [(); 2].map(|()| scope.spawn(|| barrier.wait()).unwrap());
        barrier.abort();
        assert!(waiting.into_iter().all(|thread| thread.join().unwrap() == Err(BrokenBarrier)));
    });
    assert_eq!(barrier.wait(), Err(BrokenBarrier), "it is the third one");
}
