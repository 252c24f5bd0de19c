//! A network that loses, delays and repeats messages of unreliable transports.
//!
//! What becomes of a message follows from the seed, the number of its queue pair
//! and how many messages that queue pair has sent, and from nothing else: threads
//! that send at the same time do not change each other's fates.
//!
//! A message that is overtaken has left its queue pair: the request is complete,
//! and the data are a copy. It arrives when a few later ones of the same queue pair
//! have been sent, or when its time is over. A reset, or the end of the queue pair,
//! loses it. Messages are late, lost or repeated as a whole, however many packets
//! they have.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::address::Address;
use crate::after::After;
use crate::memory::Span;
use crate::qp::Qp;
use crate::random::Random;
use crate::requester::{Line, Outcome, SqParts, packets};
use crate::responder::{Message, Reply, Session};
use crate::sq::{Request, Sq, Wqe};

/// Most messages that overtake a late one.
const OVERTAKERS: u64 = 4;
/// A late message arrives after this time, if nothing overtakes it: 1 ms.
const LATE_NS: u64 = 1_000_000;

/// How often a network does what to messages that nobody repeats, that is, of
/// unreliable connections and datagrams: probabilities, 0 to 1, for each message.
/// At most one of them strikes a message, in this order.
///
/// ```
/// let network = soft_rnic::NetworkFaults { loss: 0.01, ..Default::default() };
/// assert_eq!(network.reordering, 0.0);
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct NetworkFaults {
    /// The message never arrives.
    pub loss: f64,
    /// Up to four later messages of the same queue pair arrive before it; where
    /// fewer are sent, it arrives after 1 ms.
    pub reordering: f64,
    /// The message arrives twice, as it does when a path repeats a packet.
    pub duplication: f64,
}

/// Lets `soft0` lose, reorder and repeat messages of unreliable transports from now
/// on, until it is told otherwise; [`NetworkFaults::default`] is a network without
/// faults, which `soft0` begins with. Reliable connections do not notice.
///
/// The same seed gives the same fate to the n-th message of the same queue pair, in
/// every process that creates its queue pairs in the same order.
///
/// ```
/// use soft_rnic::{NetworkFaults, set_network_faults};
///
/// set_network_faults(42, NetworkFaults { loss: 0.01, reordering: 0.02, duplication: 0.0 });
/// // … datagrams …
/// set_network_faults(0, NetworkFaults::default());
/// ```
pub fn set_network_faults(seed: u64, faults: NetworkFaults) {
    crate::device::default_device().network.set(seed, faults);
}

/// The network of a device.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// Whether there is any fault to draw.
    is_faulty: AtomicBool,
    setting: Mutex<(u64, NetworkFaults)>,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    Lost,
    /// So many later ones overtake it.
    Late(u32),
    Twice,
}

