//! The machine of one member.

use super::record::Record;
use super::row::{FINISHED, LEFT};
use super::state::{FailureAgreement, OrderPosition, Pushing};
use super::stream::SenderStream;
use super::{Config, ConfigError, MAX_MEMBERS, Members, Policy, Rank, Reason, Row, Span};

/// Bytes to copy from the ring of the sender `of` (or from the own ring) to private memory at the
/// same offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyIn {
    /// The owner of the ring.
    pub of: Rank,
    /// Location of the bytes, in both.
    pub span: Span,
}

/// A message in private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its sender.
    pub from: Rank,
    /// Its turn: the number of its sender's turns before it.
    pub turn: u64,
    /// Its bytes, in the private copy of its sender's ring. They may reach beyond the end
    /// of the ring, and continue at its beginning.
    pub span: Span,
}

/// Counts of the work that a member has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Messages delivered, of all senders.
    pub delivered: u64,
    /// Turns of the own stream without a message, among them flushes.
    pub nulls: u64,
    /// Write requests of slots.
    pub slot_writes: u64,
    /// Write requests of slot counters.
    pub counter_writes: u64,
    /// Write requests of received counters.
    pub received_writes: u64,
    /// Write requests of whole rows, for health.
    pub health_writes: u64,
    /// All other write requests: suspicions, repairs, goodbyes.
    pub control_writes: u64,
    /// Pushes that were inhibited, and went at the deadline.
    pub forced: u64,
}

impl Counts {
    /// All write requests.
    #[must_use]
    pub const fn writes(&self) -> u64 {
        self.slot_writes
            + self.counter_writes
            + self.received_writes
            + self.health_writes
            + self.control_writes
    }
}

/// State of a group, as one member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Messages flow.
    Open,
    /// Members are suspected: the survivors agree on the end.
    Failing,
    /// All that will ever be delivered has been. [`Member::suspected`] tells whether that is
    /// the end of all streams, or the end after a failure.
    Finished,
    /// This member has left before.
    Left,
    /// Another member suspects this one: it delivers nothing more.
    Excluded {
        /// The member that suspects this one.
        by: Rank,
    },
}

/// One member's machine. See the [module](super) for its drive loop.
// Invariants: those of `SenderStream`, for each sender; row.received[r] <= streams[r].received;
// row.wedged is a subset of row.suspected; what suspects write is not read again.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) config: Config,
    /// The own row, as it was last pushed.
    pub(super) row: Row,
    /// The peers' rows, as they were last taken, and the checksums of their groups.
    pub(super) rows: [Row; MAX_MEMBERS],
    pub(super) checksums: [[u64; 3]; MAX_MEMBERS],
    pub(super) streams: [SenderStream; MAX_MEMBERS],
    pub(super) pushing: Pushing,
    pub(super) order: OrderPosition,
    pub(super) agreement: FailureAgreement,
    pub(super) counts: Counts,
}

impl Member {
    /// A member of a new group, at the time `now_ns`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: Config, now_ns: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            row: Row::default(),
            rows: [Row::default(); MAX_MEMBERS],
            checksums: [[0; 3]; MAX_MEMBERS],
            streams: [SenderStream::default(); MAX_MEMBERS],
            pushing: Pushing::new(&config, now_ns),
            order: OrderPosition::new(&config),
            agreement: FailureAgreement::new(now_ns),
            counts: Counts::default(),
        })
    }

    /// The group.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counts of the work that it has done.
    #[inline]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the state of the group.
    pub fn status(&self) -> Status {
        if let Some(by) = self.agreement.excluded_by {
            return Status::Excluded { by };
        }
        match self.pushing.goodbye {
            LEFT => Status::Left,
            _ if self.order.is_finished() => Status::Finished,
            _ if self.row.suspected.is_empty() => Status::Open,
            _ => Status::Failing,
        }
    }

    /// The members that are suspected.
    #[inline]
    pub fn suspected(&self) -> Members {
        self.row.suspected
    }

    /// Returns the reason why a member is suspected, if it is.
    pub fn reason(&self, rank: Rank) -> Option<Reason> {
        *self.agreement.reasons.get(rank.index())?
    }

    /// The peers that this member reads rows of and writes to.
    #[inline]
    pub fn reachable(&self) -> Members {
        self.active().without(self.config.rank)
    }

    /// Reports whether the member still takes part in the group.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.agreement.excluded_by.is_none()
    }

    #[inline]
    pub(super) fn me(&self) -> usize {
        self.config.rank.index()
    }

    /// Turns that `by` has received of `of`, as far as is known.
    #[inline]
    pub(super) fn received(&self, by: Rank, of: Rank) -> u64 {
        if by == self.config.rank {
            return self.streams[of.index()].received;
        }
        self.rows[by.index()].received[of.index()]
    }
}

