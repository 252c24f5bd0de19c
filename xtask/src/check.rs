//! Checks that most changes need: minutes, where the gate takes up to 40.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::workspace::cargo;
use crate::{bounds, budgets, circles, count, process, seam, sized};

/// Steps of cargo: what each is for, and its arguments. Quick ones first.
const STEPS: &[(&str, &[&str])] = &[
    ("the formatting", &["fmt", "--all", "--check"]),
    ("clippy", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"]),
    (
        "the unit tests, and the machines against their oracles",
        &["test", "--workspace", "--lib", "--bins", "--quiet"],
    ),
    (
        "the connections on soft0",
        &[
            "test",
            "--quiet",
            "--test",
            "basics",
            "--test",
            "buffered_read",
            "--test",
            "buffered_write",
            "--test",
            "direct_read",
            "--test",
            "hostile",
            "--test",
            "loans",
            "--test",
            "multicast",
            "--test",
            "timed",
        ],
    ),
    ("the examples of the documentation", &["test", "--doc", "--quiet", "--workspace"]),
];

pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    circles::run()?;
    bounds::run()?;
    budgets::run()?;
    seam::run()?;
    sized::run()?;
    for (what, arguments) in STEPS {
        let begin = Instant::now();
        let line = arguments.join(" ");
        println!("=== {what}: cargo {line}");
        let ran = process::run(&mut cargo(arguments));
        ran.with_context(|| format!("{what}: run it again with `cargo {line}`"))?;
        println!("=== {what}: {} s", begin.elapsed().as_secs());
    }
    count::run()?;
    println!("all passed in {} s; `bash .ci/run` is the whole gate", start.elapsed().as_secs());
    Ok(())
}
