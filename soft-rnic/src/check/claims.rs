//! Bytes that belong to the device: those of the requests that are outstanding.
//!
//! Requests that only read may share bytes, and a program may mean it. Where one writes to bytes
//! of another one, both are contested: what lies there may change without the program.

use std::collections::BTreeMap;

/// The bytes from the first to the second address.
pub(crate) type AddressRange = (usize, usize);

/// Claim of the requests that name exactly the same bytes.
#[derive(Debug, Default, Clone, Copy)]
struct RangeClaim {
    readers: u32,
    writers: u32,
    /// Bytes of theirs are another request's, too, and one of both writes; or were so.
    is_contested: bool,
}

/// The bytes of all requests that are outstanding.
#[derive(Debug, Default)]
pub(crate) struct OutstandingClaims {
    by_bytes: BTreeMap<AddressRange, RangeClaim>,
    /// No claim has more bytes.
    longest: usize,
}

impl OutstandingClaims {
    /// Claims bytes that a request names, and `writes` to; returns true if it makes them contested.
    pub(crate) fn add(&mut self, bytes: AddressRange, writes: bool) -> bool {
        let (start, end) = bytes;
        self.longest = self.longest.max(end - start);
        let mut contests = false;
        for other in self.sharing(bytes) {
            if writes || other.writers > 0 {
                other.is_contested = true;
                contests = true;
            }
        }
        let own = self.by_bytes.entry(bytes).or_default();
        *(if writes { &mut own.writers } else { &mut own.readers }) += 1;
        own.is_contested |= contests;
        contests
    }

    /// The claims that have some of these bytes.
    fn sharing(&mut self, (start, end): AddressRange) -> impl Iterator<Item = &mut RangeClaim> {
        let near = (start.saturating_sub(self.longest), 0)..(end, 0);
        let sharing = self.by_bytes.range_mut(near).filter(move |((_, to), _)| *to > start);
        sharing.map(|(_, claim)| claim)
    }

    /// Others than requests may write to these bytes from now on.
    pub(crate) fn contest(&mut self, bytes: AddressRange) {
        self.sharing(bytes).for_each(|claim| claim.is_contested = true);
    }

    /// Reports whether any claim has some of these bytes.
    pub(crate) fn has_any_of(&mut self, bytes: AddressRange) -> bool {
        self.sharing(bytes).next().is_some()
    }

    /// A request is over.
    pub(crate) fn remove(&mut self, bytes: AddressRange, writes: bool) {
        let Some(own) = self.by_bytes.get_mut(&bytes) else { return };
        let count = if writes { &mut own.writers } else { &mut own.readers };
        *count = count.saturating_sub(1);
        if own.readers + own.writers == 0 {
            self.by_bytes.remove(&bytes);
        }
        if self.by_bytes.is_empty() {
            self.longest = 0;
        }
    }

    pub(crate) fn is_contested(&self, bytes: AddressRange) -> bool {
        self.by_bytes.get(&bytes).is_some_and(|claim| claim.is_contested)
    }
}

#[cfg(test)]
mod tests;
