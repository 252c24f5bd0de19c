//! Making the queue pairs of an end, and joining them to the other end's.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::frame::Hurried;
use rdma_conn::device::Device;
use rdma_conn::raw::{Incoming, Link, Offer, RawEnd, RawPeer};
use rdma_conn::verbs_safe::{
    self, CompletionQueue, CqConfig, Endpoint, Mapping, QueuePair, QueuePairConfig, RecvPoster,
    RecvSide, RemoteAccess, RemoteSpan, SharedReceiveQueue, SharedRegion, SharedRegionConfig,
    Transport,
};

use super::control::RawChannel;
use super::memory::MessagePlaces;
use super::plan::RawPlan;
use super::queues::{MessageRoute, RecvQueues, SendQueues};
use crate::cli::{RawOp, RawTransport};

/// Device and settings of this end alone, which are no part of the plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Local<'a> {
    pub(super) device: &'a Device,
    pub(super) gid_index: Option<u32>,
    /// True if the end's thread polls without giving way to others.
    pub(super) spin: bool,
    /// True if a thread for each queue pair polls the memory that WRITEs arrive in.
    pub(super) polling_threads: bool,
}

/// All queue pairs of an end, joined.
#[derive(Debug)]
pub(super) struct JoinedEnd {
    pub(super) outbox: SendQueues,
    pub(super) inbox: Option<RecvQueues>,
    /// Memory of this end that the peer writes or reads.
    pub(super) memory: Option<SharedRegion>,
    /// Memory of the peer that this end writes or reads.
    pub(super) remote: Option<RemotePlaces>,
    /// By rank, the number of the queue pair that shows a message to be of that rank: the one
    /// that it arrived at or, for a datagram, the one that sent it.
    pub(super) sources: Vec<u32>,
}

/// The peer's memory, cut into places.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemotePlaces {
    base: RemoteSpan,
    places: MessagePlaces,
}

impl RemotePlaces {
    fn new(plan: &RawPlan, base: RemoteSpan) -> Result<RemotePlaces> {
        let needed = plan.memory_bytes();
        ensure!(base.len >= needed, "the peer offers {} bytes of {needed}", base.len);
        Ok(RemotePlaces { base, places: MessagePlaces::new(plan) })
    }

    /// Returns the place of message `number` of a queue pair.
    #[inline]
    pub(super) fn place(&self, rank: usize, number: u64) -> RemoteSpan {
        let addr = self.base.addr + self.places.at(rank, number) as u64;
        RemoteSpan { addr, len: self.places.bytes(), ..self.base }
    }
}

/// Queue pairs in INIT, with their receives posted.
struct EndDraft<'a> {
    plan: &'a RawPlan,
    local: Local<'a>,
    leads: bool,
    ends: Vec<RawEnd>,
    posters: Vec<RecvPoster<()>>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    memory: Option<SharedRegion>,
}

