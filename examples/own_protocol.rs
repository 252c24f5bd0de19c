//! A protocol that the library does not have: stop-and-wait, one message on its way at a time.
//!
//! ```text
//! cargo run --example own_protocol
//! ```
//!
//! What is written here is what is the protocol's own: what the halves post, and what they make of
//! completions. Connecting, listening, waiting with timeouts, streams of bytes and futures are the
//! library's, and work with it as with any other [`Protocol`].
//!
//! ```text
//!  sender                              receiver: two receives posted
//!     | SEND message --------------------> |
//!     | <-- completion: acknowledged       |  hands it out, posts the receive again
//!     | <----------------- SEND no bytes   |  the credit for the next message
//!     | SEND no bytes, GOODBYE ----------> |  takes the other receive
//!     | <----------- SEND no bytes, STOP   |  if the receiver closes first
//! ```

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::ops::Deref;
use std::time::Duration;

use rdma_conn::conn_core::handshake::{Endpoint, ProtocolId};
use rdma_conn::device::{self, Device};
use rdma_conn::error::{
    CloseReason, ConfigError, ConnectError, Full, ProtocolError, RecvError, SendError,
};
use rdma_conn::half::driven;
use rdma_conn::io::ByteStream;
use rdma_conn::protocol::{NoPool, Served};
use rdma_conn::setup::{ConnectedQp, NewHalf, NewLink, NewSender, PeerHalf, Wire};
use rdma_conn::ticket::{Ticket, sender_number};
use rdma_conn::verbs_safe::{
    Completion, CompletionBatch, CompletionQueue, CqConfig, QueuePair, QueuePairConfig, RecvQueue,
    RecvSide, RemoteAccess, RemoteSpan, SendOp, SendQueue, random_psn,
};
use rdma_conn::wait::{Deadline, Silence, until};
use rdma_conn::{Arm, Common, FromPeer, Listener, Peer, Protocol, RecvHalf, Room, SendHalf};
use rdma_conn::{connect, pair};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;

    let (mut left, mut right) = pair::<StopAndWait>(&device, &device, &Config::default())?;
    left.sender.send(b"hello")?;
    println!("a message: {:?}", std::str::from_utf8(&right.receiver.recv()?)?);

    let listener = Listener::<StopAndWait>::bind("127.0.0.1:0")?;
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| -> Result<(), String> {
            let connected = connect::<StopAndWait>(address, &device, &Config::default());
            let mut stream = ByteStream::<StopAndWait>::new(connected.map_err(|e| e.to_string())?);
            let written = stream.write_all(&[7; 100_000]).and_then(|()| stream.close_write());
            written.map_err(|e| e.to_string())
        });
        let accepted = listener.next()?.accept(&device, &Config::default())?;
        let mut bytes = Vec::new();
        ByteStream::<StopAndWait>::new(accepted).read_to_end(&mut bytes)?;
        println!("a stream, over TCP's handshake: {} bytes", bytes.len());
        client.join().map_err(|_| "the client panicked")??;
        Ok(())
    })
}

/// The protocol.
#[derive(Debug)]
pub(crate) enum StopAndWait {}

/// The settings of either half.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    /// Those that every connection has.
    pub(crate) common: Common,
    /// The longest message, in bytes.
    pub(crate) message_bytes: u32,
}

/// Immediates.
const GOODBYE: u32 = 1;
const STOP: u32 = 2;
/// Receives of either end: for a message or a credit, and for the goodbye or the stop.
const RECEIVES: u32 = 2;
/// Sends of either end: a message or a credit, the goodbye or the stop, and a probe.
const SENDS: u32 = 4;
/// A WRITE of no bytes, which only a living peer's device answers.
const PROBE: SendOp = SendOp::Write { len: 0, remote: RemoteSpan { addr: 0, rkey: 0, len: 0 } };
/// After how long a program with its own event loop looks again.
const POLL_AFTER: Duration = Duration::from_micros(200);

impl Default for Config {
    fn default() -> Config {
        Config { common: Common::default(), message_bytes: 16 << 10 }
    }
}

