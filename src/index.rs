//! From a queue pair's number to its link.

/// A table with open addressing: numbers of queue pairs are dense, so that the low
/// bits spread well. At most half full.
#[derive(Debug, Default)]
pub(crate) struct QpIndex {
    /// Number and link; the table's length is a power of two, or 0.
    slots: Vec<Option<(u32, u32)>>,
    used: usize,
    /// Entry that was found last: messages come in runs.
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

    /// Takes a queue pair out: its number may come again, with another link.
    pub(crate) fn remove(&mut self, qp_num: u32) {
        self.last = None;
        let mask = self.slots.len().wrapping_sub(1);
        let is_it = |slot: &Option<(u32, u32)>| matches!(slot, Some((n, _)) if *n == qp_num);
        let Some(mut hole) = self.slots.iter().position(is_it) else { return };
        self.slots[hole] = None;
        self.used -= 1;
        // A look-up ends at a hole: an entry behind it whose probing passed the hole's slot
        // moves up into the hole.
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn finds_what_was_inserted_and_nothing_else() {
        let mut index = QpIndex::default();
        assert_eq!(index.find(0), None);
        // Multiples of a large power of two all want the same place.
        let numbers: Vec<u32> = (0..200).map(|i| i * 4096 + i % 3).collect();
        for (link, number) in numbers.iter().enumerate() {
            index.insert(*number, link as u32);
        }
        for (link, number) in numbers.iter().enumerate() {
            assert_eq!(index.find(*number), Some(link as u32));
        }
        assert_eq!(index.find(5), None);
        assert_eq!(index.find(u32::MAX), None);
    }

    #[test]
    fn what_was_removed_is_gone_and_nothing_else() {
        let (mut index, mut model) = (QpIndex::default(), BTreeMap::new());
        // Few places wanted by many: long runs, and holes in the middle of them.
        let number = |i: u32| i % 61 * 1024 + i % 3;
        for i in 0..20_000u32 {
            let qp_num = number(i.wrapping_mul(i) ^ i >> 3);
            match model.remove(&qp_num) {
                Some(_) => index.remove(qp_num),
                None => {
                    index.insert(qp_num, i);
                    model.insert(qp_num, i);
                }
            }
            index.remove(7);
            let probe = number(i);
            assert_eq!(index.find(probe), model.get(&probe).copied(), "{probe} after {i}");
        }
        assert!(model.iter().all(|(number, link)| index.find(*number) == Some(*link)));
        assert!(index.slots.len() <= 512, "a table that grows without bound");
    }
}
