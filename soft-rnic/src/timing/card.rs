//! Costs of a card's operations: a device at a distance that also charges for them.
//!
//! | | charged to | how |
//! |---|---|---|
//! | a doorbell and its requests, a list of receives | the caller | the call returns no earlier |
//! | a poll and its completions | the caller | the call returns no earlier |
//! | a request, its bytes out | the requester's card; READ data: the responder's | it is busy |
//! | its bytes in | the card at the other end | the same |
//! | a request | the card's unit for its queue pair | the queue pair's next one leaves no earlier |
//! | a message into a shared receive queue | the queue | the next one into it is taken no earlier |
//!
//! Each opened context is a card, with a link out and a link in. Times are reserved when a request
//! is posted: a late poll delays no other request. The costs are the parameters of the
//! thesis' model ("Know Your Memory", Fischer, 2021): `o_snd` is 0.119 µs a doorbell and 0.001 µs a
//! request, which gives its 0.12 of single requests and 0.016 of lists of 8.

use host::sync::Mutex;

/// The costs of a card, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Card {
    doorbell: f64,
    request: f64,
    poll: f64,
    completion: f64,
    /// A completion of a message of at most [`SMALL`] bytes, which are in it, in addition.
    small: f64,
    receive_doorbell: f64,
    receive: f64,
    /// The card handles a message, at either end.
    message: f64,
    /// One way over the network.
    latency: f64,
    /// From the arrival of a message to that of its acknowledgement.
    acknowledgement: f64,
    /// A byte on the link.
    byte: f64,
    /// The part of the latency in which the card fetches the bytes of a request that are not
    /// inline.
    fetch: f64,
    /// The unit that serves a queue pair handles a request.
    queue_pair: f64,
    /// A message of more than [`SMALL`] bytes takes a receive that several queue pairs share.
    shared_receive: f64,
    /// READs and atomics of a queue pair under way.
    reads: u32,
}

/// Bytes of the longest message that arrives inside its completion: a shared receive queue does not
/// slow it down.
pub(crate) const SMALL: u64 = 32;

/// Costs of a card's calls for their caller, in nanoseconds: each call, and each request,
/// completion or receive of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallCosts {
    /// A list of send requests.
    pub post: [f64; 2],
    /// A poll that finds completions.
    pub poll: [f64; 2],
    /// A list of receives.
    pub receive: [f64; 2],
}

/// Returns the costs of the calls of the card of this name; `None` where there is no such card.
///
/// ```
/// assert_eq!(soft_rnic::call_costs("connectx5").unwrap().post, [119.0, 1.0]);
/// ```
#[must_use]
pub fn call_costs(card: &str) -> Option<CallCosts> {
    let Card { doorbell, request, poll, completion, receive_doorbell, receive, .. } =
        Card::named(card, 1.0)?;
    Some(CallCosts {
        post: [doorbell, request],
        poll: [poll, completion],
        receive: [receive_doorbell, receive],
    })
}

/// A ConnectX-5 with 100 Gbit/s, by the thesis' fit. Polls: 0.052 µs for one completion, 0.017 each
/// for 32. Receives: 0.016 for one, 0.007 each for 8. An acknowledgement is there 3.4 µs after the
/// post. One queue pair sends 14 M messages/s, "now the sending device itself", where several send
/// more; queue pairs that share receives get 2 M/s, and one alone is not slowed. The thesis has
/// fitted its latency without inlining, and says only that this saves a DMA: 0.3 µs is a round trip
/// over PCIe, and assumed. Its device has 16 READs under way.
const CONNECTX5: Card = Card {
    doorbell: 119.0,
    request: 1.0,
    poll: 36.0,
    completion: 16.0,
    small: 23.0,
    receive_doorbell: 10.3,
    receive: 5.7,
    message: 20.0,
    latency: 1900.0,
    acknowledgement: 1460.0,
    byte: 0.084,
    fetch: 300.0,
    queue_pair: 1000.0 / 14.0,
    shared_receive: 500.0,
    reads: 16,
};

impl Card {
    /// The card of this name, `connectx5`, with all costs multiplied by `slow`.
    #[must_use]
    pub(crate) fn named(name: &str, slow: f64) -> Option<Card> {
        let mut card = (name == "connectx5").then_some(CONNECTX5)?;
        let Card { doorbell, request, poll, completion, small, receive_doorbell, receive, .. } =
            &mut card;
        for cost in [doorbell, request, poll, completion, small, receive_doorbell, receive] {
            *cost *= slow;
        }
        let Card { message, latency, acknowledgement, byte, .. } = &mut card;
        for cost in [message, latency, acknowledgement, byte] {
            *cost *= slow;
        }
        let Card { fetch, queue_pair, shared_receive, .. } = &mut card;
        for cost in [fetch, queue_pair, shared_receive] {
            *cost *= slow;
        }
        Some(card)
    }

