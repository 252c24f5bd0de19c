//! A report as a line of JSON.

use serde_json::{Value, json};
use soft_rnic::trace::{Event, Stage};

use super::why::{Outstanding, ProcessFindings, QueueOwner, StuckQueue};

/// The report of one process. A key without a value is left out.
pub(super) fn line(report: &ProcessFindings<'_>) -> Value {
    let (found, trace) = (report.found, &report.found.trace);
    let completion_queues = trace
        .completion_queues
        .iter()
        .map(|cq| json!({ "cq": cq.number, "unpolled": cq.unpolled, "overrun": cq.has_overrun }));
    let ended = report.ended.iter().map(|end| {
        json!({
            "qp_num": end.number,
            "state": end.state,
            "time_ns": end.time_ns,
            "why": end.why,
            "peer": end.peer,
            "peer_process": end.of_peer.map(|(process, _)| process),
            "peer_why": end.of_peer.map(|(_, why)| why),
        })
    });
    let events: Vec<Value> = report.events.iter().map(event).collect();
    present(json!({
        "file": found.file.display().to_string(),
        "process": trace.process,
        "program": trace.program,
        "process_state": found.process.name(),
        "began_ns": trace.began_ns,
        "last_event_ns": trace.last_ns,
        "queues": report.queues.iter().map(queue).collect::<Value>(),
        "completion_queues": completion_queues.collect::<Value>(),
        "failed": report.failed.iter().map(|failed| event(failed)).collect::<Value>(),
        "ended": ended.collect::<Value>(),
        "torn": trace.torn,
        "left_out": trace.left_out,
        "events": Some(events).filter(|events| !events.is_empty()),
    }))
}

/// The value, without the keys of objects in it that have none.
fn present(value: Value) -> Value {
    match value {
        Value::Object(keys) => {
            let keys = keys.into_iter().filter(|(_, value)| !value.is_null());
            keys.map(|(key, value)| (key, present(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(present).collect(),
        other => other,
    }
}

fn queue(queue: &StuckQueue<'_>) -> Value {
    let requests: Value = queue.sends.iter().chain(&queue.receives).map(request).collect();
    let pair = match queue.of {
        QueueOwner::Shared(shared) => return json!({ "srq": shared.number, "requests": requests }),
        QueueOwner::Pair(pair) => pair,
    };
    let peer = queue.peer.as_ref();
    json!({
        "qp_num": pair.number,
        "transport": pair.transport,
        "state": pair.state,
        "peer": pair.peer,
        "peer_address": pair.peer_address,
        "send_cq": pair.send_cq,
        "recv_cq": pair.recv_cq,
        "srq": pair.srq,
        "tries": pair.waiting.map(|waiting| waiting.tries),
        "peer_process": peer.map(|peer| peer.found.trace.process),
        "peer_process_state": peer.map(|peer| peer.found.process.name()),
        "peer_state": peer.map(|peer| peer.pair.state),
        "peer_receives": peer.map(|peer| peer.receives),
        "requests": requests,
    })
}

fn request(one: &Outstanding<'_>) -> Value {
    let request = one.request;
    let (stage, status) = match request.stage {
        Stage::Sent => ("sent", None),
        Stage::Executed => ("executed", None),
        Stage::Completed(status) => ("completed", Some(status)),
        _ => ("queued", None),
    };
    json!({
        "wr_id": request.wr_id,
        "operation": request.operation,
        "imm": request.has_imm,
        "bytes": request.len,
        "signaled": request.is_signaled,
        "age_ns": one.age_ns,
        "stage": stage,
        "status": status,
        "why": one.why.to_string(),
    })
}

fn event(event: &Event) -> Value {
    json!({
        "time_ns": event.time_ns,
        "event": event.what,
        "operation": event.operation,
        "status": event.status,
        "number": event.number,
        "other": event.other,
        "wr_id": event.wr_id,
        "bytes": event.len,
        "why": event.why,
    })
}
