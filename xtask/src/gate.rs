//! The gate and the full run: one table of steps, each with its budget on two processors.
//!
//! Steps run one after the other, and the first that fails ends the run: a check that cannot run has
//! failed. A step that mostly waits runs [beside](GateStep::beside) those that follow it in the table. A
//! step that takes longer than its budget is named in a warning.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::process::end_tree;
use crate::workspace::target_folder;

use StepRuns::{Always, Full, Gate};

/// A check.
struct GateStep {
    title: &'static str,
    runs: StepRuns,
    budget_seconds: u64,
    /// Command lines, which may begin with variables.
    commands: &'static [&'static str],
    /// True if the steps behind it in the table run meanwhile. Such a step has one command.
    is_beside: bool,
}

/// The runs that a step belongs to.
#[derive(Clone, Copy, PartialEq)]
enum StepRuns {
    Always,
    /// The gate only: the full run has a step that does all of this, and more.
    Gate,
    /// The full run only.
    Full,
}

const fn step(
    title: &'static str,
    runs: StepRuns,
    budget_seconds: u64,
    commands: &'static [&'static str],
) -> GateStep {
    GateStep { title, runs, budget_seconds, commands, is_beside: false }
}

impl GateStep {
    /// Has the steps behind it in the table run meanwhile.
    const fn beside(self) -> GateStep {
        GateStep { is_beside: true, ..self }
    }
}

const STEPS: &[GateStep] = &[
    step(
        "format, clippy, docs",
        Always,
        170,
        &[
            "cargo fmt --all --check",
            "cargo clippy --workspace --all-targets --quiet -- -D warnings",
            // Without the features that tests have.
            "cargo clippy --workspace --quiet -- -D warnings",
            "cargo clippy --package conn-core --package roce-core --all-targets --all-features --quiet -- -D warnings",
            // The command has the library's name, and so its folder, which cargo empties when it begins.
            "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --exclude rdma-conn-apps --features tokio --no-deps --document-private-items --quiet",
            "RUSTDOCFLAGS=-Dwarnings cargo doc --package rdma-conn-apps --no-deps --document-private-items --quiet",
            "RUSTDOCFLAGS=-Dwarnings cargo doc --package conn-core --package roce-core --all-features --no-deps --quiet",
        ],
    ),
    step("modules and folders use each other one way", Always, 10, &["cargo xtask circles"]),
    step("README: the main job", Always, 160, &["cargo run --release --quiet -- bench"]),
    step("README: the tests", Always, 530, &["cargo test --workspace"]),
    // An emulated machine, which keeps one processor busy, and waits for its own tests.
    step("rxe0, beside perftest, and with roce over UDP", Gate, 900, &["cargo xtask vm gate"])
        .beside(),
    step(
        "rxe0, and with roce over UDP, whole",
        Full,
        3000,
        &["cargo xtask vm gate --whole --limit 6000"],
    )
    .beside(),
    step("lane apart", Gate, 75, &["cargo xtask lane apart --gate"]),
    step("lane distant", Gate, 30, &["cargo xtask lane distant --gate"]),
    step("lane wired", Gate, 50, &["cargo xtask lane wired --gate"]),
    step("lane apart, whole", Full, 260, &["cargo xtask lane apart"]),
    step("lane distant, whole", Full, 260, &["cargo xtask lane distant"]),
    step("lane wired, whole", Full, 360, &["cargo xtask lane wired"]),
    step("lane roce", Always, 20, &["cargo xtask lane roce"]),
    step("the command line", Always, 30, &[".ci/command-line"]),
    step("programs of Debian on soft0", Always, 110, &["cargo xtask programs"]),
    step("roce: two network namespaces", Always, 140, &["cargo xtask namespaces"]),
    step("bindings are what the headers give", Always, 30, &["cargo xtask bindings --check"]),
    step("conn-core and roce-core without std and alloc", Always, 100, &["conn-core/proof/run.sh"]),
    step("conn-core: instructions per message", Always, 35, &["conn-core/instructions.sh"]),
    step(
        "conn-core: the ring beside others",
        Full,
        150,
        &["verbs-safe/benches/ring/instructions.sh"],
    ),
    step("loom models and their mutants", Always, 65, &["loom-tests/run.sh"]),
    step("worlds", Gate, 65, &["cargo xtask simulate --seeds 2000 --from commit --as-tests"]),
    step("worlds, many", Full, 300, &["cargo xtask simulate --seeds 20000 --twice"]),
    step(
        "worlds find planted faults",
        Full,
        240,
        &["cargo test --profile lane --package worlds --test plants"],
    ),
    step(
        "figures in a world",
        Full,
        120,
        &[
            "cargo test --profile lane --package rdma-conn-apps --features simulation --test figures_world",
        ],
    ),
    step("seeded faults", Full, 150, &["cargo xtask soak --schedules 50000"]),
    step("leaks", Always, 20, &["tests/leaks.sh"]),
    step("fuzz targets", Gate, 200, &["SECONDS_EACH=2 fuzz/run.sh"]),
    step("fuzz targets, longer", Full, 450, &["SECONDS_EACH=15 fuzz/run.sh"]),
    step("packages", Always, 80, &[".ci/packages"]),
    step("packages, built", Full, 180, &[".ci/packages built"]),
    step("rxe0: every case beside perftest", Full, 400, &["cargo xtask vm compare --quick"]),
];

/// Variables of every step.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("CARGO_TERM_COLOR", "never"),
    // What would make a second build faster only fills the disk.
    ("CARGO_INCREMENTAL", "0"),
    ("RUST_BACKTRACE", "1"),
    // A test that the machine cannot run has failed.
    ("SOFT_RNIC_SKIPS_NOTHING", "1"),
];

