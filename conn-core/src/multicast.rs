//! Small-message multicast to a group: every member's messages reach every member, in one
//! total order, over one-sided writes (the SMC of Derecho).
//!
//! Each member has a *row* of counters and a *slot ring*, and writes both to all others. Messages
//! lie packed in the ring, each behind a header with its length, so that one write carries many.
//! The row's counters are the written position of the ring, and the received turns of each other
//! member. A message is *stable*, and delivered, when all have received it; the order is round
//! robin over the senders.
//!
//! ```text
//!   sender     write slots ──> write its slot counter ──>
//!   receivers  copy, parse ──> write their received counters ──>      each to all others
//!   all        stable: deliver
//! ```
//!
//! With n members that is (n-1)(n+2) writes for one message. *Inhibiting pushes* makes it less
//! ([`Policy`]): several messages share their writes, and a deadline bounds the delay of each.
//! [`PushInhibitor`](crate::push_inhibitor::PushInhibitor) is the machine for it.
//!
//! # Memory
//!
//! A peer can write to its ring at any time. So the ring is only *copied*, to the same offsets of
//! private memory, and parsed there; bytes count as received when their copy was parsed. A message
//! cannot change after it was acknowledged.
//!
//! ```text
//!   of each sender, bytes   delivered <= accepted <= copied <= published
//!                           copied <= delivered + capacity
//!                  turns    delivered <= stable <= received
//! ```
//!
//! A row may be read while it is being written, perhaps byte by byte. Each group of words that one
//! write carries is followed by a [checksum](crate::checksum), and is taken when the checksum fits;
//! so is the header of a repair area. A group with an unchanged checksum has not changed. Slots and
//! the bytes of a repair need no checksum: they are read only when a counter covers them, which is
//! written after them.
//!
//! A sender has at most `window` turns that it has not delivered itself. All members have received
//! the turns that it has delivered, so their part of its ring is free.
//!
//! # The drive loop of a [`Member`]
//!
//! 1. For each [reachable](Member::reachable) peer, let [`on_row`](Member::on_row) look at
//!    its row; give the end of the own ring to [`on_tail`](Member::on_tail).
//! 2. While [`next_copy`](Member::next_copy) gives a [`CopyIn`], copy those bytes. Then
//!    [`next_repair`](Member::next_repair), while there is one.
//! 3. While [`next_push`](Member::next_push) gives a [`Push`], post its write to each of
//!    its members, in this order. (Ask only when each of their send queues has room.)
//! 4. While [`next_delivery`](Member::next_delivery) gives a [`Delivery`], hand it out.
//!    Then free the own ring up to [`freed`](Member::freed).
//! 5. Put [`nulls_due`](Member::nulls_due) nulls into the own ring.
//!
//! When a peer cannot be reached any more, call [`unreachable`](Member::unreachable).
//!
//! # Failures
//!
//! A member that lies, leaves, stands still or cannot be reached is *suspected*; a
//! suspicion spreads with the rows and is never taken back. From then on nothing more is
//! accepted from it, and no member begins a new message. The survivors agree in two steps:
//!
//! 1. Each pushes its slots and counters, and then the set of the suspects, as `wedged`: its
//!    counters for these are final.
//! 2. When all survivors show the same set, the stream of a suspect ends at the *highest* count
//!    that any survivor has received; one that has these turns repairs the others
//!    ([`Write::Repair`]). The stream of a survivor ends with its last sent turn. Delivery
//!    continues, in the same order, by the survivors' counters alone.
//!
//! All survivors end with the same sequence, whichever members fail meanwhile. A turn that any
//! member has delivered was received by all survivors of that time, so it lies before every later
//! end. A turn is skipped only behind an end. With fewer survivors the end can only become lower,
//! since repairs never take a counter beyond the highest of the agreed survivors.
//!
//! A live member that does not do its part does not block the others for ever. After `suspect_ns`
//! without progress, each member that the survivors wait for is suspected
//! ([`Withholds`](Reason::Withholds)): a survivor that does not show the same suspects, does not
//! acknowledge messages or repairs, or does not repair others that lack turns which it has. (Each
//! sixteenth of the missing turns counts as progress.) So drive a member *and* take its deliveries
//! until it is finished. The agreement takes at most `suspect_ns` for each member that withholds
//! something.
//!
//! There is no quorum: when the network splits the group, each side continues as survivors.
//! And a member that shows each of its peers a different row, each consistent in itself, is
//! not detected: each peer checks only what it sees itself.

use core::fmt;

mod accept;
mod agreement;
mod config;
mod lie;
mod look;
mod member;
mod member_info;
mod members;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod order;
mod push;
mod record;
mod repair;
mod repair_header;
mod row;
mod stall_detector;
mod state;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
mod window;

pub use config::{Config, ConfigError, MAX_WINDOW, Policy, writes_per_multicast};
pub use lie::{Lie, Reason};
pub use member::{CopyIn, Counts, Delivery, Member, Status};
pub use member_info::{
    Contact, MAX_MEMBER_INFO_BYTES, MemberInfo, MemberInfoError, Place, TERMS_BYTES, Terms,
};
pub use members::{MAX_MEMBERS, Members, Rank};
pub use push::{Push, Write};
pub use record::{Record, RecordError, header};
pub use repair::RepairCopy;
pub use repair_header::RepairHeader;
pub use row::{ROW_WORDS, Row, Words};
#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
pub use window::SendWindow;

/// Bytes of a ring: where, and how many. A span never crosses the end of the ring, but
/// that of a [`Delivery`] may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the beginning of the ring.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Span {
    /// The bytes at `position`, up to `end` or the end of the ring's memory.
    #[inline]
    fn of_lap(position: u64, end: u64, capacity: u64) -> Self {
        let offset = position & (capacity - 1);
        Self { offset, len: (end - position).min(capacity - offset) }
    }

    /// As a range of the ring's memory.
    #[inline]
    pub fn range(self) -> core::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.len, self.offset)
    }
}
