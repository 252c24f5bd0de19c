use super::*;
use crate::builtin;
use crate::sample;

fn predict(line: &str, key: &str) -> f64 {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    CONNECTX5.predict(&Workload::parse(&words).unwrap(), key).unwrap()
}

#[test]
fn a_calibrated_device_has_curves_and_their_errors() {
    let experiment = builtin::named("send-recv-latency-by-size").unwrap().experiment().unwrap();
    let mut figure = Figure::new("f", experiment.clone());
    add_curves(&mut figure, false, Some(&sample::calibration()));
    let curve = |figure: &Figure| {
        let ours = figure.predicted.iter().find(|curve| curve.label.starts_with("model: "));
        ours.unwrap().clone()
    };
    // 120 + 1940 + 52, and 15 bytes of 0.2.
    let (x, at_16) = curve(&figure).points[0];
    assert_eq!(x, 16.0);
    assert!((at_16 - 2.115).abs() < 1e-9, "{at_16}");
    assert_eq!(CurveError::compare(&figure, &curve(&figure)), None, "nothing was measured");
    let case = curve(&figure).case.unwrap();
    for (run, factor) in experiment.runs(false).filter(|run| run.case == case).zip([0.5, 1.0]) {
        let points = curve(&figure).points;
        let at = points.iter().find(|(x, _)| *x == run.x as f64).unwrap().1;
        let ns = at * factor * 1e3;
        let result = [("latency_ns_p50".to_owned(), ns.into())].into_iter().collect();
        figure.add(&run, &result);
    }
    let error = CurveError::compare(&figure, &curve(&figure)).unwrap();
    assert!((error.largest - 1.0).abs() < 1e-6 && error.at == 16, "{error:?}");
    assert!((error.median - 0.5).abs() < 1e-6, "{error:?}");
}

/// Worked out by hand from the table of parameters.
#[test]
fn predictions_are_those_of_the_formulas() {
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    near(predict("pingpong --size 16", "latency_ns_p50"), 2115.0);
    let rate = |line: &str| predict(line, "messages_per_s");
    // The window, of one message: 0.12 + 3.4 and 1,000 bytes of 0.2 ns.
    near(rate("bench --preset sequential --size 1000"), 1e6 / 3.72);
    near(rate("bench --size 16 --unacked 8"), 8e6 / 3.419_2);
    // The sender's processor.
    near(rate("bench --preset unbatched --size 16"), 1e6 / 0.12);
    near(rate("bench --unacked 256 --batch 1 --size 16"), 1e6 / 0.12);
    // One queue pair's unit of the card, and the link.
    near(rate("bench --size 16"), 14e6);
    near(predict("bench --size 1000001", "bytes_per_s"), 1_000_001.0 * 1e6 / 84.02);
    near(rate("bench --preset unbatched --size 1000001"), 1e6 / 84.02);
    // Several connections: the card; the receiver's processor; the shared queue.
    near(rate("bench --preset unbatched --threads 16 --size 16"), 1e6 / 0.021_26);
    near(rate("bench --preset unbatched --senders 4 --size 512"), 1e6 / 0.068);
    near(rate("bench --preset unbatched --senders 4 --size 16"), 1e6 / 0.091);
    near(rate("bench --preset unbatched --srq --senders 4 --size 512"), 2e6);
    near(rate("bench --preset unbatched --srq --senders 4 --size 32"), 1e6 / 0.091);
    near(rate("bench --preset unbatched --srq --size 512"), 1e6 / 0.12);
    // Without a receiver's processor.
    near(rate("bench --op write --unacked 64 --batch 8 --senders 4 --size 8"), 1e6 / 0.020_588);
}

#[test]
fn connections_that_read_have_two_trips() {
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    // A SEND, 0.12 + 1.94 + 0.052; a READ, 0.12 + 3.88 + 0.052.
    near(predict("pingpong --protocol direct-read --size 1", "latency_ns_p50"), 6164.0);
    near(predict("pingpong --protocol buffered-read --size 1", "latency_ns_p50"), 8104.0);
    let written = "pingpong --protocol buffered-write --tail written --size 1";
    near(predict(written, "latency_ns_p50"), 2060.0);
    let rate = |line: &str| predict(line, "messages_per_s");
    // The receiver's processor; one READ at a time; the window of READs.
    near(rate("bench --protocol direct-read --size 16"), 1e6 / 0.36);
    near(rate("bench --protocol direct-read --ack fenced-write --size 10"), 1e6 / 4.054);
    near(rate("bench --protocol direct-read --size 100000"), 1e6 / 8.419_916);
    near(rate("bench --protocol direct-read --unacked 1 --size 10"), 1e6 / 8.226);
    // Transfers of 65,536 bytes, in records of 24.
    let alone = "bench --protocol buffered-read --no-prefetch --max-read-bytes 64k --size 16";
    near(rate(alone), 65536e6 / (8.104 + 5.505_024) / 24.0);
    let ahead = "bench --protocol buffered-read --max-read-bytes 64k --size 16";
    near(rate(ahead), 65536e6 / (0.02 + 5.505_024) / 24.0);
    // Transfers of 240 bytes, 10 records, two WRITEs each: a queue pair's unit.
    let gathered = "bench --protocol buffered-write --tail written --batch-bytes 240 --size 16";
    near(rate(gathered), 70e6);
}

#[test]
fn a_multicast_has_an_operation_for_each_write() {
    let line = "multicast --members 3 --burst 1 --push every:";
    assert_eq!(predict(&format!("{line}1"), "rdma_ops_per_message"), 10.0);
    assert_eq!(predict(&format!("{line}25"), "rdma_ops_per_message"), 0.4);
    // Six posts and two trips; inhibited for 150 µs.
    let lone = "multicast --lone --members 3 --push every:";
    assert!((predict(&format!("{lone}1"), "latency_ns_p50") - 4600.0).abs() < 1e-6);
    assert!((predict(&format!("{lone}25"), "latency_ns_p50") - 154_600.0).abs() < 1e-6);
    let flushed = format!("{lone}25 --flush-every 1");
    assert!((predict(&flushed, "latency_ns_p50") - 4600.0).abs() < 1e-6);
}

#[test]
fn the_experiments_have_curves() {
    for name in [
        "send-recv-latency-by-size",
        "send-recv-rate-by-unacked",
        "send-recv-rate-by-batch",
        "send-recv-rate-by-senders",
        "send-recv-rate-by-threads-srq",
        "direct-read-rate-by-senders",
        "direct-read-bandwidth-by-size",
        "buffered-read-latency-by-size",
        "buffered-read-bandwidth-by-transfer-cap",
        "buffered-write-rate-by-gathered-bytes",
        "tutorial-rate-by-batch",
    ] {
        let experiment = builtin::named(name).unwrap().experiment().unwrap();
        let xs = experiment.xs(false).len();
        let mut figure = Figure::new(name, experiment);
        CONNECTX5.draw(&mut figure, false);
        assert!(figure.predicted.iter().any(|curve| curve.points.len() == xs), "{name}");
    }
}
