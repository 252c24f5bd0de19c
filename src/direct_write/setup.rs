//! Making the halves of a connection. In front of the application data of Hello and Accept there
//! are the [`Terms`] of each direction.

use conn_core::direct_write::terms::{TERMS_LEN, Terms};
use conn_core::direct_write::{
    BufferReceiver, BufferSender, Detection as Found, SLOT_BYTES, TRAILER_BYTES, padded,
    slots_bytes,
};
use conn_core::handshake::Endpoint;
use verbs_safe::{
    CompletionChannel, CompletionQueue, QueuePair, QueuePairConfig, RecvSide, RemoteAccess,
    SharedRegion,
};

use super::in_place::Buffers;
use super::link::{Lending, Link, SLOTS_PER_WRITE};
use super::sender::{Sender, SenderParts};
use super::{Config, Detection, Receiver};
use crate::device::Device;
use crate::doorbell;
use crate::error::{ConfigError, ConnectError};
use crate::half::driven::Sender as _;
use crate::peer::Peer;
use crate::posting::Posting;
use crate::receiving::Receiving;
use crate::ring::memory::{peer_memory, place};
use crate::sending::Sending;
use crate::setup::{self, FixedTerms, NewHalf, PeerHalf, check_direction, unfit};
use crate::wire::{Wire, completion_queue, entries_for, tracker};

/// Send-queue slots that data cannot take: probes, and the goodbye or the stop.
const CONTROL: u32 = 2;
/// Send-queue slots of a receiver: slots on their way, and control.
const LINK_QUEUE: u32 = 16;
/// Access rights of a peer: both the buffers and the slots are written to.
const WRITES: RemoteAccess = RemoteAccess { read: false, write: true, atomic: false };

impl FixedTerms for Terms {
    const BYTES: usize = TERMS_LEN;

    fn write(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.encode());
    }

    fn read(said: &[u8], _: &Endpoint, sends: bool) -> Result<Terms, ConnectError> {
        let (terms, _) = Terms::decode(said).map_err(unfit)?;
        check_direction(matches!(terms, Terms::Sender { .. }), sends)?;
        Ok(terms)
    }
}

/// A sending half: its queue pair waits for the peer's.
#[derive(Debug)]
pub struct NewSender {
    pair: QueuePair<()>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    slots: SharedRegion,
    config: Config,
    psn: u32,
}

impl NewSender {
    pub(super) fn create(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let pd = device.new_domain()?;
        let depth = config.send_queue + CONTROL;
        let (cq, channel) = completion_queue(device, depth, config.common.wait)?;
        let pair = pd.create_qp(
            &QueuePairConfig {
                port: config.common.transport.port,
                access: WRITES,
                max_send_wr: depth,
                send_slots: depth,
                send_slot_bytes: (padded(config.message_bytes) + TRAILER_BYTES) as usize,
                max_inline: config.inline.asked_bytes(),
                ..QueuePairConfig::new(&cq, &cq)
            },
            (),
        );
        let pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        let slots = peer_memory(device, &pd, slots_bytes(config.max_peer_buffers), WRITES)?;
        Ok(NewSender { pair, cq, channel, slots, config: *config, psn: verbs_safe::random_psn() })
    }
}

impl NewHalf for NewSender {
    type Terms = Terms;
    type Done = Sender;

    fn endpoint(&self) -> Endpoint {
        let (qp_num, psn) = (self.pair.control.qp_num(), self.psn);
        Endpoint { qp_num, psn, recv_depth: 0, max_message: 0 }
    }

    fn terms(&self) -> Terms {
        Terms::Sender { place: place(&self.slots), slots: self.config.max_peer_buffers }
    }
}

impl setup::NewSender for NewSender {
    fn connect(self, peer: &PeerHalf<Terms>, wire: &Wire<'_>) -> Result<Sender, ConnectError> {
        let Terms::Receiver { place, layout, detection } = peer.terms else {
            return Err(unfit("it has no buffers to write to"));
        };
        let slot_count = self.config.max_peer_buffers;
        let too_many =
            || unfit(format!("it has {} buffers, here are {slot_count} allowed", layout.buffers()));
        let core = BufferSender::new(layout, slot_count).ok_or_else(too_many)?;
        let QueuePair { control, send, .. } = self.pair;
        let control = wire.connect(control, self.psn, &peer.endpoint)?;
        let config = self.config;
        let tracker = tracker(config.send_queue, CONTROL, config.signal_interval());
        let posting = Posting::new(control, send, tracker);
        Ok(Sender::new(SenderParts {
            sending: Sending::new(posting, self.cq, self.channel, config.common, config.batch),
            core,
            detection,
            slots: self.slots,
            slot_count,
            peer_buffers: place,
            limit: layout.max_message().min(config.message_bytes),
        }))
    }

