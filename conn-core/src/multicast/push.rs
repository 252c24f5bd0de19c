//! Decisions to push counters and slots.

use super::repair_header::RepairHeader;
use super::{Member, Members, Policy, Rank, Span, Words};
use crate::push_inhibitor::PushCause;

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// These bytes of the own slot ring, to the same offset of the copies at the others. Where
    /// the rings are mirrored, they may reach beyond the end.
    Slots(Span),
    /// These words of the own row ([`Member::row_words`]), as they are *now*: a device that
    /// fetches them later must not see newer ones, which belong to slots that are not
    /// written yet.
    Row(Words),
    /// A repair: its header, and behind it the bytes that it names, from the private copy of
    /// that member's ring; to the beginning of the own repair area at the others.
    Repair(RepairHeader),
}

/// A write to several members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// The members to write to. The set may be empty. It may contain suspects: those that can
    /// be reached learn from the write that they are suspected.
    pub to: Members,
    /// The write.
    pub write: Write,
}

impl Member {
    /// The next push, at the time `now_ns`. `header` loads the u64 at an offset of the
    /// private copy of a member's ring.
    #[inline]
    pub fn next_push(
        &mut self,
        now_ns: u64,
        mut header: impl FnMut(Rank, u64) -> u64,
    ) -> Option<Push> {
        loop {
            if !self.is_running() {
                return None;
            }
            if let Some(push) = self.take_due(now_ns) {
                return Some(push);
            }
            if !self.decide(now_ns, &mut header) {
                return None;
            }
        }
    }

    /// Returns the nearest deadline, in nanoseconds: drive the machine then, even if nothing has
    /// arrived.
    pub fn wants_ns(&self) -> u64 {
        let health = self.pushing.health_ns.saturating_add(self.config.health_ns);
        let inhibited = [self.pushing.slots.wants_ns(), self.pushing.received.wants_ns()];
        inhibited.into_iter().flatten().fold(health, u64::min)
    }

    /// Own turns that were pushed: the others can see them. Turns accepted beyond are inhibited, or
    /// wait for the next pass.
    #[inline]
    pub fn pushed_turns(&self) -> u64 {
        self.pushing.slots.counters()[0].pushed()
    }

    /// The values of `words` of the own row, as a [`Write::Row`] that was just given names
    /// them, to the beginning of `out`; returns how many.
    #[inline]
    pub fn row_words(&self, words: Words, out: &mut [u64; super::ROW_WORDS]) -> usize {
        self.row.store(self.config.members, words, out)
    }

    /// Slots go before the slot counter that covers them, and all counters before the words that
    /// make them final.
    #[inline]
    fn take_due(&mut self, now_ns: u64) -> Option<Push> {
        let (mut to, members) = (self.reachable(), self.config.members);
        let writes = u64::from(to.len());
        let pushing = &mut self.pushing;
        let write = if pushing.written < pushing.target {
            let (from, to, capacity) = (pushing.written, pushing.target, self.config.capacity);
            let span = match self.config.is_mirrored {
                true => Span { offset: from & (capacity - 1), len: to - from },
                false => Span::of_lap(from, to, capacity),
            };
            pushing.written += span.len;
            self.counts.slot_writes += writes;
            Write::Slots(span)
        } else if pushing.whole_due {
            pushing.whole_due = false;
            self.mark_counted();
            self.mark_received(now_ns);
            self.counts.health_writes += writes;
            Write::Row(Words::whole(members))
        } else if pushing.counted < pushing.target {
            self.mark_counted();
            self.counts.counter_writes += writes;
            Write::Row(Words::slots(members))
        } else if pushing.received_due {
            self.mark_received(now_ns);
            self.counts.received_writes += writes;
            Write::Row(Words::received(members))
        } else if let Some(repair) = self.agreement.repair_due.take() {
            self.row.repairs += 1;
            pushing.control_due = true;
            self.counts.control_writes += writes;
            Write::Repair(repair)
        } else if pushing.control_due && !self.is_dirty() {
            self.pushing.control_due = false;
            self.row.goodbye = self.pushing.goodbye;
            to = to.union(core::mem::take(&mut self.agreement.unreported));
            self.counts.control_writes += writes;
            Write::Row(Words::control(members))
        } else {
            return None;
        };
        Some(Push { to, write })
    }

    /// The slot counter goes out.
    #[inline]
    fn mark_counted(&mut self) {
        // Nothing is accepted while pushes are due, so the count equals that of the target.
        debug_assert_eq!(self.pushing.target, self.streams[self.me()].accepted);
        self.pushing.counted = self.pushing.target;
        self.row.sent = self.pushing.target;
        self.pushing.slots.mark_pushed();
    }

