use super::*;

#[test]
fn an_object_ends_once_and_without_users() {
    let users = Users::default();
    users.join().unwrap().keep();
    drop(users.join().unwrap());
    assert_eq!((users.end(), users.has_ended()), (Err(errno::EBUSY), false));
    users.leave();
    assert_eq!((users.end(), users.end()), (Ok(()), Err(errno::ENOENT)));
    assert!(users.has_ended());
    assert_eq!(users.join().map(NewUser::keep), Err(errno::ENOENT));
}

/// Threads that join and leave, and one that ends it: no user is there after the end.
#[test]
fn no_user_comes_after_the_end() {
    for _ in 0..200 {
        let (users, ended) = (Users::default(), core::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Ok(user) = users.join() {
                        assert!(!ended.load(Ordering::SeqCst));
                        drop(user);
                    }
                });
            }
            while users.end() == Err(errno::EBUSY) {}
            ended.store(true, Ordering::SeqCst);
        });
        assert!(users.has_ended());
    }
}
