use host::sync::BrokenBarrier;

use super::*;

#[test]
fn threads_end_where_another_one_cannot_be_started() {
    let barrier = &Barrier::new(4);
    host::thread::scope(|scope| {
        let wait = |at| match at {
            0 | 1 => scope.spawn(|| barrier.wait()),
            2 => Err(io::ErrorKind::WouldBlock.into()),
            _ => panic!("another one is tried"),
        };
        let (started, all) = start_all((0..4).map(wait), barrier);
        assert!(all.unwrap_err().to_string().contains("no thread is left after 2"));
        let ended: Vec<_> = started.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(ended, [Err(BrokenBarrier); 2]);
    });
}
