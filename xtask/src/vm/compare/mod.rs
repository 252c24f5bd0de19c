//! `cargo xtask vm compare`: perftest and rdma-conn, side by side in one guest.
//!
//! `cases` says what is compared, `commands` how both are asked for the same, `perftest`
//! reads what it prints, `runner` alternates, `report` prints the ratios. The host builds the
//! command and boots the guest; the rest happens there, by this same program.

mod cases;
mod commands;
mod perftest;
mod report;
mod runner;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::guest::{GuestMachine, XTASK, quoted};
use crate::workspace;

/// Arguments of `cargo xtask vm compare`.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct CompareArgs {
    /// One JSON object a line on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// Runs of each program in each case, in turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Cases, with commas in between [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    case: Vec<String>,
    /// Sizes of messages in bytes, with commas in between
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = cases::SIZES, value_parser = clap::value_parser!(u32).range(1..=8_388_608))]
    size: Vec<u32>,
    /// One round of every case, at 16 bytes, and few messages: shows that all can be
    /// compared, not how they do
    #[arg(long, conflicts_with_all = ["rounds", "size"])]
    quick: bool,
    /// Show the cases, and do nothing
    #[arg(long)]
    list: bool,
    /// Run here, with this build of rdma-conn: what the guest does
    #[arg(long, value_name = "RDMA-CONN", hide = true)]
    here: Option<PathBuf>,
}

const HELP: &str = "\
Both programs run in one guest on one device, as two processes each, pinned to a processor
each; they take turns, and change places every round. Both poll without pause (or both wait
for events, in the cases whose names say so), check no payloads, signal one in the same number of
requests, and have the same depth, receives, READs in flight, queue pairs and MTU; the commands are
printed beside the figures.

A rate is that of the whole run; a latency is the run's median. The ratio is the median of
our rounds divided by the median of perftest's: a rate should be at least 1 and a latency at
most 1, with 5 % for noise. Buffered Read at 16 bytes is to have 20 times the rate of perftest's
SENDs, and long messages the rate of its READs of as many bytes. The other connections, which
also keep account of what the receiver has room for, have no target, and stand beside perftest
for information. `spread` is the largest ratio of a single round less the smallest.

The guest's processors are emulated in software: only ratios mean something, and only those
taken while the machine does nothing else.

JSON: case, size_bytes, ratio_rate or ratio_latency, rounds, spread (absent with one round),
meets_target (absent where there is none), messages_per_s and perftest_messages_per_s or latency_ns_p50 and
perftest_latency_ns_p50, each_round (ours and perftest's), command, perftest_command, note. A
comparison that could not be made has `failed` with the reason instead, and makes the exit
status 1. A target that is missed does not.";

/// Rounds and sizes of `--quick`.
const QUICK: (u32, &[u32]) = (1, &[16]);

/// A pair of runs takes some 3 s; the guest's limit is for a guest that hangs.
const LIMIT_PER_ROUND: Duration = Duration::from_secs(30);

/// Compares in the guest, or, when this is the guest, here.
pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode> {
    if args.list {
        println!("{}", cases::names().join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let (rounds, sizes) = if args.quick { QUICK } else { (args.rounds, &args.size[..]) };
    let mut comparisons = cases::chosen(&args.case, sizes)?;
    comparisons.iter_mut().for_each(|comparison| comparison.quick = args.quick);
    if let Some(ours) = &args.here {
        let all_measured = runner::run(&comparisons, rounds, args.json, ours)?;
        return Ok(if all_measured { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let own = std::env::current_exe().context("finding this program")?.display().to_string();
    // The same words, of this program, in the guest.
    let words = [own].into_iter().chain(std::env::args().skip(1));
    let words: Vec<String> = words.chain(["--here".to_owned(), build()?]).collect();
    let limit = LIMIT_PER_ROUND * (rounds * comparisons.len() as u32 + 2);
    let machine = GuestMachine { limit: limit.as_secs(), memory: 4096, verbose: false };
    machine.run(&quoted(&words), &[])
}

/// Cases of the gate: a latency and a rate.
const IN_GATE: &str = "send-lat,write-bw";

/// Builds; the command for the guest that shows that the gate's cases can be compared.
pub(super) fn quick() -> Result<String> {
    Ok(format!("{XTASK} vm compare --quick --case {IN_GATE} --here {}", quoted(&[build()?])))
}

/// Builds the command, and says where it is.
fn build() -> Result<String> {
    let folder = workspace::build_optimised(&["rdma-conn-apps"])?;
    Ok(folder.join("rdma-conn").display().to_string())
}
