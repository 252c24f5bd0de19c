//! Shared Write, as a [`Protocol`]: making the halves of a connection. In front of the application
//! data of Hello and Accept there are the [`Terms`] of each direction.

use conn_core::handshake::{Endpoint, ProtocolId};
use conn_core::shared_write::terms::{TERMS_LEN, Terms};
use conn_core::shared_write::{ExtentSender, STOP_BYTES, record_bytes};
use verbs_safe::{Atomics, RemoteAccess};

use super::link::SharedWriteLink;
use super::ring::ExtentRing;
use super::sender::{CONTROL, MEMORY_BYTES, PeerRing, Sender};
use super::{Config, Receiver, SharedWrite};
use crate::device::Device;
use crate::error::ConnectError;
use crate::new_pair::{HalfDraft, LinkHost, NewPair, SendSlots, WRITES, shape};
use crate::peer::Peer;
use crate::posting::AtEnd;
use crate::protocol::{NoPool, Protocol, Served, own_types};
use crate::receiving::CopyReceiving;
use crate::ring::memory::{peer_memory, place};
use crate::setup::{Agreement, FixedTerms, check_direction, unfit};
use crate::waiting::CqWaiting;
use crate::wire::{entries_for, tracker};
use crate::writing::Writing;

/// Send-queue slots of a receiver: a probe, and the stop.
const LINK_QUEUE: u32 = 4;
/// READs and atomics in flight.
const RD_ATOMIC: u8 = 4;

type NewSender = HalfDraft<Terms, Sender>;
type NewLink = HalfDraft<Terms, SharedWriteLink, Receiver>;

impl Served for SharedWrite {
    const ID: ProtocolId = ProtocolId::SHARED_WRITE;
    const NAME: &'static str = "Shared Write";
    type Terms = Terms;
}

impl Protocol for SharedWrite {
    own_types!(NoPool);

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        _: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        let attr = device.context().attr().map_err(|e| device.error("query the device", &e))?;
        if attr.atomics == Atomics::None {
            return Err(device.error("serve Shared Write", &"it has no atomics").into());
        }
        let layout = config.layout(max_peers)?;
        let entries = entries_for(LINK_QUEUE, max_peers)?;
        let waiting = CqWaiting::create(device, entries, config.common)?;
        let ring = ExtentRing::new(device, layout)?;
        Ok(Receiver { receiving: CopyReceiving::new(ring, waiting, max_peers) })
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let (config, pd) = (*config, device.new_domain()?);
        let depth = config.send_queue + CONTROL;
        let waiting = CqWaiting::create(device, depth, config.common)?;
        let bytes = record_bytes(config.message_bytes);
        let sends = SendSlots { depth, bytes, inline: config.inline.asked_bytes() };
        let shape = shape(&config.common, &waiting.cq, WRITES, sends);
        let mut pair = NewPair::create(device, &pd, &shape, ())?;
        let memory = peer_memory(device, &pd, MEMORY_BYTES, WRITES)?;
        // The receiver gets only the place of the stop.
        let terms = Terms::Sender { place: place(&memory) };
        Ok(NewSender::new(pair.endpoint(0, 0), terms, move |peer, wire, _| {
            let Terms::Receiver { place, layout, link, apart } = peer.terms else {
                return Err(unfit("it has no ring to write to"));
            };
            let landing = pair.queues.send.attach(&memory);
            let landing = landing.map_err(|e| wire.device.error("attach memory", &e))?;
            let tracker = tracker(config.send_queue, CONTROL, config.signal_interval());
            let at_end = AtEnd::ErrUnlessClosed;
            let (posting, _) = pair.connect(&peer.endpoint, wire, tracker, at_end)?;
            Ok(Sender::new(
                Writing::new(posting, waiting, config.batch),
                ExtentSender::new(layout),
                PeerRing { place, link, apart },
                (memory, landing),
                layout.max_message().min(config.message_bytes),
            ))
        }))
    }

    fn new_link(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<NewLink, ConnectError> {
        let receiving = &mut receiver.receiving;
        receiving.make_place()?;
        let ring = &receiving.shared;
        ring.check().map_err(|e| unfit(format!("the receiver's ring is unusable: {e}")))?;
        let layout = *ring.layout();
        let number = ring.core.vacant().ok_or(ConnectError::TooManyPeers(layout.links()))?;
        let inline = config.inline.asked_bytes();
        let sends = SendSlots { depth: LINK_QUEUE, bytes: STOP_BYTES, inline };
        let shape = shape(&config.common, receiving.cq(), RemoteAccess::ALL, sends);
        let pair = NewPair::create(device, &ring.pd, &shape, ())?;
        ring.clear_link(number);
        let (place, apart) = (place(&ring.region), !pair.queues.control.data_in_order());
        let terms = Terms::Receiver { place, layout, link: number, apart };
        let endpoint = pair.endpoint(0, layout.max_message());
        Ok(NewLink::new(endpoint, terms, move |peer, wire, receiver| {
            let Terms::Sender { place } = peer.terms else {
                return Err(unfit("it has no memory for our stop"));
            };
            let tracker = tracker(LINK_QUEUE / 2, LINK_QUEUE / 2, LINK_QUEUE / 2);
            let at_end = AtEnd::ErrUnlessClosed;
            let (posting, _) = pair.connect(&peer.endpoint, wire, tracker, at_end)?;
            // From here on it may take tickets.
            receiver.receiving.shared.core.open(number);
            let (is_broken, copied) = (false, Vec::new());
            Ok(SharedWriteLink { posting, number, peer_stop: place, is_broken, copied })
        }))
    }

    fn agreement(_: &Device, _: &Config, _: bool) -> Result<Agreement, ConnectError> {
        Ok(Agreement { rd_atomic: RD_ATOMIC, ..Agreement::default() })
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

impl LinkHost for Receiver {
    type Link = SharedWriteLink;

    fn add(&mut self, link: SharedWriteLink) -> Peer {
        let longest = self.receiving.shared.layout().max_message();
        self.receiving.add(link, longest)
    }

    fn forget(&mut self, link: SharedWriteLink) {
        let number = link.number;
        // The queue pair is destroyed first, so that nothing of the sender arrives any more.
        drop(link);
        self.receiving.shared.close(number);
    }
}
