//! The turns of the many peers of one receiver: round robin among the ones that had messages
//! lately. The others rest, for longer and longer, and cost nothing meanwhile.

/// The turns of the places of a receiver.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Places that are looked at in each round.
    active: Vec<u32>,
    /// Index of the one that is next.
    at: usize,
    resting: Vec<Resting>,
    round: u64,
    /// The round in which the first resting place is looked at again; `u64::MAX` if none rests.
    next_wake: u64,
    /// Rounds that a place rests, at most.
    most: u32,
}

#[derive(Debug, Clone, Copy)]
struct Resting {
    place: u32,
    until: u64,
}

impl Turns {
    /// No places yet; each rests for `most` rounds, at most.
    pub(crate) fn new(most: u32) -> Turns {
        Turns { most, next_wake: u64::MAX, ..Turns::default() }
    }

    /// A new place, which is looked at in the next round.
    pub(crate) fn add(&mut self, place: u32) {
        self.active.push(place);
    }

    /// A place that is not looked at any more.
    pub(crate) fn remove(&mut self, place: u32) {
        if let Some(at) = self.active.iter().position(|other| *other == place) {
            self.active.remove(at);
            self.at -= usize::from(at < self.at);
        }
        self.resting.retain(|resting| resting.place != place);
    }

    /// The next place of this round; `None` when the round is over, after which the next
    /// one begins.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        if let Some(place) = self.active.get(self.at) {
            self.at += 1;
            return Some(*place);
        }
        self.begin_round();
        None
    }

    /// Reports whether no place of this round was looked at yet.
    pub(crate) fn is_new_round(&self) -> bool {
        self.at == 0
    }

    fn begin_round(&mut self) {
        self.at = 0;
        self.round += 1;
        if self.round < self.next_wake {
            return;
        }
        let (round, active) = (self.round, &mut self.active);
        self.resting.retain(|resting| {
            let rests = resting.until > round;
            if !rests {
                active.push(resting.place);
            }
            rests
        });
        self.next_wake = self.resting.iter().map(|r| r.until).min().unwrap_or(u64::MAX);
    }

    /// All places that rest are looked at in the next round.
    pub(crate) fn wake_all(&mut self) {
        self.active.extend(self.resting.drain(..).map(|resting| resting.place));
        self.next_wake = u64::MAX;
    }

    /// `place` had nothing in its turn, for the `vain`th time in a row: it rests, unless it is
    /// the only place.
    pub(crate) fn rest(&mut self, place: u32, vain: u32) {
        let rounds = 1_u64.checked_shl(vain.min(32)).unwrap_or(u64::MAX).min(self.most.into());
        let is_alone = self.active.len() + self.resting.len() <= 1;
        let found = self.active.iter().position(|other| *other == place);
        let Some(at) = found.filter(|_| rounds > 0 && !is_alone) else { return };
        self.active.remove(at);
        self.at -= usize::from(at < self.at);
        let until = self.round + rounds + 1;
        self.resting.push(Resting { place, until });
        self.next_wake = self.next_wake.min(until);
    }
}

#[cfg(test)]
mod tests;
