//! The rings from one process to another: requests, replies, and data.
//!
//! One process writes them, one other reads them, and each keeps how far it has come
//! in a file of its own. An entry is there when the number in its first word is the
//! one expected; it is stored last, so that a writer which dies leaves nothing half
//! done. Of what is put under one hold of the writer's lock, the oldest request gets its
//! number last and makes all of them visible.
//!
//! What a message of a few bytes costs between two processors is the line of its request,
//! which goes from one to the other: two such messages of a queue pair share one.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::lock::Padded;
use crate::objects::address::Gid;
use crate::objects::pending::Reply;
use crate::objects::span::Span;
use crate::reason::Reason;

use super::directory::{MAGIC, VERSION};
use super::mapped::Layout;

/// Requests, and replies, that one process may have on the way to another.
pub(super) const REQUESTS: u32 = 2_048;
pub(super) const REPLIES: u32 = 2_048;
/// Bytes of messages that are too long to go with their requests, and that are copied.
pub(crate) const DATA: u32 = 512 << 10;
const _: () = assert!(crate::limits::MAX_INLINE <= DATA / 4, "inline data are copied");
/// Bytes that go with the request itself.
pub(crate) const BODY: usize = 32;

/// Bytes that go with it of each of two messages.
pub(crate) const HALF: usize = BODY / 2;

/// Number of entries ahead that a line is fetched.
const FETCH: u32 = 8;

/// The rings that a process writes for one other to read.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Rings {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// Indices up to which this process has read the other's rings: that of requests, and that of
    /// replies.
    pub(crate) requests_read: Padded<AtomicU32>,
    pub(crate) replies_read: Padded<AtomicU32>,
    /// This process waits for room in its ring of requests.
    pub(crate) wants_room: Padded<AtomicU32>,
    /// This process waits for room in its ring of replies.
    pub(crate) wants_reply_room: Padded<AtomicU32>,
    /// Odd while this process reads a message in the regions of the other one.
    pub(crate) reads: Padded<AtomicU32>,
    requests: [[AtomicU64; 8]; REQUESTS as usize],
    replies: [[AtomicU64; 4]; REPLIES as usize],
    data: Data,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Data(UnsafeCell<[u8; DATA as usize]>);

// SAFETY: the bytes are reached by raw pointers only.
unsafe impl Sync for Data {}

// SAFETY: atomic integers, and a cell of bytes.
unsafe impl Layout for Rings {}

impl Rings {
    pub(crate) fn sign(&self) {
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Returns the start of the data.
    pub(crate) fn data(&self) -> *mut u8 {
        self.data.0.get().cast()
    }

    /// `len` bytes at an offset of the data, if there are as many.
    #[inline]
    pub(crate) fn data_at(&self, offset: usize, len: usize) -> Option<Span<'_>> {
        let is_inside = offset <= DATA as usize && len <= DATA as usize - offset;
        // SAFETY: within the data, which are mapped as long as the rings are.
        is_inside.then(|| unsafe { Span::shared(self.data().add(offset), len) })
    }
}

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum What {
    #[default]
    Send,
    /// With an immediate; without one it is only judged.
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    Datagram,
    /// A datagram to the members of a multicast group.
    Multicast,
    AtomicWrite,
}

/// The place of the data of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum PayloadLocation {
    /// With the request.
    #[default]
    Body,
    /// In the ring of data, at the offset that the body says.
    Data,
    /// In regions of the sender; a list of so many pieces is in the ring of data.
    Regions,
    /// Two messages, each with half of the body; only in the ring.
    Halves,
}

/// The part of an entry that a request is: all of it, or one of its two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Part {
    #[default]
    Whole,
    First,
    Second,
}

pub(crate) const HAS_IMM: u8 = 1;
pub(crate) const SOLICITED: u8 = 2;
/// The sender waits for a reply.
pub(crate) const WANTS_REPLY: u8 = 4;
/// It is only to be judged whether it is permitted: the sender could not.
pub(crate) const JUDGE: u8 = 8;
/// It goes over XRC: the last word of the body has the number of a shared receive queue, in front
/// of the key. Data never lie in the body.
pub(crate) const XRC: u8 = 16;
/// The immediate of a SEND is a key that it invalidates.
pub(crate) const INVALIDATES: u8 = 32;
/// Beside the length of the second of two messages.
const SECOND_SOLICITED: u32 = 1 << 31;

