//! `--transport ud --reliable`: messages of any length over datagrams, each delivered once and in
//! order.
//!
//! The protocol is that of [`datagram`](rdma_conn::conn_core::datagram): the sender cuts messages
//! into datagrams and repeats the lost ones; the receiver puts them together and acknowledges them.
//! In a ping-pong each end does both, with one message under way.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use base::signals;
use rdma_conn::conn_core::datagram::{
    ACK_LEN, Fragment, FragmentReceiver, FragmentSender, SenderConfig, is_ack,
};
use rdma_conn::verbs_safe::SendOp;

use super::control::{RawChannel, ReceivedCounts};
use super::end::JoinedEnd;
use super::follow::done;
use super::led::LedResult;
use super::plan::RawPlan;
use super::queues::{IdleWatch, SendQueues};
use crate::measure::{EndOfLoad, Payload};
use crate::scratch::scratch;

/// The messages to one peer.
struct ReliableSender {
    fragments: FragmentSender<Vec<u8>>,
    out: Payload,
    message: Vec<u8>,
    /// Bytes of `message` that are cut; `None` before the first message and between two.
    cut: Option<usize>,
    /// Messages that have begun.
    sent: u64,
    is_done: bool,
}

impl ReliableSender {
    fn new(plan: &RawPlan, rank: usize) -> Result<ReliableSender> {
        let datagram = plan.datagram()?;
        let config = SenderConfig { window: plan.unacked, ..SenderConfig::default() };
        let storage = scratch(plan.unacked * datagram)?;
        let mut out = Payload::new(plan.size as usize, rank as u64);
        if plan.verify {
            out.prepare();
        }
        Ok(ReliableSender {
            fragments: FragmentSender::new(config, datagram as usize, storage)?,
            out,
            message: scratch(plan.size)?,
            cut: None,
            sent: 0,
            is_done: false,
        })
    }

    /// Cuts messages until the window is full, or `limit` messages are cut. If time is `over`, the
    /// one that has begun is the last.
    fn cut(&mut self, verify: bool, limit: u64, over: bool) {
        while !self.is_done && self.cut_begun() {
            if over || self.sent == limit {
                self.is_done = true;
            } else {
                self.begin(verify);
            }
        }
    }

    /// Begins the next message; the one before is cut.
    fn begin(&mut self, verify: bool) {
        if verify {
            self.out.fill(&mut self.message);
        }
        self.cut = Some(0);
        self.sent += 1;
    }

    /// Cuts the message that has begun until the window is full; reports whether all of it is cut.
    fn cut_begun(&mut self) -> bool {
        while let Some(offset) = self.cut {
            let Some(next) = self.fragments.cut(&self.message, offset) else { return false };
            self.cut = Some(next).filter(|next| *next < self.message.len());
        }
        true
    }

    /// Posts the datagrams that are due now, as far as the send queue has room, and returns their
    /// number.
    fn post(
        &mut self,
        rank: usize,
        batch: u32,
        now_ns: u64,
        outbox: &mut SendQueues,
    ) -> Result<u64> {
        let (fragments, mut posted) = (&mut self.fragments, 0);
        while outbox.room(rank) > 0
            && outbox.stage_built(rank, |slot| {
                let len = fragments.transmit(now_ns, slot)? as u32;
                Some(SendOp::Send { len })
            })?
        {
            posted += 1;
            if outbox.staged(rank) >= batch {
                outbox.post(rank)?;
            }
        }
        if outbox.staged(rank) > 0 {
            outbox.post(rank)?;
        }
        Ok(posted)
    }
}

/// Sends messages to each peer until `until`, and waits until all are acknowledged.
pub(super) fn send(
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    until: EndOfLoad,
    spin: bool,
) -> Result<LedResult> {
    let (limit, time) = until.limits();
    let lanes = (0..plan.qps as usize).map(|rank| ReliableSender::new(plan, rank));
    let mut lanes = lanes.collect::<Result<Vec<_>>>()?;
    let JoinedEnd { outbox, inbox, sources, .. } = end;
    let inbox = inbox.as_mut().context("no receives for acknowledgements")?;
    let (start, mut watch) = (host::time::now(), IdleWatch::new(spin));
    let elapsed = loop {
        let over = host::time::since(start) >= time || signals::is_interrupted();
        lanes.iter_mut().for_each(|lane| lane.cut(plan.verify, limit, over));
        // Read the time after cutting, which takes long and is no part of a round trip.
        let (elapsed, mut progress) = (host::time::since(start), 0);
        let now_ns = elapsed.as_nanos() as u64;
        for (rank, lane) in lanes.iter_mut().enumerate() {
            progress += lane.post(rank, plan.batch, now_ns, outbox)?;
        }
        progress += inbox.poll(|arrival| {
            // Any queue pair that knows the Q_Key may send here: datagrams of others are ignored.
            let is_peer = sources.get(arrival.queue) == Some(&arrival.qp_num);
            match lanes.get_mut(arrival.queue).filter(|_| is_peer) {
                Some(lane) => {
                    let now_ns = host::time::since(start).as_nanos() as u64;
                    Ok(lane.fragments.on_ack(arrival.bytes, now_ns).map(drop)?)
                }
                None => Ok(()),
            }
        })? as u64;
        inbox.repost()?;
        outbox.tidy()?;
        if lanes.iter().all(|lane| lane.is_done && lane.fragments.is_idle()) {
            break elapsed;
        }
        if progress > 0 {
            watch.progress();
        } else {
            lanes.iter().try_for_each(|lane| lane.fragments.check_peer(now_ns))?;
            watch.idle_with(outbox, wire)?;
        }
    };
    Ok(LedResult {
        sent: lanes.iter().map(|lane| lane.sent).collect(),
        resent: Some(lanes.iter().map(|lane| lane.fragments.repeated()).sum()),
        ..LedResult::one_way(elapsed)
    })
}

