//! A report for tests: every experiment of the command, with made-up results.

use serde_json::{Map, Value};

use super::builtin;
use super::calibration::Calibration;
use super::experiment::Experiment;
use super::report::{Figure, FiguresReport, Manifest, Predicted};

/// Names that a page has to escape, and long ones.
pub(super) fn manifest() -> Manifest {
    Manifest {
        device: "soft0".into(),
        processor: "A <processor> & \"its\" name".into(),
        cores: 2,
        topology: "one socket".into(),
        build: "0.1.0 (commit 0123456789ab)".into(),
        date: "2026-01-02T03:04:05Z".into(),
        slow: None,
        calibration: None,
        quick: false,
        rounds: 3,
        round_ms: 100,
        command: "rdma-conn figures".into(),
    }
}

/// The parameters of a ConnectX-5, as the thesis has them.
pub(super) fn calibration() -> Calibration {
    Calibration {
        o_snd_ns: 120.0,
        o_snd_batched_ns: 16.0,
        o_rcv_ns: 52.0,
        o_rcv_batched_ns: 17.0,
        o_small_ns: 23.0,
        o_post_ns: 16.0,
        o_post_batched_ns: 7.0,
        g_ns: 3400.0,
        l_ns: 1940.0,
        gap_per_byte_ns: 0.084,
        gap_per_byte_alone_ns: 0.2,
        o_nic_ns: 20.0,
        o_queue_ns: 1000.0 / 14.0,
        o_srq_ns: 500.0,
        g_read_ns: 3880.0,
        reads: 16.0,
    }
}

/// A figure in which each case rises with x, and each round differs a little.
pub(super) fn figure(name: &str, experiment: Experiment, factor: f64) -> Figure {
    let mut figure = Figure::new(name, experiment.clone());
    for round in 0..3 {
        for run in experiment.runs(false) {
            let case = experiment.cases.iter().position(|case| case.label == run.case).unwrap();
            let apart = 1.0 + 0.05 * f64::from(round);
            let value = (run.x as f64).sqrt() * (case + 1) as f64 * apart * factor;
            let of = |y: &super::experiment::Y| (y.key.clone(), Value::from(value * y.divisor()));
            let result: Map<String, Value> = experiment.y.iter().map(of).collect();
            figure.add(&run, &result);
        }
    }
    figure
}

/// All of the command's experiments.
pub(super) fn report(factor: f64) -> FiguresReport {
    let mut report = FiguresReport::new(manifest());
    for builtin in builtin::ALL {
        report.figures.push(figure(builtin.name, builtin.experiment().unwrap(), factor));
    }
    report
}

/// A curve over all x.
pub(super) fn predicted(figure: &Figure, label: &str) -> Predicted {
    let points = figure.experiment.xs(false).iter().map(|x| (*x as f64, 0.1 + *x as f64 / 1e3));
    let y = figure.experiment.y[0].key.clone();
    Predicted { label: label.into(), case: None, y, points: points.collect() }
}
