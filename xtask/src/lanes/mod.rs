//! Lanes: the integration tests on one device after the other.
//!
//! A test program is in every lane, unless the [header] of its source says otherwise; so a new one
//! is in all lanes that it fits, without any setting. `programs` finds and builds them, `runner`
//! runs them, on this machine or in the guest.

mod header;
mod lane;
mod programs;
pub(crate) mod runner;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{Table, presets};

use lane::TestSubject;
pub(crate) use lane::{LANES, Lane, RXE0};
use programs::TestSource;
pub(crate) use programs::build;
use runner::{LanePlan, LaneProgram};

impl Lane {
    fn keeps_out(&self, source: &TestSource, gate: bool) -> Option<String> {
        let has = |it: &TestSubject| self.is_opt_in || it.gate.contains(&self.name);
        let by_gate = source.header.shows.filter(|it| gate && !has(it));
        let left = |it: &TestSubject| {
            format!("left to `cargo xtask full`: it shows {}: {}", it.name, it.reason)
        };
        source.header.keeps_out(self.name, self.is_opt_in).or_else(|| by_gate.map(left))
    }
}

/// Arguments of `cargo xtask lane`.
#[derive(Args)]
pub(crate) struct LaneArgs {
    /// The lane: soft0, apart, distant, wired or roce (rxe0: `cargo xtask vm test`)
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Print the table of programs by lane instead, and why a program is not in one
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    choice: TestChoice,
    /// Programs that run at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
}

/// Selection of a lane's tests.
#[derive(Args)]
pub(crate) struct TestChoice {
    /// Only this test program (the name of its file); may be given again
    #[arg(long)]
    test: Vec<String>,
    /// Only what the gate keeps of the lane
    #[arg(long)]
    gate: bool,
    /// Only tests whose names hold this
    filter: Option<String>,
}

impl TestChoice {
    /// The gate's selection.
    pub(crate) fn of_gate() -> TestChoice {
        TestChoice { gate: true, ..TestChoice::all() }
    }

    /// All tests of the lane.
    pub(crate) fn all() -> TestChoice {
        TestChoice { test: Vec::new(), gate: false, filter: None }
    }
}

pub(crate) fn run(args: LaneArgs) -> Result<ExitCode> {
    if args.list {
        print!("{}", table(&programs::all()?));
        return Ok(ExitCode::SUCCESS);
    }
    let lane = LANES.iter().find(|lane| Some(lane.name) == args.name.as_deref());
    let lane = lane.filter(|lane| lane.name != RXE0.name);
    let lane = lane.context("name a lane: soft0, apart, distant, wired or roce")?;
    runner::run(&plan(lane, args.choice)?, args.jobs)
}

/// Chooses the programs of a lane, and builds no others.
pub(crate) fn plan(lane: &Lane, choice: TestChoice) -> Result<LanePlan> {
    let TestChoice { test: only, gate, filter } = choice;
    let mut sources = programs::all()?;
    sources.retain(|source| only.is_empty() || only.contains(&source.target));
    let mut plan = LanePlan::for_lane(lane, filter);
    let named = sources.len();
    sources.retain(|source| lane.keeps_out(source, gate).is_none());
    plan.elsewhere = named - sources.len();
    ensure!(!sources.is_empty(), "no such program is in the lane: see --list");
    let targets: Vec<String> = sources.iter().map(|source| source.target.clone()).collect();
    let mut executables = build(&targets)?;
    for source in sources {
        let path = source.path.display();
        plan.programs.push(LaneProgram {
            is_alone: source.header.is_alone_on(lane.name),
            executable: executables.remove(&source.path).with_context(|| format!("no {path}"))?,
            package: source.package,
            target: source.target,
            folder: source.folder,
        });
    }
    Ok(plan)
}

/// The table of programs by lane.
fn table(sources: &[TestSource]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let names = LANES.iter().map(|lane| lane.name);
    table.set_header(["program"].into_iter().chain(names).chain(["because"]));
    for source in sources {
        let mut reasons: Vec<String> = Vec::new();
        let mut row = vec![format!("{} {}", source.package, source.target)];
        for lane in LANES {
            let is_in = lane.keeps_out(source, false).is_none();
            let in_gate = lane.keeps_out(source, true).is_none();
            row.push(
                if in_gate {
                    "gate"
                } else if is_in {
                    "full"
                } else {
                    ""
                }
                .to_owned(),
            );
            reasons.extend(lane.keeps_out(source, true).filter(|_| !lane.is_opt_in));
        }
        reasons.dedup();
        row.push(reasons.join("; "));
        table.add_row(row);
    }
    let lanes = LANES.iter().map(|lane| format!("{}: {}\n", lane.name, lane.about));
    format!("{table}\n\n{}", lanes.collect::<String>())
}

#[cfg(test)]
mod tests;
