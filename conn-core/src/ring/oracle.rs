//! The operations of a ring with both its ends, and a naive model of them: a queue of messages; and
//! a naive parser for rings with any contents.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::fetch::{Fetch, FetchConfig};
use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a ring.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum RingOp {
    /// A message is sent.
    Send {
        /// Its bytes.
        len: u8,
        /// Bytes more than that, which are reserved and not used.
        spare: u8,
    },
    /// The receiver looks at the tail.
    LookAtTail,
    /// A read is posted.
    Fetch,
    /// The oldest read completes.
    Land,
    /// A message is received.
    Take,
    /// One of the messages that are held is freed.
    Free(u8),
    /// The head is advertised to the sender, if it is due.
    TellHead,
    /// A tail arrives that differs from the true one by this many bytes.
    LieTail(i8),
    /// A head arrives that differs from the true one by this many bytes.
    LieHead(i8),
}

/// A message that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldMessage {
    content: Vec<u8>,
    payload: Span,
    end: u64,
    is_freed: bool,
}

/// Parameters of the oracle's ring.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct RingParams {
    /// Bytes of the ring, as a power of two.
    pub capacity_log2: u32,
    /// The longest payload; `None` for the longest that the capacity permits.
    pub max_payload: Option<u32>,
    /// True if the memory is mirrored.
    pub is_mirrored: bool,
    /// Freed bytes that are worth telling.
    pub head_threshold: u64,
    /// The longest read, in bytes.
    pub max_read_bytes: u32,
    /// Reads at once.
    pub reads: u32,
}

/// Both ends, their memory, and the messages on their way.
#[derive(Clone, Debug)]
pub struct CheckedRing {
    head_threshold: u64,
    sender: Producer,
    receiver: Consumer,
    fetch: Fetch,
    /// Reads on their way, as they were posted.
    reads: VecDeque<fetch::Read>,
    sender_memory: Vec<u8>,
    receiver_memory: Vec<u8>,
    held: VecDeque<HeldMessage>,
    /// Messages that were sent and not received.
    model: VecDeque<Vec<u8>>,
    sent: u8,
}

impl CheckedRing {
    /// An empty one; `None` when there is none of these parameters.
    pub fn new(params: RingParams) -> Option<Self> {
        let capacity = 1u64.checked_shl(params.capacity_log2).filter(|bytes| *bytes <= 1 << 16)?;
        let make = if params.is_mirrored { Geometry::mirrored } else { Geometry::plain };
        let geometry = match (params.max_payload, make(capacity, u32::MAX)) {
            (Some(most), _) => make(capacity, most).ok()?,
            (None, Err(GeometryError::MessageTooLong { most })) => make(capacity, most).ok()?,
            _ => return None,
        };
        let RingParams { head_threshold, max_read_bytes, reads, .. } = params;
        let memory = vec![0xa5; capacity as usize];
        Some(Self {
            head_threshold,
            sender: Producer::new(geometry),
            receiver: Consumer::new(geometry, ConsumerConfig { head_threshold }),
            fetch: Fetch::new(geometry, FetchConfig { max_read_bytes, reads }).ok()?,
            reads: VecDeque::new(),
            sender_memory: memory.clone(),
            receiver_memory: memory,
            held: VecDeque::new(),
            model: VecDeque::new(),
            sent: 0,
        })
    }

    fn geometry(&self) -> &Geometry {
        self.sender.geometry()
    }

