//! Making the halves of a connection.

use conn_core::buffered_read::{MAX_WORDS, Reader, Source};
use conn_core::handshake::{Endpoint, ProtocolId};
use conn_core::ring::Geometry;
use conn_core::ring::fetch::MAX_READS;
use conn_core::ring::offer::{HalfOffer, Place, RingOffer, Tail};
use conn_core::seal::SEALED_BYTES;
use verbs_safe::{
    CompletionQueue, Mapping, ProtectionDomain, QueuePair, QueuePairConfig, RegisterError,
    RemoteAccess, RingConfig, SharedRegionConfig, SourceRing,
};

use super::link::{Link, LinkParts};
use super::sender::{Sender, SenderParts};
use super::{Config, WORDS_BYTES};
use crate::device::Device;
use crate::ring::memory::{ControlBlock, isolated};
use crate::ring::setup::{Draft, Half, PeerHalf, unfit};
use crate::ring::{Layout, RingShape};
use crate::send_recv::ConnectError;
use crate::wait::WaitStrategy;
use crate::wire::{Port, Wire, completion_queue};

/// What a receiver may have on its way.
const RECEIVER_DEPTH: u32 = (MAX_READS + 1 + MAX_WORDS) as u32;
/// Questions after the peer that may be on their way.
const SENDER_DEPTH: u32 = 4;

/// A sending half whose queue pair waits for its peer.
pub(super) struct NewSender {
    pair: QueuePair<()>,
    cq: CompletionQueue,
    ring: SourceRing,
    block: ControlBlock,
    geometry: Geometry,
    config: Config,
    psn: u32,
}

impl NewSender {
    fn create(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let (pd, wanted) = (isolated(device)?, config.ring.geometry()?);
        let make = |geometry: &Geometry| pd.source_ring(ring_config(geometry, config));
        let (ring, geometry) = mirrored_or_plain(wanted, config.ring, make)
            .map_err(|e| device.error("make a ring", &e))?;
        // The peer reads the tail and writes the head.
        let access = RemoteAccess { read: true, write: true, atomic: false };
        let block = ControlBlock::new(device, &pd, access)?;
        let (pair, cq) = queue_pair(device, &pd, config, (SENDER_DEPTH, 0), access)?;
        let psn = verbs_safe::random_psn();
        Ok(NewSender { pair, cq, ring, block, geometry, config: *config, psn })
    }
}

impl Half for NewSender {
    type Done = Sender;

    fn endpoint(&self) -> Endpoint {
        endpoint(&self.pair, self.psn, self.geometry.max_payload())
    }

    fn offer(&self) -> HalfOffer {
        let span = self.ring.remote();
        let place = Place { addr: span.addr, rkey: span.rkey };
        let ring = RingOffer { place, geometry: self.geometry, tail: Tail::Read };
        HalfOffer { control: Some(self.block.place()), ring: Some(ring) }
    }

    fn finish(self, peer: &PeerHalf, wire: &Wire<'_>) -> Result<Sender, ConnectError> {
        wire.connect(&self.pair.control, self.psn, &peer.endpoint)?;
        let QueuePair { control, send, .. } = self.pair;
        Ok(Sender::new(SenderParts {
            control,
            queue: send,
            cq: self.cq,
            ring: self.ring,
            block: self.block,
            source: Source::new(self.geometry),
            config: self.config,
        }))
    }

    fn abandon(mut done: Sender) {
        done.abandon();
    }
}

/// A receiving half whose queue pair waits for its peer.
pub(super) struct NewLink {
    pair: QueuePair<()>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    config: Config,
    psn: u32,
}

impl NewLink {
    fn create(device: &Device, config: &Config) -> Result<NewLink, ConnectError> {
        let pd = isolated(device)?;
        // The peer may ask after us, with writes of no bytes; there is nothing to write to.
        let probes = RemoteAccess { read: false, write: true, atomic: false };
        let depth = (RECEIVER_DEPTH, MAX_WORDS as u32);
        let (pair, cq) = queue_pair(device, &pd, config, depth, probes)?;
        Ok(NewLink { pair, cq, pd, config: *config, psn: verbs_safe::random_psn() })
    }

