use super::*;
use proptest::prelude::*;

/// Operations of a program on the file.
#[derive(Debug, Clone, Copy)]
enum ExtentsOp {
    Take(u64),
    /// Gives back the piece of this index, modulo how many there are.
    Give(usize),
}

/// The piece that has each page: `None` is free.
#[derive(Debug, Default)]
struct ExtentsOracle {
    pages: Vec<Option<u32>>,
    pieces: Vec<(u32, u64, u64)>,
    taken: u32,
}

impl ExtentsOracle {
    fn longest_free(&self) -> u64 {
        self.pages.split(|page| page.is_some()).map(|run| run.len() as u64).max().unwrap_or(0)
    }

    fn free_at_the_end(&self) -> u64 {
        self.pages.iter().rev().take_while(|page| page.is_none()).count() as u64
    }

    fn apply(&mut self, extents: &mut Extents, op: ExtentsOp) {
        match op {
            ExtentsOp::Take(len) => self.take(extents, len),
            ExtentsOp::Give(_) if self.pieces.is_empty() => {}
            ExtentsOp::Give(index) => {
                let (_, at, len) = self.pieces.swap_remove(index % self.pieces.len());
                extents.give(at, len);
                self.pages[at as usize..(at + len) as usize].fill(None);
            }
        }
        self.check(extents);
    }

    fn take(&mut self, extents: &mut Extents, len: u64) {
        let before = self.pages.len() as u64;
        let grows = len.saturating_sub(self.longest_free().max(self.free_at_the_end()));
        let at = extents.place(len).unwrap();
        extents.take(at, len);
        if grows > 0 {
            // The file grows only by the pages missing behind the free ones at its end.
            assert_eq!(extents.end(), before - self.free_at_the_end() + len);
        }
        assert_eq!(extents.end() > before, grows > 0, "grows only where no extent has room");
        self.pages.resize(extents.end() as usize, None);
        self.taken += 1;
        for page in &mut self.pages[at as usize..(at + len) as usize] {
            assert_eq!(page.replace(self.taken), None, "a page has one owner");
        }
        self.pieces.push((self.taken, at, len));
    }

    /// The free extents are the longest runs of free pages, each known by both orders.
    fn check(&self, extents: &Extents) {
        assert_eq!(extents.end(), self.pages.len() as u64);
        let mut runs = BTreeMap::new();
        let mut start = None;
        for (at, page) in self.pages.iter().chain([&Some(0)]).enumerate() {
            match (page, start) {
                (None, None) => start = Some(at as u64),
                (Some(_), Some(first)) => {
                    runs.insert(first, at as u64 - first);
                    start = None;
                }
                _ => {}
            }
        }
        assert_eq!(extents.free, runs);
        let by_len: BTreeSet<_> = runs.iter().map(|(start, len)| (*len, *start)).collect();
        assert_eq!(extents.by_len, by_len);
    }
}

fn run(ops: &[ExtentsOp]) {
    let (mut extents, mut oracle) = (Extents::default(), ExtentsOracle::default());
    ops.iter().for_each(|op| oracle.apply(&mut extents, *op));
}

#[test]
fn every_short_history_is_as_the_oracle_says() {
    let kinds = [1, 2, 3].map(ExtentsOp::Take).into_iter().chain([0, 1, 2].map(ExtentsOp::Give));
    let kinds: Vec<ExtentsOp> = kinds.collect();
    for history in 0..kinds.len().pow(7) {
        let op = |place| kinds[history / kinds.len().pow(place) % kinds.len()];
        run(&[0, 1, 2, 3, 4, 5, 6].map(op));
    }
}

proptest! {
    #[test]
    fn long_histories_are_as_the_oracle_says(ops in proptest::collection::vec(
        prop_oneof![
            (1..40_u64).prop_map(ExtentsOp::Take),
            any::<usize>().prop_map(ExtentsOp::Give),
        ],
        0..200,
    )) {
        run(&ops);
    }
}

#[test]
fn what_has_no_position_is_refused() {
    let mut extents = Extents::default();
    extents.take(0, 10);
    assert_eq!(extents.place(u64::MAX - 9), None);
    assert_eq!(extents.place(u64::MAX - 10), Some(10));
}
