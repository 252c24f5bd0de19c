use super::*;

const MS: u64 = 1_000_000;

/// Two senders, the second of which begins 5 ms later. Each is faster than the line alone, which holds 40
/// packets besides the queue.
fn two(mark_above: usize) -> (Line, Simulation) {
    let line = Line {
        senders: 2,
        send_ns: 500,
        window: 256,
        queue: 100,
        mark_above,
        ..Line::new(1_000, 40_000)
    };
    (line, Simulation::new(line, 5 * MS))
}

#[test]
fn marks_keep_a_queue_short_and_two_senders_share_the_line() {
    let (line, mut simulation) = two(20);
    // A sender begins with its whole window.
    simulation.run(20 * MS);
    for _ in 0..5 {
        let report = simulation.run(50 * MS);
        assert_eq!(report.dropped, 0);
        assert!(report.longest < 60, "{report:?}");
        assert!(report.fairness() > 0.99, "{report:?}");
        assert!(report.efficiency(&line, 50 * MS) > 0.99, "{report:?}");
        assert!(report.marked > 0 && report.notified <= 2 * 50 * MS / 50_000, "{report:?}");
    }
}

#[test]
fn without_marks_the_queue_is_full_and_packets_are_dropped() {
    let (line, mut simulation) = two(usize::MAX);
    simulation.run(20 * MS);
    let report = simulation.run(50 * MS);
    assert!(report.dropped > 1_000 && report.longest == line.queue, "{report:?}");
    assert_eq!((report.marked, report.notified), (0, 0));
    assert!(report.efficiency(&line, 50 * MS) < 0.9, "{report:?}");
}