/// Events that the driver reports.
impl Member {
    /// The own ring's records end at `position`; `now_ns` is the time of the whole pass. Call
    /// it after [`on_row`](Self::on_row) of all peers, so that no peer is taken for silent
    /// because this member was not driven.
    #[inline]
    pub fn on_tail(&mut self, position: u64, now_ns: u64) {
        if !self.is_running() {
            return;
        }
        let me = self.me();
        let sends = self.config.senders.contains(self.config.rank);
        if sends && self.row.suspected.is_empty() && self.pushing.goodbye == 0 {
            debug_assert!(position >= self.streams[me].published);
            self.streams[me].published = position;
        }
        self.look_for_silence(now_ns);
        if !self.row.suspected.is_empty() {
            self.detect_stall(now_ns);
        } else if !self.agreement.gone.is_empty() {
            self.look_for_unfinished();
        }
    }

    /// The next bytes to be copied; they are taken as copied.
    #[inline]
    pub fn next_copy(&mut self) -> Option<CopyIn> {
        if !self.is_running() {
            return None;
        }
        let capacity = self.config.capacity;
        for of in self.config.senders.minus(self.row.suspected).iter() {
            let stream = &mut self.streams[of.index()];
            let end = stream.published.min(stream.delivered + capacity);
            if stream.copied < end {
                let span = Span::of_lap(stream.copied, end, capacity);
                stream.copied += span.len;
                return Some(CopyIn { of, span });
            }
        }
        None
    }

    /// Leaves the group while others may still be sending. Have the own messages delivered before.
    /// For all others the group ends as with a failure, with the reason [`Left`](Reason::Left).
    /// Post the pushes that are due, and wait until they have completed.
    pub fn leave(&mut self) {
        if self.pushing.goodbye == 0 {
            self.pushing.goodbye = LEFT;
            self.pushing.control_due = true;
        }
    }
}

/// The own ring, and the own end.
impl Member {
    /// Reports whether the member has said that it is finished, or leaves: when the push has
    /// completed, it may go.
    #[inline]
    pub fn has_said_goodbye(&self) -> bool {
        self.row.goodbye != 0
    }

    /// The own ring is free up to this position, and turns below this number plus the
    /// window may begin.
    #[inline]
    pub fn freed(&self) -> (u64, u64) {
        let own = &self.streams[self.me()];
        (own.delivered, own.turn)
    }

    /// Accepted turns of the own ring: after a pass, all that lie in it.
    #[inline]
    pub fn sent_turns(&self) -> u64 {
        self.streams[self.me()].received
    }

    /// Bytes that have been accepted of all streams: it rises when something has arrived, though
    /// it is not pushed yet.
    #[inline]
    pub fn accepted(&self) -> u64 {
        self.config.senders.iter().map(|of| self.streams[of.index()].accepted).sum()
    }

    /// Reports whether the own ring up to `position` has been delivered here: these messages are
    /// stable, and lie in the sequence of all survivors.
    #[inline]
    pub fn is_delivered(&self, position: u64) -> bool {
        self.streams[self.me()].delivered >= position
    }

    /// Returns the number of nulls that this member owes the others: their messages wait for its
    /// turns. The nulls go into the ring as one record; fewer do no harm, and none are owed while
    /// messages of its own are under way.
    #[inline]
    pub fn nulls_due(&self) -> u32 {
        let (config, own) = (&self.config, &self.streams[self.me()]);
        let wanted = config.policy == Policy::OpportunisticWithNulls
            && config.senders.contains(config.rank)
            && self.row.suspected.is_empty()
            && !own.ended
            && own.accepted == own.published;
        if !wanted {
            return 0;
        }
        // A turn precedes those of the same number of higher ranks.
        let before = |rank: Rank| {
            let received = self.streams[rank.index()].received;
            if rank > config.rank { received } else { received.saturating_sub(1) }
        };
        let most = config.senders.iter().map(before).max().unwrap_or(0);
        most.saturating_sub(own.received).min(config.window.into()) as u32
    }

    /// Handles the own record that was accepted.
    #[inline]
    pub(super) fn on_own(&mut self, record: Record) {
        match record {
            Record::Flush => {
                self.pushing.flush_due = true;
                self.pushing.slots.urge();
                self.counts.nulls += 1;
            }
            Record::Nulls(count) => self.counts.nulls += u64::from(count),
            // It takes no turn: the counter alone would not show it.
            Record::End => self.pushing.slots.urge(),
            Record::Unused(_) => self.counts.nulls += 1,
            Record::Message(_) => {}
        }
    }

    /// Says goodbye, once.
    pub(super) fn say_finished(&mut self) {
        if self.pushing.goodbye == 0 {
            self.pushing.goodbye = FINISHED;
            self.pushing.control_due = true;
        }
    }
}
