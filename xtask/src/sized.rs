//! Allocations of a size that a number decides, in the crates that programs and peers give numbers to: they are made by the
//! crate's `alloc` module, which reports that there is no memory, or say why the number is small: `// Bounded: …`, in the
//! lines above. Constants need no reason. (A list that grows value by value is not found.)

use anyhow::{Result, ensure};

use crate::workspace::found_lines;

const FOLDERS: &[&str] = &["soft-rnic/src", "verbs-safe/src"];
/// Files that are free of it: what makes such memory, tests, and loops that only measure.
const FREE: &[&str] =
    &["/alloc.rs", "/tests.rs", "/tests/", "/testing.rs", "/baseline.rs", "/baseline/"];
const REASON: &str = "// Bounded: ";
/// Lines above, in which the reason is.
const REACH: usize = 3;
/// Calls with a length as their first argument.
const CALLS: &[&str] = &["::with_capacity(", ".reserve_exact(", ".resize(", ".resize_with("];

pub(crate) fn run() -> Result<()> {
    let is_free = |name: &str| FREE.iter().any(|free| name.contains(free));
    let found =
        found_lines(FOLDERS, |name, text| if is_free(name) { vec![] } else { sized(text) })?;
    ensure!(
        found.is_empty(),
        "allocations that end the process where there is no memory: use the crate's `alloc`, or say why they are small \
         ({REASON}…):\n{}",
        found.join("\n")
    );
    Ok(())
}

/// Numbers of the lines that allocate by a number which is no constant, and give no reason.
fn sized(text: &str) -> Vec<usize> {
    let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().collect();
    let has_reason =
        |n: usize| lines[n.saturating_sub(REACH)..n].iter().any(|l| l.contains(REASON));
    let numbered = lines.iter().enumerate().filter(|(n, line)| allocates(line) && !has_reason(*n));
    numbered.map(|(n, _)| n + 1).collect()
}

fn allocates(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let by_call = CALLS.iter().flat_map(|call| code.split(call).skip(1)).any(|arguments| {
        let (first, has_more) = first_argument(arguments);
        // A queue is resized as well, by one number.
        is_variable(first) && (has_more || !code.contains(".resize("))
    });
    let by_macro = code.split("vec![").skip(1).any(|inside| {
        inside
            .split_once(';')
            .is_some_and(|(_, len)| is_variable(len.split(']').next().unwrap_or(len)))
    });
    by_call || by_macro
}

/// The first argument of a call, and whether there is another one.
fn first_argument(arguments: &str) -> (&str, bool) {
    let mut depth = 0;
    for (at, c) in arguments.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' if depth == 0 => return (&arguments[..at], false),
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => return (&arguments[..at], true),
            _ => {}
        }
    }
    (arguments, false)
}

/// True for a length that is more than literals and constants.
fn is_variable(len: &str) -> bool {
    let rest =
        ["as usize", "as u32", "Self::"].iter().fold(len.to_owned(), |l, w| l.replace(w, ""));
    rest.chars().any(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests;