    /// The ring is as large as its sender has chosen it, within our limits.
    fn check(&self, geometry: &Geometry) -> Result<(), ConnectError> {
        let (bytes, most) = (geometry.capacity(), self.config.peer_ring_bytes);
        if bytes > most {
            return Err(unfit(format!(
                "a ring of {bytes} bytes, where {most} are the most: make the sender's ring_bytes \
                 smaller, or the receiver's peer_ring_bytes larger"
            )));
        }
        Ok(())
    }
}

impl Half for NewLink {
    type Done = Link;

    fn endpoint(&self) -> Endpoint {
        endpoint(&self.pair, self.psn, self.config.ring.message_bytes)
    }

    fn offer(&self) -> HalfOffer {
        HalfOffer { control: None, ring: None }
    }

    fn finish(self, peer: &PeerHalf, wire: &Wire<'_>) -> Result<Link, ConnectError> {
        let missing = || unfit("it offers no ring to read");
        let (offer, block) =
            (peer.offer.ring.ok_or_else(missing)?, peer.offer.control.ok_or_else(missing)?);
        self.check(&offer.geometry)?;
        let (device, config) = (wire.device, &self.config);
        let QueuePair { control, send: mut queue, .. } = self.pair;
        let shape = ring_config(&offer.geometry, config);
        let ring = self.pd.landing_ring(shape, config.lendable_of(&offer.geometry));
        let mut ring = ring.map_err(|e| match e {
            RegisterError::Map(e) if offer.geometry.is_mirrored() => unfit(format!(
                "the receiver has no mirrored memory ({e}): make the layout of the sender's ring \
                 plain"
            )),
            e => device.error("make a ring", &e).into(),
        })?;
        ring.attach(&mut queue).map_err(|e| device.error("use a ring", &e))?;
        let failed = |e: &dyn std::fmt::Display| device.error("register a tail", e);
        let mapping = Mapping::new(SEALED_BYTES as usize).map_err(|e| failed(&e))?;
        let tail = self.pd.register_shared(mapping, SharedRegionConfig::default());
        let tail = tail.map_err(|e| failed(&e))?;
        let tail_id = queue.attach(&tail).map_err(|e| failed(&e))?;
        let reader = Reader::new(offer.geometry, config.reader(&offer.geometry)).map_err(unfit)?;
        wire.connect(&control, self.psn, &peer.endpoint)?;
        let (cq, source) = (self.cq, (offer.place, offer.bytes()));
        Ok(Link::new(LinkParts { control, queue, cq, ring, tail, tail_id, reader, source, block }))
    }

    fn abandon(done: Link) {
        drop(done);
    }
}

/// A connection in the making, of the halves that are wanted.
pub(super) fn draft<'a>(
    device: &'a Device,
    config: &'a Config,
    (sends, receives): (bool, bool),
) -> Result<Draft<'a, NewSender, NewLink>, ConnectError> {
    config.validate()?;
    Ok(Draft {
        device,
        transport: &config.transport,
        protocol: ProtocolId::BUFFERED_READ,
        rd_atomic: crate::raw::rd_atomic(device, MAX_READS as u8)?,
        port: Port::of(device, &config.transport)?,
        sender: sends.then(|| NewSender::create(device, config)).transpose()?,
        receiver: receives.then(|| NewLink::create(device, config)).transpose()?,
    })
}

