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

mod entry;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::lock::Padded;
use crate::memory::span::MemSpan;

use super::directory::{MAGIC, VERSION};
use super::mapped::SharedLayout;

pub(crate) use entry::{
    BODY, Broken, EntryOp, HALF, HAS_IMM, INVALIDATES, JUDGE, PayloadLocation, ReplyEntry,
    RingRequest, SOLICITED, WANTS_REPLY, XRC,
};

/// Requests, and replies, that one process may have on the way to another.
pub(crate) const REQUESTS: u32 = 2_048;
pub(crate) const REPLIES: u32 = 2_048;
/// Bytes of messages that are too long to go with their requests, and that are copied.
pub(crate) const DATA: u32 = 512 << 10;
const _: () = assert!(crate::limits::MAX_INLINE <= DATA / 4, "inline data are copied");

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
    data: DataArea,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct DataArea(UnsafeCell<[u8; DATA as usize]>);

// SAFETY: the bytes are reached by raw pointers only.
unsafe impl Sync for DataArea {}

// SAFETY: atomic integers, and a cell of bytes.
unsafe impl SharedLayout for Rings {}

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
    pub(crate) fn data_at(&self, offset: usize, len: usize) -> Option<MemSpan<'_>> {
        let is_inside = offset <= DATA as usize && len <= DATA as usize - offset;
        // SAFETY: within the data, which are mapped as long as the rings are.
        is_inside.then(|| unsafe { MemSpan::shared(self.data().add(offset), len) })
    }
}

/// The writing side of the requests and of the data; under a lock.
#[derive(Debug)]
pub(crate) struct RequestWriter {
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

impl Default for RequestWriter {
    fn default() -> Self {
        let ends = vec![0; REQUESTS as usize].into_boxed_slice();
        RequestWriter {
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

impl RequestWriter {
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
    pub(crate) fn drained(&self) -> u32 {
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
    pub(crate) fn put(&mut self, rings: &Rings, request: &RingRequest, data: Option<(u32, u32)>) {
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
    request: &mut RingRequest,
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
    pub(crate) fn scribble_request(&self, index: u32, mut words: [u64; 8]) {
        words[0] = words[0] & !0xffff_ffff | u64::from(index.wrapping_add(1));
        for (to, word) in self.requests[(index % REQUESTS) as usize].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Returns the word that holds the number of a request.
    pub(crate) fn number_of(&self, index: u32) -> *mut u64 {
        self.requests[(index % REQUESTS) as usize][0].as_ptr()
    }

    /// [`scribble_request`](Self::scribble_request), of a reply.
    pub(crate) fn scribble_reply(&self, index: u32, mut words: [u64; 4]) {
        words[0] = words[0] & !0xffff_ffff | u64::from(index.wrapping_add(1));
        for (to, word) in self.replies[(index % REPLIES) as usize].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }
}
