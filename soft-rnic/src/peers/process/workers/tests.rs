use super::*;
use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};

const LONG: Duration = Duration::from_secs(60);

/// Work for processes that says when it has begun, continues when it is told to, and says when
/// it has ended.
struct Blocked {
    said: Receiver<()>,
    report: Sender<()>,
    go_on: Vec<Sender<()>>,
}

impl Blocked {
    fn new() -> Blocked {
        let (report, said) = channel();
        Blocked { said, report, go_on: Vec::new() }
    }

    /// Begins one that blocks; false if it was not begun.
    fn begin(&mut self, workers: &Arc<Workers>, pid: i32) -> bool {
        let Some(reservation) = workers.reserve(pid) else { return false };
        let (go_on, wait) = channel::<()>();
        let (began, ended) = (self.report.clone(), self.report.clone());
        let blocks = move || {
            let _ = began.send(());
            let _ = wait.recv();
        };
        let ends = move || {
            let _ = ended.send(());
        };
        assert!(reservation.run(blocks, ends));
        self.said.recv_timeout(LONG).unwrap();
        self.go_on.push(go_on);
        true
    }

    fn end(&mut self) {
        let n = self.go_on.len();
        self.go_on.clear();
        (0..n).for_each(|_| self.said.recv_timeout(LONG).unwrap());
    }
}

#[test]
fn blocked_threads_of_a_process_leave_room_for_others() {
    let workers = Arc::<Workers>::default();
    let (mut blocked, mut other) = (Blocked::new(), Blocked::new());
    for _ in 0..2 {
        let begun = (0..40).filter(|_| blocked.begin(&workers, 1)).count();
        assert_eq!(begun, WORKERS_PER_PEER);
        assert!(!workers.has_room(1) && workers.has_room(2));
        assert!(other.begin(&workers, 2));
        other.end();
        blocked.end();
    }
    // One may not have become idle before the next one was needed.
    assert!(workers.threads() <= 2 * (WORKERS_PER_PEER + 1));
}

#[test]
fn there_are_so_many_threads_in_all() {
    let workers = Arc::<Workers>::default();
    let mut blocked = Blocked::new();
    for _ in 0..2 {
        let begun = (0..100).filter(|pid| blocked.begin(&workers, *pid)).count();
        assert_eq!((begun, workers.threads()), (WORKERS, WORKERS));
        blocked.end();
    }
}
