//! From a queue pair's number to its link.

/// A table with open addressing: numbers of queue pairs are dense, so that the low
/// bits spread well. At most half full.
#[derive(Debug, Default)]
pub(crate) struct QpIndex {
    /// Number and link; the table's length is a power of two, or 0.
    slots: Vec<Option<(u32, u32)>>,
    used: usize,
    /// Entry that was found last: messages arrive in runs.
    last: Option<(u32, u32)>,
}

impl QpIndex {
    /// Adds a queue pair; its number is not in the table yet.
    pub(crate) fn insert(&mut self, qp_num: u32, link: u32) {
        if self.slots.len() < 2 * (self.used + 1) {
            self.grow();
        }
        self.put(qp_num, link);
        self.used += 1;
    }

    /// The link of a queue pair.
    #[inline]
    pub(crate) fn find(&mut self, qp_num: u32) -> Option<u32> {
        match self.last {
            Some((number, link)) if number == qp_num => Some(link),
            _ => self.look_up(qp_num),
        }
    }

    fn look_up(&mut self, qp_num: u32) -> Option<u32> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = qp_num as usize & mask;
        loop {
            match *self.slots.get(at)? {
                Some((number, link)) if number == qp_num => {
                    self.last = Some((number, link));
                    return Some(link);
                }
                Some(_) => at = (at + 1) & mask,
                None => return None,
            }
        }
    }

    /// Takes a queue pair out: its number may be used again, with another link.
    pub(crate) fn remove(&mut self, qp_num: u32) {
        self.last = None;
        let mask = self.slots.len().wrapping_sub(1);
        let is_it = |slot: &Option<(u32, u32)>| matches!(slot, Some((n, _)) if *n == qp_num);
        let Some(mut hole) = self.slots.iter().position(is_it) else { return };
        self.slots[hole] = None;
        self.used -= 1;
        // A look-up ends at a hole. So a later entry with a probe sequence across the hole moves
        // into it.
        let mut at = (hole + 1) & mask;
        while let Some((number, _)) = self.slots[at] {
            let wanted = number as usize & mask;
            let (from_wanted, from_hole) = (at.wrapping_sub(wanted), at.wrapping_sub(hole));
            if from_wanted & mask >= from_hole & mask {
                self.slots.swap(hole, at);
                hole = at;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let larger = (2 * self.slots.len()).max(8);
        let old = std::mem::replace(&mut self.slots, vec![None; larger]);
        for (number, link) in old.into_iter().flatten() {
            self.put(number, link);
        }
    }

    fn put(&mut self, qp_num: u32, link: u32) {
        let mask = self.slots.len() - 1;
        let mut at = qp_num as usize & mask;
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some((qp_num, link));
    }
}

#[cfg(test)]
mod tests;
