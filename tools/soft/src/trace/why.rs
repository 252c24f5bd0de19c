//! Reasons for which requests have not completed.

use std::collections::{HashMap, HashSet};
use std::fmt;

use soft_rnic::trace::{
    Event, SharedQueue, Stage, Trace, TracedCq, TracedQp, TracedRequest, TracedWait,
    TracedWaitReason,
};

use super::files::ReadTrace;

/// The traces that are known, and where in them what has a number is.
pub(super) struct KnownTraces<'a> {
    traces: Vec<Numbers<'a>>,
    /// The first queue pair of a number, and the trace that it is in.
    pairs: HashMap<u32, (usize, &'a TracedQp)>,
    /// By the number of a queue pair: its process, and the cause of its last error state.
    ended: HashMap<u32, (u32, &'a str)>,
}

/// Objects of one trace, by their numbers.
struct Numbers<'a> {
    found: &'a ReadTrace,
    completion_queues: HashMap<u32, &'a TracedCq>,
    shared_queues: HashMap<u32, &'a SharedQueue>,
    /// Shared receive queues that queue pairs take from.
    used: HashSet<u32>,
}

impl<'a> KnownTraces<'a> {
    pub(super) fn index(all: &'a [ReadTrace]) -> KnownTraces<'a> {
        let (mut pairs, mut ended) = (HashMap::new(), HashMap::new());
        for (nth, found) in all.iter().enumerate() {
            for pair in &found.trace.queue_pairs {
                pairs.entry(pair.number).or_insert((nth, pair));
            }
            let why = ends(&found.trace).into_iter().map(|end| (end.number, end.why));
            ended.extend(why.map(|(number, why)| (number, (found.trace.process, why))));
        }
        KnownTraces { traces: all.iter().map(Numbers::from_trace).collect(), pairs, ended }
    }
}

impl<'a> Numbers<'a> {
    fn from_trace(found: &'a ReadTrace) -> Numbers<'a> {
        let Trace { queue_pairs, shared_queues, completion_queues, .. } = &found.trace;
        Numbers {
            found,
            completion_queues: completion_queues.iter().map(|cq| (cq.number, cq)).collect(),
            shared_queues: shared_queues.iter().map(|queue| (queue.number, queue)).collect(),
            used: queue_pairs.iter().filter_map(|pair| pair.srq).collect(),
        }
    }

    fn has_overrun(&self, cq: u32) -> bool {
        self.completion_queues.get(&cq).is_some_and(|known| known.has_overrun)
    }
}

/// Findings about a process.
pub(super) struct ProcessFindings<'a> {
    pub(super) found: &'a ReadTrace,
    /// Queues with outstanding requests.
    pub(super) queues: Vec<StuckQueue<'a>>,
    /// Queue pairs and shared queues without.
    pub(super) idle: usize,
    /// Completions in error, oldest first.
    pub(super) failed: Vec<&'a Event>,
    /// Queue pairs that have failed.
    pub(super) ended: Vec<FailedQp<'a>>,
    pub(super) events: &'a [Event],
}

/// A queue pair that has gone to an error state.
pub(super) struct FailedQp<'a> {
    pub(super) number: u32,
    pub(super) state: &'static str,
    pub(super) time_ns: u64,
    pub(super) why: &'a str,
    pub(super) peer: Option<u32>,
    /// The process of the peer, and why that is in an error state, if it is.
    pub(super) of_peer: Option<(u32, &'a str)>,
}

/// Changes to an error state that the log has, and those of live queue pairs that it has no more.
fn ends(trace: &Trace) -> Vec<FailedQp<'_>> {
    let of = |(number, state, time_ns, peer): (u32, &'static str, u64, u32), why| {
        let peer = (peer != 0).then_some(peer);
        FailedQp { number, state, time_ns, why, peer, of_peer: None }
    };
    let changes = trace.events.iter().filter(|event| event.what == "state");
    let logged: Vec<_> = changes
        .filter_map(|event| {
            let to = (event.number, event.status?, event.time_ns, event.other);
            Some(of(to, event.why.as_deref()?))
        })
        .collect();
    let is_logged = |number: u32| logged.iter().any(|end| end.number == number);
    let pairs = trace.queue_pairs.iter().filter(|pair| !is_logged(pair.number));
    let kept: Vec<_> = pairs
        .filter_map(|pair| {
            let to = (pair.number, pair.state, pair.state_since_ns, pair.peer.unwrap_or(0));
            Some(of(to, pair.why.as_deref()?))
        })
        .collect();
    kept.into_iter().chain(logged).collect()
}

