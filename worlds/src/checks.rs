//! Checks that plays of all kinds have in common: contents of messages, and times within which
//! calls return.

use std::fmt;
use std::time::{Duration, Instant};

use host::thread::JoinHandle;
use host::{thread, time, world};
use rdma_conn::error::{CloseReason, ConnectError, SendError};

use crate::case::{SendStep, SenderEnding, Settings, WorldCase};

/// The text of an error in a trace: without the numbers of devices, which go through all worlds of
/// a process, and without ports, which the kernel chooses.
pub(crate) fn unnamed(error: &dyn fmt::Display) -> String {
    ["world-", "127.0.0.1:"].iter().fold(error.to_string(), |text, name| {
        let mut pieces = text.split(name);
        let first = pieces.next().unwrap_or_default().to_owned();
        let is_digit = |c: char| c.is_ascii_digit();
        pieces.fold(first, |text, piece| text + name + piece.trim_start_matches(is_digit))
    })
}

/// State of a sender, as its thread or its task reports it.
#[derive(Debug, Default)]
pub(crate) struct SenderProgress {
    /// Messages that it began to send: at most these arrive.
    begun: u64,
    /// Lengths of messages, in order.
    lengths: Vec<usize>,
    /// All of these were accepted, and are to arrive.
    pub(crate) closed: Option<u64>,
    pub(crate) ended_at: Option<Instant>,
    /// It began to end then: it may have said goodbye since.
    pub(crate) leaves_at: Option<Instant>,
}

impl SenderProgress {
    /// The next message, after `accepted` accepted ones: reported before it is sent, because it
    /// may arrive before the call returns.
    pub(crate) fn begin(&mut self, at: usize, accepted: u64, length: usize) -> Vec<u8> {
        self.begun = accepted + 1;
        self.lengths.truncate(accepted as usize);
        self.lengths.push(length);
        content(at, accepted, length)
    }

    /// The message that was begun is not sent.
    pub(crate) fn retract(&mut self, accepted: u64) {
        self.begun = accepted;
    }

    /// Message `n` of sender `at`, which has arrived, is one that was sent.
    pub(crate) fn expect(&self, at: usize, n: u64, bytes: &[u8]) {
        let length = self.lengths.get(n as usize).copied();
        assert!(
            n < self.begun,
            "sender {at} has sent {} messages, message {n} has arrived",
            self.begun
        );
        assert_eq!(Some(bytes.len()), length, "length of message {n} of sender {at}");
        assert!(*bytes == content(at, n, bytes.len()), "content of message {n} of sender {at}");
    }

    /// The end of this sender is to be reported: it has not answered since `silence`, and has not said
    /// goodbye before.
    pub(crate) fn is_missed(&self, silence: Instant) -> bool {
        self.leaves_at.is_none_or(|at| at > silence)
    }

    /// After a close that succeeded, all messages have arrived.
    pub(crate) fn expect_all(&self, at: usize, taken: u64) {
        if let Some(closed) = self.closed {
            assert_eq!(taken, closed, "messages of sender {at}, which has closed");
        }
    }
}

/// Bytes of a message for which a case asks, of a connection that takes `most`: no more, unless the
/// case asks for more than its longest message.
pub(crate) fn length(settings: &Settings, wanted: u32, most: usize) -> usize {
    match wanted.checked_sub(settings.message_bytes) {
        Some(beyond @ 1..) => most + beyond as usize,
        _ => most.min(wanted as usize),
    }
}

/// A message that is too long is refused with the limit, and no other one is.
pub(crate) fn expect_limit<T>(length: usize, most: usize, sent: &Result<T, SendError>) {
    match sent {
        Err(SendError::TooLong { bytes, limit }) => {
            assert!(
                (*bytes, *limit) == (length, most) && length > most,
                "{bytes} of {limit} bytes"
            );
        }
        Err(SendError::Ended(_)) => {}
        Ok(_) | Err(_) => assert!(length <= most, "{length} bytes are taken for {most} or less"),
    }
}

/// True if the case explains that a sender ends for this reason.
pub(crate) fn may_end(case: &WorldCase, at: usize, reason: &CloseReason) -> bool {
    use CloseReason::{Closed, PeerClosed, PeerLost};
    let is_receivers =
        case.receiver_is_dropped && matches!(reason, Closed | PeerClosed { .. } | PeerLost(_));
    // A receiver that fails for want of memory says that it stops.
    let is_of_shortage = case.is_short_to_the_end() && matches!(reason, Closed | PeerClosed { .. });
    let is_of_death = case.may_die(at) && matches!(reason, PeerLost(_));
    is_receivers || is_of_shortage || is_of_death || is_failure(case, reason)
}