impl AsRef<Common> for Config {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl AsMut<Common> for Config {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Served for StopAndWait {
    const ID: ProtocolId = ProtocolId::PRIVATE;
    const NAME: &'static str = "stop-and-wait";
    /// The peer needs no address of this end's memory.
    type Terms = ();
}

impl Protocol for StopAndWait {
    type Config = Config;
    type Pool = NoPool;
    type Sender = Sender;
    type Receiver = Receiver;
    type NewSender = SenderDraft;
    type NewLink = LinkDraft;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        if config.message_bytes == 0 {
            let rule = "at least 1";
            return Err(ConfigError { field: "message_bytes", value: 0, rule });
        }
        config.common.validate()
    }

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        _: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        Self::validate(config)?;
        let entries = max_peers.checked_mul(SENDS + RECEIVES).filter(|entries| *entries > 0);
        let rule = "at least 1, and few enough for one completion queue";
        let refused = ConfigError { field: "max_peers", value: max_peers.into(), rule };
        Ok(Receiver {
            cq: completion_queue(device, entries.ok_or(refused)?)?,
            batch: CompletionBatch::new(16),
            links: Vec::new(),
            joined: 0,
            max_peers,
            next: VecDeque::new(),
            config: *config,
            silence: Silence::default(),
        })
    }

    fn new_sender(device: &Device, config: &Config) -> Result<SenderDraft, ConnectError> {
        let cq = completion_queue(device, SENDS + RECEIVES)?;
        New::create(device, config, &cq, 0).map(SenderDraft)
    }

    fn new_link(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<LinkDraft, ConnectError> {
        receiver.links.retain(|link| link.line.ended.is_none());
        if receiver.links.len() >= receiver.max_peers as usize {
            return Err(ConnectError::TooManyPeers(receiver.max_peers));
        }
        New::create(device, config, &receiver.cq, config.message_bytes).map(LinkDraft)
    }
}

fn completion_queue(device: &Device, entries: u32) -> Result<CompletionQueue, ConnectError> {
    let cq = device.context().create_cq(CqConfig::new(entries));
    Ok(cq.map_err(|e| device.error("create a completion queue", &e))?)
}

/// A half in the making, of either kind.
#[derive(Debug)]
pub(crate) struct New {
    pair: QueuePair<()>,
    cq: CompletionQueue,
    config: Config,
    psn: u32,
}

impl New {
    fn create(
        device: &Device,
        config: &Config,
        cq: &CompletionQueue,
        receive_bytes: u32,
    ) -> Result<New, ConnectError> {
        // Of its own: nothing that the peer could write to is registered in it.
        let pd = device.context().alloc_pd();
        let pd = pd.map_err(|e| device.error("allocate a protection domain", &e))?;
        let shape = QueuePairConfig {
            port: config.common.transport.port,
            access: RemoteAccess { read: false, write: true, atomic: false },
            max_send_wr: SENDS,
            send_slots: 1,
            send_slot_bytes: config.message_bytes as usize,
            recv: RecvSide::Own { slots: RECEIVES, slot_bytes: receive_bytes as usize },
            ..QueuePairConfig::new(cq, cq)
        };
        let pair = pd.create_qp(&shape, ());
        let mut pair = pair.map_err(|e| device.error("create a queue pair", &e))?;
        if let Some(queue) = &mut pair.recv {
            queue.post(&[0, 1]).map_err(|e| device.error("post receives", &e))?;
        }
        Ok(New { pair, cq: cq.clone(), config: *config, psn: random_psn() })
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            qp_num: self.pair.control.qp_num(),
            psn: self.psn,
            recv_depth: RECEIVES,
            max_message: self.config.message_bytes,
        }
    }

    /// Connects the queue pair.
    fn line(self, peer: &PeerHalf<()>, wire: &Wire<'_>) -> Result<QpEnd, ConnectError> {
        let QueuePair { control, send, recv } = self.pair;
        let control = wire.connect(control, self.psn, &peer.endpoint)?;
        let missing = || wire.device().error("use a queue pair", &"it has no receive side");
        Ok(QpEnd { control, send, recv: recv.ok_or_else(missing)?, ended: None })
    }
}

/// A sender in the making.
#[derive(Debug)]
pub(crate) struct SenderDraft(New);

/// A receiver's link in the making.
#[derive(Debug)]
pub(crate) struct LinkDraft(New);

