//! Packet sequence numbers.

use core::fmt;

/// Number of packet sequence numbers.
const COUNT: u32 = 1 << 24;

/// A packet sequence number: 24 bits that wrap.
///
/// Two numbers have an order only by their distance, so there is no `Ord`:
///
/// ```
/// use roce_core::psn::Psn;
///
/// let last = Psn::new(0xff_ffff);
/// assert_eq!(last.wrapping_add(2), Psn::new(1));
/// assert_eq!(Psn::new(1).since(last), 2);
/// assert_eq!(last.since(Psn::new(1)), -2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of a number.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value % COUNT)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `packets` later.
    #[inline]
    #[must_use]
    pub const fn wrapping_add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The number `packets` earlier.
    #[inline]
    #[must_use]
    pub const fn wrapping_sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// Returns the distance in packets from `other` to this number, from -2^23 to 2^23 - 1:
    /// negative if this one is before `other`.
    #[inline]
    pub const fn since(self, other: Self) -> i32 {
        // The upper 24 bits of the difference carry its sign.
        (self.0.wrapping_sub(other.0) << 8) as i32 >> 8
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests;
