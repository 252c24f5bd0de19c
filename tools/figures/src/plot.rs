//! Line charts as inline SVG.
//!
//! Charts need colours from CSS custom properties (light and dark), text that stays readable on a
//! phone, and a title, a description and a label for each point for screen readers. `plotters`
//! writes colours and font sizes as attributes of each element, does not measure text and emits no
//! classes; `charming` needs a script in the page. This module therefore lays out lines and labels
//! itself; `maud` writes and escapes the elements.
//!
//! A page contains each chart in two formats, wide and narrow, and CSS shows the one that fits.
//! **Labels stay inside the view box and do not overlap**: widths are estimated from the widest
//! common fonts.

mod element;
mod marker;
mod words;

use maud::{Markup, PreEscaped, html};

pub(super) use words::{Anchor, Label};

use super::experiment::Scale;
use super::scale::{AxisRange, digits, value_of_x};
use element::{error_bar, px, segment};
use marker::shape;
use words::{FONT, fitted, width};

/// The content of a chart.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: String,
    /// For screen readers.
    pub(super) description: String,
    pub(super) x: PlotAxis,
    pub(super) y: PlotAxis,
    /// Values that the x axis includes even if they were not measured.
    pub(super) xs: Vec<f64>,
    pub(super) lines: Vec<PlotLine>,
    /// The x beyond which runs have more threads than cores.
    pub(super) cores_end: Option<f64>,
}

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct PlotAxis {
    pub(super) heading: String,
    pub(super) unit: String,
    pub(super) scale: Scale,
}

/// A line of a chart.
#[derive(Debug, Clone)]
pub(super) struct PlotLine {
    pub(super) label: String,
    pub(super) style: LineStyle,
    /// Selects colour and marker.
    pub(super) index: usize,
    pub(super) marks: Vec<PlotPoint>,
}

/// The source of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStyle {
    Measured,
    /// The second of two reports: dotted, hollow markers.
    Other,
    /// Points of a paper: hollow markers, no line.
    Paper,
    /// A value of a paper that holds for every x.
    Level,
    /// The prediction of a model: dashed.
    Predicted,
}

/// A point of a line: the median, and the range of its samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlotPoint {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl PlotPoint {
    pub(super) fn at(x: f64, y: f64) -> PlotPoint {
        PlotPoint { x, y, low: y, high: y }
    }
}

/// The width that a chart is laid out for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChartWidth {
    Wide,
    Narrow,
}

impl ChartWidth {
    fn size(self) -> (f64, f64) {
        match self {
            ChartWidth::Wide => (720.0, 300.0),
            ChartWidth::Narrow => (344.0, 230.0),
        }
    }

    fn class(self) -> &'static str {
        match self {
            ChartWidth::Wide => "wide",
            ChartWidth::Narrow => "narrow",
        }
    }
}

/// Space between elements.
const GAP: f64 = 8.0;
/// The height of a line of text.
const ROW: f64 = 19.0;
/// Width of the line sample before a legend label.
const SAMPLE: f64 = 34.0;
/// Half the width of a marker.
const RADIUS: f64 = 3.6;

/// A chart after layout.
pub(super) struct Drawing {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) texts: Vec<Label>,
    shapes: Vec<Markup>,
}

/// The rectangle between the axes, and their ranges.
struct PlotArea {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: AxisRange,
    y: AxisRange,
}

impl PlotArea {
    fn x(&self, value: f64) -> Option<f64> {
        self.x.position(value).map(|at| self.left + at * (self.right - self.left))
    }

    fn y(&self, value: f64) -> Option<f64> {
        self.y.position(value).map(|at| self.bottom - at * (self.bottom - self.top))
    }
}

/// Colours, light and dark, and the looks of what a chart has.
pub(super) const STYLE: &str = include_str!("plot/chart.css");