impl NewHalf for SenderDraft {
    type Terms = ();
    type Done = Sender;

    fn endpoint(&self) -> Endpoint {
        self.0.endpoint()
    }

    fn terms(&self) {}
}

impl NewSender for SenderDraft {
    fn connect(self, peer: &PeerHalf<()>, wire: &Wire<'_>) -> Result<Sender, ConnectError> {
        let (cq, config) = (self.0.cq.clone(), self.0.config);
        Ok(Sender {
            line: self.0.line(peer, wire)?,
            cq,
            batch: CompletionBatch::new(16),
            number: sender_number(),
            last: 0,
            has_credit: true,
            limit: config.message_bytes.min(peer.endpoint.max_message) as usize,
            common: config.common,
            silence: Silence::default(),
        })
    }

    fn abandon(mut sender: Sender) {
        driven::Sender::abandon(&mut sender);
    }
}

impl NewHalf for LinkDraft {
    type Terms = ();
    type Done = QpEnd;

    fn endpoint(&self) -> Endpoint {
        self.0.endpoint()
    }

    fn terms(&self) {}
}

impl NewLink for LinkDraft {
    type Receiver = Receiver;

    fn connect(
        self,
        peer: &PeerHalf<()>,
        wire: &Wire<'_>,
        _: &mut Receiver,
    ) -> Result<QpEnd, ConnectError> {
        self.0.line(peer, wire)
    }

    fn join(line: QpEnd, receiver: &mut Receiver) -> Peer {
        let peer = Peer(receiver.joined);
        receiver.joined += 1;
        receiver.links.push(PeerLink { line, peer, has_message: false });
        peer
    }

    fn abandon(line: QpEnd, _: &mut Receiver) {
        drop(line);
    }
}

/// One end of a connected queue pair.
#[derive(Debug)]
pub(crate) struct QpEnd {
    control: ConnectedQp,
    send: SendQueue,
    recv: RecvQueue<()>,
    ended: Option<CloseReason>,
}

/// Meaning of a completion.
enum CompletionEvent {
    /// A request of ours has been executed.
    Sent,
    /// A message, or of no bytes a credit, and the receive that it lies in.
    Received(Vec<u8>, u32),
    /// An immediate.
    Control(u32),
}

impl QpEnd {
    fn check(&self) -> Result<(), CloseReason> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn end(&mut self, reason: CloseReason) -> CloseReason {
        self.ended.get_or_insert(self.control.explain(reason)).clone()
    }

    /// Reports whether the queue has executed all that was posted.
    fn is_quiet(&self) -> bool {
        self.send.retired_total() == self.send.staged_total()
    }

    fn post(&mut self, op: SendOp) -> Result<(), CloseReason> {
        self.check()?;
        let staged = self.send.stage(op, true).map_err(|e| e.to_string());
        let posted = staged.and_then(|()| self.send.post().map_err(|e| e.to_string()));
        posted.map(drop).map_err(|e| self.end(CloseReason::Device(e)))
    }

    /// Posts a receive again.
    fn post_receive(&mut self, slot: u32) {
        if let Err(e) = self.recv.post(&[slot]) {
            self.end(CloseReason::Device(e.to_string()));
        }
    }

    /// Asks whether the peer's device still answers, unless a request asks already.
    fn probe(&mut self) -> Result<(), CloseReason> {
        if self.is_quiet() { self.post(PROBE) } else { self.check() }
    }

    /// Returns the meaning of a completion of this queue pair; a failed one ends it.
    fn event(&mut self, completion: Completion<'_>) -> Result<CompletionEvent, CloseReason> {
        if let Some(error) = completion.error() {
            return Err(self.end(CloseReason::from(error)));
        }
        if completion.queue_id() == self.send.queue_id() {
            let retired = self.send.retire(&completion).map(drop);
            return match retired {
                Ok(()) => Ok(CompletionEvent::Sent),
                Err(_) => Err(self.end(CloseReason::Protocol(ProtocolError::Completion))),
            };
        }
        let imm = completion.imm();
        let taken = self.recv.take(completion).map_err(|e| e.to_string());
        let message = taken.map_err(|e| self.end(CloseReason::Device(e)))?;
        let (bytes, slot) = (message.to_vec(), message.slot());
        drop(message);
        Ok(imm.map_or(CompletionEvent::Received(bytes, slot), CompletionEvent::Control))
    }
}

