//! Send/Receive, as a [`Protocol`]: making the two halves of a connection, and joining them to the
//! peer's.

use conn_core::credit::{CreditGrantor, CreditWindow};
use conn_core::handshake::{Endpoint, Options, ProtocolId};
use conn_core::loan::{Borrower, MAX_IN_FLIGHT};
use conn_core::pack::Packer;
use conn_core::pool::{PoolConfig, PoolCounts};
use host::plant::{Plant, is_planted};
use verbs_safe::{QueuePair, QueuePairConfig, RecvSide, RemoteAccess};

use super::link::{BufferSource, OwnBuffers, SendRecvLink};
use super::receiver::Receiver;
use super::returns::SlotReturns;
use super::sender::Sender;
use super::shared::SlotReturn;
use super::shared::{LinkAddress, SharedPool};
use super::stale_links::MAX_STALE_LINKS;
use super::{Config, SendRecv};
use crate::device::Device;
use crate::error::{ConnectError, check};
use crate::new_pair::{HalfDraft, LinkHost, NewPair, SendSlots, WRITES, shape};
use crate::peer::Peer;
use crate::posting::{AtEnd, QpPosting};
use crate::protocol::{Protocol, Served, own_types};
use crate::sending::Half;
use crate::setup::{Agreement, unfit};
use crate::waiting::CqWaiting;
use crate::wire::{entries, tracker};

/// Buffers that a sender posts for credits, and the depth of a receiver's send
/// queue. The receiver chooses its threshold so that they suffice.
const CONTROL_SLOTS: u32 = 16;
const _: () = assert!(CONTROL_SLOTS >= MAX_IN_FLIGHT);
/// Send-queue slots of a sender that data cannot take: probes and the goodbye.
const SENDER_CONTROL: u32 = 4;

/// Peers may probe us with writes of no bytes. They can write nothing: the queue pairs are in
/// a protection domain in which no memory is registered for peers.
const PROBES: RemoteAccess = WRITES;

type NewSender = HalfDraft<(), Sender>;
type NewLink = HalfDraft<(), SendRecvLink, Receiver>;

impl Served for SendRecv {
    const ID: ProtocolId = ProtocolId::SEND_RECV;
    const NAME: &'static str = "Send/Receive";
    type Terms = ();
}