impl Network {
    pub(crate) fn set(&self, seed: u64, faults: NetworkFaults) {
        *self.setting.lock() = (seed, faults);
        // Relaxed: the setting itself is read under its lock.
        self.is_faulty.store(faults != NetworkFaults::default(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_faulty(&self) -> bool {
        // Relaxed: see `set`.
        self.is_faulty.load(Ordering::Relaxed)
    }

    /// The fate of message `n` of a queue pair.
    fn fate(&self, qpn: u32, n: u64) -> Fate {
        let (seed, faults) = *self.setting.lock();
        let mut random = Random::new(Random::new(seed ^ u64::from(qpn) << 40).next() ^ n);
        if random.strikes(faults.loss) {
            Fate::Lost
        } else if random.strikes(faults.reordering) {
            Fate::Late(1 + random.below(OVERTAKERS) as u32)
        } else if random.strikes(faults.duplication) {
            Fate::Twice
        } else {
            Fate::Arrives
        }
    }
}

/// A queue pair's messages that have met a faulty network.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// All of them.
    sent: u64,
    /// Those that are still under way, in the order of their posts.
    late: Vec<Late>,
}

/// A message that others overtake.
#[derive(Debug)]
struct Late {
    wqe: Wqe,
    to: Option<(Address, u32)>,
    psn: u32,
    payload: Box<[u8]>,
    /// Messages that still go before it.
    overtakers: u32,
    /// Names the deadline at which it arrives anyway.
    token: u64,
}

impl Qp {
    /// Sends a message of an unreliable transport; `execute` checks the request and
    /// hands it over, if it is to arrive. `to` is where a datagram
    /// goes, and the key that it carries.
    pub(crate) fn send_unreliably(
        &self,
        parts: &mut SqParts<'_>,
        request: &Request<'_>,
        to: Option<(Address, u32)>,
        mut execute: impl FnMut(&mut SqParts<'_>, bool) -> Outcome,
    ) -> Outcome {
        let device = &self.pd.context.device;
        if let Some(outcome) = crate::sim::delay(device, parts) {
            return outcome;
        }
        if !device.network.is_faulty() {
            return execute(parts, true);
        }
        let transit = parts.requester.transit.get_or_insert_default();
        let fate = device.network.fate(self.num, transit.sent + 1);
        let psn = parts.requester.psn;
        let outcome = match fate {
            Fate::Arrives => execute(parts, true),
            Fate::Lost => {
                let outcome = execute(parts, false);
                parts.counters.lost += u64::from(outcome == Outcome::Dropped);
                outcome
            }
            Fate::Twice => {
                let first = execute(parts, true);
                // One that fails here fails both times, and changes nothing. A second copy
                // that would have to wait is lost.
                if !matches!(first, Outcome::Blocked(..)) {
                    execute(parts, true);
                }
                first
            }
            Fate::Late(overtakers) => match execute(parts, false) {
                Outcome::Dropped => {
                    self.keep_late(parts, *request.wqe, to, psn, overtakers);
                    Outcome::Done
                }
                failed => failed,
            },
        };
        // One that waits has not been sent: it will have the same fate when it is.
        if !matches!(outcome, Outcome::Blocked(..)) {
            parts.requester.transit.get_or_insert_default().sent += 1;
            parts.counters.faults += u64::from(fate != Fate::Arrives);
        }
        outcome
    }

    /// Keeps a message back whose memory has just been checked.
    fn keep_late(
        &self,
        parts: &mut SqParts<'_>,
        wqe: Wqe,
        to: Option<(Address, u32)>,
        psn: u32,
        overtakers: u32,
    ) {
        // SAFETY: the pieces have just been checked.
        let payload = unsafe { crate::memory::to_vec(parts.scratch.local.as_slice()) };
        let payload = payload.into_boxed_slice();
        let token = self.pd.context.device.arm(self.num, Some(LATE_NS));
        // The message that is kept counts itself when it has been sent.
        let overtakers = overtakers + 1;
        let late = Late { wqe, to, psn, payload, overtakers, token };
        parts.requester.transit.get_or_insert_default().late.push(late);
    }

    /// Executes what is pending, one request at a time, and after each lets those
    /// messages arrive that enough others have overtaken.
    pub(crate) fn run_faulty(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        loop {
            let before = sq.pending.len();
            self.run_queue(sq, after, true);
            if sq.pending.len() == before {
                return;
            }
            self.release_late(sq, after, |late| {
                late.overtakers -= 1;
                late.overtakers == 0
            });
            if only_one {
                return;
            }
        }
    }

    /// The time of the message is over whose deadline `token` names, if it is still
    /// under way.
    pub(crate) fn late_expired(self: &Arc<Qp>, sq: &mut Sq, token: u64, after: &mut After) {
        self.release_late(sq, after, |late| late.token == token);
    }

    /// Lets those late messages arrive that are `due`. The send queue's lock is
    /// held.
    fn release_late(
        self: &Arc<Qp>,
        sq: &mut Sq,
        after: &mut After,
        mut due: impl FnMut(&mut Late) -> bool,
    ) {
        let Some(transit) = &mut sq.requester.transit else { return };
        let arriving: Vec<Late> = transit.late.extract_if(.., |late| due(late)).collect();
        for mut late in arriving {
            let arrived = self.arrive(sq, &mut late, after);
            sq.counters.dropped += u64::from(!arrived);
        }
    }

    /// Hands a late message over. Whether somebody took it.
    fn arrive(&self, sq: &mut Sq, late: &mut Late, after: &mut After) -> bool {
        let mtu_shift = sq.requester.mtu_shift;
        if let Some((to, qkey)) = late.to.filter(|(to, _)| self.is_foreign(to)) {
            let len = late.payload.len();
            let payload = [Span { ptr: late.payload.as_mut_ptr(), len }];
            return self.post_abroad(&late.wqe, &payload, &to, qkey);
        }
        if sq.remote.is_some() && late.to.is_none() {
            let len = late.payload.len();
            let payload = [Span { ptr: late.payload.as_mut_ptr(), len }];
            return self.arrive_abroad(sq, &late.wqe, &payload);
        }
        let Some(peer) = self.resolve(sq, late.to.as_ref().map(|(to, _)| to)) else {
            return false;
        };
        let peer = Arc::clone(peer);
        let mut line = Line::new();
        let mut session = Session::open(&peer);
        let len = late.payload.len();
        let payload = [Span { ptr: late.payload.as_mut_ptr(), len }];
        let message = Message {
            wqe: &late.wqe,
            from_qpn: self.num,
            psn: late.psn,
            packets: packets(len as u64, mtu_shift),
            len: len as u64,
            local: &payload[..usize::from(len > 0)],
            on_demand: false,
        };
        let (room, writer) = (&mut sq.scratch.remote, &mut line.writer);
        let reply = match &late.to {
            None => session.deliver(&message, room, writer, &mut line.after),
            Some((to, qkey)) => {
                session.deliver_datagram(&message, to, *qkey, room, writer, &mut line.after)
            }
        };
        after.append(line.finish());
        reply == Reply::Done
    }
}
