//! The bounds of docs/security.md: in tables with a last column that is headed so, each row names the tests that reach its bound, as
//! `file::test` (a file by the end of its path, without `.rs`), or says that the bound is computed.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::workspace::{root, sources};

const DOCUMENT: &str = "docs/security.md";
/// End of the last heading of such a table.
const HEADING: &str = "test";
/// Reason of a bound without a test.
const COMPUTED: &str = "computed";
/// Folders with tests.
const FOLDERS: &[&str] = &[
    "apps",
    "conn-core",
    "roce-core",
    "soft-rnic",
    "src",
    "tests",
    "tools",
    "verbs-safe",
    "worlds",
];

pub(crate) fn run() -> Result<()> {
    let document = fs::read_to_string(root().join(DOCUMENT))?;
    let folders = FOLDERS.iter().map(|folder| sources(&root().join(folder)));
    let files = folders.collect::<Result<Vec<_>>>()?.concat();
    let mut wrong = Vec::new();
    for cell in cells(&document) {
        let tests = named(cell);
        if tests.is_empty() && !cell.contains(COMPUTED) {
            wrong.push(format!("no test: {cell}"));
        }
        for (file, test) in tests {
            if !is_there(&files, file, test)? {
                wrong.push(format!("no such test: {file}::{test}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "bounds of {DOCUMENT}:\n{}", wrong.join("\n"));
    Ok(())
}

/// Last cells of the rows of tables of bounds.
fn cells<'d>(document: &'d str) -> Vec<&'d str> {
    let last = |line: &'d str| Some(line.strip_suffix('|')?.rsplit_once('|')?.1.trim());
    let rows: Vec<Option<&str>> = document.lines().map(last).collect();
    let tables = rows.split(Option::is_none).map(|table| table.iter().flatten().copied());
    let tables = tables.filter(|table| table.clone().next().is_some_and(|h| h.ends_with(HEADING)));
    // Behind the heading and the line below it.
    tables.flat_map(|table| table.skip(2)).collect()
}

/// Files and tests that a cell names.
fn named(cell: &str) -> Vec<(&str, &str)> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-/".contains(c))
    };
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|name| name.split_once("::"))
        .filter(|(file, test)| is_name(file) && is_name(test))
        .collect()
}

fn is_there(files: &[PathBuf], file: &str, test: &str) -> Result<bool> {
    let its_own = [format!("{file}.rs"), format!("{file}/tests.rs")];
    for path in files.iter().filter(|path| its_own.iter().any(|name| path.ends_with(name))) {
        let text = fs::read_to_string(path)?;
        if [format!("fn {test}("), format!("fn {test}<")].iter().any(|begin| text.contains(begin)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
