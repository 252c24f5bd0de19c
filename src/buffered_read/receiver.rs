//! The receiving half: one thread, any number of peers.

mod shared;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use verbs_safe::{Armed, CompletionChannel, WaitError, Wakeup};

use super::link::{BufferedReadLink, ReceiverStats};
use super::{Config, Message};
use crate::arm::{Arm, Arming, is_same};
use crate::common::Common;
use crate::error::{CloseReason, ConnectError, Losses, RecvError};
use crate::half::{RecvHalf, driven};
use crate::keepalive::{ProbeRounds, SILENT};
use crate::new_pair::LinkHost;
use crate::peer::Peer;
use crate::ring::turns::Turns;
use crate::wait::{
    Deadline, Idle, POLL_SLEEP, WaitStep, WaitStrategy, poll_after, shares_processor,
};
use crate::wire::ConnectedQp;

pub use shared::{SharedMessage, SharedReceiver, Transfers};

/// The receiving half of one connection, or of many, which take turns.
///
/// The receiver posts READs and tells heads in the calls that receive, when it has nothing
/// left to hand out of the current peer. Other threads may drop messages meanwhile.
///
/// A peer that has had nothing to send for some rounds is left out of the next ones, of
/// more and more of them up to [`idle_rounds`](Config::idle_rounds): it costs nothing
/// meanwhile.
#[derive(Debug)]
pub struct Receiver {
    links: Vec<Option<Box<BufferedReadLink>>>,
    /// The place of the current peer.
    current: u32,
    turns: Turns,
    /// Links that are over, until their last request has completed.
    leaving: Vec<BufferedReadLink>,
    next_peer: u32,
    max_peers: u32,
    common: Common,
    arming: Arming,
    /// Until then the first try after an [arming](RecvHalf::arm) READs no tail if nothing has
    /// arrived: otherwise each READ of a tail would wake the program, which would READ the tail
    /// again.
    quiet: Option<Deadline>,
    /// Rounds in which the tails of peers that rest are read as well.
    rounds: ProbeRounds,
    losses: Losses,
    /// True if there was a try since the arming: a program that polls does not wait for the
    /// descriptor.
    has_tried: bool,
    max_sleep: Duration,
    /// Its messages, and the work of links that have gone.
    stats: ReceiverStats,
}

/// Making, inspecting.
impl Receiver {
    /// A shorter one would cost more than it saves.
    const SHORTEST_SLEEP: Duration = Duration::from_micros(20);

    pub(super) fn new(config: &Config, max_peers: u32) -> Receiver {
        Receiver {
            links: Vec::new(),
            current: u32::MAX,
            turns: Turns::new(config.idle_rounds),
            leaving: Vec::new(),
            next_peer: 0,
            max_peers,
            common: config.common,
            arming: Arming::default(),
            quiet: None,
            rounds: ProbeRounds::default(),
            losses: Losses::default(),
            has_tried: false,
            max_sleep: config.max_sleep.max(Self::SHORTEST_SLEEP),
            stats: ReceiverStats::default(),
        }
    }

    /// Checks that one more peer can join.
    pub(super) fn check_vacancy(&self) -> Result<(), ConnectError> {
        match self.peers() < self.max_peers as usize {
            true => Ok(()),
            false => Err(ConnectError::TooManyPeers(self.max_peers)),
        }
    }

    /// Returns the counters, which include senders that have left.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let links = self.links.iter().flatten().map(|link| &**link);
        links.chain(&self.leaving).fold(self.stats, |sum, link| sum.plus(link.work()))
    }

    /// The queue pairs of the peers that are connected.
    #[must_use]
    pub fn qp_nums(&self) -> Vec<u32> {
        self.links.iter().flatten().map(|link| link.qp_num()).collect()
    }
}

impl LinkHost for Receiver {
    type Link = Box<BufferedReadLink>;

    fn add(&mut self, mut link: Box<BufferedReadLink>) -> Peer {
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
}

impl driven::Receiver for Receiver {
    type Taken = Message;

    #[cold]
    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        if self.next_peer == 0 {
            // No peer can join while we wait: a wait would never end.
            return Err(RecvError::Closed);
        }
        let idle = Idle::new(self.common.wait, deadline, self.common.keepalive);
        self.quiet = None;
        recv_until(self, idle, Receiver::try_recv, Receiver::sleep_on_channels)
    }

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.links.iter().flatten().find(|link| link.peer == peer).map(|link| link.qp())
    }

    fn abandon(&mut self) {
        self.common.linger = Duration::ZERO;
    }
}

