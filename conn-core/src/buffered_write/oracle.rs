//! The operations of a Buffered Write connection, and a naive model of them: a queue of messages, a
//! queue of writes in flight, and memory at both ends.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;
use crate::ring::{AdvertisedCursor, CommitError, Committed, Geometry};

/// An operation on a connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum BufferedWriteOp {
    /// A message is accepted.
    Send(u8),
    /// All that has gathered is posted.
    Push,
    /// The oldest write on its way to the receiver arrives.
    Arrive,
    /// A message is handed out.
    Take,
    /// All that was handed out is freed.
    Free,
    /// The receiver writes its words to the sender, if that is due.
    Tell,
    /// The oldest write on its way to the sender arrives.
    Hear,
    /// The sender has no more messages.
    Close,
    /// The receiver takes no more, and tells so.
    Stop,
    /// A tail arrives that differs from the true one by this many bytes, or a goodbye.
    LieTail(i8, bool),
    /// Any immediate arrives.
    LieImmediate(u32),
    /// A head arrives that differs from the true one by this many bytes, with a count of
    /// immediates that differs likewise.
    LieTold(i8, i8),
}

/// Parameters of the oracle's connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct BufferedWriteParams {
    /// Bytes of the ring, as a power of two: 4 to 16.
    pub capacity_log2: u32,
    /// True if the memory is mirrored.
    pub is_mirrored: bool,
    /// Freed bytes that are worth telling.
    pub head_threshold: u64,
    /// Receives for immediates; `None` writes the tail.
    pub window: Option<u32>,
}

/// A write on its way to the receiver: bytes at places of the ring, and then the tail, if it
/// has not gone before them with the record beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RingWrite {
    bytes: Vec<(usize, Vec<u8>)>,
    tail: Option<AdvertisedCursor>,
    inline: Option<Vec<u8>>,
}

/// Both ends, their memory, and the writes in flight.
#[derive(Clone, Debug)]
pub struct CheckedBufferedWrite {
    sender: WriteSender,
    receiver: WriteReceiver,
    window: Option<u32>,
    sender_memory: Vec<u8>,
    receiver_memory: Vec<u8>,
    /// Record that lay beside the tail that arrived last.
    inline: Vec<u8>,
    /// Records that have gathered, and were not pushed.
    gathered: u32,
    there: VecDeque<RingWrite>,
    back: VecDeque<Update>,
    /// Accepted and not handed out.
    model: VecDeque<Vec<u8>>,
    sent: u8,
    is_closed: bool,
}

impl CheckedBufferedWrite {
    /// One with an empty ring; `None` when there is none of these parameters.
    pub fn new(params: BufferedWriteParams) -> Option<Self> {
        let capacity = 1u64.checked_shl(params.capacity_log2).filter(|bytes| *bytes <= 1 << 16)?;
        let make = if params.is_mirrored { Geometry::mirrored } else { Geometry::plain };
        let room = if params.is_mirrored { capacity } else { capacity / 2 };
        let geometry = make(capacity, room.checked_sub(8)? as u32).ok()?;
        let window = params.window.map(|window| window.max(1));
        let memory = vec![0xa5; capacity as usize];
        Some(Self {
            sender: WriteSender::new(geometry, window),
            receiver: WriteReceiver::new(geometry, params.head_threshold, window),
            window,
            sender_memory: memory.clone(),
            receiver_memory: memory,
            inline: Vec::new(),
            gathered: 0,
            there: VecDeque::new(),
            back: VecDeque::new(),
            model: VecDeque::new(),
            sent: 0,
            is_closed: false,
        })
    }

    /// Bytes of memory that is read and written as both views would be.
    fn at(&self, position: u64) -> usize {
        (position % self.sender_memory.len() as u64) as usize
    }

    fn send(&mut self, len: u8) {
        let before = self.sender.clone();
        let Ok(grant) = self.sender.reserve(len.into()) else {
            assert_eq!(self.sender, before);
            return;
        };
        let offset = grant.payload().offset;
        match self.sender.commit(grant, len.into()) {
            Err(CommitError) => assert!(self.is_closed && self.sender == before),
            Ok(Committed { header, skip }) => {
                assert!(!self.is_closed);
                self.sent = self.sent.wrapping_add(1);
                for i in 0..u64::from(len) {
                    let at = self.at(offset + i);
                    self.sender_memory[at] = self.sent;
                }
                for header in [Some(header), skip].into_iter().flatten() {
                    let at = self.at(header.offset);
                    self.sender_memory[at..at + 8].copy_from_slice(&header.word.to_le_bytes());
                }
                self.model.push_back(vec![self.sent; len.into()]);
                self.gathered += 1 + u32::from(skip.is_some());
            }
        }
    }

