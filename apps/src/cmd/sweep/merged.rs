//! The results of a point's rounds, as one.

use anyhow::Result;
use base::run::ResultJson;
use base::table::ResultTable;
use serde_json::{Number, Value};

use crate::measure::{ResultLine, figures};
use crate::results::Results;

/// Results of the rounds of a point.
#[derive(Debug, Clone)]
pub(super) struct MergedPoint {
    /// The numbers of the lists.
    values: Vec<String>,
    /// The results; a run may have several.
    lines: Vec<ResultLine>,
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

impl MergedPoint {
    pub(super) fn new(values: &[String], rounds: &[Vec<ResultLine>]) -> MergedPoint {
        MergedPoint { values: values.to_vec(), lines: ResultLine::merged(rounds) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Each result, with the numbers of the lists in front.
    fn named(&self, flags: &[String]) -> Vec<ResultLine> {
        let name = |flag: &String| flag.trim_start_matches('-').replace('-', "_");
        let named = |line: &ResultLine| {
            let mut all = ResultJson::new();
            for (flag, value) in flags.iter().zip(&self.values) {
                let number = serde_json::from_str::<Number>(value).map(Value::Number);
                all.insert(name(flag), number.unwrap_or_else(|_| value.clone().into()));
            }
            let others = line.figures().iter();
            let others = others.filter(|(key, _)| !flags.iter().any(|flag| name(flag) == **key));
            all.extend(others.map(|(key, value)| (key.clone(), value.clone())));
            ResultLine::from(all)
        };
        self.lines.iter().map(named).collect()
    }

    /// Adds the results to those that are printed.
    pub(super) fn add(&self, results: &mut Results, flags: &[String]) -> Result<()> {
        for line in self.named(flags) {
            let there: Vec<&Column> =
                COLUMNS.iter().filter(|(key, _, _)| line.number(key).is_some()).collect();
            let heads = flags.iter().map(String::as_str).chain(there.iter().map(|c| c.1));
            let empty = ResultTable::new(flags.len(), &heads.collect::<Vec<_>>());
            let numbers = self.values.iter().cloned();
            let row = numbers.chain(there.iter().map(|column| cell(&line, column))).collect();
            results.add(&line, title(&line), empty, row)?;
        }
        Ok(())
    }
}

/// Title of a table: the parts that all its rows share.
fn title(line: &ResultLine) -> String {
    let what = [line.text("protocol"), line.text("op")].into_iter().find(|name| !name.is_empty());
    let (what, device) = (what.unwrap_or_default(), line.text("device"));
    format!("{what} over {device}, median of {} in turn", line.rounds())
}

fn cell(line: &ResultLine, (key, _, shown): &Column) -> String {
    let [min, max] = ["min", "max"].map(|end| line.number(&format!("{key}_{end}")));
    let median = shown(line.figure(key));
    match (min, max) {
        (Some(min), Some(max)) if min < max => {
            format!("{median} ({} to {})", shown(min), shown(max))
        }
        _ => median,
    }
}

/// All results as comma-separated values, with the names of the columns in the first line.
pub(super) fn csv(flags: &[String], all: &[MergedPoint]) -> Result<String> {
    let lines: Vec<ResultLine> = all.iter().flat_map(|merged| merged.named(flags)).collect();
    let lines: Vec<&ResultJson> = lines.iter().map(ResultLine::figures).collect();
    let mut keys: Vec<&String> = Vec::new();
    for key in lines.iter().flat_map(|line| line.keys()) {
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
