//! The receiving half: one thread, any number of peers.

mod shared;

use std::time::Duration;

use super::link::{Link, Work};
use super::{Config, Message};
use crate::ring::turns::Turns;
use crate::send_recv::{ConnectError, Ended, Peer, RecvError};
use crate::wait::{Deadline, Idle, Nap, SILENT, Step, WaitStrategy};

pub use shared::{SharedMessage, SharedReceiver, Transfers};

/// What a receiver has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed: READs of data and tails, and WRITEs of heads.
    pub work_requests: u64,
    /// READs of data.
    pub reads: u64,
    /// The bytes that they brought: divided by `reads`, the mean transfer.
    pub read_bytes: u64,
    /// READs of a tail.
    pub tail_reads: u64,
    /// WRITEs that told a sender how far its ring is free.
    pub heads_written: u64,
}

/// The receiving half of one connection, or of many, which take turns.
///
/// Whatever the receiver has to do (reading on, telling heads) it does in the calls that
/// receive, when it has nothing left to hand out of a peer whose turn it is. Messages may
/// be dropped by other threads meanwhile.
///
/// A peer that has had nothing to send for some rounds is left out of the next ones, of
/// more and more of them up to [`idle_rounds`](Config::idle_rounds): it costs nothing
/// meanwhile.
#[derive(Debug)]
pub struct Receiver {
    links: Vec<Option<Box<Link>>>,
    /// The place whose turn it is.
    current: u32,
    turns: Turns,
    /// Links that are over, until their last request has completed.
    leaving: Vec<Link>,
    /// What those did that have gone.
    gone: Work,
    next_peer: u32,
    max_peers: u32,
    wait: WaitStrategy,
    keepalive: Duration,
    linger: Duration,
    stats: ReceiverStats,
}

/// Making, inspecting.
impl Receiver {
    pub(super) fn new(config: &Config, max_peers: u32) -> Receiver {
        Receiver {
            links: Vec::new(),
            current: u32::MAX,
            turns: Turns::new(config.idle_rounds),
            leaving: Vec::new(),
            gone: Work::default(),
            next_peer: 0,
            max_peers,
            wait: config.wait,
            keepalive: config.keepalive,
            linger: config.linger,
            stats: ReceiverStats::default(),
        }
    }

    /// Whether one more peer can join.
    pub(super) fn check_vacancy(&self) -> Result<(), ConnectError> {
        match self.peers() < self.max_peers as usize {
            true => Ok(()),
            false => Err(ConnectError::TooManyPeers(self.max_peers)),
        }
    }

    pub(super) fn add(&mut self, mut link: Box<Link>) -> Peer {
        let peer = Peer(self.next_peer);
        self.next_peer += 1;
        link.peer = peer;
        let vacant = self.links.iter().position(Option::is_none);
        let place = vacant.unwrap_or(self.links.len());
        if vacant.is_none() {
            self.links.push(None);
        }
        self.links[place] = Some(link);
        self.turns.add(place as u32);
        peer
    }

    /// Senders that are connected now.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.links.iter().flatten().count()
    }

    /// What was done so far, for the senders that have gone as well.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let links = self.links.iter().flatten().map(|link| &**link);
        let work = links.chain(&self.leaving).fold(self.gone, |sum, link| sum.plus(link.work()));
        let Work { work_requests, reads, read_bytes, tail_reads, words_written } = work;
        let heads_written = words_written;
        let ReceiverStats { messages, bytes, .. } = self.stats;
        ReceiverStats {
            messages,
            bytes,
            work_requests,
            reads,
            read_bytes,
            tail_reads,
            heads_written,
        }
    }

    /// Bytes of rings registered now to receive into.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.links.iter().flatten().map(|link| link.registered_bytes()).sum()
    }

    /// The queue pairs of the peers that are connected.
    #[must_use]
    pub fn qp_nums(&self) -> Vec<u32> {
        self.links.iter().flatten().map(|link| link.qp_num()).collect()
    }
}

