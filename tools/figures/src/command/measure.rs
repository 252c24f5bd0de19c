//! Runs experiments on a device, and keeps their report up to date: when the command is
//! interrupted, the folder holds a report, which `--resume` continues.

use std::collections::HashSet;
use std::path::Path;

use anyhow::bail;
use base::cli::CommonArgs;
use base::outcome::{CommandError, CommandResult, printable, usage};
use base::readable::counted_as;
use base::run::{self, Ran};
use base::session::card::{self, WORLD};
use base::{progress, remark, signals};
use host::sync::Mutex;

use super::machine;
use super::named::NamedExperiment;
use crate::calibration::Calibration;
use crate::cli::FiguresArgs;
use crate::experiment::{CommandRun, Experiment};
use crate::model;
use crate::report::{Figure, FiguresReport, JSON, Manifest};

/// Round trips of a `pingpong` for each millisecond of a round.
const TRIPS_PER_MS: u64 = 5;
/// At least.
const TRIPS: u64 = 20;
/// And, for each of those under way.
const WINDOWS: u64 = 4;
/// Messages of a paced sender, in virtual time.
const PACED: f64 = 60.0;

/// Settings of all runs of a report.
struct ReportPlan<'a> {
    common: &'a CommonArgs,
    device: String,
    quick: bool,
    rounds: u32,
    round_ms: u64,
}

/// State of the runs of a figure.
#[derive(Default)]
struct Progress {
    /// Runs that are not tried again: the case and the x.
    given_up: HashSet<(String, u64)>,
    failed: usize,
    interrupted: Option<CommandError>,
}

/// Measures the experiments, as far as a report that is to be resumed has not: the report so far,
/// and why it is not all.
pub(super) fn measure(
    common: &CommonArgs,
    options: &FiguresArgs,
    experiments: &[NamedExperiment],
    begun: Option<FiguresReport>,
    mut save: impl FnMut(&FiguresReport) -> CommandResult,
) -> Result<(FiguresReport, CommandResult), CommandError> {
    let device = match begun.as_ref().map(|begun| &begun.manifest.device) {
        // How much slower it is was measured when the report was begun.
        Some(begun) if is_card(begun, common.device.as_deref()) => begun.clone(),
        _ if options.world => format!("soft0@card=connectx5{WORLD}"),
        _ => machine::device(common)?,
    };
    let plan = ReportPlan {
        common,
        device,
        quick: options.quick,
        rounds: options.rounds(),
        round_ms: options.round_ms(),
    };
    let mut report = match begun {
        None => {
            let calibration = plan.calibration();
            FiguresReport::new(Manifest { calibration, ..plan.manifest() })
        }
        Some(begun) => plan.resumed(begun)?,
    };
    let runs: usize =
        experiments.iter().map(|named| named.experiment.runs(plan.quick).count()).sum();
    let bar = progress::bar(runs as u64 * u64::from(plan.rounds), common.json);
    let (mut failed, mut unknown) = (0, None);
    for NamedExperiment { name, experiment, .. } in experiments {
        let figure = figure(&mut report, name, experiment)?;
        let at = figure;
        let mut done = Progress::default();
        for round in 0..plan.rounds as usize {
            plan.round(&mut report.figures[at], round, &bar, &mut done);
            save(&report)?;
            if let Some(interrupted) = done.interrupted {
                bar.finish_and_clear();
                let all = bar.length().unwrap_or_default();
                remark!(
                    "{} of {all} runs are measured: the same command line with --resume continues",
                    bar.position()
                );
                return Ok((report, Err(interrupted)));
            }
        }
        failed += done.failed;
        unknown = unknown.or_else(|| report.figures[at].key_without_values());
    }
    bar.finish_and_clear();
    let outcome = match (failed, unknown) {
        (0, None) => Ok(()),
        (0, Some((figure, key))) => Err(anyhow::anyhow!(
            "{figure}: no result has the key {key}: see one with `rdma-conn bench --json`"
        )),
        (failed, _) => {
            let runs = counted_as(failed as u64, "run has", "runs have");
            Err(anyhow::anyhow!("{runs} failed: the page shows why"))
        }
    };
    Ok((report, outcome))
}

/// Reports whether a report's device is the card that was asked for, apart from its slow-down.
fn is_card(begun: &str, asked: Option<&str>) -> bool {
    asked.and_then(|asked| begun.strip_prefix(asked)).is_some_and(|rest| rest.starts_with(",slow="))
}

/// The place of the figure of this name, which a report that is resumed may have.
fn figure(
    report: &mut FiguresReport,
    name: &str,
    experiment: &Experiment,
) -> Result<usize, CommandError> {
    let at = match report.figures.iter().position(|figure| figure.name == name) {
        Some(at) if report.figures[at].experiment == *experiment => at,
        Some(_) => {
            bail!(usage(format!(
                "--resume: the report has another experiment under {name}: choose another folder, or \
                 measure anew with --force"
            )))
        }
        None => {
            report.figures.push(Figure::new(name, experiment.clone()));
            report.figures.len() - 1
        }
    };
    let figure = &mut report.figures[at];
    model::add_curves(figure, report.manifest.quick, report.manifest.calibration.as_ref());
    // What could not be measured is tried again.
    figure.skipped = None;
    figure.series.iter_mut().for_each(|series| series.skipped = None);
    Ok(at)
}