    fn send(&mut self, len: u8, spare: u8) {
        let reserved = u32::from(len) + u32::from(spare);
        let most = self.geometry().max_payload();
        let (before, needed) = (self.sender.clone(), naive_need(&self.sender, reserved));
        let mut in_one = self.sender.clone();
        let pushed = in_one.push(reserved);
        assert!(pushed.is_ok() || in_one == before, "a failed push changes nothing");
        let reserved_now = self.sender.reserve(reserved);
        assert_eq!(pushed.err(), reserved_now.as_ref().err().copied());
        let grant = match reserved_now {
            Ok(grant) => grant,
            Err(ReserveError::TooLong { most: limit }) => {
                assert!(reserved > most && limit == most);
                return;
            }
            Err(refused) => {
                let free = self.sender.free();
                assert_eq!(refused, ReserveError::Full { needed, free });
                assert!(needed > free && reserved <= most);
                return;
            }
        };
        assert!(reserved <= most && needed <= before.free());
        self.sent = self.sent.wrapping_add(1);
        let content = vec![self.sent; len.into()];
        let span = grant.payload();
        let committed = self.sender.commit(grant, len.into()).expect("what was granted");
        if spare == 0 {
            assert_eq!((pushed, in_one), (Ok((span, committed)), self.sender.clone()));
        }
        let Committed { header, skip } = committed;
        let is_plain = !self.geometry().is_mirrored();
        assert!(!is_plain || span.offset + u64::from(span.len) <= self.geometry().capacity());
        write(&mut self.sender_memory, span.offset, &content);
        for header in skip.into_iter().chain([header]) {
            write(&mut self.sender_memory, header.offset, &header.word.to_le_bytes());
        }
        self.model.push_back(content);
    }

    fn fetch(&mut self) {
        let Some(read) = self.fetch.next(self.receiver.tail()) else {
            let is_all = self.fetch.requested() == self.receiver.tail();
            assert!(is_all || self.fetch.on_their_way() > 0);
            return;
        };
        let end = read.offset + u64::from(read.len);
        let room = self.geometry().capacity() * if self.geometry().is_mirrored() { 2 } else { 1 };
        assert!(read.len > 0 && end <= room);
        self.reads.push_back(read);
    }

    /// The bytes arrive when the read completes.
    fn land(&mut self) {
        let Some(read) = self.reads.pop_front() else {
            assert_eq!(self.fetch.complete(), Err(fetch::NotPosted));
            return;
        };
        let bytes = copy_out(&self.sender_memory, read.offset, read.len);
        write(&mut self.receiver_memory, read.offset, &bytes);
        let landed = self.fetch.complete().expect("it was posted");
        self.receiver.on_landed(landed).expect("it was sent");
        for held in self.held.iter().filter(|held| !held.is_freed) {
            let bytes = copy_out(&self.receiver_memory, held.payload.offset, held.payload.len);
            assert_eq!(bytes, held.content, "a message that is held was overwritten");
        }
    }

    /// Takes one message, past skip records.
    fn take(&mut self) -> bool {
        while let Some(offset) = self.receiver.next_header() {
            let word = copy_out(&self.receiver_memory, offset, HEADER_BYTES);
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            match self.receiver.take(word).expect("an honest sender") {
                Taken::Record(Record { payload, end }) => {
                    let content = copy_out(&self.receiver_memory, payload.offset, payload.len);
                    assert_eq!(Some(&content), self.model.front());
                    self.model.pop_front();
                    self.held.push_back(HeldMessage { content, payload, end, is_freed: false });
                    return true;
                }
                Taken::Skipped => assert!(!self.geometry().is_mirrored()),
                Taken::Partial => return false,
            }
        }
        false
    }

    fn look_at_tail(&mut self) {
        let tail = self.sender.tail();
        let (mut in_one, mut both) = (self.receiver.clone(), self.receiver.clone());
        let new = self.receiver.on_tail(tail).expect("an honest sender");
        assert_eq!(in_one.on_tail_landed(tail), Ok(new));
        assert_eq!((both.on_tail(tail), both.on_landed(tail)), (Ok(new), Ok(())));
        assert_eq!(in_one, both);
    }

    fn free(&mut self, at: usize) {
        if let Some(held) = self.held.iter_mut().filter(|held| !held.is_freed).nth(at) {
            held.is_freed = true;
        }
        while self.held.front().is_some_and(|held| held.is_freed) {
            self.receiver.on_freed(self.held.pop_front().expect("it is there").end);
        }
        if self.held.is_empty() {
            let (mut all, mut up_to) = (self.receiver.clone(), self.receiver.clone());
            all.on_all_freed();
            up_to.on_freed(up_to.read_pointer());
            assert_eq!(all, up_to);
        }
    }

