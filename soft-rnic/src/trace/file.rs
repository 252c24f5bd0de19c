//! The file of a trace, as the process has it that writes it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::path::Path;

use host::sync::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open, unlink};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::clock;
use crate::forked;

use super::layout::{
    EventKind, HEADER, LOG_RECORDS, MAGIC, MAX_FILE_BYTES, OBJECTS, RECORD, VERSION, checksum,
    head, object, pair, record,
};

/// Words that a trace may have.
const MAX_WORDS: usize = (MAX_FILE_BYTES / 8) as usize;

/// The trace of this process.
#[derive(Debug)]
pub(crate) struct TraceFile {
    base: NonNull<AtomicU64>,
    in_children: &'static forked::ForkMapping,
    /// The number that the trace has of its process.
    process: u32,
    /// The process that writes it: a child of fork has a file of its own.
    writer: u32,
    room: Mutex<FileSpace>,
}

// SAFETY: the mapping consists of atomic integers, and belongs to no thread.
unsafe impl Send for TraceFile {}
// SAFETY: the mapping consists of atomic integers, and `room` has a lock.
unsafe impl Sync for TraceFile {}

/// Space in which objects can be put.
#[derive(Debug)]
struct FileSpace {
    file: OwnedFd,
    used: usize,
    /// Blocks of objects that are gone: words, and where.
    free: Vec<(usize, usize)>,
    cqs: u32,
}