impl ReportPlan<'_> {
    fn manifest(&self) -> Manifest {
        let words: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
        Manifest {
            device: self.device.clone(),
            processor: machine::processor(),
            cores: machine::cores(),
            topology: machine::topology(),
            slow: card::slow(&self.device),
            calibration: None,
            build: rdma_conn::build::summary(),
            date: machine::now(),
            quick: self.quick,
            rounds: self.rounds,
            round_ms: self.round_ms,
            command: format!("rdma-conn {}", words.join(" ")),
        }
    }

    /// The parameters of the device, if they can be measured.
    fn calibration(&self) -> Option<Calibration> {
        let words = ["calibrate", "--device", &self.device];
        let why = match run::once(&words) {
            Ok(Ran::Done(lines)) => {
                let line = lines.into_iter().next().map(serde_json::Value::Object);
                let parameters = serde_json::from_value(line.unwrap_or_default());
                match parameters {
                    Ok(parameters) => return Some(parameters),
                    Err(e) => e.to_string(),
                }
            }
            // The first run ends for that as well.
            Ok(Ran::Interrupted(..)) => return None,
            Ok(Ran::Refused(why) | Ran::Failed(why)) => why,
            Err(e) => format!("{e:#}"),
        };
        remark!("no curves of the model: the device was not calibrated: {}", printable(&why));
        None
    }

    /// A report that was begun the same way.
    fn resumed(&self, begun: FiguresReport) -> Result<FiguresReport, CommandError> {
        let Manifest { device, quick, rounds, round_ms, build, cores, .. } = &begun.manifest;
        let same = (device, quick, round_ms) == (&self.device, &self.quick, &self.round_ms);
        if !same || *rounds != self.rounds || *cores != machine::cores() {
            return Err(usage(format!(
                "--resume: the report is of device {device}, {cores} cores, {} of \
                 {round_ms} ms{}: give the same flags, or another folder",
                counted_as((*rounds).into(), "round", "rounds"),
                if *quick { ", --quick" } else { "" }
            )));
        }
        if *build != rdma_conn::build::summary() {
            remark!("the report was begun by another build: {build}");
        }
        Ok(begun)
    }

    /// Measures what is missing of a round of a figure.
    fn round(
        &self,
        figure: &mut Figure,
        round: usize,
        bar: &indicatif::ProgressBar,
        done: &mut Progress,
    ) {
        let experiment = figure.experiment.clone();
        let is_missing = |run: &CommandRun<'_>| {
            let point = figure.series(run.case).and_then(|series| series.at(run.x));
            let is_there = point.is_some_and(|point| point.rounds as usize > round);
            !is_there && !done.given_up.contains(&(run.case.to_owned(), run.x))
        };
        let (missing, others): (Vec<CommandRun<'_>>, Vec<_>) =
            experiment.runs(self.quick).partition(is_missing);
        bar.inc(others.len() as u64);
        let ran = self.run(&figure.name, &missing, bar);
        for (run, ran) in missing.iter().zip(ran) {
            if let Err(interrupted) = take(figure, run, ran, done) {
                done.interrupted.get_or_insert(interrupted);
            }
        }
        if !figure.has_points() {
            figure.skipped = figure.series.iter().find_map(|series| series.skipped.clone());
        }
    }

    /// Returns true in virtual time.
    fn in_world(&self) -> bool {
        self.device.ends_with(WORLD)
    }

    /// Runs these, in virtual time one on each processor. After a signal, those not yet started
    /// return `Interrupted`.
    fn run(
        &self,
        figure: &str,
        runs: &[CommandRun<'_>],
        bar: &indicatif::ProgressBar,
    ) -> Vec<anyhow::Result<Ran>> {
        let once = |run: &CommandRun<'_>| {
            bar.set_message(format!("{figure}: {}, {}", run.case, run.x));
            let ran = match signals::interrupted() {
                Some(interrupted) => Ok(Ran::Interrupted(Vec::new(), interrupted)),
                None => run::once(&self.words(run)),
            };
            if !matches!(ran, Ok(Ran::Interrupted(..))) {
                bar.inc(1);
            }
            ran
        };
        let left = Mutex::new(runs.iter().enumerate());
        let next = || left.lock().next();
        let work = || std::iter::from_fn(next).map(|(n, run)| (n, once(run))).collect::<Vec<_>>();
        let work_on = |number| {
            host::thread::pin_to_cpu(number);
            work()
        };
        let mut ran = host::thread::scope(|scope| {
            let start = |number| scope.spawn(move || work_on(number));
            let count = if self.in_world() { machine::cores() as usize } else { 0 };
            let threads: Vec<_> = (0..count).map(start).collect();
            // One that was not started leaves its part to the others.
            let join = |thread: host::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let ran: Vec<_> = threads.into_iter().flatten().flat_map(join).collect();
            ran.into_iter().chain(work()).collect::<Vec<_>>()
        });
        ran.sort_by_key(|(n, _)| *n);
        ran.into_iter().map(|(_, ran)| ran).collect()
    }

    /// The factor by which a point is measured for a shorter time than its round, by its own clock.
    fn shorter(&self) -> f64 {
        match self.in_world() {
            true => 1000.0,
            false => card::slow(&self.device).unwrap_or(1.0),
        }
    }

    fn seconds(&self) -> f64 {
        self.round_ms as f64 / 1e3 / self.shorter()
    }

    /// The words of a run: those of the experiment, the device, and how long it takes.
    fn words(&self, run: &CommandRun<'_>) -> Vec<String> {
        let mut words = run.words.clone();
        let value = |flag: &str| {
            let value_after = |(n, word): (usize, &String)| match word.strip_prefix(flag)? {
                "" => run.words.get(n + 1).cloned(),
                rest => rest.strip_prefix('=').map(str::to_owned),
            };
            run.words.iter().enumerate().find_map(value_after)
        };
        let has = |flag: &str| value(flag).is_some();
        let mut add = |flag: &str, value: String, others: &[&str]| {
            if !has(flag) && !others.iter().any(|other| has(other)) {
                words.extend([flag.to_owned(), value]);
            }
        };
        add("--device", self.device.clone(), &[]);
        let in_world = self.in_world();
        let command = run.words.first().map(String::as_str);
        // In virtual time, adaptive waits have no history in the first round: the median of 3
        // leaves it out.
        add("--rounds", if in_world && has("--wait") { "3" } else { "1" }.into(), &[]);
        if in_world && command != Some("multicast") {
            add("--wait", "spin".into(), &[]);
        }
        if command == Some("pingpong") {
            let trips = (self.round_ms * TRIPS_PER_MS) as f64 / self.shorter();
            // Of many under way, the last ones are answered while no others follow.
            let window = value("--unacked").and_then(|unacked| unacked.parse::<u64>().ok());
            let least = TRIPS.max(window.unwrap_or(1) * WINDOWS);
            add("--iterations", (trips as u64).max(least).to_string(), &[]);
        } else {
            // Of the card's time: a round takes as long on a device that is slower. In virtual time
            // it is short: messages of a group, large transfers and paced messages would be too
            // few.
            let is_slow = command == Some("multicast")
                || value("--protocol").is_some_and(|protocol| protocol == "buffered-read");
            let longer = if in_world && is_slow { 8.0 } else { 1.0 };
            let rate = value("--rate").and_then(|rate| rate.parse::<f64>().ok());
            let least = rate.filter(|_| in_world).map_or(0.0, |rate| PACED / rate);
            let seconds = (longer * self.seconds()).max(least);
            add("--seconds", format!("{seconds}"), &["--messages"]);
        }
        if let Some(index) = self.common.gid_index {
            add("--gid-index", index.to_string(), &[]);
        }
        words
    }
}

