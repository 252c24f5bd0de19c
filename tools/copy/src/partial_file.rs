//! A file at a receiver, from its first piece until it has its name.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use base::outcome::CommandError;
use rdma_conn::device::Device;
use rdma_conn::direct_read::FileRegion;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use twox_hash::XxHash3_128;

use super::place::{DirectoryEntry, ExistingKind, FileClaim, set_mode};
use super::wire::{Hash, PIECE, hash, hash_of_hashes, pieces};

/// Pieces that are read at a time.
pub(super) const BUFFERS: usize = 8;

/// Reason for which an existing file is not replaced.
const EXISTS: &str = "it exists and differs: --force at the receiver replaces it";

const OTHER: &str = "a piece has arrived as something else";

/// The shortest piece that is worth a mapping of its own, in bytes.
pub(super) const WORTH_MAPPING: u64 = 64 << 10;

/// A file of which pieces are missing.
pub(super) struct PartialFile {
    place: DirectoryEntry,
    /// Claim on the file in which the pieces are gathered; `None` while the file is here under its
    /// name, in its whole length: it is kept, or replaced. The claim ends before the file is
    /// closed.
    claim: Option<FileClaim>,
    file: File,
    /// The number of its file system.
    disk: u64,
    mode: u32,
    pub(super) len: u64,
    /// The hashes of the pieces that are here, from the first one on.
    pub(super) hashes: Vec<Hash>,
    /// The piece that is to be asked for next; it is not before those that are here.
    next: u64,
    /// Bytes of the pieces that were here before.
    had: u64,
}

impl PartialFile {
    /// Opens what is here of a file: under its name, or gathered by an earlier copy.
    pub(super) fn new(
        place: DirectoryEntry,
        mode: u32,
        len: u64,
        force: bool,
    ) -> Result<PartialFile> {
        let found = place.found()?;
        ensure!(
            matches!(found, ExistingKind::Nothing | ExistingKind::File(_) | ExistingKind::Link),
            "there is something of this name that is no file"
        );
        let whole = found == ExistingKind::File(len);
        ensure!(whole || force || found == ExistingKind::Nothing, EXISTS);
        let (file, claim) = match whole {
            true => (place.open()?, None),
            false => place.open_partial().map(|(file, claim)| (file, Some(claim)))?,
        };
        let stat = fstat(&file)?;
        let (there, disk) = (u64::try_from(stat.st_size)?.min(len), stat.st_dev);
        // Only whole pieces are built upon, and the last one of a whole file. The last
        // [`BUFFERS`] pieces may have room in the file without having arrived.
        let had = (there / PIECE as u64).saturating_sub(BUFFERS as u64);
        let count = if whole { pieces(len) } else { had };
        let hashes = read_hashes(&file, count, len)?;
        Ok(PartialFile {
            place,
            file,
            claim,
            disk,
            mode,
            len,
            hashes,
            next: count,
            had: (count * PIECE as u64).min(len),
        })
    }

    fn is_whole(&self) -> bool {
        self.claim.is_none()
    }

    /// Returns the place where the file gets its name.
    pub(super) fn place(&self) -> &DirectoryEntry {
        &self.place
    }

    /// The number of its file system.
    pub(super) fn disk(&self) -> u64 {
        self.disk
    }

    /// Another way into it, for a test.
    #[cfg(test)]
    pub(super) fn set_file(&mut self, file: File) {
        self.file = file;
    }

    /// Prepares for a piece that is about to be read.
    pub(super) fn expect(&mut self, piece: u64, force: bool) -> Result<()> {
        if piece == 0 {
            ensure!(force || !self.is_whole(), EXISTS);
            self.restart()?;
        }
        ensure!(!self.is_whole(), "a piece of a file that is here");
        ensure!(piece == self.next, "a piece out of order");
        self.next += 1;
        Ok(())
    }

    /// Returns the part of the file itself, registered, in which an expected piece may land. Its
    /// space is allocated first, so that no access to a mapping meets a full disk.
    pub(super) fn room(&self, device: &Device, piece: u64, bytes: u64) -> Result<FileRegion> {
        let (offset, len) = self.span(piece, bytes)?;
        fallocate(&self.file, FallocateFlags::empty(), offset, bytes).context("making room")?;
        Ok(device.pd().register_file(&self.file, offset, len)?)
    }