impl Receiver {
    /// Tells the senders that this end stops, and waits until they know, for at most `linger`.
    fn stop(&mut self) {
        let mut links: Vec<BufferedReadLink> =
            self.links.iter_mut().filter_map(Option::take).map(|link| *link).collect();
        links.iter_mut().for_each(|link| link.stop());
        links.append(&mut self.leaving);
        let linger = self.common.linger;
        let mut idle = Idle::new(WaitStrategy::Spin, Deadline::after(linger), linger);
        while !links.iter_mut().all(|link| link.is_quiet()) {
            if idle.step() == WaitStep::TimedOut {
                break;
            }
        }
    }
}

impl RecvHalf for Receiver {
    type Message = Message;

    /// A sender wakes a receiver that is armed, and may miss that: the descriptor is readable
    /// after [`max_sleep`](Config::max_sleep), too.
    fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        let channels = self.channels();
        // Peers of several devices have a channel each, and one descriptor is for one of them.
        let [channel] = &channels[..] else { return Ok(Arm::Poll(poll_after(self.wait()))) };
        let device = |e: &dyn std::fmt::Display| CloseReason::Device(e.to_string());
        self.arming.disarm(Some(channel)).map_err(|e| device(&e))?;
        if !self.prepare_sleep() {
            return Ok(Arm::Ready);
        }
        for armed in self.arm_links(channel) {
            self.arming.note(armed);
        }
        if !self.prepare_sleep() {
            return Ok(Arm::Ready);
        }
        let awaits_frees = self.links.iter_mut().flatten().any(|link| link.awaits_frees());
        let keepalive = self.common.keepalive;
        let within = if awaits_frees { POLL_SLEEP } else { self.max_sleep.min(keepalive) };
        let quiet = *self.quiet.get_or_insert_with(|| Deadline::after(within));
        self.has_tried = false;
        let within = within.min(quiet.remaining(host::time::now()));
        let descriptor = self.arming.descriptor(channel, None, within);
        Ok(Arm::Fd(descriptor.map_err(|e| device(&e))?))
    }

    fn peers(&self) -> usize {
        self.links.iter().flatten().count()
    }

    fn registered_bytes(&self) -> u64 {
        self.links.iter().flatten().map(|link| link.registered_bytes()).sum()
    }

    #[inline]
    fn try_recv(&mut self) -> Result<Message, RecvError> {
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

    #[inline]
    fn try_recv_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
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

    #[inline]
    fn free(&mut self, message: Message) {
        let Message { bytes, place, .. } = message;
        // A message of an earlier link of the place is dropped.
        if let Some(Some(link)) = self.links.get_mut(place as usize) {
            link.free(bytes);
        }
    }
}

/// Receiving.
impl Receiver {
    /// Sleeps until there is something to look at; no longer than `time` and
    /// [`max_sleep`](Config::max_sleep).
    fn sleep_on_channels(&mut self, time: Duration, idle: &mut Idle) -> Result<(), RecvError> {
        if self.wake_resting() {
            return Ok(());
        }
        let channels = self.channels();
        let Some((first, others)) = channels.split_first() else {
            host::time::sleep(idle.short_sleep(time));
            return Ok(());
        };
        let descriptors: Vec<BorrowedFd<'_>> = others.iter().map(AsFd::as_fd).collect();
        let until = Deadline::after(time.min(self.max_sleep));
        let device = |e: WaitError| RecvError::Ended(CloseReason::Device(e.to_string()));
        // Armed before the second look, so that later arrivals wake us.
        while self.prepare_sleep() {
            let armed: Vec<_> = channels.iter().map(|channel| self.arm_links(channel)).collect();
            if !self.prepare_sleep() {
                break;
            }
            let mut left = until.remaining(host::time::now());
            if left.is_zero() {
                break;
            }
            if self.links.iter_mut().flatten().any(|link| link.awaits_frees()) {
                left = idle.short_sleep(left);
            }
            let of = |at: usize| armed[at].iter().collect::<Vec<_>>();
            match first.wait_with(&of(0), &descriptors, Some(left)).map_err(device)? {
                Wakeup::Completion(_) => {}
                Wakeup::Descriptor(at) => {
                    let none = Some(Duration::ZERO);
                    others[at].wait_with(&of(at + 1), &[], none).map_err(device)?;
                }
                Wakeup::Timeout => break,
            }
        }
        Ok(())
    }

    /// Prepares every link for a sleep; false when one of them has work.
    fn prepare_sleep(&mut self) -> bool {
        // All links: a request that is not posted now is not posted until the sleep is over.
        let mut is_ready = true;
        for link in self.links.iter_mut().flatten() {
            is_ready &= link.prepare_sleep();
        }
        is_ready
    }

