//! The operations of a connection with both its ends, and a naive model of them: a queue of
//! lengths, and the requests in the order of their posting.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::wake::Waker;
use super::*;
use crate::exhaustive::CheckedMachine;
use crate::ring::fetch::{FetchConfig, Read};
use crate::ring::{Geometry, GeometryError, Taken, record_bytes};

/// Stands for a tail that is read while it is being written.
pub const HALF_WRITTEN: i8 = i8::MIN;

/// An operation on a connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum BufferedReadOp {
    /// A message of the given length in bytes is sent.
    Send(u8),
    /// The sender says that there are no more.
    Finish,
    /// The sender looks at the receiver's words: the head alone is new, or both are.
    LookAtWords {
        /// True if the second word has not arrived yet.
        is_torn: bool,
    },
    /// The receiver has nothing to hand out.
    LookAgain,
    /// All requests that are due are posted.
    Post,
    /// The oldest request is executed, and completes.
    Complete,
    /// The receiver has taken all completions that there are.
    Polled,
    /// A message is received.
    Take,
    /// The oldest message that is held is freed.
    Free,
    /// The receiver tells all.
    TellAll,
    /// The receiver stops.
    Stop,
    /// The tail that is read next differs from the true one by this many bytes; or, for
    /// [`HALF_WRITTEN`], it is invalid.
    LieTail(i8),
    /// The receiver wants to sleep.
    PrepareSleep,
    /// The sender looks whether it is asked for a wake-up, and sends it.
    LookAtRequest,
    /// The wake-up arrives.
    WakeUp,
    /// The receiver's words differ from the true ones by these numbers of bytes.
    LieWords(i8, i8),
}

/// Parameters of the oracle's connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct BufferedReadParams {
    /// Bytes of the ring, as a power of two.
    pub capacity_log2: u32,
    /// True if the memory is mirrored.
    pub is_mirrored: bool,
    /// The reader's.
    pub head_threshold: u64,
    /// The reader's.
    pub max_read_bytes: u32,
    /// The reader's.
    pub reads: u32,
    /// The reader's.
    pub prefetch: bool,
    /// The reader's.
    pub head_update_polls: u32,
    /// The reader's.
    pub gather: u64,
}

/// Both ends, their memory, and the requests between them.
#[derive(Clone, Debug)]
pub struct CheckedBufferedRead {
    source: Source,
    reader: Reader,
    sender_memory: Vec<u8>,
    receiver_memory: Vec<u8>,
    /// The words in the sender's memory.
    tail: u64,
    words: Words,
    on_their_way: VecDeque<ReaderRequest>,
    /// Lengths and numbers of messages that were sent and not received.
    sent: VecDeque<(u32, u8)>,
    held: VecDeque<u64>,
    number: u8,
    is_broken: bool,
    waker: Waker,
    /// The request in the sender's memory.
    request: u64,
    /// Receives posted for wake-ups, and wake-ups on their way.
    receives: u32,
    wake_ups: u32,
    /// The receiver sleeps until something completes.
    is_asleep: bool,
    /// The sender has not looked at the request since it has published.
    is_owing: bool,
}

impl CheckedBufferedRead {
    /// An empty one; `None` when there is none of these parameters.
    pub fn new(params: BufferedReadParams) -> Option<Self> {
        let capacity = 1u64.checked_shl(params.capacity_log2).filter(|bytes| *bytes <= 1 << 16)?;
        let make = if params.is_mirrored { Geometry::mirrored } else { Geometry::plain };
        let Err(GeometryError::MessageTooLong { most }) = make(capacity, u32::MAX) else {
            return None;
        };
        let geometry = make(capacity, most).ok()?;
        let BufferedReadParams { max_read_bytes, reads, .. } = params;
        let config = ReaderConfig {
            head_threshold: params.head_threshold,
            fetch: FetchConfig { max_read_bytes, reads },
            prefetch: params.prefetch,
            head_update_polls: params.head_update_polls,
            gather: params.gather,
        };
        let memory = vec![0xa5; capacity as usize];
        Some(Self {
            source: Source::new(geometry),
            reader: Reader::new(geometry, config).ok()?,
            sender_memory: memory.clone(),
            receiver_memory: memory,
            tail: 0,
            words: Words::default(),
            on_their_way: VecDeque::new(),
            sent: VecDeque::new(),
            held: VecDeque::new(),
            number: 0,
            is_broken: false,
            waker: Waker::default(),
            request: 0,
            receives: 0,
            wake_ups: 0,
            is_asleep: false,
            is_owing: false,
        })
    }

    /// The receiver's end.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The sender's end.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Messages that were sent and not received.
    pub fn unreceived(&self) -> usize {
        self.sent.len()
    }

    fn put(memory: &mut [u8], at: u64, bytes: &[u8]) {
        let capacity = memory.len();
        for (i, byte) in bytes.iter().enumerate() {
            memory[(at as usize + i) % capacity] = *byte;
        }
    }

