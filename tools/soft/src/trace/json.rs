//! A report as a line of JSON.

use std::net::IpAddr;

use serde::{Serialize, Serializer};
use soft_rnic::trace::{Event, Stage, TracedCq};

use super::why::{self, Outstanding, ProcessFindings, QueueOwner, StuckQueue, StuckReason};

#[derive(Serialize)]
pub(super) struct TraceLine<'a> {
    file: String,
    process: u32,
    program: &'a str,
    process_state: &'static str,
    began_ns: u64,
    last_event_ns: u64,
    queues: Vec<Queued<'a>>,
    completion_queues: Vec<CqJson>,
    failed: Vec<Happened>,
    ended: Vec<FailedQpJson<'a>>,
    torn: u64,
    left_out: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Happened>,
}

#[derive(Serialize)]
struct Queued<'a> {
    #[serde(flatten)]
    of: ObjectJson,
    requests: Vec<RequestJson<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ObjectJson {
    Pair {
        qp_num: u32,
        transport: &'static str,
        state: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer_address: Option<IpAddr>,
        send_cq: u32,
        recv_cq: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        srq: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tries: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer_process: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer_process_state: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer_state: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer_receives: Option<usize>,
    },
    Shared {
        srq: u32,
    },
}

#[derive(Serialize)]
struct RequestJson<'a> {
    wr_id: u64,
    operation: &'static str,
    imm: bool,
    bytes: u32,
    signaled: bool,
    age_ns: u64,
    stage: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(serialize_with = "in_words")]
    why: StuckReason<'a>,
}

#[derive(Serialize)]
struct CqJson {
    cq: u32,
    unpolled: u32,
    overrun: bool,
}

#[derive(Serialize)]
struct Happened {
    time_ns: u64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    number: u32,
    other: u32,
    wr_id: u64,
    bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Serialize)]
struct FailedQpJson<'a> {
    qp_num: u32,
    state: &'static str,
    time_ns: u64,
    why: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_process: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_why: Option<&'a str>,
}

fn ended<'a>(end: &why::FailedQp<'a>) -> FailedQpJson<'a> {
    FailedQpJson {
        qp_num: end.number,
        state: end.state,
        time_ns: end.time_ns,
        why: end.why,
        peer: end.peer,
        peer_process: end.of_peer.map(|(process, _)| process),
        peer_why: end.of_peer.map(|(_, why)| why),
    }
}

impl<'a> TraceLine<'a> {
    pub(super) fn from_findings(report: &'a ProcessFindings<'a>) -> TraceLine<'a> {
        let trace = &report.found.trace;
        TraceLine {
            file: report.found.file.display().to_string(),
            process: trace.process,
            program: &trace.program,
            process_state: report.found.process.name(),
            began_ns: trace.began_ns,
            last_event_ns: trace.last_ns,
            queues: report.queues.iter().map(queue).collect(),
            completion_queues: trace.completion_queues.iter().map(completions).collect(),
            failed: report.failed.iter().map(|event| happened(event)).collect(),
            ended: report.ended.iter().map(ended).collect(),
            torn: trace.torn,
            left_out: trace.left_out,
            events: report.events.iter().map(happened).collect(),
        }
    }
}

fn queue<'a>(queue: &'a StuckQueue<'a>) -> Queued<'a> {
    let peer = queue.peer.as_ref();
    let of = match queue.of {
        QueueOwner::Shared(shared) => ObjectJson::Shared { srq: shared.number },
        QueueOwner::Pair(pair) => ObjectJson::Pair {
            qp_num: pair.number,
            transport: pair.transport,
            state: pair.state,
            peer: pair.peer,
            peer_address: pair.peer_address,
            send_cq: pair.send_cq,
            recv_cq: pair.recv_cq,
            srq: pair.srq,
            tries: pair.waiting.map(|waiting| waiting.tries),
            peer_process: peer.map(|peer| peer.found.trace.process),
            peer_process_state: peer.map(|peer| peer.found.process.name()),
            peer_state: peer.map(|peer| peer.pair.state),
            peer_receives: peer.map(|peer| peer.receives),
        },
    };
    Queued { of, requests: queue.sends.iter().chain(&queue.receives).map(request).collect() }
}

fn request<'a>(one: &'a Outstanding<'a>) -> RequestJson<'a> {
    let request = one.request;
    let (stage, status) = match request.stage {
        Stage::Sent => ("sent", None),
        Stage::Executed => ("executed", None),
        Stage::Completed(status) => ("completed", Some(status)),
        _ => ("queued", None),
    };
    RequestJson {
        wr_id: request.wr_id,
        operation: request.operation,
        imm: request.has_imm,
        bytes: request.len,
        signaled: request.is_signaled,
        age_ns: one.age_ns,
        stage,
        status,
        why: one.why,
    }
}

fn in_words<S: Serializer>(why: &StuckReason<'_>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(why)
}

fn completions(cq: &TracedCq) -> CqJson {
    CqJson { cq: cq.number, unpolled: cq.unpolled, overrun: cq.has_overrun }
}

fn happened(event: &Event) -> Happened {
    Happened {
        time_ns: event.time_ns,
        event: event.what,
        operation: event.operation,
        status: event.status,
        number: event.number,
        other: event.other,
        wr_id: event.wr_id,
        bytes: event.len,
        why: event.why.clone(),
    }
}
