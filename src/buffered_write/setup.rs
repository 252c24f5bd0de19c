//! Making the halves of a connection.

use conn_core::buffered_write::inline_record::LINE_BYTES;
use conn_core::buffered_write::{MAX_CAPACITY, WriteReceiver, WriteSender};
use conn_core::handshake::Endpoint;
use conn_core::ring::Geometry;
use conn_core::ring::offer::{self, HalfOffer, Place, RingOffer};
use verbs_safe::{
    CompletionChannel, CompletionQueue, ProtectionDomain, QueuePair, QueuePairConfig, RecvSide,
    RemoteAccess, SharedRegion,
};

use super::Config;
use super::config::Tail;
use super::link::{Link, LinkParts, UPDATE_BYTES};
use super::receiver::{Policy, Receiver};
use super::sender::{Sender, SenderParts};
use crate::device::Device;
use crate::doorbell;
use crate::error::{ConfigError, ConnectError};
use crate::half::driven::Sender as _;
use crate::peer::Peer;
use crate::qp::Inline;
use crate::ring::memory::{ControlBlock, place, register_ring};
use crate::setup::{self, NewHalf, PeerHalf, unfit};
use crate::wire::{Wire, completion_queue, entries_for, tracker};

/// Send-queue slots of a sender that data cannot take: probes.
const SENDER_CONTROL: u32 = 2;
/// Send-queue slots of a receiver: heads that are on their way, and probes.
const LINK_QUEUE: u32 = 16;
const LINK_CONTROL: u32 = 2;
/// Bytes of a zero-copy write in one request.
const STRAIGHT: u32 = 32 << 10;

/// Access rights of a peer: both the ring and the control blocks are written to.
const WRITES: RemoteAccess = RemoteAccess { read: false, write: true, atomic: false };

/// A sending half whose queue pair waits for its peer.
#[derive(Debug)]
pub struct NewSender {
    pd: ProtectionDomain,
    pair: QueuePair<()>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    block: ControlBlock,
    config: Config,
    psn: u32,
    /// Bytes that go out of a slot.
    inline: u32,
}

impl NewSender {
    pub(super) fn create(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let pd = device.new_domain()?;
        let depth = config.send_queue + SENDER_CONTROL;
        let (cq, channel) = completion_queue(device, depth, config.common.wait)?;
        let (inline, zcopy) = inline_bytes(device, config);
        let pair = pd.create_qp(
            &QueuePairConfig {
                port: config.common.transport.port,
                access: WRITES,
                max_send_wr: depth,
                send_slots: config.send_queue,
                send_slot_bytes: inline.max(LINE_BYTES as u32) as usize,
                max_inline: inline.max(zcopy),
                max_parts: if zcopy > 0 { 2 } else { 1 },
                ..QueuePairConfig::new(&cq, &cq)
            },
            (),
        );
        let pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        let block = ControlBlock::new(device, &pd, WRITES)?;
        let psn = verbs_safe::random_psn();
        Ok(NewSender { pd, pair, cq, channel, block, config: *config, psn, inline })
    }

    /// The ring and the control block that the peer lets us write to.
    fn fitting(&self, peer: &PeerHalf<HalfOffer>) -> Result<(RingOffer, Place), ConnectError> {
        let HalfOffer { control: Some(control), ring: Some(ring) } = peer.terms else {
            return Err(unfit("it has no ring to write to"));
        };
        let (bytes, most) = (ring.geometry.capacity(), self.config.max_peer_ring_bytes);
        if bytes > most.min(MAX_CAPACITY) {
            return Err(unfit(format!("its ring has {bytes} bytes, here are {most} allowed")));
        }
        if ring.tail == offer::Tail::Immediate && peer.endpoint.recv_depth == 0 {
            return Err(unfit("it wants immediates and has no receive for them"));
        }
        Ok((ring, control))
    }
}

impl NewHalf for NewSender {
    type Terms = HalfOffer;
    type Done = Sender;

    fn endpoint(&self) -> Endpoint {
        let (qp_num, psn) = (self.pair.control.qp_num(), self.psn);
        Endpoint { qp_num, psn, recv_depth: 0, max_message: 0 }
    }

    fn terms(&self) -> HalfOffer {
        HalfOffer { control: Some(self.block.place()), ring: None }
    }
}

impl setup::NewSender for NewSender {
    fn connect(self, peer: &PeerHalf<HalfOffer>, wire: &Wire<'_>) -> Result<Sender, ConnectError> {
        let (ring, peer_block) = self.fitting(peer)?;
        let staging = register_ring(wire.device, &self.pd, &ring.geometry, RemoteAccess::NONE)?;
        let QueuePair { control, send: mut queue, .. } = self.pair;
        let attached = queue.attach(&staging);
        let staging_id = attached.map_err(|e| wire.device.error("attach a ring", &e))?;
        let control = wire.connect(control, self.psn, &peer.endpoint)?;
        let window = (ring.tail == offer::Tail::Immediate).then_some(peer.endpoint.recv_depth);
        let config = self.config;
        Ok(Sender::new(SenderParts {
            control,
            queue,
            cq: self.cq,
            channel: self.channel,
            tracker: tracker(config.send_queue, SENDER_CONTROL, config.signal_interval()),
            core: WriteSender::new(ring.geometry, window),
            staging,
            staging_id,
            block: self.block,
            peer_ring: ring.place,
            peer_block,
            inline: self.inline,
            config,
        }))
    }