    fn get(memory: &[u8], at: u64, len: usize) -> Vec<u8> {
        (0..len).map(|i| memory[(at as usize + i) % memory.len()]).collect()
    }

    fn send(&mut self, len: u8) {
        let before = self.source.clone();
        let Ok(grant) = self.source.reserve(len.into()) else {
            assert_eq!(self.source, before);
            return;
        };
        let at = grant.payload().offset;
        match self.source.commit(grant, len.into()) {
            Ok(committed) => {
                Self::put(&mut self.sender_memory, at, &vec![self.number; len.into()]);
                for header in [Some(committed.header), committed.skip].into_iter().flatten() {
                    let word = header.word.to_le_bytes();
                    Self::put(&mut self.sender_memory, header.offset, &word);
                }
                self.sent.push_back((len.into(), self.number));
                self.number = self.number.wrapping_add(1);
                self.tail = self.source.tail_word();
                self.is_owing = true;
            }
            Err(_) => assert!(before.is_finished() && self.source == before),
        }
    }

    fn look_at_words(&mut self, words: Words) {
        let before = self.source.clone();
        match self.source.on_words(words) {
            Ok(_) => {
                assert!(self.source.ring().head() <= words.head);
                assert!(self.source.has_landed(self.source.ring().head()));
            }
            Err(_) => {
                assert_eq!(self.source, before, "a lie has changed something");
                assert!(words != self.words, "the truth was refused: {words}");
            }
        }
    }

    /// Posts the reader's requests. Checks that READs lie within the ring, and that no more
    /// requests of a kind are in flight than the reader may have.
    fn post(&mut self) {
        while let Some(request) = self.reader.next_request() {
            if let ReaderRequest::Data(Read { offset, len }) = request {
                let capacity = self.sender_memory.len() as u64;
                assert!(len > 0 && u64::from(len) <= capacity && offset < capacity);
            }
            if matches!(request, ReaderRequest::WakeUp(_)) {
                assert_eq!((self.receives, self.wake_ups), (0, 0), "one request at a time");
                self.receives = 1;
            }
            self.on_their_way.push_back(request);
            let count = |wanted: fn(&ReaderRequest) -> bool| {
                self.on_their_way.iter().filter(|request| wanted(request)).count()
            };
            assert!(count(|request| matches!(request, ReaderRequest::Tail)) <= 1);
            let is_write =
                |request: &_| matches!(request, ReaderRequest::Words(_) | ReaderRequest::WakeUp(_));
            assert!(count(is_write) <= MAX_WORDS);
        }
        assert_eq!(self.reader.on_their_way() as usize, self.on_their_way.len());
    }

    fn complete(&mut self, lie: i8) {
        let Some(request) = self.on_their_way.pop_front() else {
            assert!(self.reader.on_completion(|| Some(0)).is_err());
            return;
        };
        let told = self.tail.wrapping_add_signed(lie.into());
        // `HALF_WRITTEN` is no lie: the word was read while it was being written.
        let (told, lie) = if lie == HALF_WRITTEN { (None, 0) } else { (Some(told), lie) };
        match request {
            ReaderRequest::Data(Read { offset, len }) => {
                let bytes = Self::get(&self.sender_memory, offset, len as usize);
                Self::put(&mut self.receiver_memory, offset, &bytes);
            }
            ReaderRequest::Words(words) => self.words = words,
            ReaderRequest::WakeUp(number) => self.request = number,
            ReaderRequest::Tail => {}
        }
        let before = self.reader.ring().tail();
        match (self.reader.on_completion(|| told), request) {
            (Ok(()), _) => {}
            (Err(ReaderError::Tail(_)), ReaderRequest::Tail) if lie != 0 => {
                assert_eq!(self.reader.ring().tail(), before);
                self.is_broken = true;
            }
            (other, _) => panic!("{request:?}: {other:?}"),
        }
        // The reader accepted the forged tail: the records behind it are not checked.
        self.is_broken |= request == ReaderRequest::Tail && lie != 0;
    }

    fn take(&mut self) {
        let Some(at) = self.reader.next_header() else { return };
        let word = Self::get(&self.receiver_memory, at, 8);
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        match self.reader.take(word) {
            Ok(Taken::Record(record)) => {
                let (len, number) = self.sent.pop_front().expect("nothing was sent");
                let payload = record.payload;
                assert_eq!(payload.len, len);
                let bytes = Self::get(&self.receiver_memory, payload.offset, len as usize);
                assert_eq!(bytes, vec![number; len as usize]);
                self.held.push_back(record.end);
            }
            Ok(Taken::Skipped | Taken::Partial) => {}
            Err(e) => panic!("the truth was refused: {e}"),
        }
    }

    fn free(&mut self) {
        if let Some(end) = self.held.pop_front() {
            let all = self.held.is_empty();
            self.reader.on_freed(if all { self.reader.ring().read_pointer() } else { end });
        }
    }