    fn abandon(mut sender: Sender) {
        sender.abandon();
    }
}

/// A receiver's side of a queue pair that waits for its peer.
#[derive(Debug)]
pub struct NewLink {
    pair: QueuePair<()>,
    buffers: SharedRegion,
    config: Config,
    psn: u32,
}

impl NewLink {
    pub(super) fn create(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
    ) -> Result<NewLink, ConnectError> {
        receiver.receiving.make_place()?;
        let receives = config.receives();
        if receives > receiver.receives {
            let rule = "at most those of the configuration which the receiver was made with";
            let value = config.buffers.into();
            return Err(ConfigError { field: "buffers", value, rule }.into());
        }
        let (pd, layout) = (device.new_domain()?, config.layout()?);
        let recv = match receives {
            0 => RecvSide::None,
            slots => RecvSide::Own { slots, slot_bytes: 0 },
        };
        let pair = pd.create_qp(
            &QueuePairConfig {
                port: config.common.transport.port,
                access: WRITES,
                max_send_wr: LINK_QUEUE,
                send_slots: LINK_QUEUE,
                send_slot_bytes: (u64::from(SLOTS_PER_WRITE) * SLOT_BYTES) as usize,
                max_inline: config.inline.asked_bytes(),
                recv,
                ..QueuePairConfig::new(receiver.receiving.cq(), receiver.receiving.cq())
            },
            (),
        );
        let mut pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        if let Some(queue) = &mut pair.recv {
            let all: Vec<u32> = (0..receives).collect();
            doorbell::post_receives(queue, &all).map_err(|e| device.error("post receives", &e))?;
        }
        let buffers = peer_memory(device, &pd, layout.bytes(), WRITES)?;
        Ok(NewLink { pair, buffers, config: *config, psn: verbs_safe::random_psn() })
    }

    fn found(&self) -> Found {
        match self.config.detection {
            Detection::Immediate => Found::Immediate,
            Detection::Polled if self.pair.control.data_in_order() => Found::Trailer,
            Detection::Polled => Found::ApartTrailer,
        }
    }
}

impl NewHalf for NewLink {
    type Terms = Terms;
    type Done = Link;

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            qp_num: self.pair.control.qp_num(),
            psn: self.psn,
            recv_depth: self.config.receives(),
            max_message: self.config.message_bytes,
        }
    }

    fn terms(&self) -> Terms {
        let layout = self.config.layout().expect("it was checked");
        Terms::Receiver { place: place(&self.buffers), layout, detection: self.found() }
    }
}

impl setup::NewLink for NewLink {
    type Receiver = Receiver;

    fn connect(
        self,
        peer: &PeerHalf<Terms>,
        wire: &Wire<'_>,
        _receiver: &mut Receiver,
    ) -> Result<Link, ConnectError> {
        let Terms::Sender { place, slots } = peer.terms else {
            return Err(unfit("it has no slots for our buffers"));
        };
        let (layout, found) = (self.config.layout()?, self.found());
        let storage = vec![0; layout.buffers() as usize].into_boxed_slice();
        let too_few = || unfit(format!("it has {slots} slots for {} buffers", layout.buffers()));
        let core = BufferReceiver::new(layout, slots, found, storage).ok_or_else(too_few)?;
        let QueuePair { control, send, recv } = self.pair;
        let control = wire.connect(control, self.psn, &peer.endpoint)?;
        let tracker = tracker(LINK_QUEUE - CONTROL, CONTROL, LINK_QUEUE / 4);
        Ok(Link {
            posting: Posting::new(control, send, tracker),
            recv: recv.filter(|_| found == Found::Immediate),
            core,
            buffers: Buffers::new(self.buffers, layout.buffers())
                .ok_or_else(|| unfit("it has no buffers"))?,
            lent: 0,
            peer_slots: place,
            peer_slot_count: slots,
            threshold: (layout.buffers() / 4).max(1),
            is_broken: false,
            copied: Vec::new(),
            slots_told: 0,
        })
    }

    fn join(link: Link, receiver: &mut Receiver) -> Peer {
        let longest = link.core.layout().max_message();
        receiver.receiving.add(link, longest)
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
    let entries = entries_for(LINK_QUEUE + config.receives(), max_peers)?;
    let (cq, channel) = completion_queue(device, entries, config.common.wait)?;
    let receiving = Receiving::new(Lending::default(), cq, channel, max_peers, config.common);
    Ok(Receiver { receiving, receives: config.receives() })
}
