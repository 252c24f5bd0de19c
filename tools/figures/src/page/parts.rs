//! The parts of a page.

use base::spread::Spread;
use maud::{Markup, html};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::calibration::Calibration;
use crate::expect::{ExpectationStatus, ExpectationVerdict, StatusTally};
use crate::experiment::{Axis, Experiment, Y};
use crate::model::CurveError;
use crate::plot::{ChartWidth, Plot};
use crate::report::{Figure, Manifest, ReportPoint};
use crate::scale::{digits, value_of_x};

/// Characters that a data URL must encode.
const IN_LINK: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>');

/// A data URL of the text.
pub(super) fn data(kind: &str, text: &str) -> String {
    format!("data:{kind};charset=utf-8,{}", utf8_percent_encode(text, IN_LINK))
}

/// Warnings about the figures of a run.
pub(super) fn banners(manifest: &Manifest) -> Markup {
    html! {
        @if manifest.quick {
            p.reason {
                b { "A quick run: " }
                "few points and short rounds. It shows that everything runs, and shapes at best; leave --quick out for figures."
            }
        }
        @if !manifest.takes_card_time() {
            p.reason {
                "This device is software: its times are not a card's, and the papers' marks are left out. \
                 --device soft0@card=connectx5 takes a card's time."
            }
        }
    }
}

