//! A half of a connection in the making, and its queue pair.

use std::fmt;

use conn_core::handshake::Endpoint;
use verbs_safe::{
    CompletionQueue, ProtectionDomain, QueuePair, QueuePairConfig, RecvQueue, Recycle, RemoteAccess,
};

use crate::common::Common;
use crate::device::{Device, DeviceError};
use crate::doorbell;
use crate::error::ConnectError;
use crate::peer::Peer;
use crate::posting::{AtEnd, QpPosting};
use crate::sending::Sends;
use crate::setup::{HalfTerms, NewHalf, NewLink, NewSender, PeerHalf};
use crate::wire::{Tracker, Wire};

/// Access rights of a peer that writes, or probes with writes of no bytes.
pub(crate) const WRITES: RemoteAccess = RemoteAccess { read: false, write: true, atomic: false };

/// The requests that a send queue takes, each with a slot of so many bytes.
pub(crate) struct SendSlots {
    pub(crate) depth: u32,
    pub(crate) bytes: u64,
    /// Bytes of a request that are to go inline.
    pub(crate) inline: u32,
}

/// A queue pair's configuration, without a receive side: on the port of the settings, with all its
/// completions in one queue.
pub(crate) fn shape<'a>(
    common: &Common,
    cq: &'a CompletionQueue,
    access: RemoteAccess,
    SendSlots { depth, bytes, inline }: SendSlots,
) -> QueuePairConfig<'a> {
    QueuePairConfig {
        port: common.transport.port,
        access,
        max_send_wr: depth,
        send_slots: depth,
        send_slot_bytes: bytes as usize,
        max_inline: inline,
        ..QueuePairConfig::new(cq, cq)
    }
}

/// A queue pair in INIT, and the number that its packets begin with.
#[derive(Debug)]
pub(crate) struct NewPair<R: Recycle = ()> {
    pub(crate) queues: QueuePair<R>,
    pub(crate) psn: u32,
}

impl<R: Recycle> NewPair<R> {
    /// Makes one; `recycler` gets the slots that return to its receive queue.
    pub(crate) fn create(
        device: &Device,
        pd: &ProtectionDomain,
        shape: &QueuePairConfig<'_>,
        recycler: R,
    ) -> Result<NewPair<R>, DeviceError> {
        let queues = pd.create_qp(shape, recycler);
        let queues = queues.map_err(|e| device.error("create a queue pair", &e))?;
        Ok(NewPair { queues, psn: verbs_safe::random_psn() })
    }

    /// Posts the first `slots` of its own receive queue, if it has one.
    pub(crate) fn post_receives(&mut self, device: &Device, slots: u32) -> Result<(), DeviceError> {
        let Some(queue) = &mut self.queues.recv else { return Ok(()) };
        let all: Vec<u32> = (0..slots).collect();
        doorbell::post_receives(queue, &all).map_err(|e| device.error("post receives", &e))
    }

    /// Returns its endpoint, for the peer.
    pub(crate) fn endpoint(&self, recv_depth: u32, max_message: u32) -> Endpoint {
        let (qp_num, psn) = (self.queues.control.qp_num(), self.psn);
        Endpoint { qp_num, psn, recv_depth, max_message }
    }

    /// Connects it to the peer's `end`; `tracker` is the one of its send queue.
    pub(crate) fn connect(
        self,
        end: &Endpoint,
        wire: &Wire<'_>,
        tracker: Tracker,
        at_end: AtEnd,
    ) -> Result<(QpPosting, Option<RecvQueue<R>>), ConnectError> {
        let QueuePair { control, send, recv } = self.queues;
        let control = wire.connect(control, self.psn, end)?;
        Ok((QpPosting::new(control, send, tracker, at_end), recv))
    }
}

/// Makes a half from the peer's terms; if it is a link, the receiver `R` takes it.
type Connect<T, D, R> =
    dyn FnOnce(&PeerHalf<T>, &Wire<'_>, &mut R) -> Result<D, ConnectError> + Send;

/// A half in the making: its endpoint and terms for the peer, and the function that connects it.
pub struct HalfDraft<T, D, R = ()> {
    endpoint: Endpoint,
    terms: T,
    connect: Box<Connect<T, D, R>>,
}

impl<T, D, R> HalfDraft<T, D, R> {
    pub(crate) fn new(
        endpoint: Endpoint,
        terms: T,
        connect: impl FnOnce(&PeerHalf<T>, &Wire<'_>, &mut R) -> Result<D, ConnectError>
        + Send
        + 'static,
    ) -> HalfDraft<T, D, R> {
        HalfDraft { endpoint, terms, connect: Box::new(connect) }
    }
}

impl<T, D, R> fmt::Debug for HalfDraft<T, D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HalfDraft").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl<T: HalfTerms, D, R> NewHalf for HalfDraft<T, D, R> {
    type Terms = T;
    type Done = D;

    fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    fn terms(&self) -> T {
        self.terms
    }
}

impl<T: HalfTerms, S: Sends> NewSender for HalfDraft<T, S> {
    fn connect(self, peer: &PeerHalf<T>, wire: &Wire<'_>) -> Result<S, ConnectError> {
        (self.connect)(peer, wire, &mut ())
    }

    fn abandon(mut sender: S) {
        sender.half_mut().posting.close();
    }
}

/// A receiver, which links join.
pub(crate) trait LinkHost {
    /// Type of its links.
    type Link;

    /// Gives a link a place, and its peer a number.
    fn add(&mut self, link: Self::Link) -> Peer;

    /// Ends a link that has got no place. Here its peer can have used the link's own memory only: a
    /// receiver whose links share memory overrides this.
    fn forget(&mut self, link: Self::Link) {
        drop(link);
    }
}

impl<T: HalfTerms, L, R: LinkHost<Link = L>> NewLink for HalfDraft<T, L, R> {
    type Receiver = R;

    fn connect(
        self,
        peer: &PeerHalf<T>,
        wire: &Wire<'_>,
        receiver: &mut R,
    ) -> Result<L, ConnectError> {
        (self.connect)(peer, wire, receiver)
    }

    fn join(link: L, receiver: &mut R) -> Peer {
        receiver.add(link)
    }

    fn abandon(link: L, receiver: &mut R) {
        receiver.forget(link);
    }
}
