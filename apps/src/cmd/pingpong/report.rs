//! Results, as the JSON and the table have them.

use anyhow::Result;
use base::table::Table;

use crate::measure::Latency;
use crate::measure::figures::{counted_as, size};
use crate::results::Results;

const HEADER: [&str; 8] = ["size", "min", "50 %", "± of\nrounds", "90 %", "99 %", "99.9 %", "max"];

/// Adds a result. The title is that of the first one.
pub(super) fn add(results: &mut Results, line: &Latency) -> Result<()> {
    let title = results.title().unwrap_or_else(|| {
        let trips = counted_as(line.messages / 2, "round trip", "round trips");
        let rounds = counted_as(line.rounds.into(), "round", "rounds");
        format!(
            "Half of a round trip in µs (connecting end), {} on {}: {trips} a size, {rounds}",
            line.protocol, line.device
        )
    });
    let mut row = vec![size(line.size_bytes.into())];
    row.extend(line.latency.columns().map(|ns| format!("{:.2}", ns as f64 / 1e3)));
    row.insert(3, line.latency.spread());
    results.add(line, title, Table::new(1, &HEADER), row)
}