    /// The head is due when there is news, and enough of it, or the sender might wait.
    fn check_due(&self) {
        let (receiver, told) = (&self.receiver, self.sender.head());
        let (freed, room) = (receiver.head() - told, told + self.geometry().capacity());
        let might_wait = room - receiver.tail() < self.geometry().most_needed();
        let is_due = freed > 0 && (freed >= self.head_threshold || might_wait);
        assert_eq!(receiver.head_due(), is_due.then_some(receiver.head()));
    }

    fn tell_head(&mut self) {
        if let Some(head) = self.receiver.head_due() {
            self.receiver.mark_told(head);
            assert!(self.sender.on_head(head).expect("an honest receiver") > 0);
            assert_eq!(self.sender.head(), head);
        }
    }

    fn lie_tail(&mut self, by: i8) {
        let tail = self.receiver.tail().wrapping_add_signed(by.into());
        let limit = self.sender.head() + self.geometry().capacity();
        let before = self.receiver.clone();
        let could_be = tail >= before.tail() && tail <= limit && tail.is_multiple_of(ALIGN);
        let mut deceived = self.receiver.clone();
        match deceived.on_tail(tail) {
            Ok(new) => assert!(could_be && new == tail - before.tail()),
            Err(_) => assert!(!could_be && deceived == before, "a refused tail changes nothing"),
        }
    }

    fn lie_head(&mut self, by: i8) {
        let head = self.sender.head().wrapping_add_signed(by.into());
        let before = self.sender.clone();
        let could_be = head >= before.head() && head <= before.tail() && head.is_multiple_of(ALIGN);
        let mut deceived = self.sender.clone();
        match deceived.on_head(head) {
            Ok(freed) => assert!(could_be && freed == head - before.head()),
            Err(_) => assert!(!could_be && deceived == before, "a refused head changes nothing"),
        }
    }

    /// Checks that the longest message fits once all records are received and freed, and the due
    /// head was advertised.
    fn check_liveness(&self) {
        let mut quiet = self.clone();
        while !quiet.model.is_empty() {
            quiet.step(RingOp::LookAtTail);
            quiet.fetch();
            quiet.land();
            while quiet.take() {}
            quiet.free_all();
            quiet.tell_head();
        }
        quiet.step(RingOp::LookAtTail);
        quiet.free_all();
        quiet.tell_head();
        let most = quiet.geometry().max_payload();
        assert!(quiet.sender.reserve(most).is_ok(), "the ring is stuck: {quiet:?}");
    }

    fn free_all(&mut self) {
        while self.held.iter().any(|held| !held.is_freed) {
            self.free(0);
        }
    }

    fn step(&mut self, op: RingOp) {
        match op {
            RingOp::Send { len, spare } => self.send(len, spare),
            RingOp::LookAtTail => self.look_at_tail(),
            RingOp::Fetch => self.fetch(),
            RingOp::Land => self.land(),
            RingOp::Take => drop(self.take()),
            RingOp::Free(at) => self.free(at.into()),
            RingOp::TellHead => self.tell_head(),
            RingOp::LieTail(by) => self.lie_tail(by),
            RingOp::LieHead(by) => self.lie_head(by),
        }
    }
}

impl CheckedMachine for CheckedRing {
    type Op = RingOp;

    fn apply(&mut self, op: RingOp) {
        self.step(op);
        let (sender, receiver) = (&self.sender, &self.receiver);
        assert!(sender.tail() <= sender.head() + self.geometry().capacity());
        assert!(receiver.head() <= receiver.read_pointer());
        assert!(receiver.read_pointer() <= self.fetch.landed());
        assert!(self.fetch.landed() <= self.fetch.requested());
        assert!(self.fetch.requested() <= receiver.tail());
        assert!(receiver.tail() <= sender.tail());
        self.check_due();
        self.check_liveness();
    }
}