    fn prepare_sleep(&mut self) {
        self.is_asleep = self.reader.prepare_sleep() && self.on_their_way.is_empty();
    }

    /// As an honest sender: the request first, then what was read before it.
    fn look_at_request(&mut self) {
        self.is_owing = false;
        if self.waker.is_news(self.request) {
            self.look_at_words(self.words);
            if self.source.has_unread() && self.waker.answer(self.request) {
                self.wake_ups += 1;
            }
        }
    }

    fn wake_up(&mut self) {
        if self.wake_ups > 0 {
            (self.wake_ups, self.receives) = (self.wake_ups - 1, self.receives - 1);
            assert!(self.reader.on_wake_up(), "it was asked for");
        }
    }

    /// A receiver that sleeps while something is published is woken.
    fn check_sleep(&self) {
        let is_news = self.tail != self.reader.ring().tail();
        let is_missed = self.is_asleep && is_news && !self.is_owing && self.wake_ups == 0;
        assert!(!is_missed, "it sleeps through a message");
        assert!(self.wake_ups <= self.receives);
    }

    fn check(&self) {
        self.check_sleep();
        let ring = self.reader.ring();
        assert!(ring.head() <= ring.read_pointer() && ring.read_pointer() <= ring.tail());
        assert!(ring.tail() <= self.source.ring().tail());
        if self.reader.is_over() {
            assert!(self.source.is_finished() && self.sent.is_empty());
        }
        if self.source.is_seen() {
            assert_eq!(self.reader.state(), ReaderState::Ended);
        }
    }

    /// Drives both ends until nothing changes: all is received, and the sender knows it.
    pub fn settle(&mut self) {
        self.apply(BufferedReadOp::TellAll);
        for _ in 0..4 * self.sender_memory.len() {
            let ops = [
                BufferedReadOp::LookAgain,
                BufferedReadOp::Post,
                BufferedReadOp::Complete,
                BufferedReadOp::Take,
                BufferedReadOp::Free,
            ];
            ops.into_iter().for_each(|op| self.apply(op));
        }
        self.apply(BufferedReadOp::TellAll);
        self.apply(BufferedReadOp::Post);
        while !self.on_their_way.is_empty() {
            self.apply(BufferedReadOp::Complete);
        }
        self.apply(BufferedReadOp::LookAtWords { is_torn: false });
    }

    /// Reports whether a forged tail was read.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Reports whether the ring has as many free bytes as the largest record takes.
    pub fn has_room_for_any(&self) -> bool {
        let most = self.source.ring().geometry().max_payload();
        self.source.ring().free() >= record_bytes(most)
    }
}

impl CheckedMachine for CheckedBufferedRead {
    type Op = BufferedReadOp;

    fn apply(&mut self, op: BufferedReadOp) {
        if self.is_broken {
            return;
        }
        self.is_asleep &= matches!(
            op,
            BufferedReadOp::Send(_)
                | BufferedReadOp::Finish
                | BufferedReadOp::LookAtWords { .. }
                | BufferedReadOp::LookAtRequest
                | BufferedReadOp::LieWords(..)
        );
        match op {
            BufferedReadOp::Send(len) => self.send(len),
            BufferedReadOp::Finish => {
                self.source.finish();
                self.tail = self.source.tail_word();
                self.is_owing = true;
            }
            BufferedReadOp::PrepareSleep => self.prepare_sleep(),
            BufferedReadOp::LookAtRequest => self.look_at_request(),
            BufferedReadOp::WakeUp => self.wake_up(),
            BufferedReadOp::LookAtWords { is_torn: false } => self.look_at_words(self.words),
            BufferedReadOp::LookAtWords { is_torn: true } => {
                let torn = Words { landed: self.source.landed_word(), ..self.words };
                let before = self.source.clone();
                let taken = self.source.on_words(torn);
                assert!(taken.is_ok(), "the truth was refused: {taken:?} by {before:?}");
            }
            BufferedReadOp::LookAgain => self.reader.look_again(),
            BufferedReadOp::Post => self.post(),
            BufferedReadOp::Complete => self.complete(0),
            BufferedReadOp::Polled => self.reader.polled(),
            BufferedReadOp::LieTail(by) => self.complete(by),
            BufferedReadOp::Take => self.take(),
            BufferedReadOp::Free => self.free(),
            BufferedReadOp::TellAll => self.reader.tell_all(),
            BufferedReadOp::Stop => self.reader.stop(),
            BufferedReadOp::LieWords(head, landed) => {
                let mut other = self.clone();
                other.look_at_words(Words {
                    head: self.words.head.wrapping_add_signed(head.into()),
                    landed: self.words.landed.wrapping_add_signed(landed.into()),
                });
            }
        }
        if !self.is_broken {
            self.check();
        }
    }
}
