//! Errors of a command line, each told in one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Says what is wrong with a command line, whose words are `given`.
pub(crate) fn line(error: &clap::Error, given: &[String]) -> String {
    let known = bad_value(error).or_else(|| leaders(error)).or_else(|| unmet(error, given));
    known.unwrap_or_else(|| {
        let text = error.to_string();
        let lines = text.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:"));
        let said = lines.filter(|l| !l.is_empty() && !l.starts_with("For more"));
        let said = said.collect::<Vec<_>>().join(" ");
        said.trim_start_matches("error: ").to_owned()
    })
}

/// A flag as an error names it, without its value: `--size <BYTES>`.
fn flag_of(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    let named = match error.get(kind)? {
        ContextValue::String(named) => named,
        ContextValue::Strings(all) => all.first()?,
        _ => return None,
    };
    named.split(' ').next()
}

/// Names the flag, its bad value, and the allowed ones, if that is the error of the command line.
fn bad_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(&**text),
        _ => None,
    };
    let (flag, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    // `--size <BYTES>`, or `<PATH>...`.
    let flag = flag.split(' ').next()?;
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    // Of a list it is the part that cannot be.
    let value = if value.is_empty() { "''" } else { value };
    Some(format!("{flag} {value}: {}", allowed(&std::error::Error::source(error)?.to_string())))
}

/// Turns a parser's rule for a value into plain words.
fn allowed(rule: &str) -> String {
    let numbers = ["invalid digit", "number too", "cannot parse integer"];
    if numbers.iter().any(|start| rule.starts_with(start)) {
        return "it may be a whole number that is not too large".into();
    }
    let Some((_, range)) = rule.split_once(" is not in ") else { return rule.into() };
    match range.split_once("..=") {
        Some((least, most)) if most.len() < 19 => format!("it may be {least} to {most}"),
        _ => format!("it may be {} or more", range.split("..").next().unwrap_or(range)),
    }
}

/// Flags of `bench` that need both ends in one process, whichever end this would be.
const WITHIN_PROCESS: [&str; 3] = ["--sending-threads", "--receiving-threads", "--single-sender"];

/// A flag of a joining member of a group that is its leader's.
fn leaders(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::ArgumentConflict {
        return None;
    }
    let one = flag_of(error, ContextKind::InvalidArg)?;
    let other = flag_of(error, ContextKind::PriorArg)?;
    let flag = match (one, other) {
        ("--connect", flag) | (flag, "--connect") => flag,
        _ => return None,
    };
    if flag == "--listen" || WITHIN_PROCESS.contains(&flag) {
        return None;
    }
    Some(format!("{flag}: the leader decides it for all members: give it where you --listen"))
}

/// Flags that need another flag, each with the one it needs.
const NEEDS: [(&str, &str); 17] = [
    ("--single-sender", "--threads"),
    ("--transport", "--op"),
    ("--qps", "--op"),
    ("--peers", "--op"),
    ("--answer-timeout", "--op"),
    ("--faults", "--op"),
    ("--srq-classes", "--op"),
    ("--assume-in-order", "--op"),
    ("--polling-threads", "--op"),
    ("--srq", "--op"),
    ("--mtu", "--compat"),
    ("--srq-buffers", "--srq"),
    ("--transfer-thread", "--receiving-threads"),
    ("--max-ring", "--connect"),
    ("--into", "--listen"),
    ("--render", "--out"),
    ("--compare", "--out"),
];

/// A flag that needs another one, which is not given.
fn unmet(error: &clap::Error, given: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let missing = missing.first()?;
    let needed = missing.split(' ').next()?;
    let names = |word: &String, flag: &str| word.split('=').next() == Some(flag);
    let is_given = |flag: &str| given.iter().any(|word| names(word, flag));
    let (flag, _) = NEEDS.iter().find(|(flag, needs)| *needs == needed && is_given(flag))?;
    Some(format!("{flag} needs {missing}"))
}

#[cfg(test)]
mod tests;