/// The messages from one peer.
struct ReliableReceiver {
    fragments: FragmentReceiver<Vec<u8>>,
    expected: Payload,
    message: Vec<u8>,
    messages: u64,
    /// Something has arrived that is still to be acknowledged.
    is_touched: bool,
    /// Something has arrived since the loop last looked whether to acknowledge.
    is_busy: bool,
}

impl ReliableReceiver {
    fn new(plan: &RawPlan, rank: usize) -> Result<ReliableReceiver> {
        let datagram = plan.datagram()?;
        let storage = scratch(plan.unacked * datagram)?;
        Ok(ReliableReceiver {
            fragments: FragmentReceiver::new(plan.unacked, datagram as usize, plan.size, storage)?,
            expected: Payload::new(plan.size as usize, rank as u64),
            message: scratch(plan.size)?,
            messages: 0,
            is_touched: false,
            is_busy: false,
        })
    }

    fn take(&mut self, verify: bool, datagram: &[u8]) -> Result<()> {
        let ReliableReceiver { fragments, expected, message, messages, .. } = self;
        let mut join = |fragment: Fragment<'_>| {
            message[fragment.offset as usize..][..fragment.bytes.len()]
                .copy_from_slice(fragment.bytes);
            if !fragment.is_last() {
                return Ok(());
            }
            *messages += 1;
            let message = &message[..fragment.message_bytes as usize];
            if verify { expected.check(message) } else { Ok(()) }
        };
        fragments.arrive(datagram)?.map_or(Ok(()), &mut join)?;
        while let Some(fragment) = fragments.take()? {
            join(fragment)?;
        }
        Ok(())
    }

    /// Acknowledges what has arrived, and reports that. While datagrams arrive, it waits for more
    /// that share an acknowledgement, unless one is due.
    fn settle(&mut self, rank: usize, outbox: &mut SendQueues) -> Result<bool> {
        let is_busy = std::mem::replace(&mut self.is_busy, false);
        if !self.is_touched || is_busy && !self.fragments.ack_is_due() {
            return Ok(false);
        }
        self.is_touched = false;
        let ack = self.fragments.ack();
        outbox.stage(rank, SendOp::Send { len: ACK_LEN as u32 }, false, |slot| {
            slot[..ACK_LEN].copy_from_slice(&ack);
        })?;
        outbox.post(rank)?;
        Ok(true)
    }
}

/// Receives until all messages that were sent have arrived.
pub(super) fn receive(
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    spin: bool,
) -> Result<ReceivedCounts> {
    let streams = (0..plan.qps as usize).map(|rank| ReliableReceiver::new(plan, rank));
    let mut streams = streams.collect::<Result<Vec<_>>>()?;
    let JoinedEnd { outbox, inbox, sources, .. } = end;
    let ranks: HashMap<u32, usize> = sources.iter().copied().zip(0..).collect();
    let inbox = inbox.as_mut().context("no receives")?;
    let (mut watch, mut touched, mut total) = (IdleWatch::new(spin), Vec::new(), None);
    loop {
        wire.end_at_signal()?;
        let count = inbox.poll(|arrival| {
            // Any queue pair that knows the Q_Key may send here: datagrams of others are ignored.
            let Some(&rank) = ranks.get(&arrival.qp_num) else { return Ok(()) };
            let stream = &mut streams[rank];
            if !std::mem::replace(&mut stream.is_touched, true) {
                touched.push(rank);
            }
            stream.is_busy = true;
            stream.take(plan.verify, arrival.bytes)
        })?;
        inbox.repost()?;
        let mut acknowledged = Ok(());
        touched.retain(|&rank| {
            let stream = &mut streams[rank];
            if acknowledged.is_ok() {
                acknowledged = stream.settle(rank, outbox).map(drop);
            }
            stream.is_touched
        });
        acknowledged?;
        outbox.tidy()?;
        if count > 0 {
            watch.progress();
        } else if let Some(note) = watch.idle_with(outbox, wire)? {
            total = Some(done(note)?.messages()?);
        }
        let messages: u64 = streams.iter().map(|stream| stream.messages).sum();
        if total.is_some_and(|total| messages >= total) {
            let repeated = streams.iter().map(|stream| stream.fragments.repeated()).sum();
            return Ok(ReceivedCounts { messages, reordered: 0, repeated });
        }
    }
}

