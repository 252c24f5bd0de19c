//! Renders reports as HTML: one self-contained file without scripts or external resources.

mod parts;
mod requirements;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{ReportNames, of_one, of_two};
use super::expect::{StatusTally, verdicts};
use super::experiment::Experiment;
use super::plot;
use super::report::{CSV, Figure, FiguresReport, JSON, Manifest};

/// The name of the page in the folder of a report.
pub(crate) const HTML: &str = "index.html";

const STYLE: &str = include_str!("page/style.css");

/// The folder of the charts, in the folder of a report.
pub(crate) const CHARTS: &str = "charts";

/// Each chart of a report as a file of SVG: its name, within a folder whatever the figure is called,
/// and what it has.
pub(crate) fn charts(report: &FiguresReport) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for figure in &report.figures {
        let plots = of_one(figure, &report.manifest);
        for (at, plot) in plots.iter().enumerate().filter(|(_, plot)| plot.has_results()) {
            let number = if at > 0 { format!("-{}", at + 1) } else { String::new() };
            let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
            let name: String =
                figure.name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
            let mut file = format!("{name}{number}.svg");
            while files.iter().any(|(known, _)| *known == file) {
                file.insert(0, '-');
            }
            files.push((file, plot.file()));
        }
    }
    files
}

/// Renders a report.
///
/// # Errors
/// The report cannot be serialised as JSON or CSV, which the page embeds.
pub(crate) fn page(report: &FiguresReport) -> anyhow::Result<String> {
    let manifest = &report.manifest;
    let tally = StatusTally::count(report);
    let (json, csv) = (report.json()?, report.csv()?);
    let body = html! {
        header {
            h1 { "RDMA connections on " (manifest.device) }
            (parts::banners(manifest))
            (parts::manifest(manifest))
            p { (parts::tally(tally)) }
            p.data {
                a download=(JSON) href=(parts::data("application/json", &json)) { "All of it as JSON" }
                " · "
                a download=(CSV) href=(parts::data("text/csv", &csv)) { "Samples as CSV" }
                " · "
                a href=(format!("#{}", requirements::ID)) { "What the thesis asks" }
            }
        }
        (contents(report.figures.iter().map(|figure| (&*figure.name, &figure.experiment))))
        main {
            @for (group, figures) in groups(&report.figures, |figure| &figure.experiment.group) {
                section {
                    h2 { (group) }
                    @for figure in figures { (shown(figure, manifest)) }
                }
            }
            (requirements::requirements(report)?)
        }
    };
    Ok(document(&format!("rdma-conn figures: {}", manifest.device), body))
}

/// Renders two reports as one page.
pub(crate) fn compare(a: &FiguresReport, b: &FiguresReport) -> String {
    let pairs: Vec<(&Figure, &Figure)> =
        a.figures.iter().filter_map(|figure| Some((figure, b.figure(&figure.name)?))).collect();
    let alone = |these: &FiguresReport, others: &FiguresReport| -> Vec<String> {
        let names = these.figures.iter().map(|figure| &figure.name);
        names.filter(|name| others.figure(name).is_none()).cloned().collect()
    };
    let body = html! {
        header {
            h1 { "RDMA connections, two reports" }
            div.pair {
                div { h2 { "A: " (a.manifest.device) } (parts::manifest(&a.manifest)) }
                div { h2 { "B: " (b.manifest.device) } (parts::manifest(&b.manifest)) }
            }
            p { "Lines of A are drawn through, those of B are dotted. Ratios are B divided by A, of \
                 medians." }
            @for (name, alone) in [("A", alone(a, b)), ("B", alone(b, a))] {
                @if !alone.is_empty() {
                    p.reason { "Only in " (name) ": " (alone.join(", ")) "." }
                }
            }
        }
        (contents(pairs.iter().map(|(figure, _)| (&*figure.name, &figure.experiment))))
        main {
            @for (group, pairs) in groups(&pairs, |(figure, _)| &figure.experiment.group) {
                section {
                    h2 { (group) }
                    @for (one, other) in pairs {
                        (both(one, other, &a.manifest, &b.manifest))
                    }
                }
            }
        }
    };
    document("rdma-conn figures: two reports", body)
}

fn document(title: &str, body: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(plot::STYLE)) (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Groups things by name. Groups are in the order of their first members.
fn groups<'a, T>(things: &'a [T], group: impl Fn(&'a T) -> &'a str) -> Vec<(&'a str, Vec<&'a T>)> {
    let mut groups: Vec<(&str, Vec<&T>)> = Vec::new();
    for thing in things {
        let name = group(thing);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(thing),
            None => groups.push((name, vec![thing])),
        }
    }
    groups
}

fn contents<'a>(figures: impl Iterator<Item = (&'a str, &'a Experiment)>) -> Markup {
    let figures: Vec<(&str, &Experiment)> = figures.collect();
    html! {
        nav aria-label="Figures" {
            @for (group, figures) in groups(&figures, |(_, experiment)| &experiment.group) {
                div {
                    h2 { (group) }
                    ul {
                        @for (name, experiment) in figures {
                            li { a href=(format!("#{name}")) { (experiment.title) } }
                        }
                    }
                }
            }
        }
    }
}

/// A figure: charts, verdicts, commands, values and sources.
fn shown(figure: &Figure, manifest: &Manifest) -> Markup {
    let experiment = &figure.experiment;
    let verdicts = verdicts(figure, &manifest.device, manifest.quick);
    html! {
        article id=(figure.name) {
            (parts::heading(&figure.name, experiment))
            (parts::reasons(figure, None))
            @if figure.has_results() {
                (parts::charts(&figure.name, &of_one(figure, manifest)))
                @if figure.has_points() { (parts::verdicts(&verdicts)) (parts::model_errors(figure)) }
                (parts::commands(experiment))
                @if figure.has_points() { (parts::values(figure)) }
            } @else {
                (parts::commands(experiment))
            }
            (parts::sources(experiment))
        }
    }
}

/// A figure of two reports: both in each chart, and their ratios.
fn both(a: &Figure, b: &Figure, of_a: &Manifest, of_b: &Manifest) -> Markup {
    let experiment = &a.experiment;
    let names = ReportNames { a: "A", b: "B" };
    html! {
        article id=(a.name) {
            (parts::heading(&a.name, experiment))
            (parts::reasons(a, Some(names.a)))
            (parts::reasons(b, Some(names.b)))
            @if a.experiment.cases != b.experiment.cases {
                p.reason { "The experiments of A and B are not the same." }
            }
            @if a.has_points() || b.has_points() {
                (parts::charts(&a.name, &of_two((a, of_a), (b, of_b), names)))
                (parts::commands(experiment))
                (parts::ratios(a, b))
            }
            (parts::sources(experiment))
        }
    }
}

#[cfg(test)]
mod tests;
