//! The half of `cargo xtask vm test` that runs in the guest: each test in a process of
//! its own, one after the other. A test says in a tally file which device it took and
//! which cases it has left out; what it does not say, is not claimed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::tests::{Plan, Program};

/// Where a test writes what it took and what it left out.
const TALLY: &str = "RDMA_CONN_TALLY";

/// Tells a test that no other process uses the device, so that it can count.
const ALONE: &str = "RDMA_CONN_ALONE";

/// How long one test may take: longer than what a test itself bounds a hang by.
const LIMIT: Duration = Duration::from_secs(600);

/// What is shown of a test that has failed.
const SHOWN_LINES: usize = 60;

/// How a test ended.
enum End {
    Passed,
    Failed(ExitStatus),
    Hung,
}

/// One test, when it has run.
struct Ran {
    name: String,
    end: End,
    seconds: f64,
    /// The devices that it took, each once.
    devices: Vec<String>,
    /// The cases that it left out.
    skipped: Vec<String>,
    output: String,
}

impl Ran {
    fn is_on(&self, device: &str) -> bool {
        self.devices.iter().any(|d| d == device)
    }
}

/// What all of them come to.
#[derive(Default)]
struct Sum {
    on_device: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Tests that took another device, by its name, or none.
    others: BTreeMap<String, Vec<String>>,
}

pub(super) fn run(plan: &Path) -> Result<ExitCode> {
    let plan: Plan = serde_json::from_slice(&fs::read(plan)?)?;
    let device = std::env::var("RDMA_CONN_DEVICE").context("RDMA_CONN_DEVICE names the device")?;
    let start = Instant::now();
    let mut sum = Sum::default();
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        plan.programs.iter().partition(|p| p.elsewhere.is_none());
    for program in here {
        run_program(program, plan.filter.as_deref(), &device, &mut sum)?;
    }
    for program in elsewhere {
        let reason = program.elsewhere.as_deref().unwrap_or_default();
        println!("not for {device}: {} {}: {reason}", program.package, program.target);
    }
    kernel_is_well(&mut sum);
    Ok(sum.report(&device, start.elapsed()))
}

fn run_program(p: &Program, filter: Option<&str>, device: &str, sum: &mut Sum) -> Result<()> {
    let start = Instant::now();
    let names = names(p)?;
    let mut slowest = (0.0, String::new());
    let mut failed = 0;
    let wanted = names.iter().filter(|name| filter.is_none_or(|f| name.contains(f)));
    let mut count = 0;
    for name in wanted {
        let ran = run_test(p, name)?;
        count += 1;
        failed += usize::from(!matches!(ran.end, End::Passed));
        if ran.seconds > slowest.0 {
            slowest = (ran.seconds, ran.name.clone());
        }
        sum.add(p, ran, device);
    }
    println!(
        "{} {}: {} of {count} passed in {:.1} s (the slowest, {:.1} s: {})",
        p.package,
        p.target,
        count - failed,
        start.elapsed().as_secs_f64(),
        slowest.0,
        slowest.1,
    );
    Ok(())
}

/// The tests of a program.
fn names(p: &Program) -> Result<Vec<String>> {
    let out = Command::new(&p.executable).args(["--list", "--format", "terse"]).output();
    let out = out.with_context(|| format!("starting {}", p.executable.display()))?;
    ensure!(out.status.success(), "{} does not list its tests", p.executable.display());
    let text = String::from_utf8(out.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn run_test(p: &Program, name: &str) -> Result<Ran> {
    let scratch = std::env::temp_dir();
    let (tally, log) = (scratch.join("tally"), scratch.join("log"));
    let _ = fs::remove_file(&tally); // of the test before
    let output = File::create(&log)?;
    let start = Instant::now();
    let mut child = Command::new(&p.executable)
        .args(["--exact", name, "--test-threads", "1", "--nocapture"])
        .current_dir(&p.folder)
        .env(TALLY, &tally)
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let end = loop {
        match child.try_wait()? {
            Some(status) if status.success() => break End::Passed,
            Some(status) => break End::Failed(status),
            None if start.elapsed() > LIMIT => {
                child.kill()?;
                child.wait()?;
                break End::Hung;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let (devices, skipped) = read_tally(&tally);
    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let seconds = start.elapsed().as_secs_f64();
    Ok(Ran { name: name.to_owned(), end, seconds, devices, skipped, output })
}

/// Lines of `device NAME` and of `skipped CASE`.
fn read_tally(path: &PathBuf) -> (Vec<String>, Vec<String>) {
    let text = fs::read_to_string(path).unwrap_or_default(); // none: it took none
    let of = |word: &str| -> Vec<String> {
        let mut all: Vec<String> =
            text.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect();
        all.sort();
        all.dedup();
        all
    };
    (of("device "), of("skipped "))
}

/// A kernel that has complained has not passed, whatever its programs saw.
fn kernel_is_well(sum: &mut Sum) {
    let log = Command::new("dmesg").output().map(|out| out.stdout).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let complaint = |line: &&str| ["BUG:", "Oops", "WARNING:"].iter().any(|w| line.contains(w));
    for line in log.lines().filter(complaint) {
        println!("the kernel says: {line}");
        sum.failed.push("the kernel".to_owned());
    }
}

impl Sum {
    fn add(&mut self, program: &Program, ran: Ran, device: &str) {
        let name = format!("{} {}: {}", program.package, program.target, ran.name);
        let how = match &ran.end {
            End::Passed => None,
            End::Hung => Some(format!("hung: ended after {LIMIT:?}")),
            End::Failed(status) => Some(match status.signal() {
                Some(signal) => format!("died of signal {signal}"),
                None => "failed".to_owned(),
            }),
        };
        if let Some(how) = how {
            println!("--- {name} {how}; the end of what it printed:");
            let lines: Vec<&str> = ran.output.lines().collect();
            for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
                println!("    {line}");
            }
            self.failed.push(name.clone());
        }
        self.skipped.extend(ran.skipped.iter().map(|case| format!("{name}: {case}")));
        if ran.is_on(device) {
            self.on_device += 1;
        } else {
            let taken = ran.devices.first().map_or("no device", String::as_str);
            self.others.entry(taken.to_owned()).or_default().push(name);
        }
    }

    fn report(&self, device: &str, took: Duration) -> ExitCode {
        for (taken, names) in &self.others {
            for name in names {
                println!("on {taken}: {name}");
            }
        }
        for case in &self.skipped {
            println!("skipped: {case}");
        }
        for name in &self.failed {
            println!("failed: {name}");
        }
        println!(
            "{} tests ran on {device} in {:.0} s, {} failed, {} skipped",
            self.on_device,
            took.as_secs_f64(),
            self.failed.len(),
            self.skipped.len(),
        );
        let is_good = self.failed.is_empty() && self.skipped.is_empty() && self.on_device > 0;
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
