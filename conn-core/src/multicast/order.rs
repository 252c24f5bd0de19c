//! Delivery: round robin over the senders, once stable.

use super::record::{Record, message_len};
use super::row::LEFT;
use super::state::OrderPosition;
use super::{Delivery, Member, Rank, Span};
use crate::ring::{HEADER_BYTES, record_bytes};

/// A turn.
enum TurnState {
    /// Its stream ends before it.
    Never,
    /// Not all have it yet.
    Later,
    /// All have it.
    Now,
}

impl Member {
    /// The next stable message of the total order. It stays in place until the next call. `header`
    /// is as in [`next_push`](Self::next_push).
    #[inline]
    pub fn next_delivery(&mut self, header: impl FnMut(Rank, u64) -> u64) -> Option<Delivery> {
        let mut header = header;
        if self.order.lent > 0 {
            self.release();
        }
        // A member that leaves takes no part in the agreement of the others.
        if !self.is_running() || self.order.is_finished || self.pushing.goodbye == LEFT {
            return None;
        }
        let mut never = 0;
        loop {
            match self.turn() {
                TurnState::Later => return None,
                TurnState::Never => {
                    never += 1;
                    if never > self.config.senders.len() {
                        self.order.is_finished = true;
                        self.say_finished();
                        return None;
                    }
                    self.next_turn();
                }
                TurnState::Now => {
                    never = 0;
                    if let Some(delivery) = self.take_turn(&mut header) {
                        return Some(delivery);
                    }
                }
            }
        }
    }

    #[inline]
    fn turn(&mut self) -> TurnState {
        let OrderPosition { round, rank, .. } = self.order;
        if round >= self.streams[rank.index()].stable {
            let needed = self.config.all().minus(self.row.suspected);
            let least = needed.iter().map(|by| self.received(by, rank)).min().unwrap_or(0);
            self.streams[rank.index()].stable = least;
            if round >= least {
                let end = self.end_of(rank);
                return if end.is_some_and(|end| round >= end) {
                    TurnState::Never
                } else {
                    TurnState::Later
                };
            }
        }
        TurnState::Now
    }

    /// The record at the front, if it is a message; others are passed.
    #[inline]
    fn take_turn(&mut self, header: &mut impl FnMut(Rank, u64) -> u64) -> Option<Delivery> {
        let from = self.order.rank;
        let stream = &self.streams[from.index()];
        if stream.nulls > 0 {
            self.pass_null();
            return None;
        }
        let at = stream.delivered & (self.config.capacity - 1);
        let word = header(from, at);
        let Some(len) = message_len(word, stream.delivered, &self.config) else {
            self.pass_turn(word);
            return None;
        };
        self.order.lent = record_bytes(len);
        self.counts.delivered += 1;
        let span = Span { offset: at + u64::from(HEADER_BYTES), len: len.into() };
        Some(Delivery { from, turn: stream.turn, span })
    }

    /// Passes one of the nulls at the front.
    #[inline]
    fn pass_null(&mut self) {
        let stream = &mut self.streams[self.order.rank.index()];
        stream.turn += 1;
        stream.nulls += 1;
        if stream.nulls == stream.nulls_of {
            stream.nulls = 0;
            stream.delivered += record_bytes(0);
        }
        self.next_turn();
    }

    /// Passes the record at the front, which has this header and is no message.
    fn pass_turn(&mut self, word: u64) {
        let stream = &mut self.streams[self.order.rank.index()];
        let Ok(record) = Record::parse(word, stream.delivered, &self.config) else {
            unreachable!("what was accepted is a record")
        };
        match record {
            Record::Message(_) => unreachable!("it is no message"),
            Record::Nulls(count) => {
                stream.nulls_of = count;
                self.pass_null();
            }
            Record::Flush | Record::Unused(_) => {
                stream.turn += 1;
                stream.delivered += record.bytes();
                self.next_turn();
            }
            // No turn follows it.
            Record::End => stream.delivered += record.bytes(),
        }
    }

    /// The message that was handed out last is not needed any more.
    #[inline]
    fn release(&mut self) {
        let stream = &mut self.streams[self.order.rank.index()];
        stream.delivered += self.order.lent;
        stream.turn += 1;
        self.order.lent = 0;
        self.next_turn();
    }

    #[inline]
    fn next_turn(&mut self) {
        let order = &mut self.order;
        let later = self.config.senders.bits() >> order.rank.0 >> 1;
        if later == 0 {
            order.round += 1;
            order.rank = self.config.senders.lowest().unwrap_or(Rank(0));
        } else {
            order.rank = Rank(order.rank.0 + 1 + later.trailing_zeros() as u8);
        }
    }
}