/// Folder of a report that was begun, if it is to be continued.
///
/// # Errors
/// It has none.
pub(super) fn begun(folder: &Path) -> Result<FiguresReport, CommandError> {
    if !folder.join(JSON).exists() {
        let folder = folder.display();
        return Err(usage(format!(
            "--resume: {folder} has no report: leave --resume out to begin one"
        )));
    }
    FiguresReport::read(folder).map_err(|e| usage(format!("--resume: {e:#}")))
}

/// Records the result of a run. Fails if a signal has arrived.
fn take(
    figure: &mut Figure,
    run: &CommandRun<'_>,
    ran: anyhow::Result<Ran>,
    done: &mut Progress,
) -> CommandResult {
    let why = match ran {
        Ok(Ran::Done(lines)) => match &*lines {
            [line] => {
                figure.add(run, line);
                return Ok(());
            }
            lines => {
                done.failed += 1;
                format!("a run has one result, and this has {}", lines.len())
            }
        },
        Ok(Ran::Interrupted(_, interrupted)) => return Err(interrupted.into()),
        Ok(Ran::Refused(why)) => why,
        Ok(Ran::Failed(why)) => {
            done.failed += 1;
            format!("failed: {why}")
        }
        Err(e) => {
            done.failed += 1;
            format!("{e:#}")
        }
    };
    if let Some(interrupted) = signals::interrupted() {
        return Err(interrupted.into());
    }
    done.given_up.insert((run.case.into(), run.x));
    let series = figure.series.iter_mut().find(|series| series.case == run.case);
    if let Some(series) = series
        && series.skipped.is_none()
    {
        series.skipped = Some(format!("at {}: {}", run.x, printable(&why)));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
