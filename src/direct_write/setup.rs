//! Direct Write, as a [`Protocol`]: making the halves of a connection. In front of the application
//! data of Hello and Accept there are the [`Terms`] of each direction.

use conn_core::direct_write::terms::{TERMS_LEN, Terms};
use conn_core::direct_write::{
    BufferReceiver, BufferSender, Detection as Found, SLOT_BYTES, TRAILER_BYTES, padded,
    slots_bytes,
};
use conn_core::handshake::{Endpoint, ProtocolId};
use verbs_safe::{QueuePairConfig, RecvSide};

use super::in_place::LinkBuffers;
use super::link::{DirectWriteLink, Lending, SLOTS_PER_WRITE};
use super::sender::{Sender, SenderStats};
use super::{Config, Detection, DirectWrite, Receiver};
use crate::device::Device;
use crate::error::{ConnectError, check};
use crate::new_pair::{HalfDraft, LinkHost, NewPair, SendSlots, WRITES, shape};
use crate::peer::Peer;
use crate::posting::AtEnd;
use crate::protocol::{NoPool, Protocol, Served, own_types};
use crate::receiving::CopyReceiving;
use crate::ring::memory::{peer_memory, place};
use crate::setup::{FixedTerms, check_direction, unfit};
use crate::waiting::CqWaiting;
use crate::wire::{entries_for, tracker};
use crate::writing::Writing;

/// Send-queue slots that data cannot take: probes, and the goodbye or the stop.
const CONTROL: u32 = 2;
/// Send-queue slots of a receiver: slots on their way, and control.
const LINK_QUEUE: u32 = 16;

type NewSender = HalfDraft<Terms, Sender>;
type NewLink = HalfDraft<Terms, DirectWriteLink, Receiver>;

impl Served for DirectWrite {
    const ID: ProtocolId = ProtocolId::DIRECT_WRITE;
    const NAME: &'static str = "Direct Write";
    type Terms = Terms;
}

impl Protocol for DirectWrite {
    own_types!(NoPool);

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        _: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        let entries = entries_for(LINK_QUEUE + config.receives(), max_peers)?;
        let waiting = CqWaiting::create(device, entries, config.common)?;
        let receiving = CopyReceiving::new(Lending::default(), waiting, max_peers);
        Ok(Receiver { receiving, receives: config.receives() })
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let (config, pd) = (*config, device.new_domain()?);
        let depth = config.send_queue + CONTROL;
        let waiting = CqWaiting::create(device, depth, config.common)?;
        let bytes = padded(config.message_bytes) + TRAILER_BYTES;
        let sends = SendSlots { depth, bytes, inline: config.inline.asked_bytes() };
        let shape = shape(&config.common, &waiting.cq, WRITES, sends);
        let pair = NewPair::create(device, &pd, &shape, ())?;
        let slot_count = config.max_peer_buffers;
        let slots = peer_memory(device, &pd, slots_bytes(slot_count), WRITES)?;
        let terms = Terms::Sender { place: place(&slots), slots: slot_count };
        Ok(NewSender::new(pair.endpoint(0, 0), terms, move |peer, wire, _| {
            let Terms::Receiver { place, layout, detection } = peer.terms else {
                return Err(unfit("it has no buffers to write to"));
            };
            let buffers = layout.buffers();
            let too_many =
                || unfit(format!("it has {buffers} buffers, here are {slot_count} allowed"));
            let core = BufferSender::new(layout, slot_count).ok_or_else(too_many)?;
            let tracker = tracker(config.send_queue, CONTROL, config.signal_interval());
            let at_end = AtEnd::ErrUnlessClosed;
            let (posting, _) = pair.connect(&peer.endpoint, wire, tracker, at_end)?;
            Ok(Sender {
                writing: Writing::new(posting, waiting, config.batch),
                core,
                detection,
                slots,
                slot_count,
                peer_buffers: place,
                limit: layout.max_message().min(config.message_bytes),
                stats: SenderStats::default(),
            })
        }))
    }

    fn new_link(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<NewLink, ConnectError> {
        receiver.receiving.make_place()?;
        let receives = config.receives();
        let rule = "at most those of the configuration which the receiver was made with";
        check("buffers", config.buffers, receives <= receiver.receives, rule)?;
        let (pd, layout) = (device.new_domain()?, config.layout()?);
        let recv = match receives {
            0 => RecvSide::None,
            slots => RecvSide::Own { slots, slot_bytes: 0 },
        };
        let (bytes, inline) =
            (u64::from(SLOTS_PER_WRITE) * SLOT_BYTES, config.inline.asked_bytes());
        let sends = SendSlots { depth: LINK_QUEUE, bytes, inline };
        let cq = receiver.receiving.cq();
        let shape = QueuePairConfig { recv, ..shape(&config.common, cq, WRITES, sends) };
        let mut pair = NewPair::create(device, &pd, &shape, ())?;
        pair.post_receives(device, receives)?;
        let buffers = peer_memory(device, &pd, layout.bytes(), WRITES)?;
        let found = match config.detection {
            Detection::Immediate => Found::Immediate,
            Detection::Polled if pair.queues.control.data_in_order() => Found::Trailer,
            Detection::Polled => Found::ApartTrailer,
        };
        let terms = Terms::Receiver { place: place(&buffers), layout, detection: found };
        let endpoint = pair.endpoint(receives, config.message_bytes);
        Ok(NewLink::new(endpoint, terms, move |peer, wire, _| {
            let Terms::Sender { place, slots } = peer.terms else {
                return Err(unfit("it has no slots for our buffers"));
            };
            let count = layout.buffers();
            let storage = vec![0; count as usize].into_boxed_slice();
            let too_few = || unfit(format!("it has {slots} slots for {count} buffers"));
            let core = BufferReceiver::new(layout, slots, found, storage).ok_or_else(too_few)?;
            let tracker = tracker(LINK_QUEUE - CONTROL, CONTROL, LINK_QUEUE / 4);
            let at_end = AtEnd::ErrUnlessClosed;
            let (posting, recv) = pair.connect(&peer.endpoint, wire, tracker, at_end)?;
            Ok(DirectWriteLink {
                posting,
                recv: recv.filter(|_| found == Found::Immediate),
                core,
                buffers: LinkBuffers::new(buffers, count)
                    .ok_or_else(|| unfit("it has no buffers"))?,
                lent: 0,
                peer_slots: place,
                peer_slot_count: slots,
                threshold: (count / 4).max(1),
                is_broken: false,
                copied: Vec::new(),
                slots_told: 0,
            })
        }))
    }
}

impl LinkHost for Receiver {
    type Link = DirectWriteLink;

    fn add(&mut self, link: DirectWriteLink) -> Peer {
        let longest = link.core.layout().max_message();
        self.receiving.add(link, longest)
    }
}

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