    /// Pushes, and checks that the pieces cover all gathered bytes and lie within memory.
    fn push(&mut self) {
        let (gathered, from) = (self.sender.gathered(), self.sender.pushed());
        let Some(push) = self.sender.push() else {
            let untaken = self.sender.immediates - self.sender.taken;
            let is_blocked = self.window.is_some_and(|window| untaken >= window.into());
            let is_leaving = self.is_closed && !self.sender.has_said;
            let has_reason = is_blocked || gathered == 0;
            assert!(has_reason && !is_leaving, "nothing is pushed, and something could be");
            return;
        };
        let pieces: Vec<Piece> = push.pieces.into_iter().flatten().collect();
        assert_eq!(pieces.iter().map(|p| u64::from(p.len)).sum::<u64>(), gathered);
        let (mut bytes, mut position) = (Vec::new(), from);
        for piece in pieces {
            assert_eq!(piece.offset as usize, self.at(position));
            let capacity = self.sender_memory.len() as u64;
            let views = 1 + u64::from(self.sender.geometry().is_mirrored());
            assert!(piece.offset + u64::from(piece.len) <= views * capacity);
            for i in 0..u64::from(piece.len) {
                let at = self.at(position + i);
                bytes.push((at, vec![self.sender_memory[at]]));
            }
            position += u64::from(piece.len);
        }
        assert_eq!(push.tail, AdvertisedCursor { position, is_last: self.is_closed });
        self.sender.mark_pushed(&push);
        let goes_inline = self.window.is_none() && core::mem::take(&mut self.gathered) == 1;
        let tail = Some(push.tail);
        if goes_inline && gathered <= inline_record::MAX_RECORD {
            let record = bytes.iter().flat_map(|(_, byte)| byte.clone()).collect();
            self.there.push_back(RingWrite { bytes: Vec::new(), tail, inline: Some(record) });
            self.there.push_back(RingWrite { bytes, tail: None, inline: None });
        } else {
            self.there.push_back(RingWrite { bytes, tail, inline: None });
        }
    }

    fn arrive(&mut self) {
        let Some(RingWrite { bytes, tail, inline }) = self.there.pop_front() else { return };
        for (at, content) in bytes {
            self.receiver_memory[at..at + content.len()].copy_from_slice(&content);
        }
        let Some(tail) = tail else { return };
        let before = self.receiver.tail();
        let new = match (self.window, &inline) {
            (Some(_), _) => self.receiver.on_immediate(tail.to_imm()),
            (None, Some(record)) => self.receiver.on_inline_tail(tail, record.len() as u64),
            (None, None) => self.receiver.on_tail(AdvertisedCursor::from_word(tail.to_word())),
        };
        self.inline = inline.unwrap_or_default();
        assert_eq!(new, Ok(tail.position - before), "an honest push");
    }

    fn take(&mut self) {
        let Some(offset) = self.receiver.next_header() else {
            let is_over = self.is_closed && self.sender.has_said && self.there.is_empty();
            assert_eq!(self.receiver.has_ended(), is_over);
            assert!(!is_over || self.model.is_empty(), "it has ended, and messages are left");
            return;
        };
        assert!(!self.receiver.has_ended());
        let is_inline = self.receiver.is_inline();
        let in_ring = self.receiver.contiguous() - self.receiver.read_pointer();
        assert_eq!(in_ring == 0, is_inline, "it lies in the ring, or beside the tail");
        let at = self.at(offset);
        let header = if is_inline { &self.inline[..8] } else { &self.receiver_memory[at..at + 8] };
        let word = header.try_into().expect("8 bytes");
        let Some(record) = self.receiver.take(u64::from_le_bytes(word)).expect("a record") else {
            return;
        };
        let expected = self.model.pop_front().expect("a message that was sent");
        let span = record.payload;
        let lies = |i| match is_inline {
            true => self.inline[8 + i as usize],
            false => self.receiver_memory[self.at(span.offset + i)],
        };
        let content: Vec<u8> = (0..u64::from(span.len)).map(lies).collect();
        assert_eq!(content, expected);
    }

    fn tell(&mut self) {
        if let Some(update) = self.receiver.update_due() {
            self.receiver.mark_told(update);
            self.back.push_back(update);
            assert_eq!(self.receiver.update_due(), None);
        }
    }

    fn hear(&mut self) {
        let Some(update) = self.back.pop_front() else { return };
        let heard = self.sender.on_update(update.head.to_word(), update.taken);
        assert!(heard.is_ok(), "an honest update: {heard:?}");
        assert_eq!(self.sender.taken_messages(), update.head.is_last.then_some(7));
    }

