//! The operations of a ring with many threads at both ends, as one thread after the other
//! does them, and a naive model: a queue of messages, complete or not.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::combiner::Combiner;
use crate::exhaustive::CheckedMachine;
use crate::ring::{Geometry, HEADER_BYTES, Header, ReserveError, Span, record_bytes};

/// An operation on a shared ring.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum SharedRingOp {
    /// A sender claims room.
    Reserve(u8),
    /// A sender that has claimed room writes and publishes its message.
    Publish(u8),
    /// A sender that has claimed room does not use it.
    GiveUp(u8),
    /// This number of published units of 8 bytes land at the receivers, or all if there are fewer.
    Land(u8),
    /// A receiver takes a message.
    Take,
    /// One of the messages that are held is freed.
    Free(u8),
    /// The head is advertised to the senders.
    TellHead,
    /// A head arrives that differs from the true one by this many bytes.
    LieHead(i8),
}

/// A record, from the claim of its room until the head has passed it.
#[derive(Clone, Debug)]
struct SentRecord {
    /// Position behind the skip record before it.
    start: u64,
    end: u64,
    /// `None` once it is given up.
    content: Option<Vec<u8>>,
    is_published: bool,
    is_freed: bool,
}

/// Both ends, one memory, and the records from the head on.
#[derive(Debug)]
pub struct CheckedSharedRing {
    senders: Senders<Vec<RecordSlot>>,
    receivers: Receivers<Vec<RecordSlot>>,
    memory: Vec<u8>,
    told_tail: u64,
    landed: u64,
    head: u64,
    grants: Vec<(SharedGrant, u8)>,
    claims: Vec<(Claimed, Span)>,
    /// Records from the advertised head on.
    model: VecDeque<SentRecord>,
    /// Number of these that were taken or skipped.
    taken: usize,
    sent: u8,
}

fn slots(count: usize) -> Vec<RecordSlot> {
    (0..count).map(|_| RecordSlot::new()).collect()
}

fn copy(slots: &[RecordSlot]) -> Vec<RecordSlot> {
    slots.iter().map(|slot| RecordSlot(copy_word(&slot.0))).collect()
}

fn copy_word(word: &AtomicU64) -> AtomicU64 {
    AtomicU64::new(word.load(Ordering::Relaxed))
}

impl Clone for CheckedSharedRing {
    fn clone(&self) -> Self {
        let (s, r) = (&self.senders, &self.receivers);
        let senders = Senders {
            geometry: s.geometry,
            reserved: copy_word(&s.reserved),
            head: copy_word(&s.head),
            published: copy_word(&s.published),
            published_count: copy_word(&s.published_count),
            combiner: Combiner::new(), // no thread is inside between operations
            slots: copy(&s.slots),
        };
        let receivers = Receivers {
            geometry: r.geometry,
            claimed: copy_word(&r.claimed),
            landed: copy_word(&r.landed),
            tail: copy_word(&r.tail),
            head: copy_word(&r.head),
            freed: copy_word(&r.freed),
            slots: copy(&r.slots),
        };
        let grant = |g: &SharedGrant| SharedGrant { ..*g };
        Self {
            senders,
            receivers,
            memory: self.memory.clone(),
            told_tail: self.told_tail,
            landed: self.landed,
            head: self.head,
            grants: self.grants.iter().map(|(g, what)| (grant(g), *what)).collect(),
            claims: self.claims.iter().map(|(c, span)| (Claimed { ..*c }, *span)).collect(),
            model: self.model.clone(),
            taken: self.taken,
            sent: self.sent,
        }
    }
}

impl CheckedSharedRing {
    /// An empty ring with room for `slots` records that are written, and as many that are
    /// held; `None` when there is none of that shape.
    pub fn new(geometry: Geometry, slots_each: usize) -> Option<Self> {
        Some(Self {
            senders: Senders::new(geometry, slots(slots_each)).ok()?,
            receivers: Receivers::new(geometry, slots(slots_each)).ok()?,
            memory: vec![0xa5; geometry.capacity() as usize],
            told_tail: 0,
            landed: 0,
            head: 0,
            grants: Vec::new(),
            claims: Vec::new(),
            model: VecDeque::new(),
            taken: 0,
            sent: 0,
        })
    }

    fn slots(&self) -> usize {
        self.senders.slots.len()
    }