/// A queue with outstanding requests.
pub(super) struct StuckQueue<'a> {
    pub(super) of: QueueOwner<'a>,
    /// Peer of a queue pair, if the trace of the other end was named, too.
    pub(super) peer: Option<TracedPeer<'a>>,
    pub(super) sends: Vec<Outstanding<'a>>,
    pub(super) receives: Vec<Outstanding<'a>>,
}

pub(super) enum QueueOwner<'a> {
    Pair(&'a TracedQp),
    Shared(&'a SharedQueue),
}

/// A request that the program has not seen complete.
pub(super) struct Outstanding<'a> {
    pub(super) request: &'a TracedRequest,
    /// From its post to the last event.
    pub(super) age_ns: u64,
    pub(super) why: StuckReason<'a>,
}

/// Reason for which a request has not completed; it is put into words when it is shown.
#[derive(Clone, Copy)]
pub(super) enum StuckReason<'a> {
    Send {
        pair: &'a TracedQp,
        request: &'a TracedRequest,
        oldest: Option<&'a TracedRequest>,
        of: InTrace<'a>,
    },
    Receive {
        pair: &'a TracedQp,
        of: InTrace<'a>,
    },
    Shared {
        is_used: bool,
    },
}

/// Access for a reason to the objects of its trace.
#[derive(Clone, Copy)]
pub(super) struct InTrace<'a>(&'a Numbers<'a>);

impl fmt::Display for StuckReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StuckReason::Send { pair, request, oldest, of } => {
                f.write_str(&send_reason(of.0, pair, request, oldest))
            }
            StuckReason::Receive { pair, of } => f.write_str(&receive_reason(of.0, pair)),
            StuckReason::Shared { is_used: true } => f.write_str("nothing has arrived"),
            StuckReason::Shared { is_used: false } => f.write_str(
                "no queue pair of this process takes from the queue (over XRC, those of others do)",
            ),
        }
    }
}

/// Says of each outstanding request of the `nth` process why.
pub(super) fn report<'a>(
    known: &'a KnownTraces<'a>,
    nth: usize,
    events: usize,
) -> ProcessFindings<'a> {
    let numbers = &known.traces[nth];
    let found = numbers.found;
    let trace = &found.trace;
    let pairs = trace.queue_pairs.iter().map(|pair| queue_pair(numbers, pair, known));
    let shared = trace.shared_queues.iter().map(|queue| shared_queue(numbers, queue));
    let is_idle = |queue: &StuckQueue<'_>| queue.sends.is_empty() && queue.receives.is_empty();
    let (idle, queues): (Vec<_>, Vec<_>) = pairs.chain(shared).partition(is_idle);
    let first = trace.events.len().saturating_sub(events);
    let is_failed = |event: &&Event| event.what == "complete" && event.status != Some("SUCCESS");
    let of_peer = |end: FailedQp<'a>| FailedQp {
        of_peer: end.peer.and_then(|peer| known.ended.get(&peer).copied()),
        ..end
    };
    ProcessFindings {
        found,
        queues,
        idle: idle.len(),
        failed: trace.events.iter().filter(is_failed).collect(),
        ended: ends(trace).into_iter().map(of_peer).collect(),
        events: &trace.events[first..],
    }
}

