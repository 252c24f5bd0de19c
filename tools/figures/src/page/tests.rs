//! Pages of made-up reports.

use super::*;
use crate::builtin;
use crate::chart;
use crate::plot::tests::assert_readable;
use crate::sample;

/// Checks that a page stands alone: it loads nothing and runs nothing.
#[track_caller]
fn assert_alone(page: &str) {
    for foreign in ["<script", "<link", "<img", "@import", "url(", "src=", "http-equiv"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.starts_with("<!DOCTYPE html>"));
    for bad in ["NaN", "Infinity", "inf\""] {
        assert!(!page.contains(bad), "{bad}");
    }
}

/// Each id is that of one element, and each link within the page leads to one.
#[track_caller]
fn assert_linked(page: &str) {
    let values = |name: &str| -> Vec<String> {
        let start = format!(" {name}=\"");
        let parts = page.split(&*start).skip(1);
        parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())).collect()
    };
    let mut ids = values("id");
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "ids are different");
    for link in values("href").iter().filter_map(|href| href.strip_prefix('#')) {
        assert!(ids.iter().any(|id| id == link), "{link}");
    }
}

#[test]
fn a_page_has_every_figure_with_its_data() {
    let report = sample::report(1.0);
    let page = page(&report).unwrap();
    assert_alone(&page);
    assert_linked(&page);
    for builtin in builtin::ALL {
        let experiment = builtin.experiment().unwrap();
        let start = page.find(&format!("<article id=\"{}\"", builtin.name)).expect(builtin.name);
        let article = &page[start..start + page[start..].find("</article>").unwrap()];
        assert_eq!(article.matches("<svg class=\"wide\"").count(), experiment.y.len());
        assert_eq!(article.matches("<svg class=\"narrow\"").count(), experiment.y.len());
        assert_eq!(article.matches("<table>").count(), experiment.y.len());
        let lines = article.matches("class=\"line c").count();
        // In the chart and in its legend, wide and narrow.
        assert!(lines >= 4 * experiment.cases.len(), "{}: {lines}", builtin.name);
        let verdicts = article.matches("class=\"sign\"").count();
        assert_eq!(verdicts, experiment.expects.len(), "{}", builtin.name);
        for case in &experiment.cases {
            assert!(article.contains(case.run.text()), "{}: {}", builtin.name, case.label);
        }
    }
    assert!(page.contains("A &lt;processor&gt; &amp; &quot;its&quot; name"));
}

#[test]
fn a_page_has_what_the_thesis_asks_with_the_measured_values() {
    let mut report = sample::report(1.0);
    let of_page = |report: &FiguresReport| {
        let page = page(report).unwrap();
        assert_alone(&page);
        assert_linked(&page);
        let start = page.find("<section id=\"requirements\"").unwrap();
        page[start..start + page[start..].find("</section>").unwrap()].to_owned()
    };
    let table = of_page(&report);
    for name in ["Zero copy", "Variable size", "Passive side", "Interrupts", "Sharing"] {
        assert!(table.contains(name), "{name}");
    }
    for name in ["Non-blocking", "Fairness", "Memory by N", "Shared Write", "Direct Read"] {
        assert!(table.contains(name), "{name}");
    }
    assert!(table.contains("up to <code>message_bytes</code>"));
    // Processor use, fairness and memory by N, as this report has them.
    for figure in ["send-recv-processor-use-by-rate", "connections-by-senders"] {
        assert!(table.contains(&format!("href=\"#{figure}\"")), "{figure}");
    }
    assert!(table.contains("shared receive queue <b>2.97 (Senders 2), 33.6 (Senders 256)</b>"));
    // The requirements stand without a measurement; its values do not.
    report.figures.retain(|figure| figure.name == "multicast-rate-by-k");
    let table = of_page(&report);
    assert!(table.contains("Memory by N") && !table.contains("<b>"), "{table}");
}