    /// The received counters go out, and with them the health counter.
    #[inline]
    fn mark_received(&mut self, now_ns: u64) {
        for of in 0..usize::from(self.config.members) {
            let stream = &mut self.streams[of];
            self.row.received[of] = stream.received;
            self.pushing.received.advance(of, stream.received);
            if stream.accepted >= stream.urgent {
                stream.urgent_done = stream.urgent;
            }
        }
        self.row.health += 1;
        self.pushing.received_due = false;
        self.pushing.received.mark_pushed();
        self.pushing.health_ns = now_ns;
    }

    /// Reports whether own records or acknowledgements are left to push.
    #[inline]
    fn is_dirty(&self) -> bool {
        let own = &self.streams[self.me()];
        own.accepted != own.published || self.pushing.counted != own.accepted || self.owes()
    }

    /// Reports whether something was received that has not been acknowledged.
    #[inline]
    fn owes(&self) -> bool {
        let members = usize::from(self.config.members);
        (0..members).any(|of| self.streams[of].received != self.row.received[of])
    }

    /// Reports whether nothing is inhibited any more.
    #[inline]
    fn is_ending(&self) -> bool {
        !self.row.suspected.is_empty() || self.pushing.goodbye != 0
    }

    /// Makes pushes due; returns true if there are any, or records that may make some.
    #[inline]
    fn decide(&mut self, now_ns: u64, header: &mut impl FnMut(Rank, u64) -> u64) -> bool {
        if self.config.policy == Policy::Every(1) && !self.is_ending() {
            if let Some((of, record)) = self.accept_one(header) {
                self.push_one(of, record.turns());
                return true;
            }
        } else {
            self.accept_all(header);
        }
        let due = self.decide_slots(now_ns) | self.decide_received(now_ns);
        due || self.decide_health(now_ns) || (self.is_ending() && self.decide_end(header))
    }

    /// The policy of k = 1: a push for each record.
    #[inline]
    fn push_one(&mut self, of: Rank, turns: u64) {
        if of == self.config.rank {
            self.target_accepted();
        }
        self.pushing.received_due |= turns > 0;
    }

    /// Makes due all of the own stream that was accepted.
    #[inline]
    fn target_accepted(&mut self) {
        let own = &self.streams[self.me()];
        self.pushing.target = own.accepted;
        self.pushing.slots.advance(0, own.received);
        if core::mem::take(&mut self.pushing.flush_due) {
            self.mark_urgent();
        }
    }

    /// Asks for all that is due to be acknowledged at once, by this member as well.
    #[inline]
    fn mark_urgent(&mut self) {
        self.row.urgent = self.pushing.target;
        self.streams[self.config.rank.index()].urgent = self.pushing.target;
    }

    #[inline]
    fn decide_slots(&mut self, now_ns: u64) -> bool {
        let own = &self.streams[self.me()];
        if own.accepted == self.pushing.target {
            return false;
        }
        self.pushing.slots.advance(0, own.received);
        if self.is_ending() {
            self.pushing.slots.urge();
        }
        let Some(cause) = self.pushing.slots.due(now_ns) else { return false };
        self.target_accepted();
        if cause == PushCause::Forced {
            self.counts.forced += 1;
            self.mark_urgent();
        }
        true
    }

    #[inline]
    fn decide_received(&mut self, now_ns: u64) -> bool {
        for of in 0..usize::from(self.config.members) {
            self.pushing.received.advance(of, self.streams[of].received);
        }
        debug_assert_eq!(self.pushing.received.is_pending(), self.owes());
        if !self.pushing.received.is_pending() {
            return false;
        }
        if self.is_ending() || self.has_urgent() {
            self.pushing.received.urge();
        }
        let Some(cause) = self.pushing.received.due(now_ns) else { return false };
        self.counts.forced += u64::from(cause == PushCause::Forced);
        self.pushing.received_due = true;
        true
    }

    /// Reports whether something was received that its sender wants acknowledged at once.
    #[inline]
    fn has_urgent(&self) -> bool {
        self.config.senders.iter().any(|of| {
            let stream = &self.streams[of.index()];
            stream.urgent_done < stream.urgent && stream.urgent <= stream.accepted
        })
    }

    /// Makes the whole row due if no other write has shown for `health_ns` that this member lives.
    /// Inhibited turns go with it.
    #[inline]
    fn decide_health(&mut self, now_ns: u64) -> bool {
        if now_ns < self.pushing.health_ns.saturating_add(self.config.health_ns) {
            return false;
        }
        if self.streams[self.me()].accepted != self.pushing.target {
            self.target_accepted();
            self.mark_urgent();
        }
        self.pushing.health_ns = now_ns;
        self.pushing.whole_due = true;
        true
    }

    /// All is pushed that was sent and received: that is final, as far as it can be.
    fn decide_end(&mut self, header: &mut impl FnMut(Rank, u64) -> u64) -> bool {
        if self.is_dirty() {
            return false;
        }
        if self.row.wedged != self.row.suspected {
            self.row.wedged = self.row.suspected;
            self.pushing.control_due = true;
            return true;
        }
        self.pushing.control_due || self.begin_repair(header)
    }
}
