//! Runs cases in worlds, by seed, on all processors. `cargo xtask simulate` builds and starts it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

use std::io::{BufRead, BufReader, IsTerminal as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use host::plant::Plant;
use host::world::{Limits, Report};
use serde::{Deserialize, Serialize};
use worlds::case::{CaseProtocol, DeviceKind, WorldCase};
use worlds::play::play_with;
use worlds::shrink::shrink;

#[derive(Parser, Clone)]
#[command(name = "worlds", about = "Run every connection in simulated worlds, by seed")]
struct Args {
    /// Seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this connection
    #[arg(long)]
    protocol: Option<CaseProtocol>,
    /// Only worlds with this device
    #[arg(long)]
    world: Option<DeviceKind>,
    /// Play one case, as a failure printed it, and show all its events
    #[arg(long, value_name = "JSON")]
    case: Option<String>,
    /// Play the case of a seed, and show it and all its events
    #[arg(long, value_name = "SEED")]
    show: Option<u64>,
    /// Steps after which a world has failed
    #[arg(long, default_value_t = Limits::default().steps)]
    max_steps: u64,
    /// Make the case of a seed that fails smaller, and print it
    #[arg(long, value_name = "SEED")]
    shrink: Option<u64>,
    /// Plant a fault into the code: no world may pass over it for long
    #[arg(long, value_name = "FAULT", value_parser = plant)]
    plant: Option<Plant>,
    /// Run all seeds twice, and fail if their traces differ
    #[arg(long)]
    twice: bool,
    /// Stop at the first seed that fails
    #[arg(long)]
    first: bool,
    /// Print nothing, with `--case`
    #[arg(long)]
    quiet: bool,
    /// Processes that share the seeds; by default two a processor, since each waits at times
    #[arg(long)]
    jobs: Option<usize>,
    /// Run every STRIDE-th seed in this process, and print a line for each
    #[arg(long, hide = true)]
    stride: Option<u64>,
}

/// Report of one world, as a process prints it.
#[derive(Default, Serialize, Deserialize)]
struct WorldLine {
    seed: u64,
    steps: u64,
    virtual_us: u64,
    hash: u64,
    failure: Option<String>,
    events: Vec<String>,
}

/// Time limit of shrinking.
const SHRINK: Duration = Duration::from_secs(60);
/// Limit of the steps of a case that is made smaller because it does not end: each one that hangs takes
/// that long.
const HANGING_STEPS: u64 = 500_000;

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(seed) = args.show {
        let case = WorldCase::draw(seed, args.protocol, args.world);
        println!("{case}");
        return Ok(replay(&args, &case));
    }
    if let Some(text) = &args.case {
        return Ok(replay(&args, &serde_json::from_str(text).context("the case")?));
    }
    if let Some(seed) = args.shrink {
        return make_smaller(&args, &WorldCase::draw(seed, args.protocol, args.world));
    }
    match args.stride {
        Some(stride) => work(&args, stride),
        None => run(&args),
    }
}