/// Free bytes that a record of `len` bytes takes at the sender's tail, byte by byte.
fn naive_need(sender: &Producer, len: u32) -> u64 {
    let geometry = sender.geometry();
    let record = u64::from((len + HEADER_BYTES).next_multiple_of(ALIGN as u32));
    let crosses = (1..record).any(|byte| geometry.offset(sender.tail() + byte) == 0);
    let is_at = geometry.offset(sender.tail());
    if crosses && !geometry.is_mirrored() { geometry.capacity() - is_at + record } else { record }
}

/// Into a ring's memory, as if it were mirrored.
fn write(memory: &mut [u8], offset: u64, bytes: &[u8]) {
    let capacity = memory.len();
    for (at, byte) in bytes.iter().enumerate() {
        memory[(offset as usize + at) % capacity] = *byte;
    }
}

fn copy_out(memory: &[u8], offset: u64, len: u32) -> Vec<u8> {
    (0..len as usize).map(|at| memory[(offset as usize + at) % memory.len()]).collect()
}

/// Parses `memory` with the machine and naively; panics when they differ. Bytes up to `head` were
/// freed, and a peer claims records up to `tail`. Returns the payloads before the first invalid
/// record. The head is in the first lap, at a multiple of 8.
pub fn check_parse(geometry: Geometry, memory: &[u8], head: u64, tail: u64) -> Vec<Span> {
    assert_eq!(memory.len() as u64, geometry.capacity());
    let mut consumer = Consumer::new(geometry, ConsumerConfig { head_threshold: 0 });
    let (mut found, mut position) = (Vec::new(), head);
    if head > 0 {
        consumer.on_tail_landed(head).expect("in the first lap");
        assert_eq!(consumer.take(skip_word(0, head)), Ok(Taken::Skipped));
        consumer.on_all_freed();
        consumer.mark_told(head);
    }
    if consumer.on_tail(tail).is_err() {
        let most = head + geometry.capacity();
        assert!(tail < head || tail > most || !tail.is_multiple_of(ALIGN));
        return found;
    }
    consumer.on_landed(tail).expect("what was sent");
    while let Some(offset) = consumer.next_header() {
        let word = copy_out(memory, offset, HEADER_BYTES);
        let taken = consumer.take(u64::from_le_bytes(word.clone().try_into().expect("8 bytes")));
        let naive = naive_record(&geometry, position, &word, tail);
        match taken {
            Ok(Taken::Record(record)) => {
                assert_eq!(naive, Some((record.end, Some(record.payload))));
                let end = record.payload.offset + u64::from(record.payload.len);
                assert!(geometry.is_mirrored() || end <= geometry.capacity());
                found.push(record.payload);
            }
            Ok(Taken::Skipped) => assert!(matches!(naive, Some((_, None)))),
            Ok(Taken::Partial) => panic!("all has landed"),
            Err(error) => {
                let before = consumer.clone();
                let again = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                assert_eq!(consumer.take(again), Err(error), "an error stays");
                assert_eq!((consumer, naive), (before, None));
                return found;
            }
        }
        position = naive.expect("they agree").0;
        assert_eq!(consumer.read_pointer(), position);
    }
    assert_eq!(position, tail);
    found
}

/// Returns the end of the record at `position`, and its payload unless it is skipped; `None` when
/// it is no record.
fn naive_record(
    geometry: &Geometry,
    position: u64,
    word: &[u8],
    tail: u64,
) -> Option<(u64, Option<Span>)> {
    let part = |at: usize| word[at..at + 4].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b));
    let (len, upper) = (part(0), part(4));
    let mark = (position / 8) % (1 << 32);
    let is_skip = upper == (mark + (1 << 31)) % (1 << 32);
    let end = position + (8 + len).div_ceil(8) * 8;
    let lap_end = (position / geometry.capacity() + 1) * geometry.capacity();
    let is_of_here = (upper == mark || is_skip) && end <= tail;
    let is_in_lap = geometry.is_mirrored() || end <= lap_end;
    let is_allowed =
        is_in_lap && if is_skip { len % 8 == 0 } else { len <= u64::from(geometry.max_payload()) };
    let span = Span { offset: geometry.offset(position) + 8, len: len as u32 };
    (is_of_here && is_allowed).then_some((end, (!is_skip).then_some(span)))
}