/// A request on its way to another process. It is not moved about: see `sq::Request`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    pub(crate) what: What,
    pub(crate) flags: u8,
    pub(crate) location: PayloadLocation,
    /// Number of times that the sending queue pair was connected.
    pub(crate) incarnation: u8,
    pub(crate) to: u32,
    pub(crate) from: u32,
    /// Generation of the queue pair that it is for, as the sender has seen it.
    pub(crate) generation: u32,
    /// Counts the messages of a connection.
    pub(crate) number: u32,
    pub(crate) imm: u32,
    pub(crate) len: u32,
    pub(crate) body: [u64; 4],
    /// The part of the entry that this is, in a request that was read.
    pub(crate) part: Part,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Request {
    #[inline(always)]
    fn words(&self) -> [u64; 8] {
        let kinds = u32::from_le_bytes([
            self.what as u8,
            self.flags,
            self.location as u8,
            self.incarnation,
        ]);
        let [a, b, c, d] = self.body;
        [
            pair(0, kinds),
            pair(self.to, self.from),
            pair(self.generation, self.number),
            pair(self.imm, self.len),
            a,
            b,
            c,
            d,
        ]
    }

    /// Takes the words over, field by field; `Broken` for what no process of this version
    /// writes.
    #[inline(always)]
    fn take_over(&mut self, words: [u64; 8]) -> Result<(), Broken> {
        let [what, flags, location, incarnation] = halves(words[0]).1.to_le_bytes();
        let what = match what {
            0 => What::Send,
            1 => What::Write,
            2 => What::Read,
            3 => What::CompareSwap,
            4 => What::FetchAdd,
            5 => What::Datagram,
            6 => What::Multicast,
            7 => What::AtomicWrite,
            _ => return Err(Broken),
        };
        let location = match location {
            0 => PayloadLocation::Body,
            1 => PayloadLocation::Data,
            2 => PayloadLocation::Regions,
            3 => PayloadLocation::Halves,
            _ => return Err(Broken),
        };
        (self.what, self.flags, self.location, self.incarnation) =
            (what, flags, location, incarnation);
        (self.to, self.from) = halves(words[1]);
        (self.generation, self.number) = halves(words[2]);
        (self.imm, self.len) = halves(words[3]);
        self.body = [words[4], words[5], words[6], words[7]];
        self.part = Part::Whole;
        if self.location == PayloadLocation::Halves { self.split() } else { Ok(()) }
    }

    /// Says that it goes over XRC, to this shared receive queue.
    pub(crate) fn name_srq(&mut self, srqn: u32) {
        self.flags |= XRC;
        self.body[3] = pair(halves(self.body[3]).0, srqn);
    }

    /// The shared receive queue that it names, if it goes over XRC.
    #[inline]
    pub(crate) fn srqn(&self) -> Option<u32> {
        (self.flags & XRC != 0).then(|| halves(self.body[3]).1)
    }

    /// Says that it goes to the members of this multicast group, and to no queue pair. Data never
    /// lie in the body.
    pub(crate) fn name_group(&mut self, gid: &Gid) {
        let gid = u128::from_ne_bytes(*gid);
        self.to = 0;
        (self.body[2], self.body[3]) = (gid as u64, (gid >> 64) as u64);
    }

    /// Reports whether it is for queue pairs that hear datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.what, What::Datagram | What::Multicast)
    }

    /// The multicast group that it names.
    pub(crate) fn group(&self) -> Gid {
        (u128::from(self.body[2]) | u128::from(self.body[3]) << 64).to_ne_bytes()
    }

    /// Takes another message into the entry of this one, which is as short: its length, and
    /// whether it is solicited. It lies in the second half of the body.
    #[inline(always)]
    pub(crate) fn join(&mut self, len: u32, solicited: bool) {
        self.location = PayloadLocation::Halves;
        self.imm = len | if solicited { SECOND_SOLICITED } else { 0 };
    }

    /// The first message of two.
    #[inline(always)]
    fn split(&mut self) -> Result<(), Broken> {
        let plain = self.what == What::Send && self.flags & !SOLICITED == WANTS_REPLY;
        let is_half = |len: u32| len.wrapping_sub(1) < HALF as u32;
        if !plain || !is_half(self.len) || !is_half(self.imm & !SECOND_SOLICITED) {
            return Err(Broken);
        }
        (self.part, self.location) = (Part::First, PayloadLocation::Body);
        Ok(())
    }

    /// Becomes the second message of its entry, if it is the first of two.
    #[inline(always)]
    pub(crate) fn go_on(&mut self) -> bool {
        if self.part != Part::First {
            return false;
        }
        self.part = Part::Second;
        self.number = self.number.wrapping_add(1);
        self.len = self.imm & !SECOND_SOLICITED;
        let solicited = if self.imm == self.len { 0 } else { SOLICITED };
        self.flags = WANTS_REPLY | solicited;
        (self.body[0], self.body[1]) = (self.body[2], self.body[3]);
        true
    }

    /// The first message of its entry was executed, and this is the other one.
    pub(crate) fn is_second(&self) -> bool {
        self.part == Part::Second
    }
}