impl Plot {
    /// The chart as a file of its own: its colours are those of the reader's system, light or dark.
    pub(super) fn file(&self) -> String {
        let drawing = self.layout(ChartWidth::Wide);
        let file = html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(drawing.width) height=(drawing.height)
                viewBox=(format!("0 0 {} {}", drawing.width, drawing.height)) role="img"
                font-size=(FONT) font-family="system-ui, sans-serif" {
                title { (self.title) }
                desc { (self.description) }
                style { (PreEscaped(STYLE)) "svg{background:var(--back)}" }
                @for shape in &drawing.shapes { (shape) }
                @for text in &drawing.texts { (text.element()) }
            }
        };
        file.into_string()
    }

    /// The chart as an SVG element. `id` is unique in the page.
    pub(super) fn svg(&self, format: ChartWidth, id: &str) -> Markup {
        let id = format!("{id}-{}", format.class());
        let drawing = self.layout(format);
        html! {
            svg class=(format.class()) viewBox=(format!("0 0 {} {}", drawing.width, drawing.height))
                role="img" aria-labelledby=(format!("{id}-t {id}-d")) font-size=(FONT) {
                title id=(format!("{id}-t")) { (self.title) }
                desc id=(format!("{id}-d")) { (self.description) }
                @for shape in &drawing.shapes { (shape) }
                @for text in &drawing.texts { (text.element()) }
            }
        }
    }

    /// Reports whether it has a line of points that were measured, or are predicted.
    pub(super) fn has_results(&self) -> bool {
        let is_result =
            |style| matches!(style, LineStyle::Measured | LineStyle::Other | LineStyle::Predicted);
        self.lines.iter().any(|line| is_result(line.style))
    }

    /// Computes the positions of all elements.
    pub(super) fn layout(&self, format: ChartWidth) -> Drawing {
        let (width, height) = format.size();
        let marks = || self.lines.iter().flat_map(|line| &line.marks);
        let x =
            AxisRange::covering(self.x.scale, marks().map(|m| m.x).chain(self.xs.iter().copied()));
        let y = AxisRange::rounded(self.y.scale, marks().flat_map(|m| [m.low, m.y, m.high]));
        let mut drawing = Drawing { width, height: 0.0, texts: Vec::new(), shapes: Vec::new() };
        let ticks = self.y_ticks(&y, height - 2.0 * ROW);
        let widest = ticks.iter().map(|tick| words::width(&digits(*tick))).fold(0.0, f64::max);
        let frame = PlotArea {
            left: widest + 2.0 * GAP,
            right: width - 3.0 * GAP,
            top: ROW + GAP,
            bottom: height - ROW,
            x,
            y,
        };
        drawing.shade(&frame, self.cores_end);
        drawing.text(0.0, ROW - 6.0, Anchor::Start, "heading", fitted(&self.y.heading, width));
        drawing.y_axis(&frame, &ticks);
        drawing.x_axis(&frame, self);
        for line in &self.lines {
            drawing.line(&frame, line, self);
        }
        drawing.legend(&frame, self, frame.bottom + 2.0 * ROW + GAP);
        drawing
    }

    /// The densest ticks with room for their labels.
    fn y_ticks(&self, y: &AxisRange, height: f64) -> Vec<f64> {
        let fits = |ticks: &Vec<f64>| {
            let mut at: Vec<f64> = ticks.iter().filter_map(|tick| y.position(*tick)).collect();
            at.sort_by(f64::total_cmp);
            at.windows(2).all(|pair| (pair[1] - pair[0]) * height >= 1.4 * ROW)
        };
        thinned(y, fits)
    }

    fn x_value(&self, value: f64) -> String {
        match value.fract() == 0.0 && (0.0..1e15).contains(&value) {
            true => value_of_x(value as u64, &self.x.unit),
            false => digits(value),
        }
    }
}

/// The densest ticks for which `fits` holds.
fn thinned(span: &AxisRange, fits: impl Fn(&Vec<f64>) -> bool) -> Vec<f64> {
    (0..32).map(|thinning| span.ticks(thinning)).find(fits).unwrap_or_default()
}

