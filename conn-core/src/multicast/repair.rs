//! Repairs: turns of a suspect's stream that a survivor has, and others lack.

use super::record::Record;
use super::repair_header::RepairHeader;
use super::{Lie, Member, Rank, Reason, Span};
use crate::checksum::verified;

/// Bytes of a repair area to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairCopy {
    /// The member that writes the repair area.
    pub from: Rank,
    /// Bytes behind the area's header.
    pub at: u64,
    /// The sender of the repaired stream: the bytes go to the private copy of its ring.
    pub of: Rank,
    /// Location of the bytes in that copy.
    pub span: Span,
}

/// The repairing side.
impl Member {
    /// Begins a repair, if one is needed and this is the member that does it: of those that
    /// have the whole stream, the one of the lowest rank.
    #[cold]
    pub(super) fn begin_repair(&mut self, header: &mut impl FnMut(Rank, u64) -> u64) -> bool {
        if !self.is_agreed() {
            return false;
        }
        if let Some((of, turns)) = self.agreement.repairing
            && self.least(of) < turns
        {
            return false;
        }
        self.agreement.repairing = None;
        for of in self.row.suspected.iter().filter(|of| self.config.senders.contains(*of)) {
            let (least, cut) = (self.least(of), self.cut(of));
            if least < cut && self.repairer(of) == Some(self.config.rank) {
                let repair = self.chunk(of, least, header);
                self.agreement.repairing = Some((of, repair.turns));
                self.agreement.repair_due = Some(repair);
                return true;
            }
        }
        false
    }

    /// The member that repairs the stream of `of`.
    pub(super) fn repairer(&self, of: Rank) -> Option<Rank> {
        let cut = self.cut(of);
        self.active().iter().find(|by| self.received(*by, of) >= cut)
    }

    /// The turns of `of` that all active members have.
    fn least(&self, of: Rank) -> u64 {
        self.active().iter().map(|by| self.received(by, of)).min().unwrap_or(0)
    }

    /// As many whole records behind the turn `least` as fit a repair. There is one at least,
    /// and none was delivered.
    fn chunk(
        &self,
        of: Rank,
        least: u64,
        header: &mut impl FnMut(Rank, u64) -> u64,
    ) -> RepairHeader {
        let stream = &self.streams[of.index()];
        let (mut at, mut turn) = (stream.delivered, stream.turn - u64::from(stream.nulls));
        let (mut begin, most) = (None, self.config.repair_bytes());
        while at < stream.accepted {
            let word = header(of, at & (self.config.capacity - 1));
            let Ok(record) = Record::parse(word, at, &self.config) else {
                unreachable!("what was accepted is a record")
            };
            if turn >= least && begin.is_none() {
                begin = Some(at);
            }
            if begin.is_some_and(|begin| at + record.bytes() - begin > most) {
                break;
            }
            at += record.bytes();
            turn += record.turns();
        }
        let position = begin.unwrap_or(at);
        let (number, suspected) = (self.row.repairs + 1, self.row.suspected);
        RepairHeader { of, position, len: at - position, turns: turn, number, suspected }
    }
}

/// The repaired side.
impl Member {
    /// The next bytes to be copied out of a repair area; they are taken as copied. `load`
    /// gives one of the words at the beginning of a member's area.
    #[inline]
    pub fn next_repair(&mut self, load: impl FnMut(Rank, u8) -> u64) -> Option<RepairCopy> {
        if self.row.suspected.is_empty() || !self.is_running() || !self.is_agreed() {
            return None;
        }
        self.find_repair(load)
    }

    #[cold]
    fn find_repair(&mut self, mut load: impl FnMut(Rank, u8) -> u64) -> Option<RepairCopy> {
        for from in self.reachable().iter() {
            let repairs = self.rows[from.index()].repairs;
            if repairs <= self.agreement.repairs_taken[from.index()] {
                continue;
            }
            let words = [0, 1, 2, 3, 4, 5].map(|word| load(from, word));
            let checksum = load(from, RepairHeader::WORDS - 1);
            // The header is being written: a later call takes it.
            let Some([of, position, len, turns, number, suspected]) = verified(words, checksum)
            else {
                continue;
            };
            if number != repairs || suspected != self.row.suspected.bits() {
                continue;
            }
            match self.take_repair(from, of, position, len, turns) {
                Ok(Some(copy)) => return Some(copy),
                Ok(None) => {}
                Err(lie) => {
                    self.suspect(from, Reason::Lied(lie));
                    return None;
                }
            }
        }
        None
    }

    fn take_repair(
        &mut self,
        from: Rank,
        of: u64,
        position: u64,
        len: u64,
        turns: u64,
    ) -> Result<Option<RepairCopy>, Lie> {
        let of = u8::try_from(of).map(Rank).map_err(|_| Lie::NoRepair)?;
        let repaired = self.row.suspected.contains(of) && self.config.senders.contains(of);
        let whole = position.is_multiple_of(8) && len.is_multiple_of(8);
        let is_possible = whole && len <= self.config.repair_bytes();
        if !repaired || !is_possible || turns > self.cut(of) {
            return Err(Lie::NoRepair);
        }
        self.agreement.shown[from.index()] = Some((of, turns));
        let capacity = self.config.capacity;
        let stream = &mut self.streams[of.index()];
        let end = position.checked_add(len).ok_or(Lie::NoRepair)?;
        if position > stream.copied {
            return Err(Lie::NoRepair);
        }
        if end <= stream.copied && stream.accepted < stream.copied {
            return Ok(None); // when it has been looked at
        }
        if end <= stream.copied {
            if stream.received < turns {
                return Err(Lie::NoRepair);
            }
            self.agreement.repairs_taken[from.index()] = self.rows[from.index()].repairs;
            return Ok(None);
        }
        if end > stream.delivered + capacity {
            return Ok(None); // when more has been delivered
        }
        stream.published = end;
        let (at, span) = (stream.copied - position, Span::of_lap(stream.copied, end, capacity));
        stream.copied += span.len;
        self.agreement.repairer[of.index()] = from;
        Ok(Some(RepairCopy { from, at, of, span }))
    }
}