impl Protocol for SendRecv {
    own_types!(SharedPool);

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        pool: Option<&SharedPool>,
    ) -> Result<Receiver, ConnectError> {
        let entries = entries(completions(config, max_peers, pool), max_peers)?;
        let waiting = CqWaiting::create(device, entries, config.common)?;
        let returns = SlotReturns::new(max_peers, config.recv_depth + 1)
            .map_err(|error| ConnectError::System { what: "an event descriptor", error })?;
        Ok(Receiver::new(waiting, returns, config, max_peers))
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        let config = planted(*config);
        let depth = config.unacked + SENDER_CONTROL;
        let waiting = CqWaiting::create(device, depth + CONTROL_SLOTS, config.common)?;
        let inline = config.inline.asked_bytes().min(config.message_bytes);
        let sends = SendSlots { depth, bytes: config.message_bytes.into(), inline };
        let shape = QueuePairConfig {
            send_slots: config.unacked,
            recv: RecvSide::Own { slots: CONTROL_SLOTS, slot_bytes: 0 },
            ..shape(&config.common, &waiting.cq, PROBES, sends)
        };
        let mut pair = NewPair::create(device, device.messages_pd(), &shape, ())?;
        pair.post_receives(device, CONTROL_SLOTS)?;
        let endpoint = pair.endpoint(CONTROL_SLOTS, config.message_bytes);
        Ok(NewSender::new(endpoint, (), move |peer, wire, _| {
            // Its credits may be loans.
            let lends = peer.options.contains(Options::LOANS);
            let peer = &peer.endpoint;
            let tracker = tracker(config.unacked, SENDER_CONTROL, config.signal_interval());
            let (posting, recv) = pair.connect(peer, wire, tracker, AtEnd::ErrUnlessClosed)?;
            let none = || wire.device.error("use a queue pair", &"it has no receive side");
            let credits = recv.ok_or_else(none)?;
            let limit = peer.max_message.min(config.message_bytes);
            let pack = config.pack_bytes.min(limit);
            if config.pack_bytes > 0 && Packer::new(pack).largest().is_none() {
                let bytes = peer.max_message;
                return Err(unfit(format!("buffers of {bytes} bytes hold no packed message")));
            }
            let (borrower, window) = match lends && config.credits {
                // The window is that of its share and one loan.
                true => Borrower::new(peer.recv_depth.saturating_sub(1))
                    .map(|(borrower, window)| (Some(borrower), window)),
                false => CreditWindow::new(peer.recv_depth).map(|window| (None, window)),
            }
            .map_err(unfit)?;
            let half = Half::new(posting, waiting);
            Ok(Sender::new(half, credits, window, borrower, config, limit))
        }))
    }

    fn new_link(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        pool: Option<&SharedPool>,
    ) -> Result<NewLink, ConnectError> {
        let window = config.recv_depth;
        let fits = pool.is_some() || window < receiver.returns.slots();
        let rule = "at most that of the configuration which the receiver was made with";
        check("recv_depth", window, fits, rule)?;
        let place = receiver.make_place()?;
        let address = LinkAddress { returns: receiver.returns.clone(), place };
        let loan = config.credits.then_some(window);
        let join = |pool| receiver.join_pool(pool, &address, loan);
        let member = pool.map(join).transpose()?;
        if let Some(pool) = pool {
            receiver.add_pool(pool.clock());
        }
        let own = RecvSide::Own { slots: window + 1, slot_bytes: config.message_bytes as usize };
        let sends = SendSlots { depth: CONTROL_SLOTS, bytes: 0, inline: 0 };
        let shape = QueuePairConfig {
            send_slots: 0,
            recv: pool.map_or(own, |pool| RecvSide::Shared(pool.queue())),
            ..shape(&config.common, &receiver.waiting.cq, PROBES, sends)
        };
        let recycler = SlotReturn::Receiver { returns: receiver.returns.clone(), link: place };
        let pair = NewPair::create(device, device.messages_pd(), &shape, recycler)?;
        let (recv_depth, bytes) = match pool.map(|pool| pool.config().buffer_bytes) {
            // The sender's share, and a loan.
            Some(bytes) if config.credits => (window + 1, bytes),
            bytes => (window, bytes.unwrap_or(config.message_bytes)),
        };
        let (config, endpoint) = (*config, pair.endpoint(recv_depth, bytes));
        Ok(NewLink::new(endpoint, (), move |peer, wire, receiver| {
            let (end, device) = (&peer.endpoint, wire.device);
            let NewPair { queues: QueuePair { control, send, recv }, psn } = pair;
            let grantor = match member {
                Some(_) if end.recv_depth < MAX_IN_FLIGHT => return Err(no_control_buffers()),
                Some(_) => None,
                None => grantor(window, end, &config)?,
            };
            let source = match (member, recv) {
                (Some(member), _) => BufferSource::Shared(member),
                (None, Some(queue)) => {
                    BufferSource::Own(own_buffers(queue, window, &config, device)?)
                }
                (None, None) => {
                    return Err(device.error("use a queue pair", &"no receive side").into());
                }
            };
            let tracker = tracker(CONTROL_SLOTS - 1, 1, CONTROL_SLOTS / 4);
            let unjoined = wire.unjoined(control.clone());
            let posting = QpPosting::new(unjoined, send, tracker, AtEnd::Err);
            let is_packed = peer.options.contains(Options::PACKED);
            let link = SendRecvLink::new(posting, grantor, source, is_packed, place);
            // Last: from here on, messages of the peer take buffers, which may be a pool's.
            match wire.join(&control, psn, end) {
                Ok(()) => Ok(link),
                Err(e) => {
                    receiver.forget(link);
                    Err(e)
                }
            }
        }))
    }

    fn agreement(_: &Device, config: &Config, shares: bool) -> Result<Agreement, ConnectError> {
        let packed = if config.pack_bytes > 0 { Options::PACKED } else { Options::NONE };
        let credits = match (config.credits, shares) {
            (false, _) => Options::NO_CREDITS,
            (true, false) => Options::NONE,
            (true, true) => Options::LOANS,
        };
        Ok(Agreement { options: packed.with(credits), ..Agreement::default() })
    }

    fn check_options(ours: Options, theirs: Options) -> Result<(), ConnectError> {
        if let Some(unknown) = theirs.unknown() {
            return Err(unfit(format!("it wants options that are unknown here ({unknown:#x})")));
        }
        if ours.contains(Options::NO_CREDITS) != theirs.contains(Options::NO_CREDITS) {
            return Err(unfit("one end uses credits and the other does not: both or none"));
        }
        Ok(())
    }
}