fn queue_pair<'a>(
    numbers: &'a Numbers<'a>,
    pair: &'a TracedQp,
    known: &'a KnownTraces<'a>,
) -> StuckQueue<'a> {
    let oldest = pair.sends.iter().find(|request| !is_executed(request));
    let (trace, of) = (&numbers.found.trace, InTrace(numbers));
    let send =
        |request| outstanding(trace, request, StuckReason::Send { pair, request, oldest, of });
    let receive = |request| outstanding(trace, request, StuckReason::Receive { pair, of });
    StuckQueue {
        of: QueueOwner::Pair(pair),
        peer: TracedPeer::find(pair, known),
        sends: pair.sends.iter().map(send).collect(),
        receives: pair.receives.iter().map(receive).collect(),
    }
}

fn shared_queue<'a>(numbers: &'a Numbers<'a>, queue: &'a SharedQueue) -> StuckQueue<'a> {
    let why = StuckReason::Shared { is_used: numbers.used.contains(&queue.number) };
    let receive = |request| outstanding(&numbers.found.trace, request, why);
    let receives = queue.receives.iter().map(receive).collect();
    StuckQueue { of: QueueOwner::Shared(queue), peer: None, sends: Vec::new(), receives }
}

fn outstanding<'a>(
    trace: &Trace,
    request: &'a TracedRequest,
    why: StuckReason<'a>,
) -> Outstanding<'a> {
    Outstanding { request, age_ns: trace.last_ns.saturating_sub(request.posted_ns), why }
}

fn is_executed(request: &TracedRequest) -> bool {
    matches!(request.stage, Stage::Executed | Stage::Completed(_))
}

/// The queue pair at the other end, as its own trace has it.
pub(super) struct TracedPeer<'a> {
    pub(super) pair: &'a TracedQp,
    pub(super) found: &'a ReadTrace,
    /// Receive requests that a message to it could take.
    pub(super) receives: usize,
}

impl TracedPeer<'_> {
    fn find<'a>(pair: &TracedQp, known: &'a KnownTraces<'a>) -> Option<TracedPeer<'a>> {
        let &(nth, peer) = known.pairs.get(&pair.peer?)?;
        let numbers = &known.traces[nth];
        let shared = peer.srq.and_then(|srq| numbers.shared_queues.get(&srq));
        let receives = shared.map_or(&peer.receives, |queue| &queue.receives).len();
        Some(TracedPeer { pair: peer, found: numbers.found, receives })
    }
}

pub(super) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn send_reason(
    trace: &Numbers<'_>,
    pair: &TracedQp,
    request: &TracedRequest,
    oldest: Option<&TracedRequest>,
) -> String {
    match request.stage {
        Stage::Completed(status) => unpolled(trace, pair, status),
        Stage::Executed if !request.is_signaled => {
            "done; unsignalled: the next signalled request completes it".into()
        }
        Stage::Executed => done_without_completion(trace, pair),
        Stage::Sent => match (&pair.waiting, oldest) {
            // Over the network what is sent stays so while it waits.
            (Some(waiting), Some(oldest)) if oldest.index == request.index => {
                waits(pair, request, waiting)
            }
            _ => format!("sent; {} has not answered", name(pair)),
        },
        _ if pair.state != "RTS" && !is_tried(pair, request, oldest) => {
            format!("the queue pair is in {}: requests wait for RTS", pair.state)
        }
        _ => match oldest.filter(|oldest| oldest.index != request.index) {
            Some(oldest) => format!("waits behind {} wr_id {}", oldest.operation, id(oldest.wr_id)),
            None => match &pair.waiting {
                Some(waiting) => waits(pair, request, waiting),
                None => untried(pair),
            },
        },
    }
}

/// Reports whether the request is the one that the queue pair has tried.
fn is_tried(pair: &TracedQp, request: &TracedRequest, oldest: Option<&TracedRequest>) -> bool {
    let is_oldest = oldest.is_some_and(|oldest| oldest.index == request.index);
    is_oldest && pair.waiting.is_some() && pair.state == "SQD"
}

