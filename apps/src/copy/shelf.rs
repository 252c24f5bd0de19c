//! Pieces of files, in memory that all receivers read.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdma_conn::device::Device;
use rdma_conn::direct_read::{Buffer, BufferConfig, FrozenBuffer};

use super::pace::{At, Pace, Wait};
use super::source::Entry;
use super::wire::{Hash, PIECE, hash};

/// The longest that it is waited for a receiver that makes no progress.
const PATIENCE: Duration = Duration::from_millis(100);

/// A piece of a file, in memory that many receivers read.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) buffer: FrozenBuffer,
    pub(super) len: usize,
    pub(super) hash: Hash,
}

/// A piece, or why its file cannot be copied.
pub(super) type Found = std::result::Result<Piece, String>;

/// Why a file is not copied that is not what it was.
pub(super) const CHANGED: &str =
    "it has changed while it was copied: the same command copies it as it is then";

/// Pieces that were read, and are kept for those that have yet to get them.
#[derive(Debug)]
pub(super) struct Pieces {
    device: Device,
    shelf: Mutex<Shelf>,
    /// A piece that was being read is on the shelf, or will not be; or there is room on it.
    changed: Condvar,
}

#[derive(Debug)]
struct Shelf {
    kept: BTreeMap<At, Piece>,
    /// Pieces that somebody is reading.
    reading: Vec<At>,
    free: Vec<Buffer>,
    pace: Pace,
}

/// A receiver that others share pieces with, until this is dropped.
#[derive(Debug)]
pub(super) struct Runner<'a> {
    pieces: &'a Pieces,
    number: usize,
}

impl Pieces {
    /// Pieces that are kept; those who read at the same time may add one each.
    const KEPT: usize = 32;
    /// Who has waited for room goes on when there is so much: not one piece at a time.
    const ROOM: usize = Self::KEPT / 2;

    pub(super) fn new(device: &Device) -> Pieces {
        Pieces::with_patience(device, PATIENCE)
    }

    fn with_patience(device: &Device, patience: Duration) -> Pieces {
        let (pace, kept) = (Pace::new(patience), BTreeMap::new());
        let shelf = Shelf { kept, reading: Vec::new(), free: Vec::new(), pace };
        Pieces { device: device.clone(), shelf: Mutex::new(shelf), changed: Condvar::new() }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // What is on it is whole, whoever has panicked meanwhile.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more receiver, which asks for pieces in order, from the first one on.
    pub(super) fn join(&self) -> Runner<'_> {
        Runner { pieces: self, number: self.shelf().pace.join(Instant::now()) }
    }

    fn read(&self, number: u64, entry: &Entry, file: &File) -> Result<Found> {
        let mut buffer = self.buffer()?;
        let offset = number * PIECE as u64;
        let len = (entry.len - offset).min(PIECE as u64) as usize;
        match file.read_exact_at(&mut buffer[..len], offset) {
            Ok(()) => {}
            Err(e) => {
                self.shelf().free.push(buffer);
                return Ok(Err(match e.kind() {
                    std::io::ErrorKind::UnexpectedEof => CHANGED.into(),
                    _ => format!("it cannot be read: {e}"),
                }));
            }
        }
        let hash = hash(&buffer[..len]);
        Ok(Ok(Piece { buffer: buffer.freeze(), len, hash }))
    }

    fn buffer(&self) -> Result<Buffer> {
        if let Some(buffer) = self.shelf().free.pop() {
            return Ok(buffer);
        }
        let made = self.device.pd().register_buffer(PIECE, BufferConfig::READABLE);
        made.context("registering memory to be read")
    }

    /// A receiver is done with it.
    pub(super) fn take_back(&self, buffer: FrozenBuffer) {
        self.shelf().take_back(buffer);
    }
}

impl Runner<'_> {
    /// A piece of a file that is open. Who comes while another one reads it waits for that one; who would read further ahead than is
    /// kept for the others waits for them, but not for long.
    pub(super) fn get(&self, at: At, entry: &Entry, file: &File) -> Result<Found> {
        let Runner { pieces, number } = *self;
        let mut shelf = pieces.shelf();
        shelf.pace.asks_for(number, at);
        self.clear(&mut shelf);
        let mut most = Pieces::KEPT;
        while !shelf.kept.contains_key(&at) {
            if shelf.reading.contains(&at) {
                shelf = pieces.changed.wait(shelf).unwrap_or_else(PoisonError::into_inner);
            } else if let Some(wait) = self.must_wait(&mut shelf, most) {
                shelf = self.wait(shelf, wait);
                most = Pieces::ROOM;
            } else {
                break;
            }
        }
        let kept = shelf.kept.get(&at).cloned();
        shelf.pace.has_come_to(number, at, kept.is_some());
        if let Some(kept) = kept {
            return Ok(Ok(kept));
        }
        shelf.reading.push(at);
        drop(shelf);
        let reading = Reading { pieces, at };
        let piece = pieces.read(at.1, entry, file)?;
        if let Ok(piece) = &piece {
            pieces.shelf().put(number, at, piece);
        }
        drop(reading);
        Ok(piece)
    }

    /// Takes away what nobody needs any more.
    fn clear(&self, shelf: &mut Shelf) {
        if shelf.clear() && shelf.kept.len() < Pieces::ROOM {
            self.pieces.changed.notify_all();
        }
    }

    /// For whom to wait, if so much is kept.
    fn must_wait(&self, shelf: &mut Shelf, most: usize) -> Option<Wait> {
        let (oldest, _) = shelf.kept.first_key_value().filter(|_| shelf.kept.len() >= most)?;
        let wait = shelf.pace.must_wait(self.number, *oldest, Instant::now());
        // For those that have fallen behind nothing is kept.
        self.clear(shelf);
        wait
    }

    fn wait<'s>(&self, shelf: MutexGuard<'s, Shelf>, wait: Wait) -> MutexGuard<'s, Shelf> {
        let woken = self.pieces.changed.wait_timeout(shelf, wait.most);
        let (mut shelf, _) = woken.unwrap_or_else(PoisonError::into_inner);
        shelf.pace.has_waited(&wait, Instant::now());
        shelf
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let mut shelf = self.pieces.shelf();
        shelf.pace.leave(self.number);
        shelf.clear();
        self.pieces.changed.notify_all();
    }
}

/// Whoever reads a piece: in the end nobody waits for it, whatever has come of it.
struct Reading<'a> {
    pieces: &'a Pieces,
    at: At,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.pieces.shelf().reading.retain(|at| *at != self.at);
        self.pieces.changed.notify_all();
    }
}

impl Shelf {
    /// Keeps a piece, if anybody else needs it.
    fn put(&mut self, who: usize, at: At, piece: &Piece) {
        if self.pace.is_needed_beside(who, at) {
            self.kept.insert(at, piece.clone());
        }
    }

    /// Takes away what nobody needs any more; whether there was anything.
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

    /// Whoever holds it last gives it back. What is shorter was for one message.
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
