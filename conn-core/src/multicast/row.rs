//! A member's row: the counters that it writes to all others.

use super::{MAX_MEMBERS, Members};

/// Words of the largest row.
pub const ROW_WORDS: usize = MAX_MEMBERS + OTHERS as usize;

const OTHERS: u8 = 7;

/// Words of a row that one write carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The first.
    pub first: u8,
    /// How many.
    pub count: u8,
}

impl Words {
    pub(super) const fn received(members: u8) -> Self {
        Self { first: 0, count: members + 1 }
    }

    pub(super) const fn slots(members: u8) -> Self {
        Self { first: members + 1, count: 2 }
    }

    pub(super) const fn control(members: u8) -> Self {
        Self { first: members + 3, count: 4 }
    }

    /// The whole row.
    pub const fn whole(members: u8) -> Self {
        Self { first: 0, count: members + OTHERS }
    }
}

/// The words of a row, in this order; of `received`, as many as there are members.
///
/// What a word says is only true of what was written before it. So a writer pushes
/// `received`, `sent` and its slots before `wedged`; and a reader loads the last word first
/// ([`Row::load`]): what it then sees of the earlier ones is as new at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Row {
    /// Turns that it has received, of each member.
    pub received: [u64; MAX_MEMBERS],
    /// Counted up with every push of the counters above: it stands still when the member
    /// does.
    pub health: u64,
    /// Bytes that it has written into its slot ring, ever: the slot counter.
    pub sent: u64,
    /// Whoever has received its slots up to here is to acknowledge that at once.
    pub urgent: u64,
    /// Whom it suspects.
    pub suspected: Members,
    /// The suspects from whom it receives nothing more.
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
    /// Loads a row, the last word first. `load` gives the word of a number.
    #[inline]
    pub fn load(members: u8, mut load: impl FnMut(u8) -> u64) -> Self {
        let n = members;
        let mut row = Self {
            repairs: load(n + 6),
            goodbye: load(n + 5),
            wedged: Members::from_bits(load(n + 4)),
            suspected: Members::from_bits(load(n + 3)),
            urgent: load(n + 2),
            sent: load(n + 1),
            health: load(n),
            received: [0; MAX_MEMBERS],
        };
        for word in (0..n).rev() {
            row.received[usize::from(word)] = load(word);
        }
        row
    }

    /// Stores `words` of the row to the beginning of `out`, and returns how many.
    #[inline]
    pub fn store(&self, members: u8, words: Words, out: &mut [u64; ROW_WORDS]) -> usize {
        for (at, word) in (words.first..words.first + words.count).enumerate() {
            out[at] = self.word(members, word);
        }
        words.count.into()
    }

    fn word(&self, members: u8, word: u8) -> u64 {
        if word < members {
            return self.received[usize::from(word)];
        }
        match word - members {
            0 => self.health,
            1 => self.sent,
            2 => self.urgent,
            3 => self.suspected.bits(),
            4 => self.wedged.bits(),
            5 => self.goodbye,
            _ => self.repairs,
        }
    }
}