/// Plays a case and shows it.
fn replay(args: &Args, case: &WorldCase) -> ExitCode {
    const EVENTS: usize = 100_000;
    let (report, failure) = if args.quiet {
        let (report, ended) = play_with(case, limits(args, EVENTS), args.plant);
        (report, ended.err().map(|failure| failure.to_string()))
    } else {
        play_and_count(args, case, EVENTS)
    };
    if !args.quiet {
        println!("{}", report.events.join("\n"));
        println!(
            "{} steps, {:?} of virtual time, hash {:016x}",
            report.steps, report.time, report.hash
        );
        match &failure {
            None => println!("no failure"),
            Some(failure) => println!("failed: {failure}"),
        }
    }
    if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays a case, and returns the failure of its world. One that leaves descriptors open has failed,
/// too, if it does so again: what a process opens once for all of its worlds stays.
fn play_and_count(args: &Args, case: &WorldCase, events: usize) -> (Report, Option<String>) {
    let play = || {
        let before = descriptors();
        let (report, ended) = play_with(case, limits(args, events), args.plant);
        // The threads of one that has failed stay, with what they hold.
        let left = if ended.is_ok() { left_open(before) } else { 0 };
        (report, ended.err().map(|failure| failure.to_string()), left)
    };
    let (report, failure, left) = play();
    if failure.is_some() || left == 0 {
        return (report, failure);
    }
    let (_, failure, left) = play();
    let is_left = || format!("the world leaves {left} descriptors open");
    (report, failure.or_else(|| (left > 0).then(is_left)))
}

/// Descriptors that this process has open. It has no threads but those of one world.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Descriptors more than before a world. Its last threads may not have closed theirs yet.
fn left_open(before: usize) -> usize {
    const LOOKS: u32 = 100;
    let left = |look: u32| {
        if look > 0 {
            host::time::sleep(Duration::from_millis(1));
        }
        descriptors().saturating_sub(before)
    };
    (0..LOOKS).map(left).find(|left| *left == 0).unwrap_or_else(|| left(0))
}

/// The command that plays one case again, in the workspace.
fn replay_command(args: &Args, what: &str) -> String {
    let plant = args.plant.map_or_else(String::new, |plant| format!("--plant {plant:?} "));
    let limit = match args.max_steps == Limits::default().steps {
        true => String::new(),
        false => format!(" -- --max-steps {}", args.max_steps),
    };
    format!("cargo xtask simulate {plant}{what}{limit}")
}

fn limits(args: &Args, events: usize) -> Limits {
    Limits { events, steps: args.max_steps, ..Limits::default() }
}

/// Each case is played in a process of its own: the threads of a world that has failed stay, with
/// what they hold.
#[expect(clippy::disallowed_methods, reason = "outside of worlds")]
fn make_smaller(args: &Args, case: &WorldCase) -> Result<ExitCode> {
    let start = host::time::now();
    let has_failed = |case: &WorldCase| -> Result<bool> {
        let mut program = this_program(args)?;
        program.args(["--quiet", "--case", &case.to_string()]).stderr(Stdio::null());
        Ok(!program.status()?.success())
    };
    let fails =
        |case: &WorldCase| host::time::since(start) < SHRINK && has_failed(case).unwrap_or(false);
    let small = shrink(case, fails);
    println!("{} of {} steps fail as well; replay them by", small.steps(), case.steps());
    println!("{}", replay_command(args, &format!("--case '{small}'")));
    Ok(ExitCode::SUCCESS)
}

/// Runs a share of the seeds, up to the first that fails: its threads stay.
fn work(args: &Args, stride: u64) -> Result<ExitCode> {
    host::thread::pin_to_cpu(args.from as usize);
    for seed in (args.from..args.from + args.seeds).step_by(stride as usize) {
        let case = WorldCase::draw(seed, args.protocol, args.world);
        let (report, failure) = play_and_count(args, &case, Limits::default().events);
        let is_over = failure.is_some();
        let events = if is_over { report.events } else { Vec::new() };
        let (steps, virtual_us) = (report.steps, report.time.as_micros() as u64);
        let line = WorldLine { seed, steps, virtual_us, hash: report.hash, failure, events };
        println!("{}", serde_json::to_string(&line)?);
        if is_over {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The sum of all worlds.
#[derive(Default)]
struct RunSummary {
    worlds: u64,
    steps: u64,
    virtual_s: f64,
    hash: u64,
    /// Each seed and its hash.
    hashes: Vec<(u64, u64)>,
    failed: Vec<WorldLine>,
}

impl RunSummary {
    fn add(&mut self, line: WorldLine) {
        self.worlds += 1;
        self.steps += line.steps;
        self.virtual_s += line.virtual_us as f64 / 1e6;
        // The same in whichever order the processes end.
        self.hash =
            self.hash.wrapping_add((line.hash ^ line.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.hashes.push((line.seed, line.hash));
        if line.failure.is_some() {
            self.failed.push(line);
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let start = host::time::now();
    let mut sum = play_all(args)?;
    let code = report(args, &mut sum, host::time::since(start).as_secs_f64())?;
    if !args.twice {
        return Ok(code);
    }
    let mut again = play_all(args)?;
    for run in [&mut sum, &mut again] {
        run.hashes.sort_unstable();
    }
    if again.hashes == sum.hashes {
        println!("again: hash {:016x}", again.hash);
        return Ok(code);
    }
    let differs = sum.hashes.iter().zip(&again.hashes).find(|(one, other)| one != other);
    println!("again: hash {:016x}: the runs differ", again.hash);
    if let Some(((seed, _), _)) = differs {
        println!("first of seed {seed}: {}", replay_seed(args, *seed));
    }
    Ok(ExitCode::FAILURE)
}

/// The command that plays the case of a seed again.
fn replay_seed(args: &Args, seed: u64) -> String {
    let protocol = args.protocol.map(|value| format!("--protocol {} ", name(&value)));
    let world = args.world.map(|value| format!("--world {} ", name(&value)));
    let only = protocol.unwrap_or_default() + &world.unwrap_or_default();
    replay_command(args, &format!("{only}--show {seed}"))
}

/// Plays all seeds, on all processors.
fn play_all(args: &Args) -> Result<RunSummary> {
    let jobs = match args.jobs {
        Some(jobs) => jobs.max(1),
        None => 2 * std::thread::available_parallelism().map_or(1, usize::from),
    };
    let (lines, shares) = host::channel::channel();
    let (lines, is_enough) = (Arc::new(lines), Arc::new(AtomicBool::new(false)));
    let workers: Vec<host::thread::JoinHandle<_>> = (0..jobs as u64)
        .map(|share| {
            let (args, lines, is_enough) =
                (args.clone(), Arc::clone(&lines), Arc::clone(&is_enough));
            let run = move || {
                share_of(&args, share, jobs as u64, |line| {
                    // Relaxed: one seed more does no harm.
                    is_enough.fetch_or(args.first && line.failure.is_some(), Ordering::Relaxed);
                    _ = lines.send(line);
                    is_enough.load(Ordering::Relaxed)
                })
            };
            host::thread::spawn("share", run)
        })
        .collect::<Result<_, _>>()?;
    drop(lines);
    let mut sum = RunSummary::default();
    let is_shown = std::io::stderr().is_terminal();
    while let Ok(line) = shares.recv() {
        sum.add(line);
        if is_shown && sum.worlds.is_multiple_of(100) {
            eprint!("\r{} of {} worlds", sum.worlds, args.seeds);
        }
    }
    for worker in workers {
        worker.join().expect("no panic")?;
    }
    Ok(sum)
}

/// Runs the seeds `share`, `share + jobs`, … in processes of their own; one that fails ends its
/// process. `take` says whether that is enough.
#[expect(clippy::disallowed_methods, reason = "outside of worlds")]
fn share_of(
    args: &Args,
    share: u64,
    jobs: u64,
    mut take: impl FnMut(WorldLine) -> bool,
) -> Result<()> {
    let end = args.from + args.seeds;
    let mut next = args.from + share;
    while next < end {
        let mut command = this_program(args)?;
        command.args(["--stride", &jobs.to_string(), "--from", &next.to_string()]);
        command.args(["--seeds", &(end - next).to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let begun = next;
        for line in BufReader::new(child.stdout.take().context("a pipe")?).lines() {
            let line: WorldLine = serde_json::from_str(&line?).context("a line of a world")?;
            next = line.seed + jobs;
            if take(line) {
                child.kill()?;
                child.wait()?;
                return Ok(());
            }
        }
        let status = child.wait()?;
        // A seed that has ended the whole process.
        if !status.success() || next == begun {
            let failure = Some(format!("the process of seed {next} ended: {status}"));
            if take(WorldLine { seed: next, failure, ..WorldLine::default() }) {
                return Ok(());
            }
            next += jobs;
        }
    }
    Ok(())
}

fn this_program(args: &Args) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(connection) = &args.protocol {
        command.args(["--protocol", &name(connection)]);
    }
    if let Some(place) = &args.world {
        command.args(["--world", &name(place)]);
    }
    if let Some(plant) = &args.plant {
        command.args(["--plant", &format!("{plant:?}")]);
    }
    command.args(["--max-steps", &args.max_steps.to_string()]);
    Ok(command)
}

#[expect(clippy::disallowed_methods, reason = "outside of worlds")]
fn report(args: &Args, sum: &mut RunSummary, s: f64) -> Result<ExitCode> {
    sum.failed.sort_by_key(|line| line.seed);
    for line in &sum.failed {
        println!("seed {}: {}", line.seed, line.failure.as_deref().unwrap_or_default());
    }
    if let Some(first) = sum.failed.first() {
        println!("the last events of seed {}:", first.seed);
        first.events.iter().for_each(|event| println!("{event}"));
        println!("replay it by\n{}", replay_seed(args, first.seed));
        let mut args = args.clone();
        if first.failure.as_ref().is_some_and(|why| why.starts_with("no end after")) {
            args.max_steps = args.max_steps.min(HANGING_STEPS);
        }
        let status = this_program(&args)?.args(["--shrink", &first.seed.to_string()]).status();
        status.context("making the case smaller")?;
    }
    println!(
        "{} worlds ({:.0} a second), {} steps ({:.0} a second), {:.0} s of virtual time in {s:.1} s, hash {:016x}, \
         {} failed",
        sum.worlds,
        sum.worlds as f64 / s,
        sum.steps,
        sum.steps as f64 / s,
        sum.virtual_s,
        sum.hash,
        sum.failed.len()
    );
    Ok(if sum.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A fault by its name, with or without dashes.
fn plant(name: &str) -> Result<Plant, String> {
    let letters = name.replace('-', "");
    let found = Plant::OF_WORLDS
        .into_iter()
        .find(|plant| format!("{plant:?}").eq_ignore_ascii_case(&letters));
    found.ok_or_else(|| format!("one of {:?}", Plant::OF_WORLDS))
}

/// The name that the command line has.
fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
