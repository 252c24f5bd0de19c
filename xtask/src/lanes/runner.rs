//! Runs the programs of a lane, and reports their results.
//!
//! A program is one process, because to start one costs as much as many tests on an emulated
//! processor; each test has a process of its own where the program says so, and after a program has
//! crashed or hung, so that the test is named. A test says in a tally file which device it took,
//! and which cases it has left out; what it does not say, is not claimed.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::lane::Lane;
use crate::{process, side_by_side};

/// Names the file for what a test took and what it left out.
const TALLY: &str = "RDMA_CONN_TALLY";

/// Tells a test that no other process uses the device, so that it can count.
const ALONE: &str = "RDMA_CONN_ALONE";

/// Time for which a process may print nothing until it is taken for hung; each test prints a line.
/// The slowest takes a tenth of it, and a program may have many, on a machine that does something
/// else besides.
const SILENCE: Duration = Duration::from_secs(600);

/// Lines that are shown of a program that has failed.
const SHOWN_LINES: usize = 80;

/// The programs to be run.
#[derive(Serialize, Deserialize)]
pub(crate) struct LanePlan {
    device: String,
    environment: Vec<(String, String)>,
    /// Only tests whose names hold this.
    filter: Option<String>,
    pub(super) programs: Vec<LaneProgram>,
    /// Programs that are not in the lane.
    pub(super) elsewhere: usize,
}

/// A test program, with the folder that its tests run in.
#[derive(Serialize, Deserialize)]
pub(super) struct LaneProgram {
    pub(super) package: String,
    pub(super) target: String,
    pub(super) executable: PathBuf,
    pub(super) folder: PathBuf,
    /// True if each test has a process of its own.
    pub(super) is_alone: bool,
}

/// Result of a process.
struct ProcessResult {
    /// None if it hung, and was ended.
    status: Option<ExitStatus>,
    passed: usize,
    seconds: f64,
    /// The devices that its tests took, each once.
    devices: Vec<String>,
    /// The cases that they left out.
    skipped: Vec<String>,
    output: String,
}

/// Results of all processes.
#[derive(Default)]
struct LaneSummary {
    on_device: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Programs that took other devices only, or none.
    others: Vec<String>,
}

impl LanePlan {
    pub(super) fn for_lane(lane: &Lane, filter: Option<String>) -> LanePlan {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment = lane.environment.iter().map(own).collect();
        let device = lane.device.to_owned();
        LanePlan { device, environment, filter, programs: Vec::new(), elsewhere: 0 }
    }

    /// Reports whether all processes share the device's counters: then one test has it at a time.
    fn is_shared(&self) -> bool {
        self.device == super::RXE0.device
    }
}

/// Runs programs, `jobs` at a time; one at a time where they share the device's counters.
pub(crate) fn run(plan: &LanePlan, jobs: usize) -> Result<ExitCode> {
    let start = Instant::now();
    let jobs = if plan.is_shared() { 1 } else { jobs };
    let sum = Mutex::new(LaneSummary::default());
    side_by_side::for_each(&plan.programs, jobs, |program| run_program(plan, program, &sum))?;
    println!("{} programs are not run: `cargo xtask lane --list` says why", plan.elsewhere);
    let mut sum = sum.into_inner().expect("no panic");
    if plan.is_shared() {
        kernel_is_well(&mut sum);
    }
    Ok(sum.report(&plan.device, start.elapsed()))
}

fn run_program(plan: &LanePlan, p: &LaneProgram, sum: &Mutex<LaneSummary>) -> Result<()> {
    let name = format!("{} {}", p.package, p.target);
    let mut processes = Vec::new();
    let mut is_single = p.is_alone;
    if !is_single {
        let ran = p.start(plan, None)?;
        // A crash or a hang names no test.
        is_single = !ran.has_passed() && ran.failed_tests().is_empty();
        processes.push((name.clone(), ran));
    }
    if is_single {
        for test in p.names(plan)? {
            processes.push((format!("{name}: {test}"), p.start(plan, Some(&test))?));
        }
    }
    let seconds: f64 = processes.iter().map(|(_, ran)| ran.seconds).sum();
    let passed: usize = processes.iter().map(|(_, ran)| ran.passed).sum();
    println!("{name}: {passed} passed in {seconds:.1} s");
    let mut sum = sum.lock().expect("no panic");
    let devices: Vec<&String> = processes.iter().flat_map(|(_, ran)| &ran.devices).collect();
    if devices.contains(&&plan.device) {
        sum.on_device += passed;
    } else {
        let taken = devices.first().map_or("no device", |device| device.as_str());
        sum.others.push(format!("{name} took {taken}"));
    }
    for (process, ran) in processes {
        sum.add(&name, &process, ran);
    }
    Ok(())
}