/// Receiving.
impl Receiver {
    /// The next message if there is one; never waits.
    ///
    /// # Errors
    /// [`RecvError::Empty`] when there is none now, or as many are held as
    /// [`lendable`](Config::lendable) permits; [`RecvError::Closed`] when there never will
    /// be; [`RecvError::Peer`] once for each connection that failed.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Message, RecvError> {
        loop {
            if let Some(Some(link)) = self.links.get_mut(self.current as usize)
                && let Some(bytes) = link.next()
            {
                self.stats.messages += 1;
                self.stats.bytes += bytes.len() as u64;
                return Ok(Message { bytes, peer: link.peer, place: self.current });
            }
            self.go_on()?;
        }
    }

    /// Receives the messages that are there of the peer whose turn it is, and returns how
    /// many: `each` is shown who has sent a message, and its bytes, and the message is free
    /// when `each` returns. It costs less than [`try_recv`](Receiver::try_recv) and
    /// [`free`](Receiver::free) for each of them. If `each` panics, the messages after that
    /// one are still to be received.
    ///
    /// ```
    /// use rdma_conn::buffered_read::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// for number in 0..100_u8 {
    ///     a.sender.send_async(&[number])?;
    /// }
    /// let mut sum = 0;
    /// while let Ok(count) = b.receiver.try_recv_each(|_, message| sum += u32::from(message[0])) {
    ///     assert!(count > 0);
    /// }
    /// assert_eq!(sum, 99 * 100 / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv).
    #[inline]
    pub fn try_recv_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        loop {
            if let Some(Some(link)) = self.links.get_mut(self.current as usize) {
                let (count, bytes) = link.for_each(&mut each);
                if count > 0 {
                    self.stats.messages += count;
                    self.stats.bytes += bytes;
                    return Ok(count as usize);
                }
            }
            self.go_on()?;
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv), without `Empty`; [`RecvError::Closed`] also
    /// when no sender has joined yet.
    #[inline]
    pub fn recv(&mut self) -> Result<Message, RecvError> {
        match self.try_recv() {
            Err(RecvError::Empty) => self.recv_until(Deadline::NEVER),
            done => done,
        }
    }

    /// Waits for the next message, for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message, RecvError> {
        match self.try_recv() {
            Err(RecvError::Empty) => self.recv_until(Deadline::after(timeout)),
            done => done,
        }
    }

    /// Frees a message on the receiver's own thread: what dropping it does, at less cost.
    #[inline]
    pub fn free(&mut self, message: Message) {
        let Message { bytes, place, .. } = message;
        // Of another link than the one that is there now, it is dropped.
        if let Some(Some(link)) = self.links.get_mut(place as usize) {
            link.free(bytes);
        }
    }

    /// Tells every sender that this end stops receiving, and ends. Messages that were not
    /// received are lost: receive until [`RecvError::Closed`] first.
    pub fn close(mut self) {
        self.stop();
    }

    #[cold]
    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        if self.next_peer == 0 {
            // Nobody can join while we wait: a wait would never end.
            return Err(RecvError::Closed);
        }
        let idle = Idle::new(self.wait, deadline, self.keepalive);
        let tell_all =
            |me: &mut Self| me.links.iter_mut().flatten().for_each(|link| link.tell_all());
        recv_until(self, idle, Receiver::try_recv, tell_all)
    }
}

/// Waits for what `try_recv` receives. Nothing wakes who waits: it naps, and before that it
/// tells the senders all that they do not know.
fn recv_until<R, T>(
    receiver: &mut R,
    mut idle: Idle,
    try_recv: impl Fn(&mut R) -> Result<T, RecvError>,
    tell_all: impl Fn(&mut R),
) -> Result<T, RecvError> {
    let mut nap = Nap::new();
    loop {
        match try_recv(receiver) {
            Err(RecvError::Empty) => {}
            done => return done,
        }
        match idle.step() {
            Step::Again => {}
            // To look at a tail is to ask.
            Step::Probe => tracing::debug!("{SILENT}"),
            Step::Sleep(time) => {
                tell_all(receiver);
                nap.take(time);
            }
            Step::TimedOut => return Err(RecvError::TimedOut),
        }
    }
}

/// Taking turns.
impl Receiver {
    /// Goes on when all that has landed of the peer whose turn it is was handed out: to the
    /// next one that has something.
    ///
    /// # Errors
    /// When nobody has.
    #[inline(never)]
    fn go_on(&mut self) -> Result<(), RecvError> {
        // What is left of this round, and one whole round.
        let mut rounds = 0;
        while rounds < 2 {
            let Some(place) = self.turns.next() else {
                rounds += 1;
                continue;
            };
            let Some(Some(link)) = self.links.get_mut(place as usize) else { continue };
            if link.drive() {
                self.current = place;
                return Ok(());
            }
            if let Some(ended) = link.end() {
                self.part_with(place, ended)?;
            } else if link.vain_looks() > Self::LOOKS {
                self.turns.rest(place, link.vain_looks() - Self::LOOKS);
            }
        }
        self.current = u32::MAX;
        self.let_go();
        let is_over = self.next_peer > 0 && self.peers() == 0;
        Err(if is_over { RecvError::Closed } else { RecvError::Empty })
    }

    /// Looks in vain before a peer rests.
    const LOOKS: u32 = 4;

    /// A link is over.
    #[cold]
    fn part_with(&mut self, place: u32, ended: Ended) -> Result<(), RecvError> {
        self.turns.remove(place);
        let Some(mut link) = self.links[place as usize].take() else { return Ok(()) };
        let peer = link.peer;
        if ended == Ended::Closed && !link.is_quiet() {
            self.leaving.push(*link);
        } else {
            self.gone = self.gone.plus(link.work());
        }
        match ended {
            Ended::Closed => Ok(()),
            ended => Err(RecvError::Peer { peer, ended }),
        }
    }

    /// Those go that have nothing more to say.
    fn let_go(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let gone = &mut self.gone;
        self.leaving.retain_mut(|link| {
            let stays = !link.is_quiet();
            if !stays {
                *gone = gone.plus(link.work());
            }
            stays
        });
    }

    fn stop(&mut self) {
        let mut links: Vec<Link> =
            self.links.iter_mut().filter_map(Option::take).map(|link| *link).collect();
        links.iter_mut().for_each(|link| link.stop());
        links.append(&mut self.leaving);
        let deadline = Deadline::after(self.linger);
        let mut idle = Idle::new(WaitStrategy::Spin, deadline, self.linger);
        while !links.iter_mut().all(|link| link.is_quiet()) {
            if idle.step() == Step::TimedOut {
                break;
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}
