//! One member, driven over verbs.

mod writes;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conn_core::multicast::{
    Config as CoreConfig, Contact, Counts, Delivery, MAX_MEMBERS, Member, MemberInfo, Members,
    Rank, Status,
};
use verbs_safe::{CompletionBatch, CompletionQueue, CqConfig, RemoteAccess, SharedRegion};

use super::backoff::IdleBackoff;
use super::error::GroupError;
use super::memory::{Private, repair_area};
use super::peer::{DEPTH, GroupPeer};
use super::sender::{Sender, Slots};
use crate::device::Device;
use crate::error::ConnectError;
use crate::raw::Link;
use crate::ring::memory::{peer_memory, register_ring};
use crate::wait::Deadline;

/// A message, lent until the group is asked for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'g> {
    /// The member that sent it.
    pub from: Rank,
    /// Turns of its sender that came before it: its number, where its sender neither flushes nor
    /// sends nulls.
    pub turn: u64,
    /// Its bytes: this member's own copy, which no peer can change.
    pub bytes: &'g [u8],
}

/// One member of a group. Its owner drives it: it makes progress in [`poll`](Self::poll), and
/// in no other way. [`spawn`](Self::spawn) gives it a thread.
pub struct Group {
    machine: Member,
    slots: Arc<Slots>,
    peers: Vec<Option<GroupPeer>>,
    private: Vec<Private>,
    repair: SharedRegion,
    cq: CompletionQueue,
    batch: CompletionBatch,
    began: Instant,
    /// Tail of the own ring at the last look.
    looked: u64,
    has_ended: bool,
    /// Declared last: it is dropped after the objects made from it.
    device: Device,
}

/// Set-up.
impl Group {
    /// A member before its connection to the peers.
    pub(super) fn new(
        device: &Device,
        core: CoreConfig,
        link: Link,
    ) -> Result<Group, ConnectError> {
        // The keys of a member give access to the group's memory, and not to other connections.
        let device = &device.isolated()?;
        let rank = core.rank;
        let began = host::time::now();
        let machine = Member::new(core, 0).expect("a validated configuration");
        let shape = (core.capacity, core.is_mirrored);
        let own = register_ring(device, device.pd(), shape, RemoteAccess::NONE)?;
        let areas = repair_area(&core) * usize::from(core.members - 1);
        let repair = peer_memory(device, device.pd(), areas as u64, RemoteAccess::NONE)?;
        let entries = DEPTH * u32::from(core.members - 1);
        let cq = device.context().create_cq(CqConfig::new(entries));
        let cq = cq.map_err(|e| device.error("create a completion queue", &e))?;
        let peer = |other| {
            let is_peer = Rank(other) != rank;
            let new = || GroupPeer::new(device, &core, &cq, (&own, &repair), link);
            is_peer.then(new).transpose()
        };
        let peers = (0..core.members).map(peer).collect::<Result<_, _>>()?;
        Ok(Group {
            machine,
            slots: Arc::new(Slots::new(&core, own)?),
            peers,
            private: (0..core.members).map(|_| Private::new(&core)).collect::<Result<_, _>>()?,
            repair,
            cq,
            batch: CompletionBatch::new(64),
            began,
            looked: 0,
            has_ended: false,
            device: device.clone(),
        })
    }

    /// The parameters that the others need to write to this member.
    pub(super) fn info(&self) -> Result<MemberInfo, ConnectError> {
        let config = self.machine.config();
        let mut info = MemberInfo {
            rank: config.rank,
            members: config.members,
            lid: 0,
            mtu_bytes: 0,
            gid: [0; 16],
            contacts: [Contact::default(); MAX_MEMBERS],
        };
        for (contact, peer) in info.contacts.iter_mut().zip(&self.peers) {
            let Some(peer) = peer else { continue };
            let endpoint = peer.endpoint();
            (info.lid, info.gid, info.mtu_bytes) = (endpoint.lid, endpoint.gid, peer.mtu_bytes());
            *contact = peer.contact(&self.device)?;
        }
        Ok(info)
    }

    /// Joins this member to all others, by their member infos in the order of ranks.
    pub(super) fn join_all(&mut self, infos: &[MemberInfo]) -> Result<(), ConnectError> {
        let me = self.rank().index();
        for (peer, info) in self.peers.iter_mut().zip(infos) {
            if let Some(peer) = peer {
                peer.join(info, &info.contacts[me])?;
            }
        }
        Ok(())
    }