/// A reply on its way to another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyEntry {
    pub(crate) to: u32,
    pub(crate) number: u32,
    pub(crate) incarnation: u8,
    pub(crate) verdict: Reply,
    /// The value that an atomic has found.
    pub(crate) value: u64,
}

impl ReplyEntry {
    #[inline(always)]
    fn words(&self) -> [u64; 4] {
        let (kind, code) = match self.verdict {
            Reply::Done => (0, 0),
            Reply::Silence => (1, 0),
            Reply::Again => (2, 0),
            Reply::Rnr(code) => (3, code),
            Reply::Refused(reason) => (4, reason as u8),
        };
        let kinds = u32::from_le_bytes([kind, code, self.incarnation, 0]);
        [pair(0, kinds), pair(self.to, self.number), self.value, 0]
    }

    /// `None` for what no process of this version writes. A refusal for a reason that is none is
    /// such a reply.
    fn from_words(words: [u64; 4]) -> Option<ReplyEntry> {
        let [kind, code, incarnation, _] = halves(words[0]).1.to_le_bytes();
        let verdict = match kind {
            0 => Reply::Done,
            1 => Reply::Silence,
            2 => Reply::Again,
            3 => Reply::Rnr(code),
            4 => Reply::Refused(Reason::of(code).filter(|reason| reason.is_refusal())?),
            _ => return None,
        };
        let (to, number) = halves(words[1]);
        Some(ReplyEntry { to, number, incarnation, verdict, value: words[2] })
    }
}

/// The reader breaks the rules, or the writer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// The writing side of the requests and of the data; under a lock.
#[derive(Debug)]
pub(crate) struct Requests {
    tail: u32,
    read: u32,
    /// The first word of the oldest entry that has no number yet.
    unpublished: Option<(u32, u64)>,
    data_tail: u32,
    data_read: u32,
    /// Number of times that the reader was seen to have made so much room that it pays to go on.
    drained: u32,
    /// End of the data of each entry.
    ends: Box<[u32]>,
}

impl Default for Requests {
    fn default() -> Self {
        let ends = vec![0; REQUESTS as usize].into_boxed_slice();
        Requests {
            tail: 0,
            read: 0,
            unpublished: None,
            data_tail: 0,
            data_read: 0,
            drained: 0,
            ends,
        }
    }
}

impl Requests {
    /// Room for a request with so many bytes of data: where they go. `read` is how far
    /// the reader says that it has come.
    #[inline]
    pub(crate) fn room(&mut self, read: &AtomicU32, len: u32) -> Result<Option<u32>, Broken> {
        if let Some(at) = self.fit(len) {
            return Ok(Some(at));
        }
        self.look(read)?;
        Ok(self.fit(len))
    }

