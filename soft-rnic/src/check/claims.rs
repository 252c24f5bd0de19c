//! Bytes that belong to the device: those of the requests that are outstanding.
//!
//! Requests that only read may share bytes, and a program may mean it. Where one writes to bytes
//! of another one, both are contested: what lies there may change without the program.

use std::collections::BTreeMap;

/// The bytes from the first to the second address.
pub(crate) type Bytes = (usize, usize);

/// Claim of the requests that name exactly the same bytes.
#[derive(Debug, Default, Clone, Copy)]
struct Claim {
    readers: u32,
    writers: u32,
    /// Bytes of theirs are another request's, too, and one of both writes; or were so.
    is_contested: bool,
}

/// The bytes of all requests that are outstanding.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_bytes: BTreeMap<Bytes, Claim>,
    /// No claim has more bytes.
    longest: usize,
}

impl Claims {
    /// A request names these bytes, and `writes` to them; whether they are contested by it.
    pub(crate) fn add(&mut self, bytes: Bytes, writes: bool) -> bool {
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
    fn sharing(&mut self, (start, end): Bytes) -> impl Iterator<Item = &mut Claim> {
        let near = (start.saturating_sub(self.longest), 0)..(end, 0);
        let sharing = self.by_bytes.range_mut(near).filter(move |((_, to), _)| *to > start);
        sharing.map(|(_, claim)| claim)
    }

    /// Others than requests may write to these bytes from now on.
    pub(crate) fn contest(&mut self, bytes: Bytes) {
        self.sharing(bytes).for_each(|claim| claim.is_contested = true);
    }

    /// Reports whether any claim has some of these bytes.
    pub(crate) fn has_any_of(&mut self, bytes: Bytes) -> bool {
        self.sharing(bytes).next().is_some()
    }

    /// A request is over.
    pub(crate) fn remove(&mut self, bytes: Bytes, writes: bool) {
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

    pub(crate) fn is_contested(&self, bytes: Bytes) -> bool {
        self.by_bytes.get(&bytes).is_some_and(|claim| claim.is_contested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_contest() {
        let mut claims = Claims::default();
        assert!(!claims.add((10, 20), false));
        assert!(!claims.add((10, 20), false));
        assert!(!claims.add((15, 30), false));
        assert!(!claims.add((30, 40), true), "they only touch");
        assert!(!claims.add((0, 10), true));
        assert!(claims.add((29, 31), true));
        let contested = [(10, 20), (15, 30), (30, 40), (0, 10), (29, 31)];
        assert_eq!(
            contested.map(|bytes| claims.is_contested(bytes)),
            [false, true, true, false, true]
        );
        assert!(claims.add((0, 100), false), "it reads what others write to");
        assert!(claims.is_contested((0, 10)) && !claims.is_contested((10, 20)));
    }

    #[test]
    fn the_same_bytes_are_contested_by_a_second_writer() {
        let mut claims = Claims::default();
        assert!(!claims.add((10, 20), true));
        assert!(claims.add((10, 20), true));
        claims.remove((10, 20), true);
        assert!(claims.is_contested((10, 20)), "the other one may have been written to");
        claims.remove((10, 20), true);
        assert!(!claims.add((10, 20), true) && !claims.is_contested((10, 20)));
        claims.remove((10, 20), false);
        claims.remove((0, 5), true);
        assert_eq!((claims.by_bytes.len(), claims.longest), (1, 10));
    }

    #[test]
    fn what_others_may_write_to_is_contested_while_it_is_claimed() {
        let mut claims = Claims::default();
        claims.add((10, 20), true);
        claims.add((20, 30), true);
        assert!(claims.has_any_of((29, 40)) && claims.has_any_of((0, 11)));
        assert!(!claims.has_any_of((30, 40)) && !claims.has_any_of((0, 10)));
        claims.contest((0, 11));
        assert!(claims.is_contested((10, 20)) && !claims.is_contested((20, 30)));
        claims.remove((10, 20), true);
        assert!(!claims.add((10, 20), true) && !claims.is_contested((10, 20)));
    }

    /// A long claim that begins far before is found.
    #[test]
    fn a_long_claim_is_found() {
        let mut claims = Claims::default();
        claims.add((0, 1000), false);
        (0..9).for_each(|i| _ = claims.add((i * 100, i * 100 + 1), false));
        assert!(claims.add((990, 995), true) && claims.is_contested((0, 1000)));
    }
}