    /// Requests an event for the next completion of every link that announces them on
    /// `channel`.
    fn arm_links(&mut self, channel: &CompletionChannel) -> Vec<Armed> {
        let is_its =
            |link: &&mut Box<BufferedReadLink>| link.channel().is_some_and(|c| is_same(c, channel));
        self.links.iter_mut().flatten().filter(is_its).filter_map(|link| link.arm()).collect()
    }

    /// Returns the strategy by which its thread waits.
    pub(super) fn wait(&self) -> WaitStrategy {
        self.common.wait
    }

    /// The channels that its links tell of completions: one for each context of a device.
    pub(super) fn channels(&self) -> Vec<CompletionChannel> {
        let mut channels: Vec<CompletionChannel> = Vec::new();
        for channel in self.links.iter().flatten().filter_map(|link| link.channel()) {
            if channels.iter().all(|known| !is_same(known, channel)) {
                channels.push(channel.clone());
            }
        }
        channels
    }
}

/// Calls `try_recv` until it receives, and sleeps in between.
fn recv_until<R, T>(
    receiver: &mut R,
    mut idle: Idle,
    try_recv: impl Fn(&mut R) -> Result<T, RecvError>,
    sleep: impl Fn(&mut R, Duration, &mut Idle) -> Result<(), RecvError>,
) -> Result<T, RecvError> {
    loop {
        match try_recv(receiver) {
            Err(RecvError::Empty) => {}
            done => return done,
        }
        match idle.step() {
            WaitStep::Again => {}
            // The READ of the tail is the probe.
            WaitStep::Probe => tracing::debug!("{SILENT}"),
            WaitStep::Sleep(time) => sleep(receiver, time, &mut idle)?,
            WaitStep::TimedOut => return Err(RecvError::TimedOut),
        }
    }
}

/// Taking turns.
impl Receiver {
    /// Turns to the next peer that has messages, when all that has landed of the current one
    /// was handed out.
    ///
    /// # Errors
    /// When no peer has any, or one has failed.
    #[inline(never)]
    fn go_on(&mut self) -> Result<(), RecvError> {
        if self.is_quiet() {
            self.let_go();
            return Err(RecvError::Empty);
        }
        // Finishes this round, and serves one whole round. On a shared processor no sender runs
        // between two looks, so only links that are behind get a second one.
        let looks_once = self.turns.is_new_round() && shares_processor();
        let mut rounds = 0;
        while rounds < 2 {
            let Some(place) = self.turns.next() else {
                rounds += 1;
                continue;
            };
            let Some(Some(link)) = self.links.get_mut(place as usize) else { continue };
            if rounds > 0 && looks_once && !link.is_behind() {
                continue;
            }
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
        Err(if is_over { self.losses.end(self.next_peer) } else { RecvError::Empty })
    }

    /// True if nothing has arrived since a descriptor was armed.
    #[inline]
    fn is_quiet(&mut self) -> bool {
        let Some(quiet) = self.quiet.take() else { return false };
        let is_over = quiet.has_passed(host::time::now()) || self.wake_resting();
        let has_tried = std::mem::replace(&mut self.has_tried, true);
        let is_quiet = !is_over && !has_tried && self.prepare_sleep();
        self.quiet = is_quiet.then_some(quiet);
        is_quiet
    }

    /// Begins a round, if one is due, in which the tails of peers that rest are read as well: the
    /// READ of its tail finds a dead peer.
    fn wake_resting(&mut self) -> bool {
        let is_due = self.rounds.is_due(host::time::now(), self.common.keepalive);
        if is_due {
            self.turns.wake_all();
        }
        is_due
    }

    /// Looks that find nothing before a peer rests.
    const LOOKS: u32 = 4;

    /// A link is over.
    #[cold]
    fn part_with(&mut self, place: u32, reason: CloseReason) -> Result<(), RecvError> {
        self.turns.remove(place);
        let Some(mut link) = self.links[place as usize].take() else { return Ok(()) };
        let peer = link.peer;
        if reason == CloseReason::Closed && !link.is_quiet() {
            self.leaving.push(*link);
        } else {
            self.stats = self.stats.plus(link.work());
        }
        match reason {
            CloseReason::Closed => Ok(()),
            reason => Err(self.losses.report(peer, reason)),
        }
    }

    /// Drops the links that have nothing more to send.
    fn let_go(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let stats = &mut self.stats;
        self.leaving.retain_mut(|link| {
            let stays = !link.is_quiet();
            if !stays {
                *stats = stats.plus(link.work());
            }
            stays
        });
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