/// The configuration, but where a test plants a fault.
fn planted(config: Config) -> Config {
    let unacked =
        if is_planted(Plant::HalfWindow) { config.unacked.div_ceil(2) } else { config.unacked };
    let batch = if is_planted(Plant::BatchOfOne) { 1 } else { config.batch.min(unacked) };
    Config { batch, unacked, ..config }
}

/// Returns the number of completions that a receiver's queue may have to hold: those of all its
/// buffers, and of control of ours.
fn completions(config: &Config, max_peers: u32, pool: Option<&SharedPool>) -> Option<u32> {
    let own = || (config.recv_depth + 1).checked_mul(max_peers);
    let buffers = pool.map_or_else(own, |pool| Some(pool.config().buffers));
    let stale = pool.map_or(0, |_| MAX_STALE_LINKS);
    let control = max_peers.checked_add(stale)?.checked_mul(CONTROL_SLOTS)?;
    buffers?.checked_add(control)
}

impl LinkHost for Receiver {
    type Link = SendRecvLink;

    fn add(&mut self, link: SendRecvLink) -> Peer {
        self.links.add(link)
    }

    /// Waits until the device keeps none of the link's buffers.
    fn forget(&mut self, link: SendRecvLink) {
        self.links.forget(link);
    }
}

fn no_control_buffers() -> ConnectError {
    unfit("the sender has no buffers for credits")
}

/// A pool of `window + 1` buffers, all posted: one more than the credits, for the
/// sender's goodbye.
fn own_buffers(
    queue: verbs_safe::RecvQueue<SlotReturn>,
    window: u32,
    config: &Config,
    device: &Device,
) -> Result<OwnBuffers, ConnectError> {
    let policy = PoolConfig { repost_batch: config.repost_interval() };
    let counts = PoolCounts::new(window + 1, policy);
    let counts = counts.map_err(|e| device.error("manage buffers", &e))?;
    let mut own = OwnBuffers::new(queue, counts, config.message_bytes as usize);
    own.repost(true).map_err(|e| device.error("post receive buffers", &e))?;
    Ok(own)
}

/// A grantor with chunks of credits that fit the sender's control buffers: at most that many grants
/// are in flight (see [`CreditGrantor::max_grants_in_flight`]). One buffer is kept for the goodbye.
fn grantor(
    window: u32,
    peer: &Endpoint,
    config: &Config,
) -> Result<Option<CreditGrantor>, ConnectError> {
    if !config.credits {
        return Ok(None);
    }
    let chosen = config.credit_interval().min(window);
    let fits =
        |threshold: &u32| CreditGrantor::max_grants_in_flight(window, *threshold) < peer.recv_depth;
    let threshold = (chosen..=window).find(fits);
    let threshold = threshold.ok_or_else(no_control_buffers)?;
    Ok(Some(CreditGrantor::new(window, threshold).map_err(unfit)?))
}