/// The half that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    line: QpEnd,
    cq: CompletionQueue,
    batch: CompletionBatch,
    /// The number that its tickets have.
    number: u32,
    /// The request of the last message.
    last: u64,
    has_credit: bool,
    limit: usize,
    common: Common,
    silence: Silence,
}

impl Sender {
    /// Takes what has completed.
    fn progress(&mut self) -> Result<(), CloseReason> {
        self.line.check()?;
        let polled = self.cq.poll(&mut self.batch);
        polled.map_err(|e| self.line.end(CloseReason::Device(e.to_string())))?;
        while let Some(completion) = self.batch.pop() {
            match self.line.event(completion)? {
                CompletionEvent::Sent => {}
                CompletionEvent::Received(bytes, slot) if bytes.is_empty() && !self.has_credit => {
                    self.has_credit = true;
                    self.line.post_receive(slot);
                }
                CompletionEvent::Received(..) => {
                    return Err(self.line.end(CloseReason::Protocol(ProtocolError::Overrun)));
                }
                CompletionEvent::Control(STOP) if self.all_acked() => {
                    return Err(self.line.end(CloseReason::Closed));
                }
                CompletionEvent::Control(STOP) => {
                    return Err(self.line.end(CloseReason::PeerClosed { unacked: 1 }));
                }
                CompletionEvent::Control(other) => {
                    return Err(self
                        .line
                        .end(CloseReason::Protocol(ProtocolError::Control(other))));
                }
            }
        }
        self.line.check()
    }

    /// Reports whether the last message, and so each of them, is acknowledged.
    fn all_acked(&self) -> bool {
        self.line.send.retired_total() >= self.last
    }

    /// Waits until `done` says so.
    fn wait(
        &mut self,
        deadline: Deadline,
        done: impl Fn(&Sender) -> bool,
    ) -> Result<(), SendError> {
        let Common { wait, keepalive, .. } = self.common;
        let look = |sender: &mut Sender| {
            // The awaited event may have happened before the end did.
            let progress = sender.progress();
            if done(sender) { Ok(Some(())) } else { progress.map(|()| None) }
        };
        let probe = |sender: &mut Sender| sender.line.probe();
        let mut silence = self.silence;
        let found = until(self, wait, keepalive, deadline, &mut silence, look, probe);
        self.silence = silence;
        found?.ok_or(SendError::TimedOut { unflushed: 0 })
    }

    fn check_length(&self, bytes: usize) -> Result<(), SendError> {
        match self.limit {
            limit if bytes > limit => Err(SendError::TooLong { bytes, limit }),
            _ => Ok(()),
        }
    }
}

impl SendHalf for Sender {
    type Room<'a> = Reserved<'a>;

    fn max_message_bytes(&self) -> usize {
        self.limit
    }

    fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        let mut room = self.try_reserve(message.len())?;
        room.write(0, message)?;
        room.commit(message.len())
    }

    /// Nothing is gathered.
    fn flush(&mut self) -> Result<(), SendError> {
        Ok(self.line.check()?)
    }

    fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        let number = ticket.number_of(self.number).ok_or(SendError::UnknownTicket)?;
        let progress = self.progress();
        match self.line.send.retired_total() >= number {
            true => Ok(true),
            false => Ok(progress.map(|()| false)?),
        }
    }

    fn try_reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        self.check_length(bytes)?;
        self.progress()?;
        // The slot of the last message is free when that is acknowledged.
        if self.has_credit && self.all_acked() {
            Ok(Reserved { sender: self, bytes })
        } else {
            Err(SendError::Full(Full::Window))
        }
    }

    /// It could return the descriptor of a completion channel; looking now and then is simpler.
    fn arm(&mut self) -> Result<Arm<'_>, SendError> {
        self.line.probe()?;
        Ok(Arm::Poll(POLL_AFTER))
    }
}

impl driven::Sender for Sender {
    fn room_until(&mut self, bytes: usize, deadline: Deadline) -> Result<(), SendError> {
        self.check_length(bytes)?;
        self.wait(deadline, |sender| sender.has_credit && sender.all_acked())
    }