/// Both directions of a ping-pong with one peer.
pub(super) struct ReliableLink {
    sender: ReliableSender,
    receiver: ReliableReceiver,
}

impl ReliableLink {
    /// One for each queue pair of the leader.
    pub(super) fn all(plan: &RawPlan) -> Result<Vec<ReliableLink>> {
        let new = |rank| {
            let sender = ReliableSender::new(plan, rank)?;
            Ok(ReliableLink { sender, receiver: ReliableReceiver::new(plan, rank)? })
        };
        (0..plan.qps as usize).map(new).collect()
    }

    /// Begins the next message; the one before was answered.
    pub(super) fn begin(&mut self, plan: &RawPlan) {
        self.sender.begin(plan.verify);
    }

    /// Begins the answer to the message that has arrived, with its bytes.
    fn answer(&mut self, plan: &RawPlan) -> Result<()> {
        let ReliableLink { sender, receiver } = self;
        ensure!(sender.cut.is_none(), "a message before the answer to the one before");
        if plan.verify {
            sender.message.copy_from_slice(&receiver.message);
        }
        sender.begin(false);
        Ok(())
    }

    /// Takes a datagram of the peer; reports whether it completes a message.
    pub(super) fn take(&mut self, plan: &RawPlan, datagram: &[u8], now_ns: u64) -> Result<bool> {
        if is_ack(datagram) {
            self.sender.fragments.on_ack(datagram, now_ns)?;
            return Ok(false);
        }
        let receiver = &mut self.receiver;
        let before = receiver.messages;
        (receiver.is_touched, receiver.is_busy) = (true, true);
        receiver.take(plan.verify, datagram)?;
        ensure!(receiver.messages <= before + 1, "several messages are under way");
        Ok(receiver.messages > before)
    }

    /// Posts the datagrams that are due to each peer, and behind them acknowledgements; returns
    /// their number.
    pub(super) fn drive(
        links: &mut [ReliableLink],
        plan: &RawPlan,
        now_ns: u64,
        outbox: &mut SendQueues,
    ) -> Result<u64> {
        let mut posted = 0;
        for (rank, ReliableLink { sender, receiver }) in links.iter_mut().enumerate() {
            sender.cut_begun();
            posted += sender.post(rank, plan.batch, now_ns, outbox)?;
            posted += u64::from(receiver.settle(rank, outbox)?);
        }
        Ok(posted)
    }

    /// Checks that no peer is silent.
    pub(super) fn check_peers(links: &[ReliableLink], now_ns: u64) -> Result<()> {
        Ok(links.iter().try_for_each(|link| link.sender.fragments.check_peer(now_ns))?)
    }

    /// Reports whether the peer has all messages.
    pub(super) fn is_idle(&self) -> bool {
        self.sender.cut.is_none() && self.sender.fragments.is_idle()
    }

    /// Datagrams that were sent again.
    pub(super) fn repeated(&self) -> u64 {
        self.sender.fragments.repeated()
    }
}

/// Answers each message with one of its own until the leader has all; returns how many arrived.
pub(super) fn answer(
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    spin: bool,
) -> Result<u64> {
    let mut links = ReliableLink::all(plan)?;
    let JoinedEnd { outbox, inbox, sources, .. } = end;
    let ranks: HashMap<u32, usize> = sources.iter().copied().zip(0..).collect();
    let inbox = inbox.as_mut().context("no receives")?;
    let (start, mut watch) = (host::time::now(), IdleWatch::new(spin));
    loop {
        wire.end_at_signal()?;
        let now_ns = host::time::since(start).as_nanos() as u64;
        let arrived = inbox.poll(|arrival| {
            // Any queue pair that knows the Q_Key may send here: datagrams of others are ignored.
            let Some(&rank) = ranks.get(&arrival.qp_num) else { return Ok(()) };
            match links[rank].take(plan, arrival.bytes, now_ns)? {
                true => links[rank].answer(plan),
                false => Ok(()),
            }
        })?;
        inbox.repost()?;
        let posted = ReliableLink::drive(&mut links, plan, now_ns, outbox)?;
        outbox.tidy()?;
        if arrived as u64 + posted > 0 {
            watch.progress();
            continue;
        }
        ReliableLink::check_peers(&links, now_ns)?;
        if let Some(note) = watch.idle_with(outbox, wire)? {
            done(note)?;
            return Ok(links.iter().map(|link| link.receiver.messages).sum());
        }
    }
}