impl LaneProgram {
    /// Its tests.
    fn names(&self, plan: &LanePlan) -> Result<Vec<String>> {
        let mut list = Command::new(&self.executable);
        let text = process::printed(list.args(["--list", "--format", "terse"]).args(&plan.filter))?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Runs all its tests, or one, in a process.
    fn start(&self, plan: &LanePlan, test: Option<&str>) -> Result<ProcessResult> {
        let file = |what: &str| {
            let (own, name) = (std::process::id(), self.executable.file_name().unwrap_or_default());
            format!("rdma-conn-{what}-{own}-{}", name.display())
        };
        let tally = std::env::temp_dir().join(file("tally"));
        let mut command = Command::new(&self.executable);
        match test {
            Some(test) => command.args(["--exact", test]),
            None => command.args(&plan.filter),
        };
        if plan.is_shared() {
            command.args(["--test-threads", "1", "--nocapture"]).env(ALONE, "1");
        }
        command.envs(plan.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env(TALLY, &tally);
        let start = Instant::now();
        let (mut printed, mut since) = (0, start);
        let is_silent = |bytes: u64| {
            if bytes != printed {
                (printed, since) = (bytes, Instant::now());
            }
            since.elapsed() > SILENCE
        };
        let (status, output) = process::run_logged(&mut command, &file("log"), is_silent)?;
        let seconds = start.elapsed().as_secs_f64();
        let (devices, skipped) = read_tally(&tally);
        let _ = fs::remove_file(tally); // a test that takes no device has no tally
        Ok(ProcessResult { status, passed: passed(&output), seconds, devices, skipped, output })
    }
}

/// Lines of `device NAME` and of `skipped CASE`.
fn read_tally(path: &Path) -> (Vec<String>, Vec<String>) {
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

/// Tests that the harness says have passed.
fn passed(output: &str) -> usize {
    let last = output.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    let words = last.and_then(|line| line.split_once(" passed;"));
    words.and_then(|(words, _)| words.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// A kernel that has complained has not passed, whatever its programs saw.
fn kernel_is_well(sum: &mut LaneSummary) {
    let log = Command::new("dmesg").output().map(|out| out.stdout).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let complaint = |line: &&str| ["BUG:", "Oops", "WARNING:"].iter().any(|w| line.contains(w));
    for line in log.lines().filter(complaint) {
        println!("the kernel says: {line}");
        sum.failed.push("the kernel".to_owned());
    }
}

impl ProcessResult {
    fn has_passed(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Tests that the harness names as failed, in its list at the end.
    fn failed_tests(&self) -> Vec<&str> {
        let list = self.output.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
        list.lines().map_while(|line| line.strip_prefix("    ")).collect()
    }
}

impl LaneSummary {
    /// Takes in the result of a process, which ran a program or one test of it.
    fn add(&mut self, program: &str, process: &str, ran: ProcessResult) {
        self.skipped.extend(ran.skipped.iter().map(|case| format!("{process}: {case}")));
        let how = match ran.status {
            _ if ran.has_passed() => return,
            None => format!("hung: ended after {:.0} s", ran.seconds),
            Some(status) => match status.signal() {
                Some(signal) => format!("died of signal {signal}"),
                None => "failed".to_owned(),
            },
        };
        println!("--- {process} {how}; the end of what it printed:");
        let lines: Vec<&str> = ran.output.lines().collect();
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            println!("    {line}");
        }
        match ran.failed_tests()[..] {
            [] => self.failed.push(format!("{process} {how}")),
            ref tests => {
                self.failed.extend(tests.iter().map(|test| format!("{program}: {test}")));
            }
        }
    }

    fn report(&self, device: &str, took: Duration) -> ExitCode {
        for program in &self.others {
            println!("not on {device}: {program}");
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