impl<'a> EndDraft<'a> {
    fn new(local: Local<'a>, plan: &'a RawPlan, leads: bool) -> Result<EndDraft<'a>> {
        let depth = if plan.sends_at(leads) { plan.depth() } else { 1 };
        let receives = plan.receives_of(leads);
        let own = plan.own_qps(leads);
        let queues = if plan.srq { plan.classes() } else { own };
        let cq = |entries: u64| {
            let entries = u32::try_from(entries).context("too many completions for one queue")?;
            Ok::<_, anyhow::Error>(local.device.context().create_cq(CqConfig::new(entries.max(1)))?)
        };
        let mut draft = EndDraft {
            plan,
            local,
            leads,
            ends: Vec::new(),
            posters: Vec::new(),
            send_cq: cq(u64::from(depth) * u64::from(own))?,
            recv_cq: cq(u64::from(receives) * u64::from(queues))?,
            memory: memory(local.device, plan, leads)?,
        };
        if plan.srq && receives > 0 {
            draft.share(receives)?;
        }
        for rank in 0..own as usize {
            let end = draft.queue_pair(rank, leads, depth, receives)?;
            draft.ends.push(end);
        }
        Ok(draft)
    }

    /// A shared receive queue for each class, full of receives.
    fn share(&mut self, receives: u32) -> Result<()> {
        for class in 0..self.plan.classes() as usize {
            let bytes = self.plan.recv_slot_bytes(class);
            let (mut poster, _) = self.local.device.pd().create_shared_pool(receives, bytes, ())?;
            poster.post(&(0..receives).collect::<Vec<_>>())?;
            self.posters.push(poster);
        }
        Ok(())
    }

    fn queue_pair(&self, rank: usize, leads: bool, depth: u32, receives: u32) -> Result<RawEnd> {
        let plan = self.plan;
        let (class, size) = (plan.class_of(rank), plan.datagram.unwrap_or(plan.size_of(rank)));
        let shared: Option<&SharedReceiveQueue> = self.posters.get(class).and_then(|p| p.shared());
        let recv = match (shared, receives) {
            (_, 0) => RecvSide::None,
            (Some(srq), _) => RecvSide::Shared(srq),
            (None, slots) => RecvSide::Own { slots, slot_bytes: plan.recv_slot_bytes(class) },
        };
        let sends = plan.sends_at(leads);
        let config = QueuePairConfig {
            transport: match plan.transport {
                RawTransport::Rc => Transport::Rc,
                RawTransport::Uc => Transport::Uc,
                RawTransport::Ud => Transport::Ud { qkey: verbs_safe::random_psn() },
            },
            access: access(plan.op),
            max_send_wr: depth,
            send_slots: if sends { depth } else { 0 },
            send_slot_bytes: size as usize,
            max_inline: if sends { plan.max_inline(size) } else { 0 },
            recv,
            ..QueuePairConfig::new(&self.send_cq, &self.recv_cq)
        };
        let link = Link { gid_index: self.local.gid_index, ..Link::default() };
        let mut end = RawEnd::new(self.local.device, &config, link)?;
        if let Some(limit) = end.queues.send.max_datagram() {
            let device = self.local.device.name();
            ensure!(size as usize <= limit, "a datagram of {device} has {limit} bytes at most");
        }
        if let Some(queue) = &mut end.queues.recv {
            queue.post(&(0..receives).collect::<Vec<_>>())?;
        }
        Ok(end)
    }

    fn span(&self) -> Result<Option<RemoteSpan>> {
        let whole = |memory: &SharedRegion| memory.remote(0, memory.len());
        Ok(self.memory.as_ref().map(whole).transpose()?)
    }

    /// The end, joined to these peers, by rank.
    fn finish(self, peers: &[RawPeer]) -> Result<JoinedEnd> {
        let EndDraft { plan, local, leads, ends, posters, send_cq, recv_cq, memory } = self;
        let remote = peers.first().and_then(|peer| peer.memory);
        let remote = remote.map(|base| RemotePlaces::new(plan, base)).transpose()?;
        let datagrams = plan.transport == RawTransport::Ud;
        let own: Vec<u32> = ends.iter().map(|end| end.queues.control.qp_num()).collect();
        let theirs = || peers.iter().map(|peer| peer.endpoint.qp_num).collect();
        let route = |(rank, peer): (usize, &RawPeer)| MessageRoute {
            queue: rank.min(own.len() - 1),
            to: peer.id,
        };
        let routes = peers.iter().enumerate().map(route).collect();
        let sources = if datagrams { theirs() } else { own.clone() };
        let (mut sending, mut receiving) = (Vec::new(), posters);
        for end in ends {
            let QueuePair { send, recv, .. } = end.queues;
            sending.push(send);
            receiving.extend(recv);
        }
        let RawPlan { signal_every, poll_batch, .. } = *plan;
        let repost_batch = plan.repost_batch.min(plan.receives_of(leads).max(1));
        let inbox = |queues| {
            RecvQueues::new(recv_cq, queues, poll_batch, repost_batch, datagrams, local.spin)
        };
        Ok(JoinedEnd {
            outbox: SendQueues::new(send_cq, sending, routes, signal_every, poll_batch, local.spin)
                .polled(local.device.advances_when_polled()),
            inbox: (!receiving.is_empty()).then(|| inbox(receiving)),
            memory,
            remote,
            sources,
        })
    }
}

/// Returns the access to this end's memory that the peer needs.
fn access(op: RawOp) -> RemoteAccess {
    match op {
        RawOp::Send => RemoteAccess::NONE,
        RawOp::Write | RawOp::WriteImm => RemoteAccess { write: true, ..RemoteAccess::NONE },
        RawOp::Read => RemoteAccess { read: true, ..RemoteAccess::NONE },
    }
}

fn memory(device: &Device, plan: &RawPlan, leads: bool) -> Result<Option<SharedRegion>> {
    if !plan.has_memory(leads) {
        return Ok(None);
    }
    let bytes = usize::try_from(plan.memory_bytes())?;
    let config = SharedRegionConfig { access: access(plan.op), on_demand: false };
    Ok(Some(device.pd().register_shared(Mapping::new(bytes)?, config)?))
}