/// The device, the machine, the build and the settings of a run.
pub(super) fn manifest(manifest: &Manifest) -> Markup {
    let cores = match manifest.topology.is_empty() {
        true => manifest.cores.to_string(),
        false => format!("{} ({})", manifest.cores, manifest.topology),
    };
    let quick = if manifest.quick { ", quick" } else { "" };
    let rounds = format!("{} of {} ms each{quick}", manifest.rounds, manifest.round_ms);
    let slow = manifest.slow.map_or(String::new(), |slow| {
        format!("the clock goes {slow} times slower than the system's, as the device is that much slower than the card")
    });
    let model = manifest.calibration.as_ref().map_or(String::new(), parameters);
    let lines = [
        ("Device", &manifest.device),
        ("Scale", &slow),
        ("Model", &model),
        ("Processor", &manifest.processor),
        ("Cores", &cores),
        ("Rounds", &rounds),
        ("Date", &manifest.date),
        ("Build", &manifest.build),
        ("Command", &manifest.command),
    ];
    html! {
        dl {
            @for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// The parameters of the model, of one request and of one in a list.
fn parameters(of: &Calibration) -> String {
    let two = |name, one, listed| format!("{name} {} ({} in lists)", digits(one), digits(listed));
    format!(
        "{}, {}, {}, o_nic {} (one queue pair {}, shared queue {}), g {}, g_read {}, L {} ns, G {} ns/B \
         (alone {})",
        two("o_snd", of.o_snd_ns, of.o_snd_batched_ns),
        two("o_rcv", of.o_rcv_ns, of.o_rcv_batched_ns),
        two("o_post", of.o_post_ns, of.o_post_batched_ns),
        digits(of.o_nic_ns),
        digits(of.o_queue_ns),
        digits(of.o_srq_ns),
        digits(of.g_ns),
        digits(of.g_read_ns),
        digits(of.l_ns),
        digits(of.gap_per_byte_ns),
        digits(of.gap_per_byte_alone_ns),
    )
}

/// The number of expectations that hold, fail, or were not measured.
pub(super) fn tally(tally: StatusTally) -> String {
    let StatusTally { passed, weaker, failed, not_measured, .. } = tally;
    format!(
        "Expectations: {passed} hold, {weaker} hold and are far from the paper's value, {failed} do not hold, \
         {not_measured} were not measured."
    )
}

pub(super) fn heading(name: &str, experiment: &Experiment) -> Markup {
    html! {
        h3 { a href=(format!("#{name}")) { (experiment.group) ": " (experiment.title) } }
        p { (experiment.about) }
    }
}

/// The reasons for missing results.
pub(super) fn reasons(figure: &Figure, report: Option<&str>) -> Markup {
    let prefix = report.map(|name| format!("{name}: ")).unwrap_or_default();
    let series = figure.series.iter().filter_map(|s| Some((&s.case, s.skipped.as_ref()?)));
    html! {
        @match &figure.skipped {
            Some(why) => p.reason { (prefix) "Not measured: " (why) },
            None => @if !figure.has_points() { p.reason { (prefix) "Not measured." } }
        }
        @for (case, why) in series { p.reason { (prefix) (case) ": " (why) } }
    }
}

/// Each chart in both formats.
pub(super) fn charts(name: &str, plots: &[Plot]) -> Markup {
    html! {
        @for (at, plot) in plots.iter().enumerate() {
            @if plot.has_results() {
                figure {
                    @for format in [ChartWidth::Wide, ChartWidth::Narrow] {
                        (plot.svg(format, &format!("{name}-{at}")))
                    }
                }
            } @else {
                p.reason { "No run has reported a value: " (plot.y.heading) }
            }
        }
    }
}

pub(super) fn verdicts(verdicts: &[ExpectationVerdict]) -> Markup {
    let shown = |status| match status {
        ExpectationStatus::Passed => ("passed", "✓", "holds"),
        ExpectationStatus::Weaker => ("weaker", "≈", "holds, and is far from the paper's"),
        ExpectationStatus::Failed => ("failed", "✗", "does not hold"),
        ExpectationStatus::NotMeasured => ("open", "–", "not measured"),
        ExpectationStatus::Elsewhere => ("open", "–", "not of this device"),
    };
    html! {
        @if !verdicts.is_empty() {
            ul.verdicts {
                @for verdict in verdicts {
                    @let (class, sign, word) = shown(verdict.status);
                    li class=(class) {
                        span.sign role="img" aria-label=(word) { (sign) } " "
                        (verdict.expected)
                        @match verdict.status {
                            ExpectationStatus::NotMeasured | ExpectationStatus::Elsewhere => {
                                " (" (verdict.found) ")"
                            }
                            _ => { "; found: " b { (verdict.found) } }
                        }
                        @if let Some(claim) = &verdict.claim { q { (claim) } }
                        @if let Some(sentence) = &verdict.not_reproduced {
                            "; not so here:"
                            q { (sentence) }
                        }
                    }
                }
            }
        }
    }
}

/// Shows how far the curves of models are from the measured values.
pub(super) fn model_errors(figure: &Figure) -> Markup {
    let errors: Vec<_> = figure
        .predicted
        .iter()
        .filter_map(|curve| Some((curve, CurveError::compare(figure, curve)?)))
        .collect();
    let percent = |part: f64| format!("{} %", digits(100.0 * part));
    html! {
        @if !errors.is_empty() {
            details {
                summary { "Errors of the model" }
                div.scroll tabindex="0" role="region" aria-label="Errors of the model" { table {
                    thead { tr { th { "curve" } th { "of" } th { "median" } th { "largest" } th { "at" } } }
                    tbody {
                        @for (curve, error) in errors {
                            tr {
                                td { (curve.label) }
                                td { (figure.experiment.axis(Some(&curve.y)).map_or("", |y| y.label())) }
                                td { (percent(error.median)) }
                                td { (percent(error.largest)) }
                                td { (value_of_x(error.at, figure.experiment.x.unit())) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

/// The command of each case.
pub(super) fn commands(experiment: &Experiment) -> Markup {
    html! {
        details {
            summary { "Commands" }
            p { "x is " (experiment.x.label()) "." }
            dl.commands {
                @for case in &experiment.cases {
                    div {
                        dt { (case.label) }
                        dd { code { "rdma-conn " (case.run.text()) } }
                    }
                }
            }
        }
    }
}

/// A table of all values for each y.
pub(super) fn values(figure: &Figure) -> Markup {
    let experiment = &figure.experiment;
    html! {
        @for y in &experiment.y {
            details {
                summary { "Values: " (y.heading()) }
                p { "Median (least to most)." }
                (table(figure, |x, case| cell(figure.series(case)?.at(x)?, y)))
            }
        }
    }
}

/// A table of ratios for each y.
pub(super) fn ratios(a: &Figure, b: &Figure) -> Markup {
    html! {
        @for y in &a.experiment.y {
            details {
                summary { "Values: " (y.heading()) }
                p { "A → B (B divided by A)." }
                (table(a, |x, case| pair([a, b].map(|figure| median(figure, x, case, y)))))
            }
        }
    }
}

fn median(figure: &Figure, x: u64, case: &str, y: &Y) -> Option<f64> {
    Some(figure.series(case)?.at(x)?.median(&y.key)? / y.divisor())
}

/// Both medians and their ratio; `None` if both are missing.
fn pair([a, b]: [Option<f64>; 2]) -> Option<String> {
    let shown = |value: Option<f64>| value.map_or("–".into(), digits);
    let both = format!("{} → {}", shown(a), shown(b));
    a.or(b)?;
    let ratio = a.zip(b).map(|(a, b)| b / a).filter(|ratio| ratio.is_finite());
    Some(ratio.map_or(both.clone(), |ratio| format!("{both} (×{})", digits(ratio))))
}

/// A row for each x, a column for each case.
fn table(figure: &Figure, cell: impl Fn(u64, &str) -> Option<String>) -> Markup {
    let experiment = &figure.experiment;
    let mut xs: Vec<u64> = figure.points().map(|(_, point)| point.x).collect();
    xs.sort_unstable();
    xs.dedup();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of values" {
            table {
                thead {
                    tr {
                        th scope="col" { (experiment.x.label()) }
                        @for case in &experiment.cases { th scope="col" { (case.label) } }
                    }
                }
                tbody {
                    @for x in xs {
                        tr {
                            th scope="row" { (value_of_x(x, experiment.x.unit())) }
                            @for case in &experiment.cases {
                                td { (cell(x, &case.label).unwrap_or_else(|| "–".into())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(point: &ReportPoint, y: &Y) -> Option<String> {
    let Spread { median, min, max } = point.values.get(&y.key)?.spread()?;
    let shown = |value: f64| digits(value / y.divisor());
    Some(match min < max {
        true => format!("{} ({} to {})", shown(median), shown(min), shown(max)),
        false => shown(median),
    })
}

/// The sources of published values.
pub(super) fn sources(experiment: &Experiment) -> Markup {
    html! {
        @if !experiment.papers.is_empty() {
            ul.sources {
                @for paper in &experiment.papers {
                    li { (paper.label) ": " (paper.source) }
                }
            }
        }
    }
}
