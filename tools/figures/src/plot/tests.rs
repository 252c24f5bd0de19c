//! Layouts: texts within the drawing, none over another one, and no number that is none.

use proptest::prelude::*;

use super::*;

const FORMATS: [ChartWidth; 2] = [ChartWidth::Wide, ChartWidth::Narrow];

fn shown(heading: &str, unit: &str, scale: Scale) -> PlotAxis {
    PlotAxis { heading: heading.into(), unit: unit.into(), scale }
}

fn line(label: &str, style: LineStyle, index: usize, points: &[(f64, f64)]) -> PlotLine {
    let marks = points.iter().map(|(x, y)| PlotPoint { x: *x, y: *y, low: y * 0.9, high: y * 1.2 });
    PlotLine { label: label.into(), style, index, marks: marks.collect() }
}

fn plot(scale: Scale, lines: Vec<PlotLine>) -> Plot {
    Plot {
        title: "Rate by size".into(),
        description: "It rises.".into(),
        x: shown("Message size", "B", Scale::Log2),
        y: shown("Messages per second (M msg/s)", "M msg/s", scale),
        xs: Vec::new(),
        lines,
        cores_end: None,
    }
}

/// All texts are inside, and none touches another one.
#[track_caller]
pub(crate) fn assert_readable(plot: &Plot) {
    for format in FORMATS {
        let drawing = plot.layout(format);
        let texts = &drawing.texts;
        for (at, text) in texts.iter().enumerate() {
            assert!(text.left() >= 0.0 && text.right() <= drawing.width, "{format:?}: {text:?}");
            assert!(text.top() >= 0.0 && text.bottom() <= drawing.height, "{format:?}: {text:?}");
            for other in &texts[..at] {
                let across = text.left() < other.right() && other.left() < text.right();
                let down = text.top() < other.bottom() && other.top() < text.bottom();
                assert!(!(across && down), "{format:?}: {text:?} over {other:?}");
            }
        }
        let svg = plot.svg(format, "id").into_string();
        for bad in ["NaN", "inf", "-0.0 "] {
            assert!(!svg.contains(bad), "{svg}");
        }
    }
}

#[test]
fn a_chart_has_its_parts() {
    let sizes: Vec<(f64, f64)> =
        (4..=20).step_by(2).map(|n| (2_f64.powi(n), f64::from(n))).collect();
    let mut plot = plot(
        Scale::Linear,
        vec![
            line("batched", LineStyle::Measured, 0, &sizes),
            line("the other one's", LineStyle::Other, 0, &sizes),
            line("a paper's", LineStyle::Paper, 1, &sizes[..1]),
            line("a level", LineStyle::Level, 2, &[(16.0, 9.0), (1e6, 9.0)]),
            line("a model", LineStyle::Predicted, 0, &sizes),
        ],
    );
    plot.cores_end = Some(1024.0);
    assert_readable(&plot);
    let svg = plot.svg(ChartWidth::Wide, "id").into_string();
    for part in [
        "<title id=\"id-wide-t\">Rate by size</title>",
        "<desc id=\"id-wide-d\">It rises.</desc>",
        "aria-labelledby=\"id-wide-t id-wide-d\"",
        "class=\"line c0\"",
        "class=\"line c0 other\"",
        "class=\"mark paper\"",
        "class=\"line paper level\"",
        "class=\"line c0 predicted\"",
        "class=\"bar c0\"",
        "class=\"beyond\"",
        ">64 KiB</text>",
        ">more threads than cores</text>",
        "<title>batched, 64 KiB: 16 (14.4 to 19.2)</title>",
    ] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    assert!(!svg.contains("class=\"line paper\""), "a paper's points have no line");
}

#[test]
fn what_is_within_the_cores_is_not_shaded() {
    let mut plot =
        plot(Scale::Linear, vec![line("a", LineStyle::Measured, 0, &[(1.0, 1.0), (8.0, 2.0)])]);
    for (end, is_shaded) in
        [(None, false), (Some(8.0), false), (Some(2.0), true), (Some(0.0), true)]
    {
        plot.cores_end = end;
        let svg = plot.svg(ChartWidth::Wide, "id").into_string();
        assert_eq!(svg.contains("beyond"), is_shaded, "{end:?}");
        assert_readable(&plot);
    }
}

#[test]
fn texts_are_escaped() {
    let plot = plot(Scale::Linear, vec![line("<b>&\"", LineStyle::Measured, 0, &[(16.0, 1.0)])]);
    let svg = plot.svg(ChartWidth::Wide, "id").into_string();
    assert!(svg.contains("&lt;b&gt;&amp;&quot;") && !svg.contains("<b>"), "{svg}");
}

#[test]
fn a_chart_without_points_is_one_all_the_same() {
    for scale in [Scale::Linear, Scale::Log10] {
        assert_readable(&plot(scale, Vec::new()));
        // Nothing of it has a place on a logarithmic scale.
        assert_readable(&plot(scale, vec![line("none", LineStyle::Measured, 0, &[(16.0, 0.0)])]));
    }
}

fn points() -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((1.0..2e6_f64, prop_oneof![Just(0.0), 1e-6..1e9_f64]), 0..12)
}

proptest! {
    /// Whatever was measured and however it is called, a reader can read it.
    #[test]
    fn any_chart_is_readable(
        lines in prop::collection::vec(("[a-mo-zA-MO-Zµ ,0-9]{0,60}", points()), 0..9),
        scale in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
        x in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
        end in prop::option::of(0.0..2e6_f64),
    ) {
        let lines = lines.iter().enumerate();
        let lines = lines.map(|(at, (label, points))| line(label, LineStyle::Measured, at, points));
        let mut plot = plot(scale, lines.collect());
        plot.x.scale = x;
        plot.cores_end = end;
        assert_readable(&plot);
    }
}
