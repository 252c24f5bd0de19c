//! Measurements over lists of numbers: each point is a run of this command (`run.rs`), and the
//! rounds go over all points in turn, so that what disturbs the machine for a while disturbs no
//! point alone.

mod merged;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use base::outcome::{CommandError, CommandResult, printable, usage};
use base::remark;
use base::run::{self, Ran};
use clap::Parser;

use crate::cli::points::{Points, SweepPoint};
use crate::cli::{Args, Command, RoundsArgs};
use crate::measure::rounds::in_turn;
use crate::measure::{EndOfLoad, MessageLoad, ResultLine};
use crate::results::Results;
use merged::{MergedPoint, csv};

/// The shortest time of a round.
const LEAST: Duration = Duration::from_millis(10);

/// Settings that all points of a sweep share.
struct SweepSettings<'a> {
    flags: &'a [String],
    rounds: u32,
    json: bool,
}

/// Measures the points of a command line. `args` are those of the first point.
pub(crate) fn run(points: &Points, all: &[Args]) -> CommandResult {
    let Some(args) = all.first() else { return Ok(()) };
    let (rounds, csv_file) = match &args.command {
        Command::Bench(options) => (options.rounds.asked(), options.rounds.csv.as_deref()),
        Command::Pingpong(options) => (options.rounds.asked(), options.rounds.csv.as_deref()),
        Command::Multicast(options) => {
            (options.rounds.unwrap_or(RoundsArgs::DEFAULT), options.csv.as_deref())
        }
        _ => return Err(usage("no measurement")),
    };
    for args in all {
        check(args)?;
    }
    let mut file = csv_file.map(open).transpose()?;
    let rounds = all.iter().map(|args| limit(args, rounds)).min().unwrap_or(rounds);
    let sweep = SweepSettings { flags: &points.flags, rounds, json: args.common.json };
    let (merged, ended) = sweep.measure(points, all);
    let mut results = Results::new(sweep.json);
    for merged in &merged {
        merged.add(&mut results, sweep.flags)?;
    }
    results.finish();
    if let (Some(file), Some(path)) = (&mut file, csv_file) {
        let text = csv(sweep.flags, &merged)?;
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        written.with_context(|| named(path))?;
    }
    ended.map_or(Ok(()), Err)
}

/// Opens the file of the results before anything is measured; it keeps what it has until there are
/// results.
fn open(path: &Path) -> Result<File, CommandError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.with_context(|| named(path))
}

fn named(path: &Path) -> String {
    format!("--csv {}", path.display())
}

/// Refuses what only one measurement can be of.
fn check(args: &Args) -> CommandResult {
    let (ends, input) = match &args.command {
        Command::Bench(options) => (&options.ends, options.input.is_some()),
        Command::Pingpong(options) => (&options.ends, options.compat.is_some()),
        Command::Multicast(options) => (&options.ends, false),
        _ => return Ok(()),
    };
    if ends.listen.is_some() || ends.connect.is_some() {
        return Err(usage(
            "lists of numbers, and --csv, are measured with both ends in this process: leave \
             --listen and --connect out, or give one number each",
        ));
    }
    match input {
        true => Err(usage("--input and --compat are one measurement: give one number each")),
        false => Ok(()),
    }
}

/// As many rounds as there may be: each has a message.
fn limit(args: &Args, rounds: u32) -> u32 {
    end(args).map_or(rounds, |end| end.rounds(rounds))
}

/// The end of all rounds together.
fn end(args: &Args) -> Option<EndOfLoad> {
    match &args.command {
        Command::Bench(options) => Some(MessageLoad::new(options, 0).end),
        Command::Pingpong(options) => Some(options.end()),
        Command::Multicast(options) => {
            let time = || EndOfLoad::After(Duration::from_secs_f64(options.seconds));
            Some(options.messages.map_or_else(time, EndOfLoad::Messages))
        }
        _ => None,
    }
}

/// The command line of one round of a point: its share of the messages or of the time.
fn words(point: &SweepPoint, args: &Args, round: u32, rounds: u32) -> Vec<OsString> {
    let share = match end(args).map(|end| end.of_round(round, rounds)) {
        None => ("--rounds", "1".into()),
        Some(EndOfLoad::Messages(trips)) if matches!(args.command, Command::Pingpong(_)) => {
            ("--iterations", trips.to_string())
        }
        Some(EndOfLoad::After(time)) => EndOfLoad::After(time.max(LEAST)).flag(),
        Some(messages) => messages.flag(),
    };
    let replaced = [share.0, "--rounds", "--csv"];
    let (mut words, mut is_value) = (Vec::new(), false);
    for word in point.words.iter().skip(1) {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        if std::mem::take(&mut is_value) || name == "--json" {
            continue;
        }
        match replaced.contains(&name) {
            true => is_value = !text.contains('='),
            false => words.push(word.clone()),
        }
    }
    words.extend(["--rounds", "1", share.0, &share.1].map(OsString::from));
    words
}

impl SweepSettings<'_> {
    /// Goes over all points, round after round: returns their results, and why some are missing.
    fn measure(&self, points: &Points, all: &[Args]) -> (Vec<MergedPoint>, Option<CommandError>) {
        let labels: Vec<String> = points.points.iter().map(|point| self.label(point)).collect();
        // Reasons for which points cannot be measured.
        let mut refused = vec![None; labels.len()];
        let (done, ended) = in_turn(self.json, &labels, self.rounds, |at, round, _| {
            if refused[at].is_some() {
                return Ok(Vec::new());
            }
            match run::once(&words(&points.points[at], &all[at], round, self.rounds))? {
                Ran::Done(lines) | Ran::Interrupted(lines, _) => {
                    Ok(lines.into_iter().map(ResultLine::from).collect())
                }
                Ran::Refused(why) => {
                    refused[at] = Some(why);
                    Ok(Vec::new())
                }
                Ran::Failed(why) => Err(anyhow!("{}: {why}", labels[at])),
            }
        });
        for (label, why) in labels.iter().zip(&refused) {
            if let Some(why) = why {
                remark!("{label}: left out: {}", printable(why));
            }
        }
        let merged = points.points.iter().zip(&done);
        let merged = merged.map(|(point, rounds)| MergedPoint::new(&point.values, rounds));
        let merged: Vec<MergedPoint> = merged.filter(|merged| !merged.is_empty()).collect();
        // Where no point can be measured, the command line asks for what cannot be.
        let nothing = refused.into_iter().flatten().next().filter(|_| merged.is_empty());
        (merged, ended.or(nothing.map(usage)))
    }

    fn label(&self, point: &SweepPoint) -> String {
        let named = self.flags.iter().zip(&point.values);
        named.map(|(flag, value)| format!("{flag} {value}")).collect::<Vec<_>>().join(" ")
    }
}

/// The command lines of all points, each checked before the first is run.
///
/// # Errors
/// What is wrong with one of them.
pub(crate) fn parse(points: &Points) -> Result<Vec<Args>, clap::Error> {
    points.points.iter().map(|point| Args::try_parse_from(&point.words)).collect()
}

#[cfg(test)]
mod tests;