#[test]
fn every_chart_is_a_file_within_a_folder() {
    let mut report = sample::report(1.0);
    report.figures[0].name = "../../evil name".into();
    let files = charts(&report);
    let all: usize = report.figures.iter().map(|figure| figure.experiment.y.len()).sum();
    assert_eq!(files.len(), all);
    assert_eq!(files[0].0, "------evil-name.svg");
    for (name, chart) in files {
        assert!(!name.contains('/'), "{name}");
        assert!(chart.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{name}");
        assert!(chart.contains("--c0:") && chart.contains("class=\"line c0\""), "{name}");
        assert!(!chart.contains("NaN"), "{name}");
    }
}

#[test]
fn papers_have_marks_beside_a_cards_time_only() {
    for (device, has_marks) in [
        ("soft0", false),
        ("roce:10.0.0.1", false),
        ("rxe0", false),
        ("soft0@card=connectx5", true),
        ("mlx5_0", true),
    ] {
        let mut report = sample::report(1.0);
        report.manifest.device = device.into();
        let page = page(&report).unwrap();
        assert_eq!(page.contains("class=\"mark paper"), has_marks, "{device}");
        assert_eq!(page.contains("the papers' marks are left out"), !has_marks, "{device}");
        assert!(!page.contains("A quick run"));
        report.manifest.quick = true;
        assert!(super::page(&report).unwrap().contains("A quick run"));
    }
}

#[test]
fn every_chart_is_readable() {
    let report = sample::report(1.0);
    let other = sample::report(3e-4);
    for (figure, other) in report.figures.iter().zip(&other.figures) {
        for plot in chart::of_one(figure, &report.manifest) {
            assert_readable(&plot);
        }
        for plot in chart::of_two(
            (figure, &report.manifest),
            (other, &report.manifest),
            ReportNames { a: "A", b: "B" },
        ) {
            assert_readable(&plot);
        }
    }
}

#[test]
fn a_figure_that_was_left_out_says_why() {
    let mut report = sample::report(1.0);
    let figure = &mut report.figures[0];
    figure.skipped = Some("the device has no <SRQ>".into());
    figure.series.iter_mut().for_each(|series| series.points.clear());
    let series = &mut report.figures[1].series[0];
    series.skipped = Some("too few READs".into());
    series.points.clear();
    let page = page(&report).unwrap();
    assert_alone(&page);
    assert_linked(&page);
    assert!(page.contains("Not measured: the device has no &lt;SRQ&gt;"));
    assert!(page.contains("too few READs"));
}

/// A connection may lack the key of an axis.
#[test]
fn an_axis_without_values_says_so() {
    let mut report = sample::report(1.0);
    let figure =
        &mut report.figures.iter_mut().find(|figure| figure.experiment.y.len() > 1).unwrap();
    let (name, key) = (figure.name.clone(), figure.experiment.y[1].key.clone());
    let points = figure.series.iter_mut().flat_map(|series| &mut series.points);
    points.for_each(|point| drop(point.values.remove(&key)));
    let page = page(&report).unwrap();
    let start = page.find(&format!("<article id=\"{name}\"")).unwrap();
    let article = &page[start..start + page[start..].find("</article>").unwrap()];
    assert_eq!(article.matches("<svg class=\"wide\"").count(), 1);
    assert!(article.contains("No run has reported a value: "));
}

#[test]
fn a_model_is_drawn_beside_what_was_measured() {
    let mut report = sample::report(1.0);
    let curve = sample::predicted(&report.figures[0], "model");
    report.figures[0].predicted.push(curve);
    let page = page(&report).unwrap();
    assert!(page.contains("predicted\"") && page.contains(">model</text>"));
    chart::of_one(&report.figures[0], &report.manifest).iter().for_each(assert_readable);
}

#[test]
fn two_reports_are_on_one_page() {
    let (a, mut b) = (sample::report(1.0), sample::report(2.0));
    let only = b.figures.remove(0);
    let page = compare(&a, &b);
    assert_alone(&page);
    assert_linked(&page);
    assert!(page.contains(&format!("Only in A: {}.", only.name)));
    assert!(page.contains("class=\"line c0 other\""));
    assert!(page.contains("(×2)"), "b has twice as much");
    assert!(!page.contains("Only in B"));
}

#[test]
fn expectations_show_as_they_have_come_out() {
    let report = sample::report(1.0);
    let page = page(&report).unwrap();
    let tally = StatusTally::count(&report);
    assert_eq!(page.matches("<li class=\"passed\"").count(), tally.passed);
    assert_eq!(page.matches("<li class=\"failed\"").count(), tally.failed);
    assert!(tally.failed > 0 && page.contains(&parts::tally(tally)));
}
