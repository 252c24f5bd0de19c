//! Entries of a copy: how each begins, and how it ends or fails, with what the sender is told.

use anyhow::{Result, bail, ensure};
use base::outcome::CommandError;

use super::super::partial_file::PartialFile;
use super::super::place::{DirectoryEntry, remedy, system_error};
use super::super::wire::{CopyReply, EntryKind, Finished, Hash, hash_of_hashes};
use super::CopyReceiver;
use super::modes::{Modes, parents, part, set_modes};

/// Files that are gathered at a time, each of which has a descriptor or two. A sender
/// begins [`AHEAD`](super::super::send::AHEAD) of them ahead.
pub(super) const FILES: usize = 2 * super::super::send::AHEAD;

/// Directories that wait for their modes. More of them are not open at a time: a sender sends all
/// that is in a directory before the next one.
pub(super) const DIRECTORIES: usize = 4096;

impl CopyReceiver<'_> {
    pub(super) fn begin(
        &mut self,
        entry: u32,
        what: EntryKind,
        mode: u32,
        len: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<()> {
        ensure!(self.files.len() < FILES, "more than {FILES} files at a time");
        ensure!(entry == self.begun, "an entry out of order");
        self.begun += 1;
        self.names.insert(entry, name.to_vec());
        let begun = self.root.place(name).and_then(|place| match what {
            EntryKind::Directory => {
                place.make_directory()?;
                self.keep_mode(entry, name, mode)?;
                Ok(None)
            }
            EntryKind::Link => place.make_link(target, self.force).map(|()| None),
            EntryKind::File => PartialFile::new(place, mode, len, self.force).map(Some),
        });
        match begun {
            Ok(None) => self.done(entry),
            Ok(Some(file)) => {
                let (pieces, hash) = (file.hashes.len() as u64, hash_of_hashes(&file.hashes));
                self.files.insert(entry, file);
                self.reply(&CopyReply::Have { entry, pieces, hash })
            }
            Err(e) => {
                if let Ok(place) = self.root.place(name) {
                    self.check_others(entry, &place, &e)?;
                }
                self.fail(entry, format!("{e:#}"))
            }
        }
    }

    pub(super) fn end(&mut self, entry: u32, hash: Hash) -> Result<()> {
        let Some(file) = self.files.get_mut(&entry) else { return Ok(()) };
        match file.end(hash, self.force) {
            Ok((had, other_mode)) => {
                self.files.remove(&entry);
                self.tally.add_present(had);
                if let Some(why) = other_mode {
                    self.differs(entry, self.name(entry).into_owned(), &why)?;
                }
                self.done(entry)
            }
            Err(e) => self.give_up(entry, &e),
        }
    }

    /// Gives up an entry.
    pub(super) fn give_up(&mut self, entry: u32, why: &CommandError) -> Result<()> {
        if let Some(file) = self.files.remove(&entry) {
            self.check_others(entry, file.place(), why)?;
            // What the system refuses makes no byte of it wrong: what has come stays, and the same
            // command goes on from there.
            if system_error(why).is_none() {
                file.abandon();
            }
        }
        self.fail(entry, format!("{why:#}"))
    }

    /// Ends the copy if nothing can be written any more: all that is to come would fail for the
    /// same reason, unless that is the reason of a file system that is mounted below the directory.
    fn check_others(&self, entry: u32, place: &DirectoryEntry, why: &CommandError) -> Result<()> {
        let Some(remedy) = remedy(why) else { return Ok(()) };
        if !self.root.is_on_disk_of(place) {
            return Ok(());
        }
        bail!("writing {}: {why:#}: {remedy}", self.name(entry))
    }

    /// Keeps the mode of a directory until the end, or, where there are many, until all is there
    /// that is in it.
    fn keep_mode(&mut self, entry: u32, name: &[u8], mode: u32) -> Result<()> {
        if self.modes.len() >= DIRECTORIES {
            let modes = std::mem::take(&mut self.modes);
            let (open, filled) = part(modes, self.names.values().flat_map(|name| parents(name)));
            self.modes = open;
            self.set_modes(filled)?;
        }
        ensure!(self.modes.len() < DIRECTORIES, "{DIRECTORIES} directories are open already");
        self.modes.insert(name.to_vec(), (mode, entry));
        Ok(())
    }

    fn set_modes(&mut self, modes: Modes) -> Result<()> {
        for (name, entry, why) in set_modes(self.root, modes) {
            self.differs(entry, String::from_utf8_lossy(&name).into_owned(), &why)?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        let modes = std::mem::take(&mut self.modes);
        self.set_modes(modes)?;
        if self.syncs {
            self.root.sync()?;
        }
        let finished = Finished { synced: self.syncs, ..self.received.written(self.tally) };
        self.received.finished = Some(finished);
        // Before the reply: the sender may know of the end from here on.
        self.hand.is_at_end();
        self.reply(&CopyReply::Finished(finished))
    }

    fn done(&mut self, entry: u32) -> Result<()> {
        self.tally.done();
        self.names.remove(&entry);
        self.reply(&CopyReply::Done { entry })
    }

    pub(super) fn fail(&mut self, entry: u32, why: String) -> Result<()> {
        // Each entry counts as failed once.
        let Some(name) = self.names.remove(&entry) else { return Ok(()) };
        let name = String::from_utf8_lossy(&name).into_owned();
        tracing::info!(name, why, "not copied");
        self.tally.fails();
        self.received.failed.add(name, why.clone());
        self.reply(&CopyReply::Failed { entry, why })
    }

    /// An entry is here, but for what its file system does not take of it.
    fn differs(&mut self, entry: u32, name: String, why: &CommandError) -> Result<()> {
        let why = format!("{why:#}");
        tracing::info!(name, why, "not in all as at the sender");
        self.tally.differs();
        self.received.differing.add(name, why.clone());
        self.reply(&CopyReply::Differs { entry, why })
    }
}
