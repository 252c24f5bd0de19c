//! Budgets of retries in tests: a test takes `LIVING`, `DEAD` or `mortal` of
//! `tests/support/budget.rs`, and writes no numbers itself. A test that is about the retries says
//! so: `// About retries: …` above.

use anyhow::{Result, ensure};

use crate::workspace::found_lines;

/// Folders of tests that connect queue pairs.
const FOLDERS: &[&str] = &["tests", "verbs-safe/tests", "soft-rnic/tests", "soft-rnic/abi/tests"];
/// Files that make the budgets.
const MAKERS: &[&str] = &["tests/support/budget.rs", "tests/support/mod.rs"];
/// Text that exempts its own line, and the `REACH` lines below it.
const REASON: &str = "about retries";
const REACH: usize = 4;
/// Defaults with the library's own budget, which is shorter than a busy machine's stall.
const DEFAULTS: &[&str] = &["Transport", "Common", "Config", "Link"];

pub(crate) fn run() -> Result<()> {
    let found = found_lines(FOLDERS, |name, text| {
        // Of the other crates' tests `Config` is a type of their own, with a budget.
        let defaults = if name.starts_with("tests/") { DEFAULTS } else { &[] };
        if MAKERS.contains(&name) { vec![] } else { written(text, defaults) }
    })?;
    ensure!(found.is_empty(), "retries beside tests/support/budget.rs:\n{}", found.join("\n"));
    Ok(())
}

/// Numbers of the lines that write a budget without a reason.
fn written(text: &str, defaults: &[&str]) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let has_reason = |n: usize| {
        let above = &lines[n.saturating_sub(REACH)..=n];
        above.iter().any(|line| line.to_lowercase().contains(REASON))
    };
    let all = lines.iter().enumerate().filter(|(n, line)| {
        let code = line.split("//").next().unwrap_or_default();
        (has_number(code) || has_default(code, defaults)) && !has_reason(*n)
    });
    all.map(|(n, _)| n + 1).collect()
}

/// Reports whether a field that bounds retries is given a number. (`rnr_retry` 0 fails at once, and
/// 7 is for ever: neither is a matter of time.)
fn has_number(code: &str) -> bool {
    ["timeout", "retry_cnt", "retry_count", "rnr_retry"].iter().any(|field| {
        let mut values = code.match_indices(field).filter_map(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + field.len()..]);
            let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let value = after.trim_start().strip_prefix([':', '='])?.trim_start();
            value.chars().next().filter(|first| is_whole && first.is_ascii_digit())
        });
        values.any(|first| *field != "rnr_retry" || !['0', '7'].contains(&first))
    })
}

fn has_default(code: &str, defaults: &[&str]) -> bool {
    defaults.iter().any(|name| {
        let call = format!("{name}::default()");
        let mut places = code.match_indices(&call).map(|(at, _)| &code[..at]);
        places.any(|before| !before.ends_with(|c: char| c.is_alphanumeric()))
    })
}

#[cfg(test)]
mod tests;
