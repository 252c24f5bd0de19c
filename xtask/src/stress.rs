//! `cargo xtask stress`: tests in real time, beside threads that keep every processor busy.
//!
//! A test that asserts order and outcome passes there, too; one that asserts how long something
//! takes does not. They are built as in the lanes, optimised and with every assertion: less of a
//! run is computed, and more of it waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::workspace::{self, CargoArtifact};
use crate::{process, side_by_side};

/// Threads that keep a processor busy.
const LOOPS: usize = 2;
/// The longest that a test program may run.
const LIMIT: Duration = Duration::from_secs(1_800);
/// Programs at a time: most of their tests wait.
const AT_A_TIME: usize = 8;
/// Packages with tests that wait for nothing, or in virtual time.
const WITHOUT_TIME: &[&str] = &["conn-core", "loom-tests", "roce-core", "worlds", "xtask"];

#[derive(clap::Args)]
pub(crate) struct StressArgs {
    /// Runs of each test program
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// Only programs whose PACKAGE/TARGET contains this
    #[arg(long, default_value = "")]
    filter: String,
}

/// A program of tests.
struct StressProgram {
    name: String,
    executable: PathBuf,
    /// Folder of its package, where cargo runs it.
    folder: PathBuf,
    /// Held while it runs: tests of a program have addresses of their own, which they would share
    /// with themselves.
    runs: Mutex<()>,
}

pub(crate) fn run(args: &StressArgs) -> Result<()> {
    let programs = programs(&args.filter)?;
    ensure!(!programs.is_empty(), "no test program has {:?} in its name", args.filter);
    keep_processors_busy()?;
    // Programs of the next run begin while the longest of this one still run.
    let runs: Vec<(u32, &StressProgram)> = (1..=args.times)
        .flat_map(|time| programs.iter().map(move |program| (time, program)))
        .collect();
    let left = Mutex::new(BTreeMap::from_iter((1..=args.times).map(|time| (time, programs.len()))));
    let failed = Mutex::new(BTreeMap::<&str, u32>::new());
    let start = Instant::now();
    side_by_side::for_each(&runs, AT_A_TIME, |(time, program)| {
        if let Some(why) = run_once(program, *time)? {
            println!("--- {}, run {time}: {why}", program.name);
            *failed.lock().expect("no panic").entry(&program.name).or_default() += 1;
        }
        let mut left = left.lock().expect("no panic");
        let of_run = left.get_mut(time).expect("a count for each run");
        *of_run -= 1;
        if *of_run == 0 {
            println!("=== run {time} of {}: at {} s", args.times, start.elapsed().as_secs());
        }
        Ok(())
    })?;
    let failed = failed.into_inner().expect("no panic");
    for StressProgram { name, .. } in &programs {
        let failed = failed.get(name.as_str()).copied().unwrap_or(0);
        println!("{name}: {} passed, {failed} failed", args.times - failed);
    }
    ensure!(failed.is_empty(), "{} of {} programs have failed", failed.len(), programs.len());
    Ok(())
}

/// Builds the tests of the workspace, and lists them.
fn programs(filter: &str) -> Result<Vec<StressProgram>> {
    let mut cargo =
        workspace::cargo(&["test", "--workspace", "--profile", "lane", "--no-run", "--quiet"]);
    let artifacts = workspace::artifacts(&mut cargo)?.into_iter();
    let mut programs: Vec<StressProgram> = artifacts.filter_map(program).collect();
    programs.retain(|program| {
        let package = program.name.split('/').next().unwrap_or_default();
        program.name.contains(filter) && !WITHOUT_TIME.contains(&package)
    });
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

fn program(artifact: CargoArtifact) -> Option<StressProgram> {
    let CargoArtifact { manifest_path, executable, target, profile } = artifact;
    let folder = manifest_path.parent()?.to_owned();
    let package = match folder.strip_prefix(workspace::root()).ok()?.to_str()? {
        "" => "rdma-conn",
        package => package,
    };
    // Unit tests have the name of what they are of.
    let unit = if target.is_test() { "" } else { " (unit tests)" };
    let name = format!("{package}/{}{unit}", target.name);
    executable.filter(|_| profile.test).map(|executable| StressProgram {
        name,
        executable,
        folder,
        runs: Mutex::new(()),
    })
}

/// Starts the threads that the tests run beside; they end with this process.
fn keep_processors_busy() -> Result<()> {
    let ours = sched_getaffinity(None)?;
    let processors = (0..CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu));
    for cpu in processors.flat_map(|cpu| [cpu; LOOPS]) {
        std::thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).expect("a processor of this process's");
            loop {
                std::hint::spin_loop();
            }
        });
    }
    Ok(())
}

/// Runs a program once, as cargo does, for the run `time`; why it has failed, with what it has
/// printed.
fn run_once(program: &StressProgram, time: u32) -> Result<Option<String>> {
    let _alone = program.runs.lock().expect("no panic");
    let name =
        program.executable.file_name().context("a program has a name")?.display().to_string();
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO", env!("CARGO"));
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    let start = Instant::now();
    let log = format!("stress-{}-{name}-{time}", std::process::id());
    let (status, text) = process::run_logged(&mut command, &log, |_| start.elapsed() > LIMIT)?;
    Ok(match status {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("{status}\n{text}")),
        None => Some(format!("it has not ended in {LIMIT:?}\n{text}")),
    })
}