    /// Returns the offset and the length of a piece, if it is one of this file and has `bytes`
    /// bytes.
    fn span(&self, piece: u64, bytes: u64) -> Result<(u64, usize)> {
        let offset = piece.checked_mul(PIECE as u64).filter(|offset| *offset < self.len);
        let offset = offset.context("a piece behind the end")?;
        ensure!(bytes == (self.len - offset).min(PIECE as u64), "a piece of a wrong length");
        Ok((offset, bytes as usize))
    }

    /// Writes a piece that has arrived. If it is not the expected one, this is an error, and the
    /// caller abandons the file.
    pub(super) fn write(&mut self, piece: u64, expected: Hash, bytes: &[u8]) -> Result<()> {
        let (offset, _) = self.span(piece, bytes.len() as u64)?;
        ensure!(hash(bytes) == expected, OTHER);
        self.file.write_all_at(bytes, offset)?;
        self.record(piece, expected)
    }

    /// Checks a piece that has landed in the file itself. It is read from the file, and not from
    /// the mapping: if another process has truncated the file, an access to the mapping would
    /// raise SIGBUS.
    pub(super) fn landed(&mut self, piece: u64, expected: Hash, bytes: u64) -> Result<()> {
        let (offset, len) = self.span(piece, bytes)?;
        ensure!(hash_of_part(&self.file, offset, len)? == expected, OTHER);
        self.record(piece, expected)
    }

    fn record(&mut self, piece: u64, hash: Hash) -> Result<()> {
        ensure!(piece == self.hashes.len() as u64, "a piece out of order");
        self.hashes.push(hash);
        Ok(())
    }

    /// Drops what was here, and begins with the first piece.
    fn restart(&mut self) -> Result<()> {
        if self.is_whole() {
            let (file, claim) = self.place.open_partial()?;
            (self.file, self.claim) = (file, Some(claim));
        }
        self.hashes.clear();
        (self.next, self.had) = (0, 0);
        self.cut_to(0)
    }

    /// Gives it a length, if it has another one.
    fn cut_to(&self, len: u64) -> Result<()> {
        if u64::try_from(fstat(&self.file)?.st_size)? != len {
            self.file.set_len(len).with_context(|| format!("cutting it to {len} bytes"))?;
        }
        Ok(())
    }

    /// Removes what was gathered; a file that was here before stays.
    pub(super) fn abandon(&self) {
        if !self.is_whole() {
            self.place.abandon(&self.file);
        }
    }

    /// Verifies the file, and gives it its name; returns how many of its bytes were here before,
    /// and why it has another mode, if it has. After an error, the caller decides whether what was
    /// gathered stays.
    pub(super) fn end(
        &mut self,
        expected: Hash,
        force: bool,
    ) -> Result<(u64, Option<CommandError>)> {
        if self.len == 0 && !self.is_whole() {
            self.hashes.clear();
        }
        let complete = self.hashes.len() as u64 == pieces(self.len);
        let is_right = complete && hash_of_hashes(&self.hashes) == expected;
        ensure!(is_right, "its checksum is another one");
        if self.is_whole() {
            return Ok((self.had, set_mode(&self.file, self.mode).err()));
        }
        self.cut_to(self.len)?;
        Ok((self.had, self.place.finish(&self.file, self.mode, force)?))
    }
}

/// Hashes a part of a file, some of it at a time, which stays in the processor's cache.
fn hash_of_part(file: &File, offset: u64, len: usize) -> Result<Hash> {
    let mut chunk = [0; 64 << 10];
    let (mut hasher, mut done) = (XxHash3_128::new(), 0);
    while done < len {
        let part = &mut chunk[..(len - done).min(64 << 10)];
        file.read_exact_at(part, offset + done as u64).context("reading it again")?;
        hasher.write(part);
        done += part.len();
    }
    Ok(hasher.finish_128())
}

/// Hashes of the first pieces of a file.
fn read_hashes(file: &File, count: u64, len: u64) -> Result<Vec<Hash>> {
    let mut bytes = vec![0; if count > 0 { PIECE } else { 0 }];
    (0..count)
        .map(|piece| {
            let offset = piece * PIECE as u64;
            let part = &mut bytes[..(len - offset).min(PIECE as u64) as usize];
            file.read_exact_at(part, offset)?;
            Ok(hash(part))
        })
        .collect()
}

#[cfg(test)]
mod tests;
