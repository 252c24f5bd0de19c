//! Why a request has not completed.

use soft_rnic::trace::{Event, QueuePair, Request, SharedQueue, Stage, Trace, Wait, Waiting};

use super::files::Found;

/// What there is to say of a process.
pub(super) struct Report<'a> {
    pub(super) found: &'a Found,
    /// Queues with outstanding requests.
    pub(super) queues: Vec<Queue<'a>>,
    /// Queue pairs and shared queues without.
    pub(super) idle: usize,
    pub(super) events: &'a [Event],
}

/// A queue with outstanding requests.
pub(super) struct Queue<'a> {
    pub(super) of: Of<'a>,
    /// Of a queue pair, if the trace of the other end was named, too.
    pub(super) peer: Option<Peer<'a>>,
    pub(super) sends: Vec<Outstanding<'a>>,
    pub(super) receives: Vec<Outstanding<'a>>,
}

pub(super) enum Of<'a> {
    Pair(&'a QueuePair),
    Shared(&'a SharedQueue),
}

/// A request that the program has not seen complete.
pub(super) struct Outstanding<'a> {
    pub(super) request: &'a Request,
    /// From its post to the last event.
    pub(super) age_ns: u64,
    pub(super) why: String,
}

/// Says of each outstanding request of a process why; `all` are the traces that are known.
pub(super) fn report<'a>(found: &'a Found, all: &'a [Found], events: usize) -> Report<'a> {
    let trace = &found.trace;
    let pairs = trace.queue_pairs.iter().map(|pair| queue_pair(trace, pair, all));
    let shared = trace.shared_queues.iter().map(|queue| shared_queue(trace, queue));
    let is_idle = |queue: &Queue<'_>| queue.sends.is_empty() && queue.receives.is_empty();
    let (idle, queues): (Vec<_>, Vec<_>) = pairs.chain(shared).partition(is_idle);
    let first = trace.events.len().saturating_sub(events);
    Report { found, queues, idle: idle.len(), events: &trace.events[first..] }
}

fn queue_pair<'a>(trace: &'a Trace, pair: &'a QueuePair, all: &'a [Found]) -> Queue<'a> {
    let oldest = pair.sends.iter().find(|request| !is_executed(request));
    let send = |request| outstanding(trace, request, send_reason(trace, pair, request, oldest));
    let receive = |request| outstanding(trace, request, receive_reason(trace, pair));
    Queue {
        of: Of::Pair(pair),
        peer: Peer::of(pair, all),
        sends: pair.sends.iter().map(send).collect(),
        receives: pair.receives.iter().map(receive).collect(),
    }
}

fn shared_queue<'a>(trace: &'a Trace, queue: &'a SharedQueue) -> Queue<'a> {
    let users = |pair: &&QueuePair| pair.srq == Some(queue.number);
    let used = trace.queue_pairs.iter().any(|pair| users(&pair));
    let why = match used {
        true => "nothing has arrived",
        false => {
            "no queue pair of this process takes from the queue (over XRC, those of others do)"
        }
    };
    let receive = |request| outstanding(trace, request, why.to_owned());
    let receives = queue.receives.iter().map(receive).collect();
    Queue { of: Of::Shared(queue), peer: None, sends: Vec::new(), receives }
}

fn outstanding<'a>(trace: &Trace, request: &'a Request, why: String) -> Outstanding<'a> {
    Outstanding { request, age_ns: trace.last_ns.saturating_sub(request.posted_ns), why }
}

fn is_executed(request: &Request) -> bool {
    matches!(request.stage, Stage::Executed | Stage::Completed(_))
}

/// The queue pair at the other end, as its own trace has it.
pub(super) struct Peer<'a> {
    pub(super) pair: &'a QueuePair,
    pub(super) found: &'a Found,
    /// Receive requests that a message to it could take.
    pub(super) receives: usize,
}

impl Peer<'_> {
    fn of<'a>(pair: &QueuePair, all: &'a [Found]) -> Option<Peer<'a>> {
        let number = pair.peer?;
        all.iter().find_map(|found| {
            let peer = found.trace.queue_pairs.iter().find(|peer| peer.number == number)?;
            let shared = found.trace.shared_queues.iter().find(|q| peer.srq == Some(q.number));
            let receives = shared.map_or(&peer.receives, |queue| &queue.receives).len();
            Some(Peer { pair: peer, found, receives })
        })
    }
}

