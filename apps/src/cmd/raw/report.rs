//! Results of raw verbs: a table for people, or one JSON object a line.

use base::table::ResultTable;
use hdrhistogram::Histogram;

use super::plan::{RawPlan, RawTask};
use crate::cli::{EndsArgs, RawOp, RawTransport};
use crate::measure::ResultLine;
use crate::measure::figures::{TakenAt, rate, rates_table};
use crate::results::{ResultReport, ResultStyle};

/// Returns the line of plain UDP from an address, with `unacked` packets under way, and up to `batch`
/// of them to a call; it has no figures yet.
pub(super) fn udp_line(ip: &str, size_bytes: u32, unacked: u32, batch: u32) -> ResultLine {
    ResultLine::new(UDP, ip, UDP, size_bytes)
        .with("unacked", unacked)
        .with("batch", batch)
        .with("signal_every", 1)
        .with("inline", false)
        .with("threads", 1)
        .with("senders", 1)
        .with("srq", "off")
        .with("verified", false)
}

/// Returns the line of one class of a plan; it has no figures yet.
pub(super) fn plan_line(plan: &RawPlan, class: usize, device: &str, inline: bool) -> ResultLine {
    let srq = match (plan.srq, plan.large) {
        (false, _) => "off",
        (true, None) => "one",
        (true, Some(_)) => "classes",
    };
    let (protocol, transport) = (plan.op.protocol(), plan.transport.name());
    ResultLine::new(protocol, device, transport, plan.class_size(class))
        .with("unacked", plan.unacked)
        .with("batch", plan.batch)
        .with("signal_every", plan.signal_every)
        .with("inline", inline)
        .with("recv_depth", plan.receives().then_some(plan.recv_depth))
        .with("threads", 1)
        .with("senders", plan.qps)
        .with("srq", srq)
        .with("peers", (plan.transport == RawTransport::Ud).then_some(plan.qps))
        .with("registered_bytes", Some(plan.registered_bytes()).filter(|bytes| *bytes > 0))
        .with("assumed_in_order", plan.assumed_in_order.then_some(true))
        .with("verified", plan.verify)
}

/// Adds the times that messages took, in nanoseconds, if they were measured: of half a round trip,
/// or of a READ.
pub(super) fn with_times(
    line: ResultLine,
    op: RawOp,
    times: Option<&Histogram<u64>>,
) -> ResultLine {
    let Some(times) = times else { return line };
    let of = if op == RawOp::Read { "operation" } else { "half round trip" };
    line.with("latency_of", of).with_latency(times)
}

/// Protocol and transport of a measurement without verbs.
const UDP: &str = "udp";

const LATENCY: [&str; 8] =
    ["size", "min", "50 %", "± of\nrounds", "99 %", "99.9 %", "max", "mes-\nsages/s"];

/// A report without results. What was lost is said by size.
pub(super) fn report(json: bool, task: RawTask, ends: &EndsArgs) -> ResultReport {
    let taken = match (ends.listen, ends.connect) {
        (Some(_), _) => TakenAt::Listening,
        (_, Some(_)) => TakenAt::Connecting,
        (None, None) => TakenAt::Both,
    };
    let empty = match task {
        RawTask::Pingpong => ResultTable::new(1, &LATENCY),
        RawTask::Bench => rates_table(taken),
    };
    ResultReport::new(json, ResultStyle { empty, title, row, note, is_one: true })
}

/// Reports whether a result is of messages that were answered.
fn is_timed(line: &ResultLine) -> bool {
    line.number("latency_ns_p50").is_some()
}

fn note(line: &ResultLine) -> String {
    let faults = match line.count("lost") {
        Some(lost) if line.text("protocol") == UDP => format!("{lost} lost"),
        _ => faults(line),
    };
    if faults.is_empty() { faults } else { format!("{}: {faults}", line.size()) }
}

/// Formats the counts of messages that an unreliable transport lost, reordered or repeated.
fn faults(line: &ResultLine) -> String {
    let (lost, dropped) = match (line.count("lost"), line.count("dropped")) {
        (Some(lost), Some(dropped)) => (Some(lost.saturating_sub(dropped)), Some(dropped)),
        known => known,
    };
    let on = if dropped.is_some() { "lost on the network" } else { "lost" };
    let named = [
        (lost, on),
        (dropped, "dropped for want of a receive"),
        (line.count("reordered"), "reordered"),
        (line.count("late"), "late"),
        (line.count("repeated"), "repeated"),
        (line.count("resent"), "datagrams sent again"),
    ];
    let words = named.iter().filter_map(|(count, name)| Some(format!("{} {name}", (*count)?)));
    let words = words.collect::<Vec<_>>().join(", ");
    let which = match (lost, dropped) {
        (_, Some(1..)) => "",
        // Pingpong counts late answers, and never has more in flight than receives.
        (Some(1..), None) if line.count("late").is_none() => {
            "on the way, or for want of a receive, this device does not tell: "
        }
        _ => return words,
    };
    format!(
        "{words} ({which}nothing holds the sender back when the receiver is slower, and nothing is \
         repeated: give a larger --recv-depth, or fewer --messages; --transport rc loses none, and \
         --transport ud --reliable repairs it)"
    )
}

fn row(line: &ResultLine) -> Vec<String> {
    if !is_timed(line) {
        return line.rates_row();
    }
    let [min, p50, p99, p999, max] =
        ["min", "p50", "p99", "p999", "max"].map(|quantile| line.us(quantile));
    let (spread, per_s) = (line.spread("latency_ns_p50"), rate(line.figure("messages_per_s")));
    vec![line.size(), min, p50, spread, p99, p999, max, per_s]
}

fn title(line: &ResultLine) -> String {
    let (protocol, device, compat) =
        (line.text("protocol"), line.text("device"), line.text("compat"));
    let [unacked, batch, senders] =
        ["unacked", "batch", "senders"].map(|key| line.count(key).unwrap_or_default());
    let what = match (is_timed(line), protocol) {
        (false, _) if !compat.is_empty() => "There and back",
        (false, _) => "One way",
        (true, "raw-read") => "The whole operation in µs",
        (true, _) => "Half of a round trip in µs",
    };
    if protocol == UDP {
        return format!(
            "{what}, plain UDP from {device}: {unacked} packets in flight, {batch} to a call at most, \
             nothing repeated or checked"
        );
    }
    let with = if compat.is_empty() { String::new() } else { format!(" with {compat}") };
    let qps = match senders {
        1 => String::new(),
        n if line.count("peers").is_some() => format!(", {n} peers of one queue pair"),
        n => format!(", {n} queue pairs"),
    };
    let srq = match line.text("srq") {
        "off" => "",
        "one" => ", one shared receive queue",
        _ => ", a shared receive queue for each size",
    };
    let repaired = match line.count("resent") {
        Some(_) => ", cut into datagrams, losses repaired",
        None => "",
    };
    let threads = match line.count("polling_threads") {
        Some(_) => ", a thread for each",
        None => "",
    };
    let assumed = match line.is_true("assumed_in_order") {
        true => "; that bytes arrive in order is assumed: the device does not promise it",
        false => "",
    };
    let (transport, checked) = (line.text("transport"), line.checked());
    format!(
        "{what}, {protocol}{with} over {transport} on {device}: {unacked} in flight, {batch} to a \
         doorbell{qps}{threads}{srq}{repaired}, {checked}{assumed}"
    )
}

#[cfg(test)]
mod tests;
