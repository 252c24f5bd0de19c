//! Looking at the rows of the peers, which may just be being written.

use super::row::LEFT;
use super::{Lie, Member, Members, ROW_WORDS, Rank, Reason, Words};
use crate::checksum::checksum_of;
use crate::sync::is_mutant;

/// The groups of a row, as [`Words::groups`] has them.
const RECEIVED: usize = 0;
const SLOTS: usize = 1;

impl Member {
    /// Looks at the row of `from`, at the time `now_ns`; `load` gives the word of a number.
    /// A row that lies makes its member suspected ([`Reason::Lied`]).
    ///
    /// The words of a group are loaded only if its checksum has changed. Words that do not fit
    /// their checksum are being written: the last values stay. A member with a group that never
    /// fits counts as silent, like one that writes nothing.
    ///
    /// A group refers to words that were written before it. So the checksums are loaded from the
    /// last to the first. While an earlier group is being rewritten, later ones are not taken: its
    /// known values may be too old for them.
    #[inline]
    pub fn on_row(&mut self, from: Rank, now_ns: u64, mut load: impl FnMut(u8) -> u64) {
        if !self.is_running() || !self.reachable().contains(from) {
            return;
        }
        let [received, slots, control] = Words::groups(self.config.members).map(Words::checksum);
        let early = is_mutant!("multicast-row-forwards").then(|| load(received));
        let (control, slots, received) = (load(control), load(slots), load(received));
        let checksums = [early.unwrap_or(received), slots, control];
        if checksums != self.checksums[from.index()] {
            self.open(from, now_ns, checksums, load);
        } else if self.agreement.unfit_ns[from.index()].is_some() {
            self.agreement.unfit_ns[from.index()] = None;
        }
    }

    /// Takes the groups with changed checksums.
    #[inline]
    fn open(
        &mut self,
        from: Rank,
        now_ns: u64,
        checksums: [u64; 3],
        mut load: impl FnMut(u8) -> u64,
    ) {
        let mut words = [0; ROW_WORDS];
        for (part, group) in Words::groups(self.config.members).into_iter().enumerate() {
            if checksums[part] == self.checksums[from.index()][part] {
                continue;
            }
            let found = &mut words[..usize::from(group.count) - 1];
            (group.first..).zip(found.iter_mut()).for_each(|(at, word)| *word = load(at));
            if checksum_of(found) != checksums[part] && !is_mutant!("multicast-row-halves") {
                self.agreement.unfit_ns[from.index()].get_or_insert(now_ns);
                return;
            }
            self.checksums[from.index()][part] = checksums[part];
            let taken = match part {
                RECEIVED => self.take_received(from, now_ns, found),
                SLOTS => self.take_slots(from, found),
                _ => self.take_control(from, now_ns, found),
            };
            if let Err(lie) = taken {
                return self.suspect(from, Reason::Lied(lie));
            }
        }
        self.agreement.unfit_ns[from.index()] = None;
    }

    #[inline]
    fn take_received(&mut self, from: Rank, now_ns: u64, found: &[u64]) -> Result<(), Lie> {
        let Some((&health, received)) = found.split_last() else { return Ok(()) };
        if !self.row.suspected.is_empty() && self.is_agreed() {
            self.judge_final(received)?;
        }
        let before = &self.rows[from.index()];
        if health < before.health {
            return Err(Lie::Backwards);
        }
        for (of, &turns) in received.iter().enumerate() {
            if turns < before.received[of] {
                return Err(Lie::Backwards);
            }
            let window = if of == self.me() { 0 } else { u64::from(self.config.window) };
            if turns > self.streams[of].received + window {
                return Err(Lie::NotSent);
            }
        }
        if health != before.health {
            self.agreement.heard_ns[from.index()] = now_ns;
        }
        let row = &mut self.rows[from.index()];
        row.received[..received.len()].copy_from_slice(received);
        row.health = health;
        Ok(())
    }

    /// Once all survivors agree, none receives more of a suspect's stream than one of them had.
    #[cold]
    fn judge_final(&self, received: &[u64]) -> Result<(), Lie> {
        let is_beyond = |of: Rank| received[of.index()] > self.cut(of);
        if self.row.suspected.iter().any(is_beyond) { Err(Lie::NotSent) } else { Ok(()) }
    }

    #[inline]
    fn take_slots(&mut self, from: Rank, found: &[u64]) -> Result<(), Lie> {
        let (before, config) = (&self.rows[from.index()], &self.config);
        let (sent, urgent) = (found[0], found[1]);
        if sent < before.sent || urgent < before.urgent {
            return Err(Lie::Backwards);
        }
        // Its counters are final when it shows that it is wedged.
        if sent > before.sent && !before.wedged.is_empty() {
            return Err(Lie::BehindEnd);
        }
        // It sends at most a ring's capacity beyond the lowest received counter of all members,
        // which is no more than the count accepted here.
        let room = if config.senders.contains(from) { config.capacity } else { 0 };
        let stream = &mut self.streams[from.index()];
        if sent > stream.accepted + room || !sent.is_multiple_of(8) {
            return Err(Lie::BeyondWindow);
        }
        (stream.published, stream.urgent) = (sent, urgent);
        let row = &mut self.rows[from.index()];
        (row.sent, row.urgent) = (sent, urgent);
        Ok(())
    }

    #[cold]
    fn take_control(&mut self, from: Rank, now_ns: u64, found: &[u64]) -> Result<(), Lie> {
        let row = &mut self.rows[from.index()];
        let (suspected, wedged) = (Members::from_bits(found[0]), Members::from_bits(found[1]));
        let (goodbye, repairs) = (found[2], found[3]);
        let went_back = goodbye < row.goodbye
            || repairs < row.repairs
            || !row.suspected.is_subset(suspected)
            || !row.wedged.is_subset(wedged);
        if went_back {
            return Err(Lie::Backwards);
        }
        let others = self.config.all().without(from);
        if !suspected.union(wedged).is_subset(others) || goodbye > LEFT {
            return Err(Lie::NoMember);
        }
        (row.suspected, row.wedged) = (suspected, wedged);
        (row.goodbye, row.repairs) = (goodbye, repairs);
        self.on_news(from, now_ns);
        Ok(())
    }
}