/// True if the case explains that a connection fails for this reason, though no end is at fault.
fn is_failure(case: &WorldCase, reason: &CloseReason) -> bool {
    let may_fail = case.requests_may_fail() || case.is_short_to_the_end();
    may_fail && matches!(reason, CloseReason::PeerLost(_) | CloseReason::Device(_))
}

/// True if the answer to a sender's goodbye may have been lost: its receiver has everything, and has
/// gone before it could answer again.
pub(crate) fn may_miss_answer(case: &WorldCase, reason: &CloseReason) -> bool {
    case.faults.lost_response > 0 && matches!(reason, CloseReason::PeerLost(_))
}

/// True if an end may not be set up for this reason, where there is no memory or no peer.
pub(crate) fn is_set_up_failure(error: &ConnectError) -> bool {
    use ConnectError::{Device, Handshake, System};
    matches!(error, Device(_) | Handshake(_) | System { .. })
}

/// True if the case explains that a receiver learns of a sender's end by this reason, and not by its
/// goodbye.
pub(crate) fn may_be_lost(case: &WorldCase, at: usize, reason: &CloseReason) -> bool {
    let is_gone = case.may_die(at) || case.ends[at] == SenderEnding::Drop;
    // A key of the sender's is refused, by which a Direct Read receiver reads.
    let is_refused = case.faults.access > 0 && matches!(reason, CloseReason::BadOffer(_));
    is_gone && matches!(reason, CloseReason::PeerLost(_)) || is_refused || is_failure(case, reason)
}

/// True if the case explains that a receiver fails for this reason, independently of its senders.
pub(crate) fn may_fail_alone(case: &WorldCase, reason: &CloseReason) -> bool {
    case.is_short_to_the_end() && matches!(reason, CloseReason::Device(_))
}

/// Time by which a wait may be late: threads are slow in some worlds, and processes stop.
pub(crate) fn slack(case: &WorldCase) -> Duration {
    Duration::from_millis(50)
        + us(case.stop.map_or(0, |stop| stop.for_us))
        + us(40 * u64::from(case.stall_one_in > 0) * case.stall_us)
        + us(100 * u64::from(case.jump_one_in > 0) * case.jump_us)
}

/// The longest time from the end of a peer to the error at this end: a probe, its retries, and the
/// last one of what went before.
pub(crate) fn detection(case: &WorldCase) -> Duration {
    case.settings.keepalive() + 3 * case.settings.retry_time() + slack(case)
}

/// Time for which a step sleeps, independently of the peer.
pub(crate) fn asleep(step: SendStep) -> Duration {
    match step {
        SendStep::Sleep(time) => us(time),
        _ => Duration::ZERO,
    }
}

/// A call that began at `start` has returned: within the bound of [`detection`] after the silence of
/// the peer that it waits for, if that has come. It takes `own` besides.
pub(crate) fn expect_detected(
    case: &WorldCase,
    what: impl fmt::Debug,
    (start, own): (Instant, Duration),
    silence: Option<Instant>,
) {
    let Some(silence) = silence else { return };
    let (took, bound) = (time::since(start.max(silence)), detection(case) + own);
    assert!(
        took <= bound,
        "{what:?} took {took:?} beside a peer that did not answer, the bound is {bound:?}"
    );
}

/// Calls what has a timeout, and checks that it keeps it.
pub(crate) fn timed<T>(
    case: &WorldCase,
    what: &str,
    timeout: Duration,
    call: impl FnOnce() -> T,
) -> T {
    let start = time::now();
    let done = call();
    let took = time::since(start);
    assert!(took <= timeout + slack(case), "{what} took {took:?}, its timeout was {timeout:?}");
    done
}

/// Drops a message on another thread, at a time that the seed chooses: what the receiver does
/// meanwhile races with that.
pub(crate) fn free_later<M: Send + 'static>(message: M) -> JoinHandle<()> {
    let draw = |below| world::here(|here| here.draw_below(below)).unwrap_or_default();
    let latest_us = [1, 50, 500, 3_000][draw(4) as usize];
    let after = us(draw(latest_us));
    let free = move || {
        time::sleep(after);
        drop(message);
    };
    thread::spawn("frees", free).expect("a thread")
}

pub(crate) const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// The bytes of a message.
pub(crate) fn content(sender: usize, n: u64, length: usize) -> Vec<u8> {
    let first = (sender as u64).wrapping_mul(97) ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..length as u64)
        .map(|at| (first.wrapping_add(at.wrapping_mul(0x0100_0193)) >> 11) as u8)
        .collect()
}
