//! Pieces of files, in memory that all receivers read.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result};
use host::sync::{Condvar, Mutex, MutexGuard};
use rdma_conn::device::Device;
use rdma_conn::direct_read::{Buffer, BufferConfig, FrozenBuffer};

use super::pace::{At, Pace, PaceWait};
use super::source::{OTHER_LENGTH, TreeEntry};
use super::wire::{Hash, PIECE, hash};

/// The longest that the others wait for a receiver that makes no progress.
const PATIENCE: Duration = Duration::from_millis(100);

/// A piece of a file, in memory that many receivers read.
#[derive(Debug, Clone)]
pub(super) struct CachedPiece {
    pub(super) buffer: FrozenBuffer,
    pub(super) len: usize,
    pub(super) hash: Hash,
}

/// A piece, or why its file cannot be copied.
pub(super) type PieceResult = std::result::Result<CachedPiece, String>;

/// Pieces that were read, and are kept for those that have yet to get them.
#[derive(Debug)]
pub(super) struct Pieces {
    device: Device,
    cache: Mutex<Cache>,
    /// A piece that was being read is in the cache, or will not be; or there is room in it.
    changed: Condvar,
}

#[derive(Debug)]
struct Cache {
    kept: BTreeMap<At, CachedPiece>,
    /// Pieces that a receiver is reading from the file.
    reading: Vec<At>,
    free: Vec<Buffer>,
    pace: Pace,
}

/// A receiver that others share pieces with, until this is dropped.
#[derive(Debug)]
pub(super) struct CacheReader<'a> {
    pieces: &'a Pieces,
    number: usize,
}

impl Pieces {
    /// Pieces that are kept; each receiver that reads meanwhile may add one.
    const KEPT: usize = 32;
    /// A receiver that waits for room continues when fewer pieces than this are kept: so it does
    /// not wake for each piece.
    const ROOM: usize = Self::KEPT / 2;

    pub(super) fn new(device: &Device) -> Pieces {
        Pieces::with_patience(device, PATIENCE)
    }

    fn with_patience(device: &Device, patience: Duration) -> Pieces {
        let (pace, kept) = (Pace::new(patience), BTreeMap::new());
        let cache = Cache { kept, reading: Vec::new(), free: Vec::new(), pace };
        Pieces { device: device.clone(), cache: Mutex::new(cache), changed: Condvar::new() }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    /// One more receiver, which asks for pieces in order, from the first one on.
    pub(super) fn join(&self) -> CacheReader<'_> {
        CacheReader { pieces: self, number: self.cache().pace.join(host::time::now()) }
    }

    fn read(&self, number: u64, entry: &TreeEntry, file: &File) -> Result<PieceResult> {
        let mut buffer = self.buffer()?;
        let offset = number * PIECE as u64;
        let len = (entry.len - offset).min(PIECE as u64) as usize;
        match file.read_exact_at(&mut buffer[..len], offset) {
            Ok(()) => {}
            Err(e) => {
                self.cache().free.push(buffer);
                return Ok(Err(match e.kind() {
                    std::io::ErrorKind::UnexpectedEof => {
                        entry.fault(file).ok().flatten().unwrap_or(OTHER_LENGTH).into()
                    }
                    _ => format!("it cannot be read: {e}"),
                }));
            }
        }
        let hash = hash(&buffer[..len]);
        Ok(Ok(CachedPiece { buffer: buffer.freeze(), len, hash }))
    }

    fn buffer(&self) -> Result<Buffer> {
        if let Some(buffer) = self.cache().free.pop() {
            return Ok(buffer);
        }
        let made = self.device.pd().register_buffer(PIECE, BufferConfig::READABLE);
        made.context("registering memory to be read")
    }

    /// A receiver is done with it.
    pub(super) fn take_back(&self, buffer: FrozenBuffer) {
        self.cache().take_back(buffer);
    }
}

