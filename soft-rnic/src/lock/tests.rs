use super::*;

#[test]
fn only_one_thread_is_inside() {
    let counter = Lock::new(0_u64);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let mut value = counter.lock();
                    let seen = *value;
                    host::thread::spin_loop();
                    *value = seen + 1;
                }
            });
        }
    });
    assert_eq!(*counter.lock(), 40_000);
}

#[test]
fn a_holder_gives_way_to_a_thread_that_waits() {
    let lock = Lock::new(0);
    let mut guard = lock.lock();
    guard = guard.give_way();
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
        while !lock.is_awaited.load(Ordering::Relaxed) {
            host::thread::yield_now();
        }
        // The waiter may have no processor meanwhile.
        for _ in 0..100_000 {
            guard = guard.give_way();
            if *guard == 1 {
                break;
            }
        }
        // The waiter has it in the end, also if this fails.
        let came = *guard;
        drop(guard);
        assert_eq!(came, 1);
    });
    assert!(!lock.is_awaited.load(Ordering::Relaxed));
}