    /// A sender that has something to send, and to which nothing is on its way back, gets
    /// room when all is handed out and freed.
    fn check_liveness(&self) {
        let mut all = self.clone();
        let is_stopped = all.receiver.stopping.is_some();
        for _ in 0..4 * all.sender_memory.len() {
            for op in [
                BufferedWriteOp::Push,
                BufferedWriteOp::Arrive,
                BufferedWriteOp::Take,
                BufferedWriteOp::Free,
                BufferedWriteOp::Tell,
                BufferedWriteOp::Hear,
            ] {
                all.step(op);
            }
        }
        // A receiver that has stopped gives no more credit.
        assert!(all.model.is_empty() || is_stopped, "messages stay behind for ever");
        let longest = all.sender.geometry().max_payload();
        let fits = all.sender.reserve(longest).is_ok();
        assert!(fits || is_stopped, "the longest message never fits");
        let has_left = all.sender.has_said_goodbye();
        assert!(all.sender.may_push() || is_stopped || has_left, "no credit ever arrives");
    }

    fn step(&mut self, op: BufferedWriteOp) {
        match op {
            BufferedWriteOp::Send(len) => self.send(len),
            BufferedWriteOp::Push => self.push(),
            BufferedWriteOp::Arrive => self.arrive(),
            BufferedWriteOp::Take => self.take(),
            BufferedWriteOp::Free => self.receiver.on_freed(self.receiver.read_pointer()),
            BufferedWriteOp::Tell => self.tell(),
            BufferedWriteOp::Hear => self.hear(),
            BufferedWriteOp::Close => {
                self.sender.close();
                self.is_closed = true;
            }
            BufferedWriteOp::Stop => self.stop(),
            BufferedWriteOp::LieTail(by, is_last) => self.lie_tail(by, is_last),
            BufferedWriteOp::LieImmediate(imm) => self.lie_immediate(imm),
            BufferedWriteOp::LieTold(head, taken) => self.lie_told(head, taken),
        }
    }

    fn stop(&mut self) {
        if self.receiver.stopping.is_some() {
            return;
        }
        self.receiver.stop(7);
        let update = self.receiver.update();
        assert!(update.head.is_last);
        self.receiver.mark_told(update);
        self.back.push_back(update);
    }
}

/// Forged words are refused, or are possible values; a refusal changes nothing. Each word goes to a
/// copy, so that the honest ends continue.
impl CheckedBufferedWrite {
    fn lie_tail(&self, by: i8, is_last: bool) {
        let mut receiver = self.receiver.clone();
        let position = receiver.tail().wrapping_add_signed(by.into());
        match receiver.on_tail(AdvertisedCursor { position, is_last }) {
            Ok(new) => {
                assert!(by >= 0 && by % 8 == 0 && new == by as u64);
                let told = receiver.ring.clone();
                assert!(position <= told.head() + receiver.geometry().capacity());
            }
            Err(_) => assert_eq!(receiver, self.receiver),
        }
        // A record that is as long as this says, beside the same tail.
        let (mut receiver, bytes) = (self.receiver.clone(), u64::from(by.unsigned_abs()) / 3);
        match receiver.on_inline_tail(AdvertisedCursor { position, is_last }, bytes) {
            Ok(_) => assert!(receiver.in_ring >= self.receiver.in_ring),
            Err(_) => assert_eq!(receiver, self.receiver),
        }
    }

    fn lie_immediate(&self, imm: u32) {
        let mut receiver = self.receiver.clone();
        match receiver.on_immediate(imm) {
            Ok(new) => {
                assert!(self.window.is_some() && new <= receiver.geometry().capacity());
                assert_eq!(receiver.tail(), self.receiver.tail() + new);
            }
            Err(_) => assert_eq!(receiver, self.receiver),
        }
    }

    fn lie_told(&self, head: i8, taken: i8) {
        let mut sender = self.sender.clone();
        let word = sender.ring.head().wrapping_add_signed(head.into());
        let count = sender.taken.wrapping_add_signed(taken.into());
        match sender.on_update(word, count) {
            Ok(_) => {
                assert!(sender.ring.head() <= sender.pushed && sender.taken <= sender.immediates);
                assert!(sender.ring.head() >= self.sender.ring.head());
            }
            Err(_) => assert_eq!(sender, self.sender),
        }
    }
}

impl CheckedMachine for CheckedBufferedWrite {
    type Op = BufferedWriteOp;

    fn apply(&mut self, op: BufferedWriteOp) {
        self.step(op);
        let sender = &self.sender;
        assert!(sender.ring.head() <= sender.pushed && sender.pushed <= sender.tail());
    }
}

/// Applies the operations, and then checks that everything reaches its end.
pub fn run(params: BufferedWriteParams, ops: &[BufferedWriteOp]) {
    let Some(mut connection) = CheckedBufferedWrite::new(params) else { return };
    ops.iter().for_each(|op| connection.apply(*op));
    connection.check_liveness();
}
