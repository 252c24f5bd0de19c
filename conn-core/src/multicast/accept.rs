//! Parser of copied records.

use super::record::{Record, RecordError, message_len};
use super::{Lie, Member, Rank, Reason};
use crate::ring::record_bytes;

impl Member {
    /// Accepts all records that are in private memory; returns true if there were any.
    #[inline]
    pub(super) fn accept_all(&mut self, header: &mut impl FnMut(Rank, u64) -> u64) -> bool {
        let mut any = false;
        for of in self.config.senders.iter() {
            loop {
                any |= self.accept_messages(of, header);
                if self.accept(of, header).is_none() {
                    break;
                }
                any = true;
            }
        }
        any
    }

    /// Accepts the messages at the front that are valid, whole and within the window; returns
    /// whether there were any. [`accept`](Self::accept) judges everything else.
    #[inline]
    fn accept_messages(&mut self, of: Rank, header: &mut impl FnMut(Rank, u64) -> u64) -> bool {
        if self.row.suspected.contains(of) {
            return false;
        }
        let config = &self.config;
        let is_own = of == config.rank;
        let told = self.row.received[of.index()] + u64::from(config.window);
        let most = if is_own { u64::MAX } else { told };
        let stream = &mut self.streams[of.index()];
        let (mut at, mut received) = (stream.accepted, stream.received);
        if stream.ended {
            return false;
        }
        while at != stream.copied && received < most {
            let word = header(of, at & (config.capacity - 1));
            let Some(len) = message_len(word, at, config) else { break };
            let end = at + record_bytes(len);
            if end > stream.copied {
                break;
            }
            (at, received) = (end, received + 1);
        }
        let any = at != stream.accepted;
        (stream.accepted, stream.received) = (at, received);
        any
    }

    /// Accepts one record, of the sender of the lowest rank that has one.
    #[inline]
    pub(super) fn accept_one(
        &mut self,
        header: &mut impl FnMut(Rank, u64) -> u64,
    ) -> Option<(Rank, Record)> {
        let mut senders = self.config.senders;
        while let Some(of) = senders.lowest() {
            if let Some(record) = self.accept(of, header) {
                return Some((of, record));
            }
            senders = senders.without(of);
        }
        None
    }

    /// Accepts the next record of `of`. If it is invalid, the member that wrote it is suspected.
    #[inline]
    fn accept(&mut self, of: Rank, header: &mut impl FnMut(Rank, u64) -> u64) -> Option<Record> {
        let stream = &self.streams[of.index()];
        let at = stream.accepted;
        if at == stream.copied {
            return None;
        }
        let word = header(of, at & (self.config.capacity - 1));
        let record = match self.judge(of, Record::parse(word, at, &self.config)) {
            Ok(record) => record?,
            Err(lie) => {
                self.caught(of, lie);
                return None;
            }
        };
        let stream = &mut self.streams[of.index()];
        stream.accepted += record.bytes();
        stream.received += record.turns();
        stream.ended = record == Record::End;
        if of == self.config.rank {
            self.on_own(record);
        }
        Some(record)
    }

    /// `None`: not all of the record has been copied yet.
    #[inline]
    fn judge(&self, of: Rank, parsed: Result<Record, RecordError>) -> Result<Option<Record>, Lie> {
        let stream = &self.streams[of.index()];
        let record = parsed.map_err(|RecordError(lie)| lie)?;
        let end = stream.accepted + record.bytes();
        if end > stream.published {
            return Err(Lie::PartOfRecord);
        }
        if stream.ended {
            return Err(Lie::BehindEnd);
        }
        let is_repaired = self.row.suspected.contains(of);
        if is_repaired && stream.received + record.turns() > self.cut(of) {
            return Err(Lie::NoRepair);
        }
        // A turn begins when all members have shown that they received the turn one window
        // before it.
        let told = self.row.received[of.index()];
        if stream.received + record.turns() > told + u64::from(self.config.window)
            && of != self.config.rank
        {
            return Err(Lie::BeyondWindow);
        }
        Ok((end <= stream.copied).then_some(record))
    }

    #[cold]
    fn caught(&mut self, of: Rank, lie: Lie) {
        assert!(of != self.config.rank, "the own ring holds what is no record: {lie}");
        if self.row.suspected.contains(of) {
            let by = self.agreement.repairer[of.index()];
            self.suspect(by, Reason::Lied(Lie::NoRepair));
        } else {
            self.suspect(of, Reason::Lied(lie));
        }
    }
}