    /// The time by which the next request of a queue pair stays behind one.
    pub(crate) fn between_requests(&self) -> u64 {
        self.queue_pair as u64
    }

    /// READs and atomics of a queue pair that are under way at most.
    pub(crate) fn reads(&self) -> u32 {
        self.reads
    }

    /// Time at which a message of `bytes` that arrives at `at` has a receive of a queue that
    /// several queue pairs share, as is known `now`.
    pub(crate) fn receive_shared(&self, queue: &SrqTimes, now: u64, at: u64, bytes: u64) -> u64 {
        if bytes <= SMALL { at } else { queue.0.take(now, at, self.shared_receive as u64).1 }
    }

    /// Returns the cost of a post of `requests` requests for the caller.
    pub(crate) fn post(&self, requests: u32) -> u64 {
        (self.doorbell + f64::from(requests) * self.request) as u64
    }

    /// The cost of a poll that has found `completions` completions, `small` of them of messages of
    /// at most [`SMALL`] bytes. One that finds none is charged only where each thread has a
    /// processor: elsewhere it takes real time.
    pub(crate) fn poll(&self, completions: u32, small: u32) -> u64 {
        if completions == 0 && !host::has_own_processor() {
            0
        } else {
            let completions = f64::from(completions) * self.completion;
            (self.poll + completions + f64::from(small) * self.small) as u64
        }
    }

    /// Returns the cost of a post of `receives` receives for the caller.
    pub(crate) fn receive(&self, receives: u32) -> u64 {
        (self.receive_doorbell + f64::from(receives) * self.receive) as u64
    }

    /// Returns the time that a message of `bytes` bytes keeps a card busy, in either direction.
    fn busy(&self, bytes: u64) -> u64 {
        (self.message + bytes.saturating_sub(1) as f64 * self.byte) as u64
    }
}

/// Link of a card, with a way for each direction.
#[derive(Debug, Default)]
pub(crate) struct CardLink {
    out: BusyTimes,
    back: BusyTimes,
}

/// Times at which a way is taken, in the time of its device: apart from each other, the earliest
/// first.
#[derive(Debug, Default)]
struct BusyTimes(Mutex<Vec<(u64, u64)>>);

impl BusyTimes {
    /// Takes the way for `busy` nanoseconds from `at` on, in parts where others have taken it;
    /// returns the begin of the first part and the end of the last one. Nothing is asked for before
    /// `now` any more.
    fn take(&self, now: u64, at: u64, busy: u64) -> (u64, u64) {
        let mut taken = self.0.lock();
        let past = taken.partition_point(|(_, end)| *end < now.min(at));
        taken.drain(..past);
        let first = taken.partition_point(|(_, end)| *end < at);
        let (mut begin, mut end, mut left, mut next) = (at, at, busy, first);
        let mut free = None;
        while let Some((from, until)) = taken.get(next).copied()
            && from < end + left
        {
            if from > end {
                left -= from - end;
                free.get_or_insert(end);
            }
            (begin, end, next) = (begin.min(from), end.max(until), next + 1);
        }
        let free = free.unwrap_or(end);
        end += left;
        taken.splice(first..next, [(begin, end)]);
        (free, end)
    }
}

/// Times at which a shared receive queue takes messages.
#[derive(Debug, Default)]
pub(crate) struct SrqTimes(BusyTimes);

/// Arrival time of a message of `bytes` that leaves its card at `leaves`, as is known `now`.
fn carried(
    card: &Card,
    (from, to): (&CardLink, &CardLink),
    now: u64,
    leaves: u64,
    bytes: u64,
) -> u64 {
    let (busy, latency) = (card.busy(bytes), card.latency as u64);
    let (begins, sent) = from.out.take(now, leaves, busy);
    // Its first byte is there while its last one is still sent.
    let (_, taken) = to.back.take(now, begins + latency, busy);
    taken.max(sent + latency) + card.message as u64
}

/// Bytes of a request, and their way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinkLoad {
    /// They are answered.
    Answered(u64),
    /// The card fetches them.
    Fetched(u64),
    /// They are in the request.
    Inline(u64),
}

/// Times at which a request arrives at the other card and its answer is back, from those of its
/// post and departure.
pub(crate) fn transit(
    card: &Card,
    (near, far): (&CardLink, &CardLink),
    (posted, leaves): (u64, u64),
    load: LinkLoad,
) -> (u64, u64) {
    let acknowledged = |arrival: u64| (arrival, arrival + card.acknowledgement as u64);
    let there = |bytes| carried(card, (near, far), posted, leaves, bytes);
    match load {
        LinkLoad::Answered(bytes) => {
            let arrival = there(0);
            (arrival, carried(card, (far, near), posted, arrival, bytes))
        }
        LinkLoad::Fetched(bytes) => acknowledged(there(bytes)),
        // The fetch is a part of the latency, in which the link is free.
        LinkLoad::Inline(bytes) => acknowledged(there(bytes) - card.fetch as u64),
    }
}

#[cfg(test)]
mod tests;
