//! Reports, saved and read again.

use super::*;
use crate::sample;

#[test]
fn what_is_saved_is_read_again() {
    let report = sample::report(1.0);
    let json = report.json().unwrap();
    assert_eq!(FiguresReport::from_json(&json).unwrap(), report);
    assert!(json.contains("\"median\":") && json.contains("\"samples\":["));
}

#[test]
fn the_csv_has_a_line_for_each_sample() {
    let mut report = sample::report(1.0);
    report.figures.truncate(1);
    report.figures[0].name = "quoted, \"name\"".into();
    let csv = report.csv().unwrap();
    let samples: usize = report.figures[0]
        .points()
        .flat_map(|(_, point)| point.values.values())
        .map(|s| s.len())
        .sum();
    assert_eq!(csv.lines().count(), samples + 1);
    assert!(csv.contains("\n\"quoted, \"\"name\"\"\",default,16,latency_ns_p50,1,"), "{csv}");
}

#[test]
fn another_format_and_a_broken_report_are_refused() {
    let report = sample::report(1.0);
    let json = report.json().unwrap();
    let says = |text: &str| format!("{:#}", FiguresReport::from_json(text).unwrap_err());
    assert!(says(&json.replacen("\"format\":1", "\"format\":2", 1)).contains("reads 1"));
    assert!(says("{}").contains("format"));
    let other =
        json.replacen("\"series\":[{\"case\":\"default\"", "\"series\":[{\"case\":\"another\"", 1);
    assert!(says(&other).contains("its series differ from the cases"));
    let mut twice = report.clone();
    twice.figures.push(twice.figures[0].clone());
    assert!(says(&twice.json().unwrap()).contains("occurs twice"));
    let mut back = report;
    back.figures[0].series[0].points.reverse();
    assert!(says(&back.json().unwrap()).contains("its points are not in the order of x"));
}

#[test]
fn samples_of_rounds_gather_at_their_point() {
    let figure = &sample::report(1.0).figures[0];
    let points = &figure.series("default").unwrap().points;
    assert_eq!(points.len(), figure.experiment.xs(false).len());
    assert_eq!(points[0].rounds, 3);
    assert_eq!(points[0].command, "rdma-conn pingpong --protocol send-recv --size 16");
    let spread = points[0].values["latency_ns_p50"].spread().unwrap();
    assert!(spread.min < spread.median && spread.median < spread.max);
}
