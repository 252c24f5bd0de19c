//! From a queue pair's number to its link.

/// A table with open addressing: numbers of queue pairs are dense, so that the low
/// bits spread well. At most half full.
#[derive(Debug, Default)]
pub(crate) struct QpIndex {
    /// Number and link; the table's length is a power of two, or 0.
    slots: Vec<Option<(u32, u32)>>,
    used: usize,
    /// What was found last: messages come in runs.
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
}
