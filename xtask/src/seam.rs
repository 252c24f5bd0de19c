//! Nothing goes round `host`: the root of each crate denies what `clippy.toml` lists, which clippy
//! then refuses. What uses it all the same is in one list with reasons ([`real_time`]), which is
//! compared with the sources: an entry that uses nothing is an error, and so is a use without an
//! entry. Unit tests (`cfg(test)`) may use all of it anywhere.
//!
//! Calls that wait are those that sleep, park, start or join a thread, wait for a descriptor, a
//! process or a file lock, and connect or accept. Reads and writes of a stream are not among them:
//! for clippy they are those of a file. They stand behind `host::fd::before_read`.
//!
//! Worlds see hand-overs: a file of [`HANDS_OVER`] with atomic stores that publish has a point
//! (docs/inside/worlds.md), or is in [`POINTLESS`], with a reason.

mod real_time;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use proc_macro2::{TokenStream, TokenTree};

use crate::workspace::{self, found_lines};
use real_time::{EXCEPTIONS, FOLDERS, REAL_TIME_TESTS, RealTimeTests, TESTS};

/// Line that the root of a crate has.
const DENIES: &str =
    "#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]";
/// Attributes that lower the level of a lint.
const LEVELS: &[&str] = &["allow", "expect", "warn"];
/// The lints, and the groups that they are in.
const LINTS: &[&str] = &[
    "clippy::disallowed_methods",
    "clippy::disallowed_types",
    "clippy::style",
    "clippy::all",
    "warnings",
];

/// Crate with locks of its own: only `host` depends on it.
const LOCKS: &str = "parking_lot";

/// Folders of code that hands over between threads, or to a device.
const HANDS_OVER: &[&str] = &["src", "verbs-safe/src"];
/// Orderings of atomic operations that publish.
const PUBLISHES: &[&str] = &["Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"];
/// Call that lets another thread of a world run.
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
    for (file, _) in POINTLESS {
        ensure!(root.join(file).exists(), "there is no {file}: strike it from POINTLESS");
    }
    let mut wrong = unused_folders(root)?;
    wrong.extend(differing_tests(root)?);
    let mut sources = BTreeSet::new();
    for package in &workspace::packages()? {
        let name = &package.name;
        if name != "rdma-conn-host" && package.dependencies.iter().any(|other| other.name == LOCKS)
        {
            wrong.push(format!("{name} depends on {LOCKS}: host::sync has its locks"));
        }
        for target in &package.targets {
            let file = target.src_path.strip_prefix(root)?;
            if is_in_real_time(file) {
                continue;
            }
            wrong.extend(denies_nothing(file, root)?);
            let folder = root.join(file).with_file_name("");
            // A build script and examples stand beside other crates.
            let is_file = target.is_script_or_example();
            sources.extend(if is_file {
                vec![root.join(file)]
            } else {
                workspace::sources(&folder)?
            });
        }
    }
    wrong.extend(differing_exceptions(&sources, root)?);
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
    let folders = FOLDERS.iter().flat_map(|(folders, _)| *folders);
    folders.chain(TESTS).any(|folder| file.starts_with(folder))
}

/// The code of a source, without comments.
fn code(text: &str) -> String {
    text.lines().flat_map(|line| [line.split("//").next().unwrap_or_default(), "\n"]).collect()
}

/// Marks of real time, in folders that are no tests.
fn marks() -> impl Iterator<Item = &'static str> {
    REAL_TIME_TESTS.iter().flat_map(|tests| tests.marks).copied().chain(["spin_loop"])
}

/// Entries for folders that use nothing of it, or are not there.
fn unused_folders(root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (folder, reason) in
        FOLDERS.iter().flat_map(|(folders, reason)| folders.iter().map(move |it| (it, reason)))
    {
        let path = root.join(folder);
        let files = if path.is_dir() { workspace::sources(&path)? } else { vec![path] };
        let mut uses = false;
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let code = code(&text);
            uses |= marks().any(|mark| code.contains(mark));
        }
        if !uses {
            wrong.push(format!("{folder} uses no real time: strike it ({reason})"));
        }
    }
    Ok(wrong)
}

/// Differences between the list of tests and the tests.
fn differing_tests(root: &Path) -> Result<Vec<String>> {
    let mut codes = BTreeMap::new();
    for folder in TESTS {
        for file in workspace::sources(&root.join(folder))? {
            let name = file.strip_prefix(root)?.display().to_string();
            codes.insert(name, code(&fs::read_to_string(&file)?));
        }
    }
    Ok(REAL_TIME_TESTS.iter().flat_map(|tests| differences(tests, &codes)).collect())
}

fn differences(tests: &RealTimeTests, codes: &BTreeMap<String, String>) -> Vec<String> {
    let RealTimeTests { marks, reason, files } = tests;
    let uses = |code: &str| marks.iter().any(|mark| code.contains(mark));
    let listed: BTreeSet<&str> = files.iter().copied().collect();
    let found: BTreeSet<&str> =
        codes.iter().filter(|(_, code)| uses(code)).map(|(name, _)| name.as_str()).collect();
    let more = found.difference(&listed).map(|name| format!("{name} is not listed ({reason})"));
    let fewer = listed.difference(&found).map(|name| format!("{name} uses none of {marks:?}"));
    more.chain(fewer).collect()
}

/// Returns what is wrong with a crate that has this file as its root.
fn denies_nothing(file: &Path, root: &Path) -> Result<Option<String>> {
    let denies = fs::read_to_string(root.join(file))?.lines().any(|line| line == DENIES);
    Ok((!denies).then(|| format!("{} has no line {DENIES}", file.display())))
}

/// Differences between the list of exceptions and the attributes of the sources.
fn differing_exceptions(sources: &BTreeSet<PathBuf>, root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut listed: BTreeMap<&str, (usize, &str)> =
        EXCEPTIONS.iter().map(|(file, count, reason)| (*file, (*count, *reason))).collect();
    for source in sources {
        let name = source.strip_prefix(root)?.display().to_string();
        let found = lowered(&fs::read_to_string(source)?).with_context(|| name.clone())?;
        let (count, _) = listed.remove(name.as_str()).unwrap_or_default();
        if found != count {
            wrong
                .push(format!("{name} lowers the lints {found} times, and is listed with {count}"));
        }
    }
    wrong.extend(listed.into_iter().map(|(file, (_, why))| format!("there is no {file} ({why})")));
    Ok(wrong)
}

/// Number of attributes that lower the level of the lints.
fn lowered(text: &str) -> Result<usize> {
    // Not of `syn`: what is in macros counts, too.
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
    Ok(count_lowered(tokens))
}

fn count_lowered(tokens: TokenStream) -> usize {
    let (mut count, mut is_level) = (0, false);
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            count += usize::from(is_level && names_lint(&group.stream()));
            count += count_lowered(group.stream());
        }
        is_level = match token {
            TokenTree::Ident(word) => LEVELS.iter().any(|level| word == level),
            _ => false,
        };
    }
    count
}

fn names_lint(arguments: &TokenStream) -> bool {
    let text: String = arguments.to_string().split_whitespace().collect();
    text.split(',').any(|argument| LINTS.contains(&argument))
}

#[cfg(test)]
mod named;
#[cfg(test)]
mod tests;