    /// Time begins when all are there.
    pub(super) fn begin(&mut self) {
        self.began = host::time::now();
    }
}

/// Inspecting.
impl Group {
    /// This member's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.machine.config().rank
    }

    /// Returns the number of members.
    #[must_use]
    pub fn members(&self) -> u8 {
        self.machine.config().members
    }

    /// The group as the protocol knows it.
    #[must_use]
    pub fn config(&self) -> &CoreConfig {
        self.machine.config()
    }

    /// The sender of this member's messages.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(self.slots.clone())
    }

    /// Returns the counts of this member: messages delivered, writes posted.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        self.machine.counts()
    }

    /// The members that were cut off.
    #[must_use]
    pub fn cut_off(&self) -> Members {
        self.machine.suspected()
    }

    /// Reports whether all that will ever be delivered has been: all streams have ended, or the
    /// group has failed and the survivors have agreed on the end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.machine.status(), Status::Finished)
    }

    /// Returns the reason why the group takes no more messages; `None` while it takes them.
    /// Continue to [`poll`](Self::poll) until it [is finished](Self::is_finished), to deliver the
    /// same messages as all survivors.
    #[must_use]
    pub fn error(&self) -> Option<GroupError> {
        if let Status::Excluded { by } = self.machine.status() {
            return Some(GroupError::Excluded { by });
        }
        let member = self.machine.suspected().lowest()?;
        let reason = self.machine.reason(member)?;
        Some(GroupError::CutOff { member, reason })
    }
}

/// Driving it.
impl Group {
    /// Reads the peers' rows, posts the writes that are due at the time `now`, and hands newly
    /// stable messages to `deliver`, in the group's order. Returns their number.
    pub fn poll(&mut self, now: Instant, mut deliver: impl FnMut(Message<'_>)) -> usize {
        self.progress(now);
        let mut count = 0;
        while let Some(message) = self.next_message() {
            deliver(message);
            count += 1;
        }
        count
    }

    /// The messages that are stable now, as an iterator that lends: `while let`.
    /// [`progress`](Self::progress) brings new ones.
    #[inline]
    pub fn next_message(&mut self) -> Option<Message<'_>> {
        let Group { machine, private, .. } = self;
        let next = machine.next_delivery(|of, at| private[of.index()].word(at));
        let Some(Delivery { from, turn, span }) = next else {
            self.free();
            return None;
        };
        Some(Message { from, turn, bytes: self.private[from.index()].message(span) })
    }

    /// Reads the peers' rows, and posts the writes that are due at the time `now`.
    pub fn progress(&mut self, now: Instant) {
        let now_ns = now.saturating_duration_since(self.began).as_nanos() as u64;
        self.take_in(now_ns);
        self.put_end();
        self.push(now_ns);
        // Messages that were just accepted may wait for turns of this member: its nulls go out
        // in this pass, because each pass of delay leaves more messages waiting.
        if self.put_nulls() {
            self.take_own(now_ns);
            self.push(now_ns);
        }
        self.reap();
        if self.machine.suspected().bits() != 0 || self.error().is_some() {
            self.fail();
        }
    }