/// Steps of a run.
#[derive(Args)]
pub(crate) struct StepChoice {
    /// Only steps with this in their titles; may be given again
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

impl StepChoice {
    fn has(&self, step: &GateStep) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| step.title.contains(text))
    }
}

/// Runs the gate.
pub(crate) fn gate(choice: &StepChoice) -> Result<()> {
    run(Gate, choice)
}

/// Runs the gate and what it leaves out.
pub(crate) fn full(choice: &StepChoice) -> Result<()> {
    run(Full, choice)
}

/// Wall time and processor time of a step.
struct StepTime {
    step: &'static GateStep,
    time: Duration,
    processor_seconds: u64,
}

fn run(which: StepRuns, choice: &StepChoice) -> Result<()> {
    let start = Instant::now();
    let mut taken = Vec::new();
    let runs = |step: &GateStep| match step.runs {
        Always => true,
        Gate => which == Gate,
        Full => which == Full,
    };
    let is_in = |step: &&GateStep| runs(step) && choice.has(step);
    ensure!(STEPS.iter().any(|step| is_in(&step)), "no step has that in its title");
    let mut beside = Vec::new();
    for step in STEPS.iter().filter(is_in) {
        println!("=== {}", step.title);
        if step.is_beside {
            println!("=== {}: begins, beside what follows", step.title);
            beside.push(BesideStep::start(step)?);
            continue;
        }
        let (begin, before) = (Instant::now(), processor_seconds()?);
        for command in step.commands {
            if let Err(e) = execute(command) {
                print_times(&taken, start.elapsed());
                bail!("=== FAILED: {}: {e:#}: run it again with `{command}`", step.title);
            }
        }
        let (time, used) = (begin.elapsed(), processor_seconds()?);
        println!("=== {}: {} s", step.title, time.as_secs());
        taken.push(StepTime { step, time, processor_seconds: used - before });
    }
    for started in beside {
        let (step, before) = (started.step, processor_seconds()?);
        let ended = started.end();
        let Ok(time) = ended else {
            print_times(&taken, start.elapsed());
            let commands = step.commands.join(" ");
            bail!(
                "=== FAILED: {}: {:#}: run it again with `{commands}`",
                step.title,
                ended.unwrap_err()
            );
        };
        println!("=== {}: {} s", step.title, time.as_secs());
        taken.push(StepTime { step, time, processor_seconds: processor_seconds()? - before });
    }
    print_times(&taken, start.elapsed());
    println!("=== all passed");
    Ok(())
}

/// A step that runs beside others. It ends with this.
struct BesideStep {
    step: &'static GateStep,
    begin: Instant,
    child: Child,
    /// Its output, kept apart from that of the other steps.
    output: File,
}

impl BesideStep {
    fn start(step: &'static GateStep) -> Result<BesideStep> {
        let [line] = step.commands else { bail!("{}: one command", step.title) };
        let path = target_folder()?.join("beside.log");
        let output = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let output = output.with_context(|| format!("creating {}", path.display()))?;
        let mut command = command(line);
        command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        let child = command.spawn().with_context(|| format!("starting {line}"))?;
        Ok(BesideStep { step, begin: Instant::now(), child, output })
    }

    /// Waits for its end, and prints its output; returns the time that it took.
    fn end(mut self) -> Result<Duration> {
        let status = self.child.wait().context("waiting for a step")?;
        let time = self.begin.elapsed();
        self.output.rewind()?;
        std::io::copy(&mut self.output, &mut std::io::stdout())?;
        std::io::stdout().flush()?;
        ensure!(status.success(), "{status}");
        Ok(time)
    }
}

impl Drop for BesideStep {
    fn drop(&mut self) {
        // Where another step has failed.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            end_tree(&mut self.child);
        }
    }
}

fn execute(line: &str) -> Result<()> {
    let status = command(line).status().with_context(|| format!("starting {line}"))?;
    ensure!(status.success(), "{status}");
    Ok(())
}

fn command(line: &str) -> Command {
    let mut command = Command::new("env");
    command.args(line.split_whitespace()).envs(ENVIRONMENT.iter().copied());
    // What cargo has set for this program alone: it would have others built again.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
    command
}

/// Processor time of all child processes that have ended and were waited for, in seconds.
fn processor_seconds() -> Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    // proc_pid_stat(5): after the name follow the third field and the others; `cutime` is the 16th.
    let fields = stat.rsplit_once(')').context("no name in /proc/self/stat")?.1;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = fields.get(13..15).context("a short /proc/self/stat")?;
    let ticks: u64 = ticks.iter().map(|field| field.parse::<u64>()).sum::<Result<u64, _>>()?;
    Ok(ticks / rustix::param::clock_ticks_per_second())
}

/// Prints what each step took beside its budget, and how busy it kept the processors.
fn print_times(taken: &[StepTime], total: Duration) {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    println!("=== seconds (budget), busy: of what {processors} processors could do");
    for StepTime { step, time, processor_seconds } in taken {
        let (took, budget) = (time.as_secs(), step.budget_seconds);
        let busy = 100 * processor_seconds / (processors * took).max(1);
        let warning = if took > budget { "  WARNING: over its budget" } else { "" };
        println!("{took:6} ({budget:4}) {busy:3} %  {}{warning}", step.title);
    }
    // Steps beside others take no time of their own, if they end before the last.
    let in_turn = taken.iter().filter(|taken| !taken.step.is_beside);
    let budget: u64 = in_turn.map(|taken| taken.step.budget_seconds).sum();
    println!("{:6} ({budget:4})        in all", total.as_secs());
}