    fn gather(&mut self, _: bool) -> bool {
        false
    }

    fn qp(&self) -> &ConnectedQp {
        &self.line.control
    }

    fn wait_until(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), SendError> {
        let number = ticket.number_of(self.number).ok_or(SendError::UnknownTicket)?;
        self.wait(deadline, |sender| sender.line.send.retired_total() >= number)
    }

    fn drain(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.wait(deadline, Sender::all_acked)
    }

    fn say_goodbye(&mut self, deadline: Deadline) -> Result<(), SendError> {
        self.line.post(SendOp::SendImm { len: 0, imm: GOODBYE })?;
        self.wait(deadline, |sender| sender.line.is_quiet())?;
        self.line.end(CloseReason::Closed);
        Ok(())
    }

    fn abandon(&mut self) {
        self.line.end(CloseReason::Closed);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.line.ended.is_none() {
            // A peer that has gone needs no goodbye.
            let _ = driven::Sender::goodbye(self, Deadline::after(self.common.linger));
        }
    }
}

/// Room for a message: the slot that it is sent from.
pub(crate) struct Reserved<'a> {
    sender: &'a mut Sender,
    bytes: usize,
}

impl Reserved<'_> {
    fn check(&self, end: usize) -> Result<(), SendError> {
        match self.bytes {
            limit if end > limit => Err(SendError::TooLong { bytes: end, limit }),
            _ => Ok(()),
        }
    }
}

impl Room for Reserved<'_> {
    fn capacity(&self) -> usize {
        self.bytes
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError> {
        let end = at.saturating_add(bytes.len());
        self.check(end)?;
        let slot = self.sender.line.send.next_slot();
        slot.ok_or(SendError::Full(Full::Requests))?[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn commit(self, bytes: usize) -> Result<Ticket, SendError> {
        self.check(bytes)?;
        let Reserved { sender, .. } = self;
        sender.line.post(SendOp::Send { len: bytes as u32 })?;
        (sender.has_credit, sender.last) = (false, sender.line.send.staged_total());
        Ok(Ticket::new(sender.number, sender.last))
    }
}

/// The half that receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    cq: CompletionQueue,
    batch: CompletionBatch,
    links: Vec<PeerLink>,
    /// Peers that have ever joined.
    joined: u32,
    max_peers: u32,
    /// Results that are to be handed out: at most one message a peer, and how it ended.
    next: VecDeque<Result<Received, RecvError>>,
    config: Config,
    silence: Silence,
}

/// A receiver's end of one connection.
#[derive(Debug)]
pub(crate) struct PeerLink {
    line: QpEnd,
    peer: Peer,
    /// A message of it was not handed out.
    has_message: bool,
}

/// A message.
#[derive(Debug)]
pub(crate) struct Received {
    bytes: Vec<u8>,
    peer: Peer,
    slot: u32,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl FromPeer for Received {
    fn peer(&self) -> Peer {
        self.peer
    }
}

impl Receiver {
    /// Takes what has completed.
    fn progress(&mut self) -> Result<(), RecvError> {
        let polled = self.cq.poll(&mut self.batch);
        polled.map_err(|e| CloseReason::Device(e.to_string()))?;
        while let Some(completion) = self.batch.pop() {
            let qp_num = completion.qp_num();
            let link = self.links.iter_mut().find(|link| link.line.control.qp_num() == qp_num);
            // A link that has ended may have requests that the device flushes.
            let Some(link) = link.filter(|link| link.line.ended.is_none()) else { continue };
            let peer = link.peer;
            let ended = match link.line.event(completion) {
                Ok(CompletionEvent::Sent) => continue,
                Ok(CompletionEvent::Received(bytes, slot)) if !link.has_message => {
                    link.has_message = true;
                    self.next.push_back(Ok(Received { bytes, peer, slot }));
                    continue;
                }
                Ok(CompletionEvent::Received(..)) => CloseReason::Protocol(ProtocolError::Overrun),
                Ok(CompletionEvent::Control(GOODBYE)) => CloseReason::Closed,
                Ok(CompletionEvent::Control(other)) => {
                    CloseReason::Protocol(ProtocolError::Control(other))
                }
                Err(reason) => reason,
            };
            let reason = link.line.end(ended);
            if reason != CloseReason::Closed {
                self.next.push_back(Err(RecvError::Peer { peer, reason }));
            }
        }
        Ok(())
    }

    /// Hands out what is next, and lets its sender send the next message.
    fn hand_out(&mut self) -> Option<Result<Received, RecvError>> {
        let next = self.next.pop_front()?;
        if let Ok(message) = &next
            && let Some(link) = self.links.iter_mut().find(|link| link.peer == message.peer)
            && link.line.ended.is_none()
        {
            link.has_message = false;
            link.line.post_receive(message.slot);
            if let Err(reason) = link.line.post(SendOp::Send { len: 0 }) {
                self.next.push_back(Err(RecvError::Peer { peer: link.peer, reason }));
            }
        }
        Some(next)
    }

    fn open_links(&mut self) -> impl Iterator<Item = &mut PeerLink> {
        self.links.iter_mut().filter(|link| link.line.ended.is_none())
    }

    /// Probes all peers.
    fn probe(&mut self) {
        let mut lost = Vec::new();
        for link in self.open_links() {
            if let Err(reason) = link.line.probe() {
                lost.push(Err(RecvError::Peer { peer: link.peer, reason }));
            }
        }
        self.next.extend(lost);
    }
}

impl RecvHalf for Receiver {
    type Message = Received;

    fn peers(&self) -> usize {
        self.links.iter().filter(|link| link.line.ended.is_none()).count()
    }

    fn registered_bytes(&self) -> u64 {
        self.peers() as u64 * u64::from(RECEIVES * self.config.message_bytes)
    }

    fn try_recv(&mut self) -> Result<Received, RecvError> {
        if self.next.is_empty() {
            self.progress()?;
        }
        let is_over = self.joined > 0 && self.peers() == 0;
        self.hand_out().unwrap_or(Err(if is_over { RecvError::Closed } else { RecvError::Empty }))
    }

    fn try_recv_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        let first = self.try_recv()?;
        each(first.peer, &first);
        let mut count = 1;
        // Messages that are there now, and not later ones: the call ends. The next call reports how
        // a peer ended.
        for _ in 0..self.next.len() {
            if !matches!(self.next.front(), Some(Ok(_))) {
                break;
            }
            if let Some(Ok(message)) = self.hand_out() {
                each(message.peer, &message);
                count += 1;
            }
        }
        Ok(count)
    }

    fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        self.probe();
        Ok(if self.next.is_empty() { Arm::Poll(POLL_AFTER) } else { Arm::Ready })
    }
}