    fn abandon(mut sender: Sender) {
        sender.abandon();
    }
}

/// Returns the sizes to ask the device for: bytes of records that go out of a slot, and of payloads
/// that go straight out of the caller's memory. A device that copies on the processor reads the
/// ring no later than it would read the request, and takes as much as is asked for.
fn inline_bytes(device: &Device, config: &Config) -> (u32, u32) {
    match (config.inline, device.copies_on_processor()) {
        (Inline::Auto, true) => (0, STRAIGHT),
        (inline, _) => (inline.asked_bytes(), 0),
    }
}

/// A receiver's side of a queue pair that waits for its peer.
#[derive(Debug)]
pub struct NewLink {
    pair: QueuePair<()>,
    ring: SharedRegion,
    block: ControlBlock,
    geometry: Geometry,
    config: Config,
    psn: u32,
}

impl NewLink {
    pub(super) fn create(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
    ) -> Result<NewLink, ConnectError> {
        receiver.make_place()?;
        if config.window() > receiver.window() {
            let rule = "at most that of the configuration which the receiver was made with";
            let value = config.window().into();
            return Err(ConfigError { field: "tail.window", value, rule }.into());
        }
        let (pd, geometry) = (device.new_domain()?, config.ring.geometry()?);
        let window = config.window();
        let recv = match window {
            0 => RecvSide::None,
            // One more, for the sender's goodbye.
            window => RecvSide::Own { slots: window + 1, slot_bytes: 0 },
        };
        let pair = pd.create_qp(
            &QueuePairConfig {
                port: config.common.transport.port,
                access: WRITES,
                max_send_wr: LINK_QUEUE,
                send_slots: LINK_QUEUE,
                send_slot_bytes: UPDATE_BYTES as usize,
                max_inline: UPDATE_BYTES,
                recv,
                ..QueuePairConfig::new(receiver.cq(), receiver.cq())
            },
            (),
        );
        let mut pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        if let Some(queue) = &mut pair.recv {
            let all: Vec<u32> = (0..window + 1).collect();
            doorbell::post_receives(queue, &all).map_err(|e| device.error("post receives", &e))?;
        }
        let ring = register_ring(device, &pd, &geometry, WRITES)?;
        let block = ControlBlock::new(device, &pd, WRITES)?;
        let psn = verbs_safe::random_psn();
        Ok(NewLink { pair, ring, block, geometry, config: *config, psn })
    }
}

impl NewHalf for NewLink {
    type Terms = HalfOffer;
    type Done = Link;
    fn endpoint(&self) -> Endpoint {
        Endpoint {
            qp_num: self.pair.control.qp_num(),
            psn: self.psn,
            recv_depth: self.config.window(),
            max_message: self.geometry.max_payload(),
        }
    }

    fn terms(&self) -> HalfOffer {
        let tail = match self.config.tail {
            Tail::Immediate { .. } => offer::Tail::Immediate,
            Tail::Written => offer::Tail::Written,
        };
        let ring = RingOffer { place: place(&self.ring), geometry: self.geometry, tail };
        HalfOffer { control: Some(self.block.place()), ring: Some(ring) }
    }
}

impl setup::NewLink for NewLink {
    type Receiver = Receiver;

    fn connect(
        self,
        peer: &PeerHalf<HalfOffer>,
        wire: &Wire<'_>,
        _receiver: &mut Receiver,
    ) -> Result<Link, ConnectError> {
        let missing = || unfit("it has no place for our head");
        let peer_block = peer.terms.control.ok_or_else(missing)?;
        let QueuePair { control, send, recv } = self.pair;
        let control = wire.connect(control, self.psn, &peer.endpoint)?;
        let window = (self.config.window() > 0).then_some(self.config.window());
        Ok(Link::new(LinkParts {
            control,
            queue: send,
            recv,
            tracker: tracker(LINK_QUEUE - LINK_CONTROL, LINK_CONTROL, LINK_QUEUE / 4),
            core: WriteReceiver::new(self.geometry, self.config.told_bytes(), window),
            ring: self.ring,
            block: self.block,
            peer_block,
        }))
    }

    fn join(link: Link, receiver: &mut Receiver) -> Peer {
        receiver.add(link)
    }

    /// All that the peer can have used is the link's own.
    fn abandon(link: Link, _receiver: &mut Receiver) {
        drop(link);
    }
}

/// An empty receiver for up to `max_peers` senders.
pub(super) fn receiver(
    device: &Device,
    config: &Config,
    max_peers: u32,
) -> Result<Receiver, ConnectError> {
    config.validate()?;
    let entries = entries_for(LINK_QUEUE + config.window() + 1, max_peers)?;
    let (cq, channel) = completion_queue(device, entries, config.common.wait)?;
    let policy = Policy {
        wait: config.common.wait,
        keepalive: config.common.keepalive,
        linger: config.common.linger,
        poll_batch: config.poll_batch,
        max_peers,
        window: config.window(),
    };
    Ok(Receiver::new(cq, channel, policy))
}
