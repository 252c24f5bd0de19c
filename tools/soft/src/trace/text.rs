//! A report as text.

use std::time::Duration;

use base::say;
use soft_rnic::trace::Event;

use super::files::ProcessState;
use super::why::{Outstanding, ProcessFindings, QueueOwner, StuckQueue, count, id};

pub(super) fn print(report: &ProcessFindings<'_>, shown: usize) {
    let (found, trace) = (report.found, &report.found.trace);
    say!(
        "process {} ({}), {}: {}",
        trace.process,
        trace.program,
        found.process.name(),
        found.file.display()
    );
    if let Some(idle_ns) = idle_ns(report) {
        say!("  its last event was {} ago", time(idle_ns));
    }
    for queue in &report.queues {
        print_queue(queue, shown);
    }
    for cq in trace.completion_queues.iter().filter(|cq| cq.unpolled > 0 || cq.has_overrun) {
        let overrun = if cq.has_overrun { "; it has overrun" } else { "" };
        let entries = count(cq.unpolled as usize, "completion");
        say!("  CQ {}: {entries} not polled{overrun}", cq.number);
    }
    if report.queues.is_empty() {
        say!("  nothing is outstanding");
    }
    if report.idle > 0 {
        say!("  {} without outstanding requests", count(report.idle, "queue"));
    }
    print_failures(report, shown);
    print_losses(report);
    for event in report.events {
        say!("  {}", line(event, trace.last_ns));
    }
}

/// Requests that have failed, as far as the log goes back, and queue pairs with them.
fn print_failures(report: &ProcessFindings<'_>, shown: usize) {
    let last_ns = report.found.trace.last_ns;
    let alike = |one: &&Event, other: &&Event| {
        let of = |event: &Event| (event.number, event.operation, event.status);
        of(one) == of(other) && one.why == other.why
    };
    let alike: Vec<_> = report.failed.chunk_by(alike).collect();
    for events in alike.iter().take(shown) {
        let Some(Event { operation, status, number, wr_id, why, time_ns, .. }) = events.first()
        else {
            continue;
        };
        let times = if events.len() > 1 { format!("{} × ", events.len()) } else { String::new() };
        let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        say!(
            "  failed {} before the last event: {times}{} wr_id {} on QP {number:#08x}: {}{why}",
            time(last_ns.saturating_sub(*time_ns)),
            operation.unwrap_or("request"),
            id(*wr_id),
            status.unwrap_or("error")
        );
    }
    let more: usize = alike.iter().skip(shown).map(|events| events.len()).sum();
    if more > 0 {
        say!("  and {} failed: --all shows each", count(more, "more request"));
    }
    for end in report.ended.iter().take(shown) {
        let before = time(last_ns.saturating_sub(end.time_ns));
        say!(
            "  QP {:#08x} went to {} {before} before the last event: {}",
            end.number,
            end.state,
            end.why
        );
        if let (Some(peer), Some((process, why))) = (end.peer, end.of_peer) {
            say!("    its peer, QP {peer:#08x} in process {process}: {why}");
        }
    }
}

/// Prints the number of things that the trace has not kept.
fn print_losses(report: &ProcessFindings<'_>) {
    let trace = &report.found.trace;
    if trace.left_out > 0 {
        let objects = count(trace.left_out as usize, "object");
        say!("  {objects} had no room in the trace, or on its disk, and are missing here");
    }
    if trace.torn > 0 {
        let records = count(trace.torn as usize, "record");
        say!("  {records} were being written, or are damaged, and are missing here");
    }
}

/// From the last event to now, of a process that is there.
fn idle_ns(report: &ProcessFindings<'_>) -> Option<u64> {
    let is_there = report.found.process != ProcessState::Ended;
    host::time::monotonic_ns().checked_sub(report.found.trace.last_ns).filter(|_| is_there)
}

fn print_queue(queue: &StuckQueue<'_>, shown: usize) {
    match &queue.of {
        QueueOwner::Pair(pair) => {
            let peer = pair.peer.map(|peer| format!(", peer {peer:#08x}")).unwrap_or_default();
            let at = pair.peer_address.map(|at| format!(" at {at}")).unwrap_or_default();
            say!("  QP {:#08x}: {}, {}{peer}{at}", pair.number, pair.transport, pair.state);
        }
        QueueOwner::Shared(shared) => say!("  SRQ {}", shared.number),
    }
    if let Some(peer) = &queue.peer {
        let (process, does) = (peer.found.trace.process, peer.found.process.name());
        let sends = count(peer.pair.sends.len(), "send request");
        let receives = count(peer.receives, "receive request");
        let state = peer.pair.state;
        say!(
            "    the peer, in process {process} ({does}), is in {state}, with {sends} and {receives} outstanding"
        );
    }
    for list in [&queue.sends, &queue.receives] {
        let alike: Vec<_> = list.chunk_by(is_alike).collect();
        alike.iter().take(shown).for_each(|alike| print_requests(alike));
        let more: usize = alike.iter().skip(shown).map(|alike| alike.len()).sum();
        if more > 0 {
            say!("    and {}: --all shows each", count(more, "more request"));
        }
    }
}

/// Requests that a program has given the same name, for the same reason, are one line.
fn is_alike(one: &Outstanding<'_>, other: &Outstanding<'_>) -> bool {
    let of = |one: &Outstanding<'_>| {
        let request = one.request;
        (request.wr_id, request.operation, request.len, request.has_imm)
    };
    of(one) == of(other) && one.why.to_string() == other.why.to_string()
}

fn print_requests(alike: &[Outstanding<'_>]) {
    let Some(Outstanding { request, age_ns, why }) = alike.first() else { return };
    let imm = if request.has_imm { "_WITH_IMM" } else { "" };
    let times = if alike.len() > 1 { format!("{} × ", alike.len()) } else { String::new() };
    say!(
        "    {times}{}{imm} wr_id {}, {}, posted {} before the last event: {why}",
        request.operation,
        id(request.wr_id),
        count(request.len as usize, "byte"),
        time(*age_ns)
    );
}

fn line(event: &Event, last_ns: u64) -> String {
    let before = time(last_ns.saturating_sub(event.time_ns));
    let operation = event.operation.map(|operation| format!(" {operation}")).unwrap_or_default();
    let status = event.status.map(|status| format!(" {status}")).unwrap_or_default();
    let what = format!("{before} before: {}{operation}{status}", event.what);
    match event.what {
        "post" => format!(
            "{what} wr_id {}, {} (queue {:#08x})",
            id(event.wr_id),
            count(event.len as usize, "byte"),
            event.number
        ),
        "complete" | "poll" => format!(
            "{what} wr_id {} (QP {:#08x}, CQ {})",
            id(event.wr_id),
            event.number,
            event.other
        ),
        "wait" => format!("{what} wr_id {} (QP {:#08x})", id(event.wr_id), event.number),
        "register MR" | "deregister MR" => {
            format!("{what} {:#x}, {}", event.wr_id, count(event.len as usize, "byte"))
        }
        "open" => what,
        _ => format!("{what} {:#08x}", event.number),
    }
}

/// A time, with three digits that count.
fn time(ns: u64) -> String {
    let seconds = Duration::from_nanos(ns).as_secs_f64();
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (seconds * 1e6, "µs"),
        1_000_000..1_000_000_000 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests;
