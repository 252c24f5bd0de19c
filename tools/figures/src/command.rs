//! `rdma-conn figures`: runs experiments, lists them, and renders reports.

mod machine;
mod measure;
mod named;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use base::cli::CommonArgs;
use base::outcome::{CommandResult, as_usage, say_all, usage};
use base::readable::counted_as;
use base::say;
use base::table::ResultTable;
use serde::Serialize;

use crate::cli::FiguresArgs;
use crate::expect::StatusTally;
use crate::headlines::{Compare, HEADLINES, Headline, Role};
use crate::model::{self, DeviceModel};
use crate::page;
use crate::report::{Figure, FiguresReport, Manifest, replace};
use named::{NamedExperiment, experiments};

pub use named::Parses;

/// A line of `--list --json`.
#[derive(Serialize)]
struct FigureLine<'a> {
    figure: &'a str,
    group: &'a str,
    title: &'a str,
    about: &'a str,
    cases: usize,
    /// Runs of one round.
    runs: usize,
    runs_quick: usize,
}

/// A line of `--render` and `--compare` with `--json`.
#[derive(Serialize)]
struct Written {
    page: String,
    figures: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_measured: Option<usize>,
}

/// Runs experiments, lists them, or renders their reports. Files of experiments are checked by
/// `parses`.
pub fn run(common: &CommonArgs, options: &FiguresArgs, parses: Parses) -> CommandResult {
    let shows = options.list || options.print || options.model.is_some();
    if !(shows || options.render.is_some() || options.compare.is_some()) {
        return measure(common, options, parses);
    }
    if let Some(flag) = common.given().into_iter().find(|flag| *flag != "--json") {
        return Err(usage(format!("{flag}: this opens no device: leave {flag} out")));
    }
    if options.check && options.render.is_none() {
        return Err(usage("--check needs results: measure them, or add --render REPORT"));
    }
    if let Some(report) = &options.render {
        return render(common, options, report);
    }
    if let Some(model) = &options.model {
        return predict(common, options, model, parses);
    }
    if let Some([a, b]) = options.compare.as_deref() {
        return compare(common, options, a, b);
    }
    if options.out.is_some() {
        return Err(usage("--out: nothing is written: leave it out"));
    }
    let experiments = experiments(&options.experiments, parses)?;
    match options.print {
        true => print(&experiments),
        false => list(common, &experiments),
    }
}

fn list(common: &CommonArgs, experiments: &[NamedExperiment]) -> CommandResult {
    let mut table = ResultTable::new(1, &["name", "cases", "runs of\na round", "quick"]);
    for NamedExperiment { name, experiment, .. } in experiments {
        let runs = |quick| experiment.runs(quick).count();
        let line = FigureLine {
            figure: name,
            group: &experiment.group,
            title: &experiment.title,
            about: &experiment.about,
            cases: experiment.cases.len(),
            runs: runs(false),
            runs_quick: runs(true),
        };
        if common.json {
            say!("{}", serde_json::to_string(&line)?);
        }
        let numbers = [line.cases, line.runs, line.runs_quick].map(|n| n.to_string());
        table.add_row([name.clone()].into_iter().chain(numbers));
    }
    if !common.json {
        say!("{table}");
    }
    Ok(())
}

fn print(experiments: &[NamedExperiment]) -> CommandResult {
    let one = experiments.len() == 1;
    for (at, NamedExperiment { name, text, .. }) in experiments.iter().enumerate() {
        let before = if at > 0 { "\n" } else { "" };
        // The output for a single experiment is its file.
        let head = if one { String::new() } else { format!("{before}# {name}.toml\n") };
        say_all(format!("{head}{text}").as_bytes());
    }
    Ok(())
}

/// Runs experiments, and writes their report.
fn measure(common: &CommonArgs, options: &FiguresArgs, parses: Parses) -> CommandResult {
    if options.out.is_none() {
        return Err(usage("--out DIR is missing: the folder for the report and its page"));
    }
    let experiments = experiments(&options.experiments, parses)?;
    let begun = match (options.resume, options.out.as_deref()) {
        (true, Some(folder)) => Some(measure::begun(folder)?),
        _ => None,
    };
    let folder = folder(options)?;
    let save = |report: &FiguresReport| write_report(folder, report);
    let (report, measured) = measure::measure(common, options, &experiments, begun, save)?;
    let shown = show(common, options, folder, &report);
    measured.and(shown)
}

/// A line of `--model --json`.
#[derive(Serialize)]
struct HeadlineLine<'a> {
    source: &'a str,
    figure: &'a str,
    unit: &'a str,
    paper: f64,
    compare: &'a str,
    model: f64,
    error: f64,
    is_explained: bool,
    is_fit: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'a str,
}

