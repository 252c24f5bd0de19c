//! Selects what the charts of a figure show: one chart for each y axis.

use super::experiment::{Axis, Experiment, Y};
use super::plot::{LineStyle, Plot, PlotAxis, PlotLine, PlotPoint};
use super::report::{Figure, Manifest, Series};
use super::scale::digits;

/// The names of two compared reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportNames<'a> {
    pub(super) a: &'a str,
    pub(super) b: &'a str,
}

/// The charts of a figure of a report: with the papers' marks where the device takes a card's time.
pub(super) fn of_one(figure: &Figure, manifest: &Manifest) -> Vec<Plot> {
    let experiment = &figure.experiment;
    let lines = |y: &Y| {
        let mut lines = measured(figure, y, LineStyle::Measured, &|case| case.to_owned());
        lines.extend(predicted(figure, y));
        lines.extend(papers(experiment, y).into_iter().filter(|_| manifest.takes_card_time()));
        lines
    };
    experiment.y.iter().map(|y| plot(experiment, y, manifest.cores, lines(y))).collect()
}

/// The charts of a figure in two reports.
pub(super) fn of_two(
    (a, of_a): (&Figure, &Manifest),
    (b, of_b): (&Figure, &Manifest),
    names: ReportNames<'_>,
) -> Vec<Plot> {
    let (experiment, cores) = (&a.experiment, of_a.cores.min(of_b.cores));
    let compares = of_a.takes_card_time() || of_b.takes_card_time();
    let lines = |y: &Y| {
        let mut lines = measured(a, y, LineStyle::Measured, &|case| format!("{case}, {}", names.a));
        lines.extend(measured(b, y, LineStyle::Other, &|case| format!("{case}, {}", names.b)));
        lines.extend(papers(experiment, y).into_iter().filter(|_| compares));
        lines
    };
    experiment.y.iter().map(|y| plot(experiment, y, cores, lines(y))).collect()
}

fn plot(experiment: &Experiment, y: &Y, cores: u32, lines: Vec<PlotLine>) -> Plot {
    let x = &experiment.x;
    let shown = |axis: &dyn Axis, scale| PlotAxis {
        heading: axis.heading(),
        unit: axis.unit().to_owned(),
        scale,
    };
    Plot {
        title: format!("{}: {} by {}", experiment.title, y.heading(), lower(&x.label)),
        description: described(y, &lines),
        x: shown(x, x.scale),
        y: shown(y, y.scale),
        xs: experiment.xs(false).iter().map(|x| *x as f64).collect(),
        lines,
        cores_end: x.threads.filter(|_| cores > 0).map(|threads| threads.max_x(cores)),
    }
}

fn lower(label: &str) -> String {
    let mut letters = label.chars();
    // An abbreviation stays unchanged.
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain([second]).chain(letters).collect()
        }
        _ => label.to_owned(),
    }
}

/// The first and the last value of each line, for screen readers.
fn described(y: &Y, lines: &[PlotLine]) -> String {
    let said = lines.iter().filter_map(|line| {
        let (first, last) = (line.marks.first()?, line.marks.last()?);
        let ends = format!("{} to {} {}", digits(first.y), digits(last.y), y.unit());
        Some(format!("{}: {}", line.label, ends.trim_end()))
    });
    said.collect::<Vec<_>>().join("; ") + "."
}

fn measured(
    figure: &Figure,
    y: &Y,
    style: LineStyle,
    label: &dyn Fn(&str) -> String,
) -> Vec<PlotLine> {
    let line = |(index, series): (usize, &Series)| PlotLine {
        label: label(&series.case),
        style,
        index,
        marks: marks(series, y),
    };
    let lines = figure.series.iter().enumerate().map(line);
    lines.filter(|line| !line.marks.is_empty()).collect()
}

fn marks(series: &Series, y: &Y) -> Vec<PlotPoint> {
    let divisor = y.divisor();
    let mark = |point: &super::report::ReportPoint| {
        let spread = point.values.get(&y.key)?.spread()?;
        Some(PlotPoint {
            x: point.x as f64,
            y: spread.median / divisor,
            low: spread.min / divisor,
            high: spread.max / divisor,
        })
    };
    series.points.iter().filter_map(mark).collect()
}

fn predicted<'a>(figure: &'a Figure, y: &'a Y) -> impl Iterator<Item = PlotLine> + 'a {
    let curves = figure.predicted.iter().filter(|curve| curve.y == y.key);
    curves.map(|curve| {
        let model = figure.experiment.curves.iter().find(|known| known.label == curve.label);
        let case = curve.case.as_deref().or(model.and_then(|model| model.case.as_deref()));
        let cases = &figure.experiment.cases;
        // A prediction has the colour of its case.
        let index =
            cases.iter().position(|known| Some(&*known.label) == case).unwrap_or(cases.len());
        let marks = curve.points.iter().map(|(x, y)| PlotPoint::at(*x, *y)).collect();
        PlotLine { label: curve.label.clone(), style: LineStyle::Predicted, index, marks }
    })
}

fn papers(experiment: &Experiment, y: &Y) -> Vec<PlotLine> {
    let first = experiment.axis(None).map(|y| &y.key);
    let here = experiment.papers.iter().filter(|paper| paper.y.as_ref().or(first) == Some(&y.key));
    let xs = experiment.xs(false);
    let ends = || [xs.first(), xs.last()].into_iter().flatten().map(|x| *x as f64);
    let line = |(index, paper): (usize, &super::experiment::Paper)| {
        let points = paper.points.iter().map(|(x, y)| PlotPoint::at(*x, *y));
        let (style, marks) = match paper.level {
            None => (LineStyle::Paper, points.collect()),
            Some(level) => (LineStyle::Level, ends().map(|x| PlotPoint::at(x, level)).collect()),
        };
        PlotLine { label: paper.label.clone(), style, index, marks }
    };
    here.enumerate().map(line).collect()
}
