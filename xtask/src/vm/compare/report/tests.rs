use super::super::cases::chosen;
use super::*;

fn measured(name: &str, rounds: &[(f64, f64)]) -> MeasuredComparison {
    MeasuredComparison {
        comparison: chosen(&[name.to_owned()], &[16]).unwrap()[0],
        rounds: rounds
            .iter()
            .map(|(ours, theirs)| Round { ours: *ours, theirs: *theirs })
            .collect(),
        command: "ours".into(),
        perftest_command: "theirs".into(),
        note: None,
    }
}

#[test]
fn the_ratio_is_that_of_the_medians() {
    let rounds = [(10.0, 10.0), (30.0, 10.0), (12.0, 40.0)];
    let measured = measured("send-bw", &rounds);
    assert_eq!(measured.ratio(), 1.2);
    let line = serde_json::to_value(measured.line()).unwrap();
    assert_eq!(line["case"], "send-bw");
    assert_eq!(line["ratio_rate"], 1.2);
    assert_eq!(line["spread"], 2.7);
    assert_eq!(line["rounds"], 3);
    assert!(line.get("ratio_latency").is_none());
}

#[test]
fn one_round_has_no_spread() {
    let line = serde_json::to_value(measured("send-lat", &[(8.0, 10.0)]).line()).unwrap();
    assert_eq!(line["ratio_latency"], 0.8);
    assert!(line.get("spread").is_none() && line.get("ratio_rate").is_none());
}

#[test]
fn slower_is_a_target_missed() {
    let meets = |name, ours| measured(name, &[(ours, 100.0)]).meets_target();
    assert_eq!(meets("send-bw", 96.0), Some(true));
    assert_eq!(meets("send-bw", 94.0), Some(false));
    assert_eq!(meets("send-lat", 104.0), Some(true));
    assert_eq!(meets("send-lat", 106.0), Some(false));
    assert_eq!(meets("connection-lat", 106.0), None);
    assert_eq!(meets("buffered-read-16", 1910.0), Some(true));
    assert_eq!(meets("buffered-read-16", 1890.0), Some(false));
}

#[test]
fn the_median_of_an_even_number_is_between() {
    assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
    assert_eq!(median(vec![7.0]), 7.0);
}