/// Prints the papers' figures beside a model: first what it predicts, then what has set its parameters.
fn say_headlines(common: &CommonArgs, model: &DeviceModel) -> Result<()> {
    for (role, title) in [(Role::Prediction, "predictions"), (Role::Fit, "fits")] {
        let mut table = ResultTable::new(1, &[title, "paper", "model", "error", ""]);
        let mut reasons = String::new();
        for headline in HEADLINES.iter().filter(|headline| headline.role == role) {
            let Headline { source, what: figure, unit, paper, compare, why, .. } = *headline;
            let value = headline.predicted(model);
            let (error, is_explained) = (headline.error(value), headline.is_explained(value));
            let why = if is_explained { "" } else { why };
            if common.json {
                let (model, compare, is_fit) = (value, compare.name(), role == Role::Fit);
                let line = HeadlineLine {
                    source,
                    figure,
                    unit,
                    paper,
                    compare,
                    model,
                    error,
                    is_explained,
                    is_fit,
                    why,
                };
                say!("{}", serde_json::to_string(&line)?);
                continue;
            }
            let explained = match (is_explained, compare) {
                (false, _) => "not explained",
                (true, Compare::About) => "",
                (true, _) => "holds",
            };
            table.add_row([
                format!("{source}: {figure} ({unit})"),
                format!("{}{paper:.2}", compare.sign()),
                format!("{value:.2}"),
                format!("{:+.0} %", error * 100.0),
                explained.into(),
            ]);
            if !is_explained {
                reasons += &format!("\nnot explained: {source}: {figure}: {why}");
            }
        }
        if !common.json {
            say!("{table}{reasons}\n");
        }
    }
    Ok(())
}

/// Prints what a model makes of the papers' figures, and writes a page with its curves.
fn predict(
    common: &CommonArgs,
    options: &FiguresArgs,
    name: &str,
    parses: Parses,
) -> CommandResult {
    let model = model::named(name).ok_or_else(|| usage(format!("--model {name}: unknown")))?;
    let experiments = experiments(&options.experiments, parses)?;
    say_headlines(common, &model)?;
    let Some(_) = &options.out else { return Ok(()) };
    let mut report = FiguresReport::new(Manifest {
        device: format!("the model of {name}"),
        ..Manifest::default()
    });
    for NamedExperiment { name, experiment, .. } in experiments {
        let mut figure = Figure::new(&name, experiment);
        model.draw(&mut figure, false);
        // Of what the model is not about there is nothing to show.
        if figure.has_results() {
            report.figures.push(figure);
        }
    }
    write_report(folder(options)?, &report)
}

fn render(common: &CommonArgs, options: &FiguresArgs, report: &Path) -> CommandResult {
    let report = read(report)?;
    let folder = folder(options)?;
    write_report(folder, &report)?;
    show(common, options, folder, &report)
}

/// Prints where the page of a report is, and the results of the expectations.
fn show(
    common: &CommonArgs,
    options: &FiguresArgs,
    folder: &Path,
    report: &FiguresReport,
) -> CommandResult {
    let tally = StatusTally::count(report);
    let written = Written {
        page: folder.join(page::HTML).display().to_string(),
        figures: report.figures.len(),
        passed: Some(tally.passed + tally.weaker),
        failed: Some(tally.failed),
        not_measured: Some(tally.not_measured),
    };
    print_result(common, &written)?;
    match options.check {
        true => tally.check().map_err(anyhow::Error::msg),
        false => Ok(()),
    }
}

fn compare(common: &CommonArgs, options: &FiguresArgs, a: &Path, b: &Path) -> CommandResult {
    let (a, b) = (read(a)?, read(b)?);
    let folder = folder(options)?;
    write(folder, &page::compare(&a, &b))?;
    let both = a.figures.iter().filter(|figure| b.figure(&figure.name).is_some()).count();
    let page = folder.join(page::HTML).display().to_string();
    print_result(
        common,
        &Written { page, figures: both, passed: None, failed: None, not_measured: None },
    )
}

fn print_result(common: &CommonArgs, written: &Written) -> CommandResult {
    match common.json {
        true => say!("{}", serde_json::to_string(written)?),
        false => {
            let figures = counted_as(written.figures as u64, "figure", "figures");
            say!("{}: {figures}", written.page);
        }
    }
    Ok(())
}

fn read(report: &Path) -> Result<FiguresReport> {
    FiguresReport::read(report).map_err(|e| as_usage(format!("{e:#}")))
}

/// Creates the folder to write to.
fn folder(options: &FiguresArgs) -> Result<&Path> {
    let folder = options.out.as_deref().context("--out is missing")?;
    let is_empty = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) if !folder.exists() => true,
        Err(e) => return Err(as_usage(format!("--out {}: {e}", folder.display()))),
    };
    if !is_empty && !options.force && !options.resume {
        let folder = folder.display();
        let measures =
            options.render.is_none() && options.compare.is_none() && options.model.is_none();
        let resume =
            if measures { " (or --resume, to continue an interrupted report)" } else { "" };
        return Err(usage(format!(
            "--out {folder}: it has files already: add --force{resume}, or choose another"
        )));
    }
    fs::create_dir_all(folder).with_context(|| format!("--out {}", folder.display()))?;
    Ok(folder)
}

fn write(folder: &Path, page: &str) -> Result<()> {
    replace(&folder.join(page::HTML), page)
}

/// Writes a report, its page, and its charts.
fn write_report(folder: &Path, report: &FiguresReport) -> Result<()> {
    report.save(folder)?;
    let charts = folder.join(page::CHARTS);
    fs::create_dir_all(&charts).with_context(|| charts.display().to_string())?;
    for (name, chart) in page::charts(report) {
        replace(&charts.join(name), &chart)?;
    }
    write(folder, &page::page(report)?)
}
