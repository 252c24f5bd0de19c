//! State of queues that their locks guard, and that refers to no other object.

use crate::memory::mws::Ending;
use crate::memory::span::SpanBuf;
use crate::peers::process::outside::Insiders;
use crate::peers::wire::state::WireRq;
use crate::queues::recv_ring::Consumer;

/// State that producers share.
#[derive(Debug, Default)]
pub(crate) struct Producer {
    pub(crate) tail: u32,
    /// `published <= tail`; equal whenever the lock is free.
    pub(crate) published: u32,
    pub(crate) head_seen: u32,
    pub(crate) armed: Armed,
    pub(crate) overrun: bool,
    /// A solicited completion, or a failed one, is among the unpublished.
    pub(crate) notable: bool,
    /// Events may be held back ([`Cq::moderation`](super::Cq::moderation)).
    pub(crate) is_moderated: bool,
}

/// Completions that the next event waits for.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Armed {
    #[default]
    No,
    /// For nothing, but completions get a time, or are traced, when they become visible.
    Watched,
    Solicited,
    Any,
}

impl Armed {
    /// The state of a queue on which nothing is waited for.
    pub(crate) fn none(is_watched: bool) -> Armed {
        if is_watched { Armed::Watched } else { Armed::No }
    }
}

/// Moderation of the events of a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    /// Completions for which an event comes; 0 if none does for their number.
    pub(crate) count: u16,
    /// The longest time that it is held back; 0 if that has no end.
    pub(crate) period_us: u16,
    /// The event that is held back: the index of the first completion that it is for, and the name
    /// of its deadline, if it has one.
    pub(crate) held: Option<(u32, Option<u64>)>,
}

/// State that the queue pairs that take requests share.
#[derive(Debug, Default)]
pub(crate) struct Taker {
    pub(crate) consumer: Consumer,
    /// An event fires when fewer requests than this are left; 0 is disarmed.
    pub(crate) limit: u32,
}

/// The responder's side of a queue pair, under its lock.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) dest_qpn: u32,
    /// The peer's GID is this device's.
    pub(crate) peer_is_here: bool,
    /// The PSN expected next.
    pub(crate) psn: u32,
    pub(crate) access: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// The Q_Key that datagrams have to carry.
    pub(crate) qkey: u32,
    /// Changes whenever the queue pair is connected anew.
    pub(crate) generation: u32,
    /// The number of the next message from another process.
    pub(crate) number: u32,
    /// The receive queue's consuming side (unused with a shared one).
    pub(crate) consumer: Consumer,
    /// Present if the other end is reached over UDP.
    pub(crate) wire: Option<Box<WireRq>>,
}

/// Accesses under the key of a window whose binding has ended.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) ending: Ending,
    pub(crate) insiders: Option<Insiders>,
    /// Number of times that they were looked at.
    pub(crate) looks: u32,
}

/// Room where the pieces of a request's buffers are put together. It stays in one place: half a
/// kilobyte is too much to move for a message of 16 bytes.
pub(crate) struct Scratch {
    /// The requester's.
    pub(crate) local: SpanBuf,
    /// Those of the receive request that takes it.
    pub(crate) remote: SpanBuf,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        // SAFETY: a send queue owns it, and hands it out under its lock.
        let [local, remote] = [(); 2].map(|()| unsafe { SpanBuf::new() });
        Scratch { local, remote }
    }
}