    /// Returns the number of requests without data that fit, as far as is known; looks how far the
    /// reader has come only when the last look says few.
    #[inline]
    pub(crate) fn slots(&mut self, read: &AtomicU32) -> Result<u32, Broken> {
        if self.fit(0).is_none() || self.tail.wrapping_sub(self.read) > REQUESTS / 2 {
            self.look(read)?;
        }
        let slots = REQUESTS - self.tail.wrapping_sub(self.read);
        Ok(self.fit(0).map_or(0, |_| slots))
    }

    /// Reports whether there is so much room that it pays to go on.
    pub(crate) fn free(&mut self, read: &AtomicU32) -> Result<bool, Broken> {
        self.look(read)?;
        Ok(self.is_free())
    }

    fn is_free(&self) -> bool {
        let slots = REQUESTS - self.tail.wrapping_sub(self.read);
        let data = DATA.saturating_sub(self.data_tail.wrapping_sub(self.data_read));
        slots >= REQUESTS / 8 && data >= DATA / 4
    }

    /// Returns the number of times that the reader has drained the ring, as far as this end has
    /// looked: between two equal numbers there was never much room.
    pub(super) fn drained(&self) -> u32 {
        self.drained
    }

    /// Takes over how far the reader says that it has come.
    fn look(&mut self, read: &AtomicU32) -> Result<(), Broken> {
        host::point();
        // Acquire: the reader is done with what is before.
        let read = read.load(Ordering::Acquire);
        if self.tail.wrapping_sub(read) > self.tail.wrapping_sub(self.read) {
            return Err(Broken);
        }
        if read != self.read {
            self.read = read;
            self.data_read = self.ends[(read.wrapping_sub(1) % REQUESTS) as usize];
            self.drained = self.drained.wrapping_add(u32::from(self.is_free()));
        }
        Ok(())
    }

    fn fit(&self, len: u32) -> Option<u32> {
        if self.tail.wrapping_sub(self.read) >= REQUESTS {
            return None;
        }
        let at = if self.data_tail % DATA + len > DATA {
            self.data_tail.wrapping_add(DATA - self.data_tail % DATA)
        } else {
            self.data_tail
        };
        let end = at.wrapping_add(len);
        (end.wrapping_sub(self.data_read) <= DATA).then_some(at)
    }

    /// Appends a request, for which there is room, with its data.
    #[inline(always)]
    pub(crate) fn put(&mut self, rings: &Rings, request: &Request, data: Option<(u32, u32)>) {
        if let Some((at, len)) = data {
            self.data_tail = at.wrapping_add(len.next_multiple_of(64));
        }
        let index = (self.tail % REQUESTS) as usize;
        self.ends[index] = self.data_tail;
        let words = request.words();
        let slot = &rings.requests[index];
        // The reader has its line: fetch it before it is needed.
        let ahead = (self.tail.wrapping_add(FETCH) % REQUESTS) as usize;
        crate::copy::will_write((&raw const rings.requests[ahead]).cast());
        for i in 1..8 {
            slot[i].store(words[i], Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        let first = words[0] | u64::from(self.tail);
        match self.unpublished {
            None => self.unpublished = Some((index as u32, first)),
            // Release: the entry is complete.
            Some(_) => slot[0].store(first, Ordering::Release),
        }
    }

    /// Makes visible what was put. Whether there was anything.
    pub(crate) fn publish(&mut self, rings: &Rings) -> bool {
        let Some((index, first)) = self.unpublished.take() else { return false };
        host::point();
        // Release: all entries are complete, and their data are there.
        rings.requests[index as usize][0].store(first, Ordering::Release);
        true
    }
}

/// The writing side of the replies.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    tail: u32,
    read: u32,
}

impl Replies {
    /// Reports whether `n` more replies fit.
    pub(crate) fn has_room(&mut self, read: &AtomicU32, n: u32) -> Result<bool, Broken> {
        if self.tail.wrapping_sub(self.read) + n <= REPLIES {
            return Ok(true);
        }
        // Acquire: the reader is done with what is before.
        let read = read.load(Ordering::Acquire);
        if self.tail.wrapping_sub(read) > self.tail.wrapping_sub(self.read) {
            return Err(Broken);
        }
        self.read = read;
        Ok(self.tail.wrapping_sub(self.read) + n <= REPLIES)
    }

