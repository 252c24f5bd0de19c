//! Results, as the JSON and the table have them.

use base::table::ResultTable;
use rdma_conn::device::Device;

use super::trips::{LedTrips, TripMeasurement};
use crate::cli::PingpongArgs;
use crate::measure::figures::counted_as;
use crate::measure::{ResultLine, planned_ns, since};
use crate::protocol::MeasuredProtocol;
use crate::results::{ResultReport, ResultStyle};
use crate::settings;

const HEADER: [&str; 8] = ["size", "min", "50 %", "± of\nrounds", "90 %", "99 %", "99.9 %", "max"];

/// A report without results.
pub(super) fn report(json: bool) -> ResultReport {
    let empty = ResultTable::new(1, &HEADER);
    ResultReport::new(
        json,
        ResultStyle { empty, title, row, note: |_| String::new(), is_one: true },
    )
}

fn title(line: &ResultLine) -> String {
    let trips = line.count("messages").unwrap_or_default() / 2;
    let trips = counted_as(trips, "round trip", "round trips");
    let (protocol, device, rounds) = (line.text("protocol"), line.text("device"), line.rounds());
    format!(
        "Half of a round trip in µs (connecting end), {protocol} on {device}: {trips} a size, {rounds}"
    )
}

fn row(line: &ResultLine) -> Vec<String> {
    let [min, p50, p90, p99, p999, max] =
        ["min", "p50", "p90", "p99", "p999", "max"].map(|quantile| line.us(quantile));
    vec![line.size(), min, p50, line.spread("latency_ns_p50"), p90, p99, p999, max]
}

/// The result of one round.
pub(super) fn line<K: MeasuredProtocol>(
    (options, device, config): (&PingpongArgs, &Device, &K::Settings),
    size: u32,
    measured: &TripMeasurement,
) -> ResultLine {
    let TripMeasurement { led: LedTrips { half_trips, warm_up }, work, before } = measured;
    let all = 2 * (half_trips.len() + warm_up);
    let rnr_events = since(device, *before).and_then(|since| since.rnr_events);
    ResultLine::new(K::WORD, device.name(), "rc", size)
        .with_settings(settings::describe(K::SETTINGS, config))
        .with("messages", 2 * half_trips.len())
        .with("rounds", 1)
        .with_latency(half_trips)
        .with("latency_ns_planned", planned_ns(device.name(), K::WHICH.hops()))
        .with("rdma_ops_per_message", work.operations_per_message(all))
        .with("mean_transfer_bytes", work.mean_transfer_bytes())
        .with("rnr_events", rnr_events)
        .with("verified", !options.no_verify)
}
