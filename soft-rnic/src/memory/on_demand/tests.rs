use core::sync::atomic::Ordering;

use super::*;

#[test]
fn an_exchange_is_atomic_with_others() {
    const EACH: u64 = 200;
    let mut words = [0_u64];
    let word = MemSpan::from_words(&mut words).ptr().expose_provenance();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..EACH {
                    // SAFETY: the word outlives the threads, which access it so only.
                    let old = unsafe {
                        let word = core::ptr::with_exposed_provenance_mut(word);
                        exchange(MemSpan::shared(word, 8), |word| {
                            // Others have their turn between both copies.
                            host::thread::yield_now();
                            word.fetch_add(1, Ordering::Relaxed)
                        })
                    };
                    assert!(old.is_ok());
                }
            });
        }
    });
    assert_eq!(words, [4 * EACH]);
}