    /// Appends a reply; there is room.
    #[inline]
    pub(crate) fn put(&mut self, rings: &Rings, reply: &ReplyEntry) {
        let slot = &rings.replies[(self.tail % REPLIES) as usize];
        self.tail = self.tail.wrapping_add(1);
        let words = reply.words();
        slot[1].store(words[1], Ordering::Relaxed);
        slot[2].store(words[2], Ordering::Relaxed);
        host::point();
        // Release: the entry is complete.
        slot[0].store(words[0] | u64::from(self.tail), Ordering::Release);
    }
}

/// Reads the request at `index` of another process's ring; false if it is not there.
#[inline(always)]
pub(crate) fn read_request(
    rings: &Rings,
    index: u32,
    request: &mut Request,
) -> Result<bool, Broken> {
    let slot = &rings.requests[(index % REQUESTS) as usize];
    host::point();
    // Acquire: the rest of the entry was written before.
    let first = slot[0].load(Ordering::Acquire);
    if first as u32 != index.wrapping_add(1) {
        return Ok(false);
    }
    let ahead = (index.wrapping_add(FETCH) % REQUESTS) as usize;
    crate::copy::will_read((&raw const rings.requests[ahead]).cast());
    let mut words = [first; 8];
    for i in 1..8 {
        words[i] = slot[i].load(Ordering::Relaxed);
    }
    request.take_over(words).map(|()| true)
}

/// Reports whether there is a request at `index` of another process's ring.
#[inline]
pub(crate) fn is_request_at(rings: &Rings, index: u32) -> bool {
    // Relaxed: the thread that takes it looks again.
    let first = rings.requests[(index % REQUESTS) as usize][0].load(Ordering::Relaxed);
    first as u32 == index.wrapping_add(1)
}

/// Reports whether there is a reply at `index` of another process's ring.
#[inline]
pub(crate) fn is_reply_at(rings: &Rings, index: u32) -> bool {
    // Relaxed: the thread that takes it looks again.
    let first = rings.replies[(index % REPLIES) as usize][0].load(Ordering::Relaxed);
    first as u32 == index.wrapping_add(1)
}

/// The reply at `index` of another process's ring, if it is there.
#[inline]
pub(crate) fn reply_at(rings: &Rings, index: u32) -> Result<Option<ReplyEntry>, Broken> {
    let slot = &rings.replies[(index % REPLIES) as usize];
    host::point();
    // Acquire: the rest of the entry was written before.
    let first = slot[0].load(Ordering::Acquire);
    if first as u32 != index.wrapping_add(1) {
        return Ok(None);
    }
    let load = |i: usize| slot[i].load(Ordering::Relaxed);
    ReplyEntry::from_words([first, load(1), load(2), 0]).map(Some).ok_or(Broken)
}

#[cfg(test)]
impl Rings {
    /// Writes what no process would write: the words of a request, but for its number.
    pub(super) fn scribble_request(&self, index: u32, mut words: [u64; 8]) {
        words[0] = words[0] & !0xffff_ffff | u64::from(index.wrapping_add(1));
        for (to, word) in self.requests[(index % REQUESTS) as usize].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Returns the word that holds the number of a request.
    pub(super) fn number_of(&self, index: u32) -> *mut u64 {
        self.requests[(index % REQUESTS) as usize][0].as_ptr()
    }

    /// [`scribble_request`](Self::scribble_request), of a reply.
    pub(super) fn scribble_reply(&self, index: u32, mut words: [u64; 4]) {
        words[0] = words[0] & !0xffff_ffff | u64::from(index.wrapping_add(1));
        for (to, word) in self.replies[(index % REPLIES) as usize].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }
}
