//! Measurements over lists of numbers: each point is a run of this command (`run.rs`), and the
//! rounds go over all points in turn, so that what disturbs the machine for a while disturbs no
//! point alone.

mod merged;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use base::outcome::{Failure, Outcome, usage};
use base::run::{self, Ran};
use base::{progress, remark};
use clap::Parser;

use crate::cli::points::{Point, Points};
use crate::cli::{Args, Bench, Command, Pingpong, Rounds};
use crate::measure::rounds::{rounds_of, share, time_share};
use crate::results::Results;
use merged::{Merged, csv};

/// Settings that all points of a sweep share.
struct Sweep<'a> {
    flags: &'a [String],
    rounds: u32,
    json: bool,
}

/// Measures the points of a command line. `args` are those of the first point.
pub(crate) fn run(points: &Points, all: &[Args]) -> Outcome {
    let Some(args) = all.first() else { return Ok(()) };
    let (rounds, csv_file) = match &args.command {
        Command::Bench(options) => (options.rounds.asked(), options.rounds.csv.as_deref()),
        Command::Pingpong(options) => (options.rounds.asked(), options.rounds.csv.as_deref()),
        Command::Multicast(options) => {
            (options.rounds.unwrap_or(Rounds::DEFAULT), options.csv.as_deref())
        }
        _ => return Err(usage("no measurement")),
    };
    for args in all {
        check(args)?;
    }
    let mut file = csv_file.map(open).transpose()?;
    let rounds = all.iter().map(|args| limit(args, rounds)).min().unwrap_or(rounds);
    let sweep = Sweep { flags: &points.flags, rounds, json: args.common.json };
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
fn open(path: &Path) -> Result<File, Failure> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.with_context(|| named(path))
}

fn named(path: &Path) -> String {
    format!("--csv {}", path.display())
}

/// Refuses what only one measurement can be of.
fn check(args: &Args) -> Outcome {
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
    match whole(args) {
        Some((_, messages)) => rounds_of(messages, rounds),
        None => rounds,
    }
}

/// The messages of all rounds, if their number is known, and the flag that has it.
fn whole(args: &Args) -> Option<(&'static str, u64)> {
    match &args.command {
        Command::Bench(options) => options.messages.map(|n| ("--messages", n)),
        Command::Pingpong(options) if options.seconds.is_none() => {
            Some(("--iterations", options.trips()))
        }
        Command::Multicast(options) => options.messages.map(|n| ("--messages", n)),
        _ => None,
    }
}

/// The command line of one round of a point: its share of the messages or of the time.
fn words(point: &Point, args: &Args, round: u32, rounds: u32) -> Vec<OsString> {
    let share = match (whole(args), &args.command) {
        (Some((flag, n)), _) => (flag, share(n, round, rounds).to_string()),
        (None, Command::Multicast(options)) => {
            ("--seconds", (options.seconds / f64::from(rounds)).max(0.01).to_string())
        }
        (None, Command::Bench(options)) => {
            let time = time_share(options.seconds.unwrap_or(Bench::SECONDS), rounds);
            ("--seconds", time.as_secs_f64().max(0.01).to_string())
        }
        (None, Command::Pingpong(Pingpong { seconds: Some(seconds), .. })) => {
            let time = time_share(*seconds, rounds);
            ("--seconds", time.as_secs_f64().max(0.01).to_string())
        }
        (None, _) => ("--rounds", "1".into()),
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

impl Sweep<'_> {
    /// Goes over all points, round after round: returns their results, and why some are missing.
    fn measure(&self, points: &Points, all: &[Args]) -> (Vec<Merged>, Option<Failure>) {
        let mut merged: Vec<Merged> =
            points.points.iter().map(|point| Merged::new(&point.values)).collect();
        let bar = progress::bar(points.points.len() as u64 * u64::from(self.rounds), self.json);
        let mut ended = None;
        'rounds: for round in 0..self.rounds {
            for ((point, args), merged) in points.points.iter().zip(all).zip(&mut merged) {
                if merged.refused.is_some() {
                    bar.inc(1);
                    continue;
                }
                bar.set_message(self.label(point));
                match run::once(&words(point, args, round, self.rounds)) {
                    Ok(Ran::Done(lines)) => merged.add_round(lines),
                    Ok(Ran::Refused(why)) => merged.refused = Some(why),
                    Ok(Ran::Failed(why)) => {
                        ended = Some(anyhow::anyhow!("{}: {why}", self.label(point)));
                        break 'rounds;
                    }
                    Ok(Ran::Interrupted(lines, interrupted)) => {
                        // A part counts where it is all there is.
                        if merged.is_empty() {
                            merged.add_round(lines);
                        }
                        ended = Some(interrupted.into());
                        break 'rounds;
                    }
                    Err(e) => {
                        ended = Some(e);
                        break 'rounds;
                    }
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        for (point, merged) in points.points.iter().zip(&merged) {
            if let Some(why) = &merged.refused {
                remark!("{}: left out: {}", self.label(point), base::outcome::printable(why));
            }
        }
        let refused = merged.iter().find_map(|merged| merged.refused.clone());
        merged.retain(|merged| !merged.is_empty());
        // Where no point can be measured, the command line asks for what cannot be.
        let nothing = refused.filter(|_| merged.is_empty()).map(usage);
        (merged, ended.or(nothing))
    }

    fn label(&self, point: &Point) -> String {
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