impl driven::Receiver for Receiver {
    type Taken = Received;

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.links.iter().find(|link| link.peer == peer).map(|link| &link.line.control)
    }

    fn recv_until(&mut self, deadline: Deadline) -> Result<Received, RecvError> {
        if self.joined == 0 {
            return Err(RecvError::Closed);
        }
        let Common { wait, keepalive, .. } = self.config.common;
        let look = |receiver: &mut Receiver| match receiver.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(RecvError::Empty) => Ok(None),
            Err(end) => Err(end),
        };
        let probe = |receiver: &mut Receiver| {
            receiver.probe();
            Ok(())
        };
        let mut silence = self.silence;
        let found = until(self, wait, keepalive, deadline, &mut silence, look, probe);
        self.silence = silence;
        found?.ok_or(RecvError::TimedOut)
    }

    fn abandon(&mut self) {
        self.config.common.linger = Duration::ZERO;
    }
}

impl Drop for Receiver {
    /// Tells the senders that this end stops receiving.
    fn drop(&mut self) {
        for link in self.open_links() {
            // A peer that cannot be told finds its receiver gone.
            let _ = link.line.post(SendOp::SendImm { len: 0, imm: STOP });
        }
        let Common { wait, keepalive, linger, .. } = self.config.common;
        let told = |receiver: &mut Receiver| {
            receiver.progress()?;
            Ok::<_, RecvError>(receiver.open_links().all(|link| link.line.is_quiet()).then_some(()))
        };
        // Whatever goes wrong now, the receiver ends.
        let (deadline, mut silence) = (Deadline::after(linger), Silence::default());
        let _ = until(self, wait, keepalive, deadline, &mut silence, told, |_| Ok(()));
    }
}
