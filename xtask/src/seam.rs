//! Nothing goes round `host`: the root of each crate denies what `clippy.toml` lists, which clippy
//! then refuses, or it is in a folder of [`REAL_TIME`], with a reason. Unit tests (`cfg(test)`) may
//! use all of it anywhere.
//!
//! Worlds see hand-overs: a file of [`HANDS_OVER`] with atomic stores that publish has a point
//! (docs/inside/worlds.md), or is in [`POINTLESS`], with a reason.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::workspace::{self, found_lines};

/// Line that the root of a crate has.
const DENIES: &str =
    "#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]";
/// The names of the lints, which code may not allow.
const LINTS: &str = "clippy::disallowed_";

/// Folders (and files) that use the host's clock, threads, locks and waits, and why they may.
const REAL_TIME: &[(&[&str], &str)] = &[
    (&["host"], "it is the seam"),
    (
        &[
            "tests",
            "verbs-safe/tests",
            "soft-rnic/tests",
            "soft-rnic/abi/tests",
            "apps/tests",
            "worlds/tests",
        ],
        "they are programs on the host, and show what only its kernel and its processes can show",
    ),
    (
        &["examples", "verbs-safe/examples", "soft-rnic/examples", "roce-core/examples"],
        "they are programs of users, which have std",
    ),
    (&["conn-core/examples"], "they count instructions of machines that have no clock"),
    (&["benches", "verbs-safe/benches", "roce-core/benches"], "they measure real time"),
    (&["loom-tests"], "loom has threads and atomics of its own"),
    (&["verbs-safe/misuse"], "its programs do not compile"),
    (&["fuzz"], "libFuzzer drives machines that have no clock; it is no member of the workspace"),
    (&["xtask"], "chores run other programs, and wait for them"),
    (&["build.rs", "soft-rnic/abi/build.rs"], "they run before there is a host"),
];

/// Crate with locks of its own: only `host` depends on it.
const LOCKS: &str = "parking_lot";

/// Folders of code that hands over between threads, or to a device.
const HANDS_OVER: &[&str] = &["src", "verbs-safe/src"];
/// Orderings of atomic operations that publish.
const PUBLISHES: &[&str] = &["Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"];
/// What lets another thread of a world run.
const POINT: &str = "host::point()";
/// Files that publish without a point, and why they may.
const POINTLESS: &[(&str, &str)] = &[
    ("verbs-safe/src/baseline/shared_memory.rs", "its threads are those of two processes"),
    ("verbs-safe/src/queue/pool.rs", "nothing tells another thread of a failed receive's slot"),
    ("verbs-safe/src/queue/pool/home.rs", "nothing tells another thread of the poster's slots"),
    ("verbs-safe/src/queue/send/epochs.rs", "an epoch takes 2^30 requests: no world has one"),
];

pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    for folder in REAL_TIME.iter().flat_map(|(folders, _)| *folders) {
        ensure!(root.join(folder).exists(), "there is no {folder}: strike it from REAL_TIME");
    }
    for (file, _) in POINTLESS {
        ensure!(root.join(file).exists(), "there is no {file}: strike it from POINTLESS");
    }
    let mut wrong = Vec::new();
    for package in &workspace::packages()? {
        let name = &package.name;
        if name != "rdma-conn-host" && package.dependencies.iter().any(|other| other.name == LOCKS)
        {
            wrong.push(format!("{name} depends on {LOCKS}: host::sync has its locks"));
        }
        for target in &package.targets {
            let file = target.src_path.strip_prefix(root)?;
            if !is_in_real_time(file) {
                wrong.extend(complaints(file, root)?);
            }
        }
    }
    ensure!(wrong.is_empty(), "what goes round host (xtask/src/seam.rs):\n{}", wrong.join("\n"));
    let is_free =
        |name: &str| is_test(name) || POINTLESS.iter().any(|(pointless, _)| *pointless == name);
    let found =
        found_lines(HANDS_OVER, |name, text| if is_free(name) { vec![] } else { unseen(text) })?;
    ensure!(
        found.is_empty(),
        "worlds do not see what these lines publish: call {POINT} behind them (docs/inside/worlds.md), or say why not in \
         POINTLESS (xtask/src/seam.rs):\n{}",
        found.join("\n")
    );
    Ok(())
}

fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

/// Numbers of the lines that publish, if the file has no point.
fn unseen(text: &str) -> Vec<usize> {
    if text.contains(POINT) {
        return Vec::new();
    }
    let publishes = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        PUBLISHES.iter().any(|ordering| code.contains(ordering))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| publishes(line));
    lines.map(|(n, _)| n + 1).collect()
}

fn is_in_real_time(file: &Path) -> bool {
    REAL_TIME.iter().flat_map(|(folders, _)| *folders).any(|folder| file.starts_with(folder))
}

/// Returns what is wrong with a crate that has this file as its root.
fn complaints(file: &Path, root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    if !fs::read_to_string(root.join(file))?.lines().any(|line| line == DENIES) {
        wrong.push(format!("{} has no line {DENIES}", file.display()));
    }
    for source in workspace::sources(&root.join(file).with_file_name(""))? {
        let text = fs::read_to_string(&source)?;
        let allows = |(_, line): &(usize, &str)| line.contains(LINTS) && *line != DENIES;
        let lines = text.lines().enumerate().filter(allows);
        let shown = source.strip_prefix(root)?.display();
        wrong.extend(lines.map(|(n, line)| format!("{shown}:{}: {}", n + 1, line.trim())));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests;
