//! Positions in an experiment file.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// One element of a path to a value: a table key, or an array index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(&'static str),
    Entry(usize),
}

impl From<&'static str> for PathStep {
    fn from(key: &'static str) -> PathStep {
        PathStep::Key(key)
    }
}

impl From<usize> for PathStep {
    fn from(at: usize) -> PathStep {
        PathStep::Entry(at)
    }
}

/// Line and column of a byte of `text`, both counted from 1, the column in characters.
pub(super) fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let before: String =
        text.char_indices().take_while(|(at, _)| *at < byte).map(|c| c.1).collect();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// The byte range of the value at `path`, or of the nearest ancestor that exists.
pub(super) fn find(text: &str, path: &[PathStep]) -> Range<usize> {
    let Ok(table) = DeTable::parse(text) else { return 0..0 };
    let mut found = table.span();
    let mut value = DeValue::Table(table.into_inner());
    for step in path {
        let next = match (&value, step) {
            (DeValue::Table(table), PathStep::Key(key)) => table.get(*key),
            (DeValue::Array(list), PathStep::Entry(at)) => list.get(*at),
            _ => None,
        };
        let Some(next) = next else { break };
        found = next.span();
        value = next.get_ref().clone();
    }
    found
}

#[cfg(test)]
mod tests;