pub(super) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn send_reason(
    trace: &Trace,
    pair: &QueuePair,
    request: &Request,
    oldest: Option<&Request>,
) -> String {
    match request.stage {
        Stage::Completed(status) => unpolled(trace, pair, status),
        Stage::Executed if !request.is_signaled => {
            "done; unsignalled: the next signalled request completes it".into()
        }
        Stage::Executed => done_without_completion(trace, pair),
        Stage::Sent => format!("sent; {} has not answered", name(pair.peer)),
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

/// Whether the request is the one that the queue pair has tried.
fn is_tried(pair: &QueuePair, request: &Request, oldest: Option<&Request>) -> bool {
    let is_oldest = oldest.is_some_and(|oldest| oldest.index == request.index);
    is_oldest && pair.waiting.is_some() && pair.state == "SQD"
}

fn untried(pair: &QueuePair) -> String {
    match pair.transport {
        "UD" => "the device has not sent it yet".into(),
        _ => format!("the device has not sent it to {} yet", name(pair.peer)),
    }
}

fn unpolled(trace: &Trace, pair: &QueuePair, status: &str) -> String {
    let cq = trace.completion_queues.iter().find(|cq| cq.number == pair.send_cq);
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

fn done_without_completion(trace: &Trace, pair: &QueuePair) -> String {
    match has_overrun(trace, pair.send_cq) {
        true => {
            format!("done, but CQ {} has overrun, and takes no completion any more", pair.send_cq)
        }
        false => "done; its completion was under way".into(),
    }
}

fn has_overrun(trace: &Trace, cq: u32) -> bool {
    trace.completion_queues.iter().any(|known| known.number == cq && known.has_overrun)
}

/// What the device has noted.
fn waits(pair: &QueuePair, request: &Request, waiting: &Waiting) -> String {
    let peer = match request.to {
        0 => name(pair.peer),
        to if pair.transport == "XRC_SEND" => format!("shared receive queue {to} of the peer"),
        to => format!("QP {to:#08x}"),
    };
    let tried = |limit: u8, for_ever: u8| match limit {
        limit if limit == for_ever => format!("tried {} times, without end", waiting.tries),
        limit => format!("tried {} times, of {}", waiting.tries, u32::from(limit) + 1),
    };
    match waiting.reason {
        Wait::Receiver => format!(
            "{peer} has posted no receive request (RNR): {}",
            tried(pair.rnr_retry, RNR_FOR_EVER)
        ),
        Wait::Response => format!(
            "no response from {peer}: it is not there, not in RTR or RTS, or connected to another \
             one; {}",
            tried(pair.retry_cnt, u8::MAX)
        ),
        Wait::Meeting => format!("the process of {peer} is being looked for"),
        Wait::Room => format!("the ring to the process of {peer} is full: it takes nothing"),
        Wait::Settling => {
            "accesses by the key of a window, whose binding has ended, are still under way".into()
        }
        Wait::Delay => "the device delays it, as it was asked to".into(),
        _ => "it waits for a reason that this program does not know".into(),
    }
}

/// `rnr_retry` without end.
const RNR_FOR_EVER: u8 = 7;

fn receive_reason(trace: &Trace, pair: &QueuePair) -> String {
    match pair.state {
        "RESET" | "INIT" => {
            format!("the queue pair is in {}: it receives from RTR on", pair.state)
        }
        "ERR" if has_overrun(trace, pair.recv_cq) => {
            format!(
                "flushed, but CQ {} has overrun, and takes no completion any more",
                pair.recv_cq
            )
        }
        "ERR" => "the queue pair is in ERR: its requests are being flushed".into(),
        _ => match pair.peer {
            Some(number) => format!("nothing has arrived from QP {number:#08x}"),
            None => "nothing has arrived".into(),
        },
    }
}

/// A queue pair's name in a sentence.
fn name(number: Option<u32>) -> String {
    number.map_or_else(|| "the peer".into(), |number| format!("QP {number:#08x}"))
}

/// Small ones are numbers mostly, others addresses.
pub(super) fn id(wr_id: u64) -> String {
    if wr_id < 1 << 20 { wr_id.to_string() } else { format!("{wr_id:#x}") }
}
