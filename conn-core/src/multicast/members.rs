//! Members by rank, and sets of them.

use core::fmt;

/// Members that a group has at most.
pub const MAX_MEMBERS: usize = 16;

/// A member's number in its group, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u8);

impl Rank {
    /// As an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// A set of members.
///
/// ```
/// use conn_core::multicast::{Members, Rank};
/// let all = Members::first(3);
/// let others = all.without(Rank(1));
/// assert_eq!(others.len(), 2);
/// assert!(others.iter().eq([Rank(0), Rank(2)]));
/// assert_eq!(Members::from_bits(0b101), others);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Members(u64);

impl Members {
    /// No members.
    pub const NONE: Self = Self(0);

    /// The members of ranks below `count`.
    #[inline]
    pub const fn first(count: u8) -> Self {
        Self(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// The set of the members with a bit set in `bits`; bit 0 is that of rank 0.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// One bit a member, that of rank 0 being the lowest.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Reports whether `rank` is one of them.
    #[inline]
    pub const fn contains(self, rank: Rank) -> bool {
        rank.0 < 64 && self.0 >> rank.0 & 1 == 1
    }

    /// These and `rank`.
    #[inline]
    #[must_use]
    pub const fn with(self, rank: Rank) -> Self {
        Self(self.0 | 1 << rank.0)
    }

    /// These but `rank`.
    #[inline]
    #[must_use]
    pub const fn without(self, rank: Rank) -> Self {
        Self(self.0 & !(1 << rank.0))
    }

    /// These and those.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These but those.
    #[inline]
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Reports whether all of these are among those.
    #[inline]
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Number of members in the set.
    #[inline]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Reports whether there are none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest rank of them.
    #[inline]
    pub const fn lowest(self) -> Option<Rank> {
        if self.0 == 0 { None } else { Some(Rank(self.0.trailing_zeros() as u8)) }
    }

    /// All of them, the lowest rank first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        let mut rest = self;
        core::iter::from_fn(move || {
            let rank = rest.lowest()?;
            rest = rest.without(rank);
            Some(rank)
        })
    }
}

impl FromIterator<Rank> for Members {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        ranks.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rank) in self.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, rank.0)?;
        }
        Ok(())
    }
}