/// The connecting end: tells the plan, and joins the queue pairs one after the other.
pub(super) fn connect(
    local: Local<'_>,
    plan: &RawPlan,
    wire: &mut RawChannel,
) -> Result<JoinedEnd> {
    connect_with(local, plan, plan, wire)
}

/// As [`connect`], but sends `told` to the other end as the plan.
pub(super) fn connect_with(
    local: Local<'_>,
    plan: &RawPlan,
    told: &RawPlan,
    wire: &mut RawChannel,
) -> Result<JoinedEnd> {
    let mut draft = EndDraft::new(local, plan, true)?;
    let (memory, told, mut peers) = (draft.span()?, told.encode()?, Vec::new());
    for (rank, end) in draft.ends.iter_mut().enumerate() {
        let user: &[u8] = if rank == 0 { &told } else { b"" };
        peers.push(end.connect(wire, &Offer { memory, user })?);
    }
    draft.finish(&peers)
}

/// One connected queue pair that `exchange` joins to its peer's, by whatever set-up that
/// has; it answers with the peer's address.
pub(super) fn join(
    local: Local<'_>,
    plan: &RawPlan,
    exchange: impl FnOnce(&mut RawEnd) -> Result<Endpoint>,
) -> Result<JoinedEnd> {
    let mut draft = EndDraft::new(local, plan, true)?;
    let endpoint = exchange(draft.ends.first_mut().context("no queue pair")?)?;
    let (recv_slots, recv_slot_bytes) = (plan.recv_depth, plan.size);
    let (memory, id, user) = (None, None, Vec::new());
    draft.finish(&[RawPeer { endpoint, memory, recv_slots, recv_slot_bytes, id, user }])
}

/// Failure of the following end: with one peer only, or of the whole session.
pub(super) enum FollowError {
    /// The peer was refused: the next one may be served.
    Stranger(anyhow::Error),
    /// The session cannot continue.
    Failed(anyhow::Error),
}

impl From<FollowError> for anyhow::Error {
    fn from(refused: FollowError) -> anyhow::Error {
        match refused {
            FollowError::Stranger(e) | FollowError::Failed(e) => e,
        }
    }
}

/// Longest time for joining all queue pairs after the first one: no other peer is served
/// meanwhile.
const REST_LIMIT: Duration = Duration::from_secs(20);

/// The accepting end. `judge` may refuse the plan that the peer tells; `prepare` sees
/// the memory that the peer reaches before the peer does.
///
/// # Errors
/// Each error concerns this peer only, and was sent to it, if it still listens.
pub(super) fn accept(
    local: Local<'_>,
    wire: &mut RawChannel,
    judge: impl FnOnce(&RawPlan) -> Result<()>,
    prepare: impl FnOnce(&RawPlan, &SharedRegion) -> Result<()>,
) -> Result<(RawPlan, JoinedEnd)> {
    let first = Incoming::greet(wire)?;
    let decoded = RawPlan::decode(&first.peer().user);
    let judged = decoded.and_then(|plan| judge(&plan).map(|()| plan));
    let plan = match judged {
        Ok(plan) => plan,
        Err(e) => return Err(turn_away(first, e)),
    };
    let drafted = EndDraft::new(local, &plan, false).and_then(|draft| {
        draft.memory.as_ref().map_or(Ok(()), |memory| prepare(&plan, memory))?;
        Ok((draft.span()?, draft))
    });
    let (memory, mut draft) = match drafted {
        Ok(drafted) => drafted,
        Err(e) => return Err(turn_away(first, e)),
    };
    let offer = Offer { memory, user: b"" };
    let mut peers = vec![first.accept(&mut draft.ends[0], &offer)?];
    let mut rest = Hurried::new(wire, REST_LIMIT);
    for rank in 1..plan.qps as usize {
        // One queue pair for datagrams is joined to all of them.
        let at = rank.min(draft.ends.len() - 1);
        peers.push(Incoming::greet(&mut rest)?.accept(&mut draft.ends[at], &offer)?);
    }
    let end = draft.finish(&peers).inspect_err(|e| wire.give_up(e))?;
    Ok((plan, end))
}

/// Tells a peer why it is refused.
fn turn_away(peer: Incoming<'_, RawChannel>, why: anyhow::Error) -> anyhow::Error {
    peer.refuse(&format!("{why:#}"));
    why
}