fn untried(pair: &TracedQp) -> String {
    match pair.transport {
        "UD" => "the device has not sent it yet".into(),
        _ => format!("the device has not sent it to {} yet", name(pair)),
    }
}

fn unpolled(trace: &Numbers<'_>, pair: &TracedQp, status: &str) -> String {
    let cq = trace.completion_queues.get(&pair.send_cq);
    let entries = cq.map_or(0, |cq| cq.unpolled as usize);
    format!(
        "completed with {status}, but the program has not polled it: {} in CQ {}",
        match entries {
            1 => "1 entry".to_owned(),
            n => format!("{n} entries"),
        },
        pair.send_cq
    )
}

fn done_without_completion(trace: &Numbers<'_>, pair: &TracedQp) -> String {
    match trace.has_overrun(pair.send_cq) {
        true => {
            format!("done, but CQ {} has overrun, and takes no completion any more", pair.send_cq)
        }
        false => "done; its completion was under way".into(),
    }
}

/// Describes the wait that the device has noted.
fn waits(pair: &TracedQp, request: &TracedRequest, waiting: &TracedWait) -> String {
    let peer = match request.to {
        0 => name(pair),
        to if pair.transport == "XRC_SEND" => format!("shared receive queue {to} of the peer"),
        to => format!("QP {to:#08x}"),
    };
    let tried = |limit: u8, for_ever: u8| match limit {
        limit if limit == for_ever => format!("tried {} times, without end", waiting.tries),
        limit => format!("tried {} times, of {}", waiting.tries, u32::from(limit) + 1),
    };
    match waiting.reason {
        TracedWaitReason::Receiver => format!(
            "{peer} has posted no receive request (RNR): {}",
            tried(pair.rnr_retry, RNR_FOR_EVER)
        ),
        TracedWaitReason::Response => format!(
            "no response from {peer}: it is not there, not in RTR or RTS, or connected to another \
             one; {}",
            tried(pair.retry_cnt, u8::MAX)
        ),
        TracedWaitReason::Meeting => format!("the process of {peer} is being looked for"),
        TracedWaitReason::Room => {
            format!("the ring to the process of {peer} is full: it takes nothing")
        }
        TracedWaitReason::Settling => {
            "accesses by the key of a window, whose binding has ended, are still under way".into()
        }
        TracedWaitReason::InjectedRnr => format!(
            "injected (--faults): {peer} is not ready (RNR): {}",
            tried(pair.rnr_retry, RNR_FOR_EVER)
        ),
        TracedWaitReason::InjectedLoss => {
            format!("injected (--faults): it was lost: {}", tried(pair.retry_cnt, u8::MAX))
        }
        TracedWaitReason::Delay => "the device delays it, as it was asked to".into(),
        _ => "it waits for a reason that this program does not know".into(),
    }
}

/// `rnr_retry` without end.
const RNR_FOR_EVER: u8 = 7;

fn receive_reason(trace: &Numbers<'_>, pair: &TracedQp) -> String {
    match pair.state {
        "RESET" | "INIT" => {
            format!("the queue pair is in {}: it receives from RTR on", pair.state)
        }
        "ERR" if trace.has_overrun(pair.recv_cq) => {
            format!(
                "flushed, but CQ {} has overrun, and takes no completion any more",
                pair.recv_cq
            )
        }
        "ERR" => "the queue pair is in ERR: its requests are being flushed".into(),
        _ => match pair.peer {
            Some(_) => format!("nothing has arrived from {}", name(pair)),
            None => "nothing has arrived".into(),
        },
    }
}

/// The name of a queue pair's peer in a sentence.
fn name(pair: &TracedQp) -> String {
    let at = pair.peer_address.map(|address| format!(" at {address}")).unwrap_or_default();
    let number = |number| format!("QP {number:#08x}");
    format!("{}{at}", pair.peer.map_or_else(|| "the peer".into(), number))
}

/// As `--check` has it: many programs put addresses there.
pub(super) fn id(wr_id: u64) -> String {
    format!("{wr_id:#x}")
}