    /// As [`poll`](Self::poll), by a thread that has nothing else to do. If nothing happened, it
    /// waits until work is due or `deadline`. In a member with a thread of its own, an accepted
    /// message ends the wait, too.
    pub(super) fn pass(
        &mut self,
        backoff: &mut IdleBackoff,
        deadline: Deadline,
        deliver: impl FnMut(Message<'_>),
    ) {
        if self.work(deliver) {
            return backoff.end();
        }
        let wants = Duration::from_nanos(self.machine.wants_ns());
        let until = Deadline::at(self.began.checked_add(wants)).or_earlier(deadline);
        if let Some(time) = backoff.pause(until) {
            self.slots.sleep(self.looked, time);
        }
    }

    /// Makes the calling thread the driver of this member: an accepted message ends its sleep.
    pub(super) fn driven_here(&self) {
        self.slots.driven_here();
    }

    /// As [`poll`](Self::poll); returns true if anything has happened. Accepted messages count even
    /// while their push is inhibited: they begin a batch, and a sleeping thread would see its end
    /// late.
    pub(super) fn work(&mut self, deliver: impl FnMut(Message<'_>)) -> bool {
        let before = (self.counts().writes(), self.machine.accepted());
        let delivered = self.poll(host::time::now(), deliver);
        delivered > 0 || (self.counts().writes(), self.machine.accepted()) != before
    }

    fn take_in(&mut self, now_ns: u64) {
        let Group { machine, peers, .. } = self;
        for from in machine.reachable().iter() {
            if let Some(peer) = &peers[from.index()] {
                machine.on_row(from, now_ns, |word| peer.row_word(word));
            }
        }
        self.take_own(now_ns);
        let Group { machine, peers, private, .. } = self;
        let area = |from: Rank| peers[from.index()].as_ref().expect("a peer");
        while let Some(copy) = machine.next_repair(|from, word| area(from).repair_word(word)) {
            let peer = area(copy.from);
            private[copy.of.index()].repair(copy, &peer.rows, peer.layout().repair);
        }
    }

    /// Takes the tail of the own ring, and copies new bytes of all rings.
    fn take_own(&mut self, now_ns: u64) {
        let Group { machine, peers, private, slots, looked, .. } = self;
        *looked = slots.tail();
        machine.on_tail(*looked, now_ns);
        while let Some(copy) = machine.next_copy() {
            let private = &mut private[copy.of.index()];
            match &peers[copy.of.index()] {
                Some(peer) => private.copy(copy, &peer.slots),
                None => private.copy(copy, slots.region()),
            }
        }
    }

    /// Ends the own stream, once all messages that were begun lie in it.
    fn put_end(&mut self) {
        if !self.has_ended {
            self.has_ended = self.slots.put_end(self.machine.sent_turns());
        }
    }

    /// Puts due nulls into the own stream; returns true if there were any.
    fn put_nulls(&mut self) -> bool {
        let nulls = self.machine.nulls_due();
        if nulls > 0 {
            self.slots.put_nulls(nulls);
        }
        nulls > 0
    }

    /// Frees delivered messages.
    #[inline]
    fn free(&mut self) {
        let (position, turn) = self.machine.freed();
        self.slots.free(position, turn);
    }

    #[cold]
    fn fail(&self) {
        if let Some(error) = self.error() {
            self.slots.fail(error);
        }
    }
}

/// Ending it.
impl Group {
    /// Ends the stream of this member, and drives it until all streams have ended and all is
    /// delivered, for at most `limit`. A limit beyond the range of the clock is none.
    ///
    /// # Errors
    /// [`GroupError`]: the group has failed. The messages that the survivors agreed on were
    /// delivered, as far as possible within `limit`. [`GroupError::TimedOut`]: the group has not
    /// failed, but timed out.
    pub fn finish(
        self,
        limit: Duration,
        deliver: impl FnMut(Message<'_>),
    ) -> Result<Counts, GroupError> {
        self.sender().end();
        self.drive_to_end(false, limit, deliver)
    }

    /// Leaves while others may still be sending: delivers until the own messages are, says
    /// goodbye, and waits until that has arrived. For the others, the group ends.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn leave(
        self,
        limit: Duration,
        deliver: impl FnMut(Message<'_>),
    ) -> Result<Counts, GroupError> {
        self.drive_to_end(true, limit, deliver)
    }

    fn drive_to_end(
        mut self,
        early: bool,
        limit: Duration,
        mut deliver: impl FnMut(Message<'_>),
    ) -> Result<Counts, GroupError> {
        let (deadline, mut backoff) = (Deadline::after(limit), IdleBackoff::default());
        while !self.may_go() && !deadline.has_passed(host::time::now()) {
            self.pass(&mut backoff, deadline, &mut deliver);
            if early && self.machine.is_delivered(self.slots.tail()) {
                self.machine.leave();
            }
        }
        let has_left = self.machine.status() == Status::Left;
        match self.error() {
            Some(error) if !has_left => Err(error),
            _ if has_left || self.is_finished() => Ok(*self.counts()),
            _ => Err(GroupError::TimedOut { unsent: self.slots.unsent() }),
        }
    }

    /// Reports whether the goodbye has arrived, or no member waits for one.
    fn may_go(&self) -> bool {
        let is_excluded = matches!(self.machine.status(), Status::Excluded { .. });
        // A peer that has left needs no further writes.
        let is_idle = |rank: Rank| self.peers[rank.index()].as_ref().is_none_or(GroupPeer::is_idle);
        let is_quiet = self.machine.reachable().iter().all(is_idle);
        is_excluded || (self.machine.has_said_goodbye() && is_quiet)
    }
}

/// Calls that send or wait in other threads end with an error: no thread delivers any more.
impl Drop for Group {
    fn drop(&mut self) {
        self.slots.fail(self.error().unwrap_or(GroupError::Gone));
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("rank", &self.rank())
            .field("status", &self.machine.status())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