/// A ring of the geometry that is wanted; or where the system has no mirrored memory, and the
/// messages of this shape fit, of the same size, and plain.
fn mirrored_or_plain<R>(
    wanted: Geometry,
    shape: RingShape,
    mut make: impl FnMut(&Geometry) -> Result<R, RegisterError>,
) -> Result<(R, Geometry), RegisterError> {
    let refused = match make(&wanted) {
        Ok(ring) => return Ok((ring, wanted)),
        Err(refused) => refused,
    };
    let plain = RingShape { layout: Layout::Plain, ..shape }.geometry();
    let is_for_the_mirror = wanted.is_mirrored() && matches!(refused, RegisterError::Map(_));
    let (true, Ok(plain)) = (is_for_the_mirror, plain) else { return Err(refused) };
    // Where there is no memory at all, the first reason is as good.
    let Ok(ring) = make(&plain) else { return Err(refused) };
    tracing::warn!(why = %refused, "no mirrored memory for a ring: it is plain instead");
    Ok((ring, plain))
}

fn ring_config(geometry: &Geometry, config: &Config) -> RingConfig {
    let capacity = usize::try_from(geometry.capacity()).unwrap_or(usize::MAX);
    RingConfig { capacity, is_mirrored: geometry.is_mirrored(), pages: config.pages }
}

fn queue_pair(
    device: &Device,
    pd: &ProtectionDomain,
    config: &Config,
    (depth, send_slots): (u32, u32),
    access: RemoteAccess,
) -> Result<(QueuePair<()>, CompletionQueue), ConnectError> {
    // Completions are polled for: nobody sleeps on them.
    let (cq, _) = completion_queue(device, depth, WaitStrategy::Spin)?;
    let pair = pd.create_qp(
        &QueuePairConfig {
            port: config.transport.port,
            access,
            max_send_wr: depth,
            send_slots,
            send_slot_bytes: WORDS_BYTES as usize,
            max_inline: WORDS_BYTES,
            ..QueuePairConfig::new(&cq, &cq)
        },
        (),
    );
    Ok((pair.map_err(|e| device.error("create a queue pair", &e))?, cq))
}

fn endpoint(pair: &QueuePair<()>, psn: u32, max_message: u32) -> Endpoint {
    Endpoint { qp_num: pair.control.qp_num(), psn, recv_window: 0, max_message }
}

#[cfg(test)]
mod tests {
    use verbs_safe::{Errno, MapError};

    use super::*;

    fn no_mirror(bytes: usize) -> RegisterError {
        MapError { step: "mapping half of a mirror", bytes, errno: Errno::EINVAL }.into()
    }

    /// A system that maps nothing twice, and so much once.
    fn made(shape: RingShape, most: u64) -> Result<bool, RegisterError> {
        let make = |geometry: &Geometry| match geometry.is_mirrored() {
            true => Err(no_mirror(1)),
            false if geometry.capacity() > most => Err(no_mirror(2)),
            false => Ok(()),
        };
        mirrored_or_plain(shape.geometry().unwrap(), shape, make)
            .map(|(_, ring)| ring.is_mirrored())
    }

    #[test]
    fn a_ring_is_plain_where_none_can_be_mirrored_and_its_messages_fit() {
        let shape = RingShape::default();
        assert_eq!(made(shape, u64::MAX), Ok(false));
        assert_eq!(made(RingShape { layout: Layout::Plain, ..shape }, u64::MAX), Ok(false));
        // The reason is that of what was asked for.
        assert_eq!(made(shape, 4096), Err(no_mirror(1)));
        let long = RingShape { message_bytes: shape.ring_bytes as u32 - 8, ..shape };
        assert_eq!(made(long, u64::MAX), Err(no_mirror(1)));
        let wanted = shape.geometry().unwrap();
        let refused = RegisterError::Refused { bytes: 1, errno: Errno::ENOMEM };
        let all_refused = mirrored_or_plain(wanted, shape, |_| Err::<(), _>(refused.clone()));
        assert_eq!(all_refused.unwrap_err(), refused);
        let all_made = mirrored_or_plain(wanted, shape, |_| Ok(())).unwrap();
        assert_eq!(all_made, ((), wanted));
    }
}
