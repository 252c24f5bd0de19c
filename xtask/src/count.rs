//! Lines of code of the product, by folder: without blank lines, comments, tests, oracles and bindings.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::root;

/// Machines without I/O.
const CORE: &[&str] = &["conn-core", "roce-core"];
/// Everything between the machines and a device.
const DRIVER: &[&str] = &["host", "src", "verbs-safe", "verbs-sys"];
/// Most lines of a file, with blank lines and comments.
const LONGEST_FILE: usize = 500;

/// Prints the lines of each folder, and the files that are too long.
pub(crate) fn run() -> Result<()> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--", "*/src/*.rs", "src/*.rs"]).current_dir(root());
    let names = process::printed(&mut list)?;
    let mut folders = BTreeMap::<&str, usize>::new();
    for name in names.lines().filter(|name| is_product(name)) {
        let text = fs::read_to_string(root().join(name)).with_context(|| name.to_owned())?;
        let folder = name.split('/').next().unwrap_or_default();
        *folders.entry(folder).or_default() += code_lines(&text);
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            println!("{name}: {lines} lines, more than {LONGEST_FILE}");
        }
    }
    let sum = |of: &[&str]| of.iter().filter_map(|folder| folders.get(folder)).sum::<usize>();
    let by_folder: Vec<_> = folders.iter().map(|(folder, n)| format!("{folder} {n}")).collect();
    let (driver, core) = (sum(DRIVER), sum(CORE));
    println!(
        "lines of code: {} ({}); driver to core {:.1}:1",
        folders.values().sum::<usize>(),
        by_folder.join(", "),
        driver as f64 / core.max(1) as f64
    );
    Ok(())
}

/// Reports whether a file is part of the product: it is no test, no oracle and not generated.
fn is_product(name: &str) -> bool {
    let other = |part: &str| {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        ["test", "tests", "oracle", "bindings"].iter().any(|end| stem.ends_with(end))
    };
    !name.split('/').any(other)
}

fn code_lines(text: &str) -> usize {
    let is_code =
        |line: &&str| !line.trim_start().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(is_code).count()
}

#[cfg(test)]
mod tests;