impl TraceFile {
    /// A trace in a new file. One of an earlier process of the same number is replaced; any other
    /// file is left unchanged.
    pub(crate) fn create(path: &Path, process: u32) -> Result<TraceFile, Errno> {
        // Beyond its limit the process would be killed.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < MAX_FILE_BYTES) {
            return Err(Errno::FBIG);
        }
        let file = new_file(path).or_else(|e| match e {
            Errno::EXIST if is_trace(path) => unlink(path).and_then(|()| new_file(path)),
            e => Err(e),
        })?;
        // What cannot be a trace is not left behind.
        TraceFile::from_fd(file, process).inspect_err(|_| _ = unlink(path))
    }

    fn from_fd(file: OwnedFd, process: u32) -> Result<TraceFile, Errno> {
        reserve(&file, 0, OBJECTS)?;
        ftruncate(&file, MAX_FILE_BYTES)?;
        let none = core::ptr::null_mut();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let len = MAX_FILE_BYTES as usize;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap(none, len, protection, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(base).ok_or(Errno::INVAL)?;
        // SAFETY: the advice changes nothing for this process.
        let _ = unsafe { madvise(base.as_ptr(), len, Advice::LinuxDontFork) };
        let in_children = forked::fill_in(base, len);
        let room = FileSpace { file, used: OBJECTS, free: Vec::new(), cqs: 0 };
        let (base, room, writer) = (base.cast(), Mutex::new(room), std::process::id());
        let trace = TraceFile { base, in_children, process, writer, room };
        trace.begin();
        Ok(trace)
    }

    /// Writes the header; the magic number last.
    fn begin(&self) {
        let set = |word: usize, value: u64| self.word(word).store(value, Ordering::Relaxed);
        set(head::VERSION, VERSION.into());
        set(head::PROCESS, self.process.into());
        let now = clock::now();
        set(head::BEGAN, clock::wall_time(now));
        set(head::LAST, now);
        set(head::USED, OBJECTS as u64);
        set(head::STARTED, super::started(self.process).unwrap_or(0));
        let mut name = [0; 16];
        let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
        for (to, from) in name.iter_mut().zip(comm.into_iter().filter(|byte| *byte != b'\n')) {
            *to = from;
        }
        for (i, half) in name.as_chunks::<8>().0.iter().enumerate() {
            set(head::NAME + i, u64::from_le_bytes(*half));
        }
        // Release: a reader that sees the number sees the header.
        self.word(head::MAGIC).store(MAGIC, Ordering::Release);
    }

    /// A word of the file; all that is asked for lies within it.
    #[inline]
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < MAX_WORDS);
        // SAFETY: the mapping has `MAX_WORDS` words and stays as long as this; any bytes are
        // an integer, and nothing but atomics refers to them.
        unsafe { self.base.add(at.min(MAX_WORDS - 1)).as_ref() }
    }

    /// A block of `words` words for an object, all zero but the first; none if the trace is full,
    /// or the disk, or this is a child of fork, in which the file is its parent's.
    pub(super) fn allocate(&self, words: usize) -> Option<usize> {
        if self.writer != std::process::id() {
            return None;
        }
        let mut room = self.room.lock();
        if let Some(i) = room.free.iter().position(|(len, _)| *len == words) {
            let (_, at) = room.free.swap_remove(i);
            (at + 1..at + words).for_each(|i| self.word(i).store(0, Ordering::Relaxed));
            return Some(at);
        }
        let (at, end) = (room.used, room.used.checked_add(words)?);
        // A store to a page for which the disk has no room would end the program.
        if end > MAX_WORDS || reserve(&room.file, at, words).is_err() {
            self.word(head::LEFT_OUT).fetch_add(1, Ordering::Relaxed);
            return None;
        }
        room.used = end;
        self.word(at + object::WORDS).store(words as u64, Ordering::Relaxed);
        // Release: what is in use has a length.
        self.word(head::USED).store(end as u64, Ordering::Release);
        Some(at)
    }

    /// The object is gone; its block may be used again.
    pub(super) fn give_back(&self, at: usize, words: usize) {
        self.word(at + object::KIND).store(super::layout::kind::GONE, Ordering::Relaxed);
        self.room.lock().free.push((words, at));
    }

    /// The number of the next completion queue.
    pub(super) fn next_cq(&self) -> u32 {
        let mut room = self.room.lock();
        room.cqs = room.cqs.wrapping_add(1);
        room.cqs
    }

    /// Writes a record, and returns its time. `what` is an operation, a status with a reason in its
    /// second byte, and a length.
    pub(crate) fn log(
        &self,
        kind: EventKind,
        (operation, status, length): (u64, u64, u32),
        (number, other): (u32, u32),
        wr_id: u64,
    ) -> u64 {
        let time = clock::now();
        // Relaxed: each record is found valid or torn on its own.
        let nth = self.word(head::LOGGED).fetch_add(1, Ordering::Relaxed);
        let at = HEADER + (nth as usize & (LOG_RECORDS - 1)) * RECORD;
        let bytes = kind as u64 | (operation & 0xff) << 8 | (status & 0xffff) << 16;
        let what = bytes | u64::from(length) << 32;
        let words = [nth.wrapping_add(1), time, what, pair(number, other), wr_id];
        // Release, each: the number is cleared before the fields that it would vouch for, and set
        // again after them.
        self.word(at + record::NUMBER).store(0, Ordering::Release);
        for (i, word) in words.iter().enumerate().skip(1) {
            self.word(at + i).store(*word, Ordering::Release);
        }
        self.word(at + record::CHECK).store(checksum(&words), Ordering::Release);
        self.word(at + record::NUMBER).store(words[0], Ordering::Release);
        self.word(head::LAST).store(time, Ordering::Relaxed);
        time
    }
}

fn new_file(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::RUSR | Mode::WUSR)
}

/// Reports whether a file begins as a trace does.
fn is_trace(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = open(path, flags, Mode::empty()) else { return false };
    let mut magic = [0; 8];
    let n = rustix::io::read(&file, &mut magic);
    n == Ok(8) && u64::from_ne_bytes(magic) == MAGIC
}

/// Takes up room on the disk, where the file system can say that there is some.
fn reserve(file: &OwnedFd, at: usize, words: usize) -> Result<(), Errno> {
    let (offset, len) = (at as u64 * 8, words as u64 * 8);
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), offset, len)) {
        Err(Errno::OPNOTSUPP) => {
            // Bounded: by a piece of the file.
            let zeroes = vec![0; words * 8];
            let written = retry_on_intr(|| rustix::io::pwrite(file, &zeroes, offset))?;
            if written == zeroes.len() { Ok(()) } else { Err(Errno::NOSPC) }
        }
        result => result,
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        self.in_children.forget();
        // SAFETY: the mapping is this value's own, and no reference into it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), MAX_FILE_BYTES as usize) };
    }
}