impl CacheReader<'_> {
    /// A piece of a file that is open. If another receiver is reading it, this waits for that one.
    /// A receiver that would read further ahead than is kept for the others waits for them, but
    /// not for long.
    pub(super) fn get(&self, at: At, entry: &TreeEntry, file: &File) -> Result<PieceResult> {
        let CacheReader { pieces, number } = *self;
        let mut cache = pieces.cache();
        cache.pace.asks_for(number, at);
        self.clear(&mut cache);
        let mut most = Pieces::KEPT;
        while !cache.kept.contains_key(&at) {
            if cache.reading.contains(&at) {
                pieces.changed.wait(&mut cache);
            } else if let Some(wait) = self.must_wait(&mut cache, most) {
                self.wait(&mut cache, &wait);
                most = Pieces::ROOM;
            } else {
                break;
            }
        }
        let kept = cache.kept.get(&at).cloned();
        cache.pace.has_come_to(number, at, kept.is_some());
        if let Some(kept) = kept {
            return Ok(Ok(kept));
        }
        cache.reading.push(at);
        drop(cache);
        let reading = PieceRead { pieces, at };
        let piece = pieces.read(at.1, entry, file)?;
        if let Ok(piece) = &piece {
            pieces.cache().put(number, at, piece);
        }
        drop(reading);
        Ok(piece)
    }

    /// Releases the pieces that no receiver needs any more, and wakes waiters if there is room.
    fn clear(&self, cache: &mut Cache) {
        if cache.clear() && cache.kept.len() < Pieces::ROOM {
            self.pieces.changed.notify_all();
        }
    }

    /// The wait for others, if `most` pieces or more are kept.
    fn must_wait(&self, cache: &mut Cache, most: usize) -> Option<PaceWait> {
        let (oldest, _) = cache.kept.first_key_value().filter(|_| cache.kept.len() >= most)?;
        let wait = cache.pace.must_wait(self.number, *oldest, host::time::now());
        // Nothing is kept for receivers that have fallen behind.
        self.clear(cache);
        wait
    }

    fn wait(&self, cache: &mut MutexGuard<'_, Cache>, wait: &PaceWait) {
        self.pieces.changed.wait_for(cache, wait.most);
        cache.pace.has_waited(wait, host::time::now());
    }
}

impl Drop for CacheReader<'_> {
    fn drop(&mut self) {
        let mut cache = self.pieces.cache();
        cache.pace.leave(self.number);
        cache.clear();
        self.pieces.changed.notify_all();
    }
}

/// A piece that a receiver is reading. When this is dropped, the others stop waiting for the
/// piece, whether the read has succeeded or not.
struct PieceRead<'a> {
    pieces: &'a Pieces,
    at: At,
}

impl Drop for PieceRead<'_> {
    fn drop(&mut self) {
        self.pieces.cache().reading.retain(|at| *at != self.at);
        self.pieces.changed.notify_all();
    }
}

impl Cache {
    /// Keeps a piece, if a receiver other than `who` needs it.
    fn put(&mut self, who: usize, at: At, piece: &CachedPiece) {
        if self.pace.is_needed_beside(who, at) {
            self.kept.insert(at, piece.clone());
        }
    }

    /// Releases the pieces that no receiver needs any more; returns whether there were any.
    fn clear(&mut self) -> bool {
        let (first, before) = (self.pace.first_needed(), self.kept.len());
        while let Some(oldest) = self.kept.first_entry()
            && first.is_none_or(|first| *oldest.key() < first)
        {
            let piece = oldest.remove();
            self.take_back(piece.buffer);
        }
        self.kept.len() < before
    }

    /// Reuses the buffer if this was its last reference. A shorter one was for one message only.
    fn take_back(&mut self, buffer: FrozenBuffer) {
        if let Ok(buffer) = buffer.thaw()
            && buffer.len() == PIECE
        {
            self.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests;
