//! A member's row: the counters that it writes to all others.

use super::{MAX_MEMBERS, Members};
use crate::checksum::checksum_of;

/// Words of the largest row.
pub const ROW_WORDS: usize = MAX_MEMBERS + OTHERS as usize;

const OTHERS: u8 = 10;

/// Words of a row that one write carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The first.
    pub first: u8,
    /// Number of words.
    pub count: u8,
}

impl Words {
    /// The received counters, health, and their checksum.
    pub(super) const fn received(members: u8) -> Self {
        Self { first: 0, count: members + 2 }
    }

    pub(super) const fn slots(members: u8) -> Self {
        Self { first: members + 2, count: 3 }
    }

    pub(super) const fn control(members: u8) -> Self {
        Self { first: members + 5, count: 5 }
    }

    /// The whole row.
    pub const fn whole(members: u8) -> Self {
        Self { first: 0, count: members + OTHERS }
    }

    /// The groups of a row: words that belong together. The last word of each is the checksum of
    /// the others.
    ///
    /// ```
    /// use conn_core::multicast::Words;
    /// let [received, slots, control] = Words::groups(3);
    /// assert_eq!((received.first, received.checksum()), (0, 4));
    /// assert_eq!((slots.first, control.checksum()), (5, 12));
    /// ```
    pub const fn groups(members: u8) -> [Self; 3] {
        [Self::received(members), Self::slots(members), Self::control(members)]
    }

    /// Index in the row of the last of these words: in a group, its checksum.
    #[inline]
    pub const fn checksum(self) -> u8 {
        self.first + self.count - 1
    }

    #[inline]
    fn range(self) -> core::ops::Range<usize> {
        self.first.into()..(self.first + self.count).into()
    }
}

/// The words of a row, in this order; `received` has one word for each member. Behind each of
/// `health`, `urgent` and `repairs` lies the [checksum](crate::checksum) of its group.
///
/// A word refers to words and slots that were written before it. So a writer pushes `received`,
/// `sent` and its slots before `wedged`. A reader loads the last group first
/// ([`Member::on_row`](super::Member::on_row)): the earlier groups that it loads then are at least
/// as new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Row {
    /// Turns that it has received, of each member.
    pub received: [u64; MAX_MEMBERS],
    /// Counted up with every push of the counters above: it stands still when the member
    /// does.
    pub health: u64,
    /// Bytes that it has written into its slot ring, ever: the slot counter.
    pub sent: u64,
    /// A member that has received its slots up to here acknowledges them at once.
    pub urgent: u64,
    /// The members that it suspects.
    pub suspected: Members,
    /// The suspects from which it receives nothing more.
    pub wedged: Members,
    /// 0; 1 when it has delivered all that will ever be; 2 when it leaves others behind.
    pub goodbye: u64,
    /// Repairs that it has written.
    pub repairs: u64,
}

/// It has delivered all that will ever be.
pub(super) const FINISHED: u64 = 1;
/// It goes while others are still sending.
pub(super) const LEFT: u64 = 2;

impl Row {
    /// Stores `words` of the row, which are a group or all of them, to the beginning of
    /// `out`, and returns how many.
    #[inline]
    pub fn store(&self, members: u8, words: Words, out: &mut [u64; ROW_WORDS]) -> usize {
        for group in Words::groups(members) {
            if !words.range().contains(&group.first.into()) {
                continue;
            }
            let first = usize::from(group.first - words.first);
            let (group, checksum) = (group.range(), first + usize::from(group.count) - 1);
            for (to, word) in out[first..checksum].iter_mut().zip(group) {
                *to = self.word(members, word as u8);
            }
            out[checksum] = checksum_of(&out[first..checksum]);
        }
        words.count.into()
    }

    #[inline]
    fn word(&self, members: u8, word: u8) -> u64 {
        if word < members {
            return self.received[usize::from(word)];
        }
        match word - members {
            0 => self.health,
            2 => self.sent,
            3 => self.urgent,
            5 => self.suspected.bits(),
            6 => self.wedged.bits(),
            7 => self.goodbye,
            _ => self.repairs,
        }
    }
}