impl Drawing {
    fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &'static str, content: String) {
        self.texts.push(Label { x, y, anchor, class, content });
    }

    /// Shades the range in which runs have more threads than cores.
    fn shade(&mut self, frame: &PlotArea, end: Option<f64>) {
        let Some(from) = end.and_then(|end| frame.x(end.max(f64::MIN_POSITIVE))) else { return };
        if from < frame.right - 0.5 {
            self.shapes.push(html! {
                rect class="beyond" x=(px(from)) y=(px(frame.top)) width=(px(frame.right - from))
                    height=(px(frame.bottom - frame.top)) {}
            });
        }
    }

    fn y_axis(&mut self, frame: &PlotArea, ticks: &[f64]) {
        for tick in ticks {
            let Some(y) = frame.y(*tick) else { continue };
            self.shapes.push(segment("grid", (frame.left, y), (frame.right, y)));
            self.text(frame.left - GAP, y + 4.5, Anchor::End, "tick", digits(*tick));
        }
        self.shapes.push(segment("axis", (frame.left, frame.top), (frame.left, frame.bottom)));
    }

    fn x_axis(&mut self, frame: &PlotArea, plot: &Plot) {
        let label = |tick: f64| {
            let x = frame.x(tick)?;
            let content = plot.x_value(tick);
            Some(Label { x, y: frame.bottom + ROW, anchor: Anchor::Middle, class: "tick", content })
        };
        let labels =
            |ticks: &Vec<f64>| -> Vec<Label> { ticks.iter().copied().filter_map(label).collect() };
        let fits = |ticks: &Vec<f64>| {
            let labels = labels(ticks);
            let inside = labels.iter().all(|text| text.left() >= 0.0 && text.right() <= self.width);
            inside && labels.windows(2).all(|pair| pair[0].right() + GAP <= pair[1].left())
        };
        let ticks = thinned(&frame.x, fits);
        for text in labels(&ticks) {
            let (x, y) = (text.x, frame.bottom);
            self.shapes.push(segment("axis", (x, y), (x, y + 5.0)));
            self.texts.push(text);
        }
        let (left, right) = ((frame.left, frame.bottom), (frame.right, frame.bottom));
        self.shapes.push(segment("axis", left, right));
        let heading = fitted(&plot.x.heading, self.width);
        let room = words::width(&heading) / 2.0;
        // Centred below the axis, but inside the view box.
        let middle = f64::midpoint(frame.left, frame.right).clamp(room, self.width - room);
        self.text(middle, frame.bottom + 2.0 * ROW, Anchor::Middle, "heading", heading);
    }

    fn line(&mut self, frame: &PlotArea, line: &PlotLine, plot: &Plot) {
        let place = |mark: &PlotPoint| Some((frame.x(mark.x)?, frame.y(mark.y)?, *mark));
        let placed: Vec<(f64, f64, PlotPoint)> = line.marks.iter().filter_map(place).collect();
        let class = line.class();
        if line.style != LineStyle::Paper && placed.len() > 1 {
            let points: Vec<String> =
                placed.iter().map(|(x, y, _)| format!("{},{}", px(*x), px(*y))).collect();
            self.shapes.push(html! {
                polyline class=(format!("line {class}")) points=(points.join(" ")) {}
            });
        }
        for (x, y, mark) in placed {
            if let (Some(low), Some(high)) = (frame.y(mark.low), frame.y(mark.high))
                && mark.low < mark.high
            {
                self.shapes.push(error_bar(&class, x, low, high));
            }
            if line.style != LineStyle::Predicted {
                let what = format!("{}, {}", line.label, plot.x_value(mark.x));
                let apart = match mark.low < mark.high {
                    true => format!(" ({} to {})", digits(mark.low), digits(mark.high)),
                    false => String::new(),
                };
                self.shapes.push(html! {
                    path class=(format!("mark {class}")) d=(shape(line.index, x, y, RADIUS)) {
                        title { (what) ": " (digits(mark.y)) (apart) }
                    }
                });
            }
        }
    }

    /// Adds the legend in rows, and sets the height of the drawing.
    fn legend(&mut self, frame: &PlotArea, plot: &Plot, top: f64) {
        let (mut x, mut y) = (0.0, top + ROW - 6.0);
        let shaded = frame_has_shade(frame, plot.cores_end);
        let shaded = shaded.then_some((None, "more threads than cores"));
        let lines = plot.lines.iter().map(|line| (Some(line), &*line.label));
        for (line, label) in lines.chain(shaded) {
            let label = fitted(label, self.width - SAMPLE);
            let room = SAMPLE + width(&label);
            if x > 0.0 && x + room > self.width {
                (x, y) = (0.0, y + ROW);
            }
            self.shapes.push(sample(line, x, y - 4.5));
            self.text(x + SAMPLE, y, Anchor::Start, "legend", label);
            x += room + 2.0 * GAP;
        }
        self.height = (y + GAP).ceil();
    }
}

fn frame_has_shade(frame: &PlotArea, end: Option<f64>) -> bool {
    let from = end.and_then(|end| frame.x(end.max(f64::MIN_POSITIVE)));
    from.is_some_and(|from| from < frame.right - 0.5)
}

/// The legend sample of a line; without one, of the shading.
fn sample(line: Option<&PlotLine>, x: f64, y: f64) -> Markup {
    let Some(line) = line else {
        return html! {
            rect class="beyond" x=(px(x)) y=(px(y - 6.0)) width=(px(SAMPLE - GAP)) height="12" {}
        };
    };
    let (class, middle) = (line.class(), x + (SAMPLE - GAP) / 2.0);
    html! {
        @if line.style != LineStyle::Paper {
            (segment(&format!("line {class}"), (x, y), (x + SAMPLE - GAP, y)))
        }
        @if line.style != LineStyle::Predicted {
            path class=(format!("mark {class}")) d=(shape(line.index, middle, y, RADIUS)) {}
        }
    }
}

impl PlotLine {
    fn class(&self) -> String {
        match self.style {
            LineStyle::Measured => format!("c{}", self.index),
            LineStyle::Other => format!("c{} other", self.index),
            LineStyle::Paper => "paper".into(),
            LineStyle::Level => "paper level".into(),
            LineStyle::Predicted => format!("c{} predicted", self.index),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
