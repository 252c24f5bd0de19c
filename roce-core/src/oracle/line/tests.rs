use super::*;

const MS: u64 = 1_000_000;

/// Two senders, the second of which begins 5 ms later. Each is faster than the line alone, which holds 40
/// packets besides the queue.
fn two(mark_above: usize) -> (LineParams, LineSimulation) {
    let line = LineParams {
        senders: 2,
        send_ns: 500,
        window: 256,
        queue: 100,
        mark_above,
        ..LineParams::new(1_000, 40_000)
    };
    (line, LineSimulation::new(line, 5 * MS))
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

/// Without marks the queue overflows again and again. What is sent for nothing stays a ninth; it is
/// nearly half if the window does not heed the queue.
#[test]
fn two_senders_share_a_line_that_drops_packets() {
    let (line, mut simulation) = two(usize::MAX);
    simulation.run(120 * MS);
    for _ in 0..4 {
        let report = simulation.run(50 * MS);
        assert!(report.dropped > 100 && report.longest == line.queue, "{report:?}");
        assert_eq!((report.marked, report.notified), (0, 0));
        assert!(report.fairness() > 0.99, "{report:?}");
        assert!(report.efficiency(&line, 50 * MS) > 0.87, "{report:?}");
    }
}

/// All behind a lost packet is sent for nothing, in the queue as well.
#[test]
fn a_slow_receiver_loses_little_more_than_a_round_trip() {
    let line = LineParams { send_ns: 1_300, ..LineParams::new(1_707, 40_000) };
    // A round trip holds 23 packets, and each loss costs as many at least: 0.98 and 0.81 are possible. If the
    // window does not heed the queue, it is 0.80 and 0.56.
    for (loss_ppm, least) in [(1_000, 0.92), (10_000, 0.61)] {
        let line = LineParams { loss_ppm, ..line };
        let mut simulation = LineSimulation::new(line, 0);
        simulation.run(100 * MS);
        let efficiency = simulation.run(400 * MS).efficiency(&line, 400 * MS);
        assert!(efficiency > least, "{efficiency} at {loss_ppm} of a million");
    }
}

/// A path that holds more packets than both ends have for a batch: what it holds is used.
#[test]
fn a_long_path_is_used_though_packets_are_lost() {
    let line = LineParams { send_ns: 500, loss_ppm: 100, ..LineParams::new(1_000, 200_000) };
    let efficiency = LineSimulation::new(line, 0).run(500 * MS).efficiency(&line, 500 * MS);
    assert!(efficiency > 0.94, "{efficiency}");
}
