//! The results of a point's rounds, as one.

use anyhow::Result;
use base::run::Line;
use base::table::Table;
use serde_json::{Number, Value};

use super::Spread;
use crate::measure::figures;
use crate::results::Results;

/// Results of the rounds of a point.
#[derive(Debug, Clone)]
pub(super) struct Merged {
    /// The numbers of the lists.
    values: Vec<String>,
    /// The results of each round; a run may have several.
    rounds: Vec<Vec<Line>>,
    /// Reason for which the point cannot be measured.
    pub(super) refused: Option<String>,
}

/// A column of a table: the key, its name, and how a number is written.
type Column = (&'static str, &'static str, fn(f64) -> String);

/// Columns of a table for people; a result may lack some of them.
const COLUMNS: &[Column] = &[
    ("messages_per_s", "messages/s", figures::rate),
    ("bytes_per_s", "Gbit/s", |bytes| format!("{:.2}", bytes * 8e-9)),
    ("latency_ns_p50", "p50, µs", |ns| format!("{:.2}", ns * 1e-3)),
    ("latency_ns_p99", "p99, µs", |ns| format!("{:.2}", ns * 1e-3)),
    ("rdma_ops_per_message", "RDMA ops/message", |ops| format!("{ops:.3}")),
    ("rnr_events", "RNR events", |events| format!("{events:.0}")),
    ("registered_bytes", "registered", |bytes| figures::memory(bytes as u64)),
];

/// Keys that are sums over all rounds.
const COUNTS: [&str; 8] =
    ["messages", "rnr_events", "forced_pushes", "lost", "dropped", "reordered", "late", "repeated"];

/// Returns the mean per message, over all rounds, of a key that each round gives per message.
fn per_message(lines: &[&Line], key: &str) -> f64 {
    let number = |line: &Line, key: &str| line.get(key).and_then(Value::as_f64).unwrap_or_default();
    let messages: f64 = lines.iter().map(|line| number(line, "messages")).sum();
    let all: f64 = lines.iter().map(|line| number(line, key) * number(line, "messages")).sum();
    if messages > 0.0 { all / messages } else { 0.0 }
}

impl Merged {
    pub(super) fn new(values: &[String]) -> Merged {
        Merged { values: values.to_vec(), rounds: Vec::new(), refused: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rounds.iter().all(Vec::is_empty)
    }

    pub(super) fn add_round(&mut self, lines: Vec<Line>) {
        self.rounds.push(lines);
    }

    /// Merges the rounds, result by result: a number becomes the median of the rounds; a minimum or
    /// a maximum, that of all rounds.
    fn lines(&self) -> Vec<Line> {
        let count = self.rounds.iter().map(Vec::len).max().unwrap_or(0);
        (0..count).map(|at| self.line(at)).collect()
    }

    fn line(&self, at: usize) -> Line {
        let lines: Vec<&Line> = self.rounds.iter().filter_map(|lines| lines.get(at)).collect();
        let Some(first) = lines.first() else { return Line::new() };
        let mut merged = (*first).clone();
        for (key, value) in &mut merged {
            let numbers = || lines.iter().filter_map(|line| line.get(key)?.as_f64());
            let Spread { median, min, max } = Spread::of(numbers());
            *value = match (value.is_number(), key.as_str()) {
                (_, "rounds") => lines.len().into(),
                (_, key) if COUNTS.contains(&key) => numbers().sum::<f64>().to_json(value),
                (_, "rdma_ops_per_message") => per_message(&lines, key).into(),
                (true, key) if key.ends_with("_min") => min.to_json(value),
                (true, key) if key.ends_with("_max") => max.to_json(value),
                (true, _) => median.to_json(value),
                // One round in which something was wrong is enough.
                (false, _) if value.is_boolean() => {
                    lines.iter().all(|line| line.get(key) == Some(&Value::Bool(true))).into()
                }
                (false, _) => value.clone(),
            };
        }
        merged
    }

    /// Each result, with the numbers of the lists in front.
    fn named(&self, flags: &[String]) -> Vec<Line> {
        let name = |flag: &String| flag.trim_start_matches('-').replace('-', "_");
        let named = |line: Line| {
            let mut all = Line::new();
            for (flag, value) in flags.iter().zip(&self.values) {
                let number = serde_json::from_str::<Number>(value).map(Value::Number);
                all.insert(name(flag), number.unwrap_or_else(|_| value.clone().into()));
            }
            all.extend(line.into_iter().filter(|(key, _)| !flags.iter().any(|f| name(f) == *key)));
            all
        };
        self.lines().into_iter().map(named).collect()
    }

    /// Adds the results to those that are printed.
    pub(super) fn add(&self, results: &mut Results, flags: &[String]) -> Result<()> {
        for line in self.named(flags) {
            let there: Vec<&Column> =
                COLUMNS.iter().filter(|(key, _, _)| line.contains_key(*key)).collect();
            let heads = flags.iter().map(String::as_str).chain(there.iter().map(|c| c.1));
            let empty = Table::new(flags.len(), &heads.collect::<Vec<_>>());
            let numbers = self.values.iter().cloned();
            let row = numbers.chain(there.iter().map(|column| cell(&line, column))).collect();
            results.add(&line, title(&line), empty, row)?;
        }
        Ok(())
    }
}

/// Title of a table: the parts that all its rows share.
fn title(line: &Line) -> String {
    let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
    let rounds = line.get("rounds").and_then(Value::as_u64).unwrap_or(1);
    let what = [text("protocol"), text("op")].into_iter().find(|name| !name.is_empty());
    let rounds = figures::counted_as(rounds, "round", "rounds");
    format!("{} over {}, median of {rounds} in turn", what.unwrap_or_default(), text("device"))
}

fn cell(line: &Line, (key, _, shown): &Column) -> String {
    let number = |key: &str| line.get(key).and_then(Value::as_f64);
    let median = number(key).unwrap_or_default();
    match (number(&format!("{key}_min")), number(&format!("{key}_max"))) {
        (Some(min), Some(max)) if min < max => {
            format!("{} ({} to {})", shown(median), shown(min), shown(max))
        }
        _ => shown(median),
    }
}

/// A number of a result, as whole as the results are.
trait ToJson {
    fn to_json(self, like: &Value) -> Value;
}

impl ToJson for f64 {
    fn to_json(self, like: &Value) -> Value {
        if like.is_u64() { (self.round() as u64).into() } else { self.into() }
    }
}

/// All results as comma-separated values, with the names of the columns in the first line.
pub(super) fn csv(flags: &[String], all: &[Merged]) -> Result<String> {
    let lines: Vec<Line> = all.iter().flat_map(|merged| merged.named(flags)).collect();
    let mut keys: Vec<&String> = Vec::new();
    for key in lines.iter().flat_map(Line::keys) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut file = csv::Writer::from_writer(Vec::new());
    file.write_record(&keys)?;
    for line in &lines {
        let cell = |key: &&String| match line.get(*key) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        file.write_record(keys.iter().map(cell))?;
    }
    Ok(String::from_utf8(file.into_inner()?)?)
}

#[cfg(test)]
mod tests;