    fn reserve(&mut self, len: u8) {
        let unpublished = self.model.iter().rev().take_while(|sent| sent.end > self.told_tail);
        let is_crowded = unpublished.count() >= self.slots();
        match self.senders.reserve(len.into()) {
            Ok(grant) => {
                assert!(!is_crowded);
                self.sent = self.sent.wrapping_add(1);
                let content = Some(vec![self.sent; len.into()]);
                let end = grant.start + record_bytes(len.into());
                let capacity = self.senders.geometry.capacity();
                let head = self.senders.head.load(Ordering::Relaxed);
                assert!(end <= head + capacity, "more than there is room for");
                let before = self.model.back().map_or(grant.tail, |sent| sent.end);
                assert_eq!(grant.tail, before, "records lie behind each other");
                let start = grant.start;
                let sent = SentRecord { start, end, content, is_published: false, is_freed: false };
                self.model.push_back(sent);
                self.grants.push((grant, self.sent));
            }
            Err(ReserveError::Crowded) => assert!(is_crowded),
            Err(ReserveError::Full { needed, free }) => assert!(needed > free),
            Err(ReserveError::TooLong { most }) => assert!(u32::from(len) > most),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let capacity = self.memory.len();
        for (at, byte) in bytes.iter().enumerate() {
            self.memory[(offset as usize + at) % capacity] = *byte;
        }
    }

    fn copy_out(&self, span: Span) -> Vec<u8> {
        let at = |n| self.memory[(span.offset as usize + n) % self.memory.len()];
        (0..span.len as usize).map(at).collect()
    }

    fn publish(&mut self, at: usize, gives_up: bool) {
        if at >= self.grants.len() {
            return;
        }
        let (grant, what) = self.grants.swap_remove(at);
        let end = grant.start + record_bytes(grant.payload.len);
        let sent = self.model.iter_mut().find(|sent| sent.end == end).expect("it was claimed");
        sent.is_published = true;
        let (header, skip) = if gives_up {
            sent.content = None;
            self.senders.unused(&grant)
        } else {
            let payload = grant.payload();
            self.write(payload.offset, &vec![what; payload.len as usize]);
            self.senders.headers(&grant)
        };
        for Header { offset, word } in [Some(header), skip].into_iter().flatten() {
            self.write(offset, &word.to_le_bytes());
        }
        let mut tail = self.told_tail;
        self.senders.publish(grant, |position| {
            assert!(position > tail);
            tail = position;
        });
        self.told_tail = tail;
        let complete = self.model.iter().take_while(|sent| sent.is_published).last();
        let expected = complete.map_or(self.told_tail, |sent| sent.end.max(self.told_tail));
        assert_eq!(self.told_tail, expected, "published in order, and all that can be");
        assert_eq!(self.senders.tail(), self.told_tail);
    }

    fn take(&mut self) {
        let header = |offset| {
            let word = self.copy_out(Span { offset, len: HEADER_BYTES });
            u64::from_le_bytes(word.try_into().expect("8 bytes"))
        };
        let taken = self.receivers.take(header).expect("honest senders");
        let has_landed = |sent: &&SentRecord| sent.end <= self.landed;
        let next = self.model.iter().skip(self.taken).take_while(has_landed);
        let skipped = next.clone().take_while(|sent| sent.content.is_none()).count();
        let next = next.clone().find(|sent| sent.content.is_some()).cloned();
        match taken {
            Taking::Record(record, claimed) => {
                let next = next.expect("a message has landed");
                assert_eq!(Some(self.copy_out(record.payload)), next.content);
                assert_eq!(record.end, next.end);
                self.taken += skipped + 1;
                self.claims.push((claimed, record.payload));
            }
            Taking::Nothing => {
                assert!(next.is_none());
                self.taken += skipped;
            }
            Taking::Crowded => {
                let held = self.model.iter().take(self.taken);
                let held = held.filter(|sent| sent.content.is_some()).count();
                assert!(held >= self.slots(), "there is a slot");
            }
        }
    }

    fn free(&mut self, at: usize) {
        if at < self.claims.len() {
            let (claimed, _) = self.claims.swap_remove(at);
            let sent = self.model.iter_mut().find(|sent| sent.end == claimed.end);
            sent.expect("it is held").is_freed = true;
            self.receivers.free(claimed);
        }
    }

    fn tell_head(&mut self) {
        let head = self.receivers.head();
        let passed = |(at, sent): &(usize, &SentRecord)| {
            *at < self.taken && (sent.is_freed || sent.content.is_none())
        };
        let row = self.model.iter().enumerate().take_while(passed).count();
        // The head passes a skip record with the record behind it, or once nothing is held.
        let upto = self.model.iter().take(row).filter(|sent| sent.end <= head).count();
        let rest = self.model.range(upto..row);
        assert!(rest.clone().all(|sent| sent.content.is_none()), "freed, and not passed");
        assert!(rest.len() == 0 || row < self.taken, "all is free, and the head stays behind");
        let is_behind = upto > 0 && head == self.model[upto - 1].end;
        let is_before = self.model.get(upto).is_some_and(|sent| head == sent.start);
        let is_same = upto == 0 && head == self.head;
        assert!(is_behind || is_before || is_same, "the head lies between records");
        self.head = head;
        assert!(head <= self.receivers.claimed() && self.receivers.claimed() <= self.landed);
        self.model.drain(..upto);
        self.taken -= upto;
        self.senders.on_head(head).expect("an honest receiver");
    }

    fn lie_head(&mut self, by: i8) {
        let head = self.senders.tail().wrapping_add_signed(by.into());
        let is_lie = head > self.senders.tail() || !head.is_multiple_of(ALIGN);
        if is_lie {
            let before = self.senders.head.load(Ordering::Relaxed);
            assert!(self.senders.on_head(head).is_err());
            assert_eq!(self.senders.head.load(Ordering::Relaxed), before);
        }
    }
}

impl CheckedMachine for CheckedSharedRing {
    type Op = SharedRingOp;

    fn apply(&mut self, op: SharedRingOp) {
        match op {
            SharedRingOp::Reserve(len) => self.reserve(len),
            SharedRingOp::Publish(at) => self.publish(at.into(), false),
            SharedRingOp::GiveUp(at) => self.publish(at.into(), true),
            SharedRingOp::Land(units) => {
                let landed = self.landed + u64::from(units) * ALIGN;
                self.landed = landed.min(self.told_tail);
                self.receivers.on_landed(self.landed, self.told_tail);
            }
            SharedRingOp::Take => self.take(),
            SharedRingOp::Free(at) => self.free(at.into()),
            SharedRingOp::TellHead => self.tell_head(),
            SharedRingOp::LieHead(by) => self.lie_head(by),
        }
        for (claimed, span) in &self.claims {
            let sent = self.model.iter().find(|sent| sent.end == claimed.end);
            let content = sent.and_then(|sent| sent.content.clone());
            assert_eq!(Some(self.copy_out(*span)), content, "overwritten while it is held");
        }
    }
}
