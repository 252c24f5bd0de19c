//! Places where a receiver puts things: below its directory, and nowhere else.
//!
//! A path is followed one name at a time, from directory to directory, and never through a
//! symbolic link: whatever else happens to the tree meanwhile, it does not lead out of it.
//!
//! File systems lack services that others have: locks, a rename that replaces nothing, modes. Where
//! one is missing, the copy uses another way, or does without; it is no reason to lose what has
//! arrived.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use base::outcome::{CommandError, usage};
use base::remark;
use host::sync::{Mutex, OnceLock};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, fchmod, flock, fstat, linkat,
    mkdirat, openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::wire::hash;

/// The directory that everything goes into.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
    /// The number of its file system.
    disk: u64,
}

/// A name in a directory.
#[derive(Debug)]
pub(super) struct DirectoryEntry {
    directory: OwnedFd,
    name: Vec<u8>,
}

/// Kind of thing that exists at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingKind {
    Nothing,
    File(u64),
    Directory,
    Link,
    Other,
}

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// The user's task where there are no locks.
const ONE_AT_A_TIME: &str = "let one process at a time copy to it";

/// Context of an error where a directory takes nothing new.
const MAKING: &str = "making it at the receiver";

/// The reason for which a second copy of the same file fails.
const BUSY: &str = "another copy is writing it";

/// The files that this process gathers, by their file systems and numbers. Locks keep the copies of
/// other processes away, where there are locks; this one keeps apart its own.
static GATHERED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// A file that no other copy of this process gathers, until this is dropped: before the file is
/// closed, because another one may have its number from then on.
#[derive(Debug)]
pub(super) struct FileClaim((u64, u64));

impl FileClaim {
    fn take(file: &File) -> Result<FileClaim> {
        let stat = fstat(file)?;
        let number = (stat.st_dev, stat.st_ino);
        ensure!(GATHERED.lock().insert(number), BUSY);
        Ok(FileClaim(number))
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        GATHERED.lock().remove(&self.0);
    }
}

/// End of the name of a file that is being gathered.
const PARTIAL: &str = ".rdma-conn-part";

/// Reports whether a file of this name is a leftover of a copy that was interrupted.
pub(super) fn is_partial_name(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(PARTIAL.as_bytes())
}

/// The names of a path, if it stays below where it begins.
fn names(path: &[u8]) -> Result<Vec<&[u8]>> {
    ensure!(!path.is_empty(), "an empty name");
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    for name in &names {
        let shown = || String::from_utf8_lossy(path).into_owned();
        ensure!(!name.is_empty(), "{:?} is not relative, or has an empty name", shown());
        ensure!(*name != b"." && *name != b"..", "{:?} leaves its directory", shown());
        ensure!(!name.contains(&0), "a name with a zero byte");
        ensure!(name.len() <= 255, "a name of {} bytes", name.len());
        // Another file would be gathered in it.
        ensure!(!is_partial_name(name), "{:?} is a part of a file that was not finished", shown());
    }
    Ok(names)
}

impl Root {
    /// The directory at `path`, made if there is none.
    pub(super) fn open(path: &Path) -> Result<Root> {
        match std::fs::create_dir_all(path) {
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
                let is_file = if path.exists() { "it is" } else { "a part of it is" };
                let path = path.display();
                return Err(usage(format!(
                    "--into {path}: {is_file} no directory: choose another --into"
                )));
            }
            made => made.with_context(|| format!("making {}", path.display()))?,
        }
        // The user's own path: it may go through links.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = openat(rustix::fs::CWD, path, flags, Mode::empty());
        let directory = fd.with_context(|| format!("opening {}", path.display()))?;
        let disk = fstat(&directory)?.st_dev;
        let root = Root { directory, disk };
        root.probe(path)?;
        Ok(root)
    }

    /// Fails if nothing can be made in it: each entry would fail for the same reason.
    fn probe(&self, path: &Path) -> Result<()> {
        let name = format!(".{}{PARTIAL}", std::process::id());
        match mkdirat(&self.directory, &*name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                if let Err(e) = unlinkat(&self.directory, &*name, AtFlags::REMOVEDIR) {
                    remark!("nothing can be removed in {} ({e}), as {name}", path.display());
                }
                Ok(())
            }
            // Made by a process of the same number, on another host say: so it can be written to.
            Err(Errno::EXIST) => Ok(()),
            Err(e) if let Some(remedy) = hopeless(e) => {
                let path = path.display();
                bail!("nothing can be written to {path}: {e}: {remedy}, or choose another --into")
            }
            // Directories that exist already may be writable for this user.
            Err(e) => {
                let path = path.display();
                remark!("nothing new can be made in {path} ({e}): only what goes deeper arrives");
                Ok(())
            }
        }
    }

    /// Waits until all that its file system has is on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        match rustix::fs::syncfs(&self.directory) {
            // All file systems, then: slower, and no less.
            Err(e) if is_not_offered(e) => {
                rustix::fs::sync();
                Ok(())
            }
            synced => synced.context("writing to the disk"),
        }
    }

    /// Reports whether a place is in this file system, and not in one that is mounted below it.
    pub(super) fn is_on_disk_of(&self, place: &DirectoryEntry) -> bool {
        fstat(&place.directory).is_ok_and(|stat| stat.st_dev == self.disk)
    }

    /// Has all else be in another file system, for a test.
    #[cfg(test)]
    pub(super) fn set_disk(&mut self, disk: u64) {
        self.disk = disk;
    }

    /// The place of a path; the directories on its way exist.
    pub(super) fn place(&self, path: &[u8]) -> Result<DirectoryEntry> {
        let names = names(path)?;
        let (last, way) = names.split_last().context("an empty name")?;
        let mut directory = self.directory.try_clone().context("the directory")?;
        for name in way {
            directory = openat(&directory, *name, DIRECTORY, Mode::empty()).with_context(|| {
                format!("{:?} is not a directory below it", String::from_utf8_lossy(name))
            })?;
        }
        Ok(DirectoryEntry { directory, name: last.to_vec() })
    }
}

/// The system's refusal, if that is why something has failed.
pub(super) fn system_error(failure: &CommandError) -> Option<Errno> {
    let errno = |error: &(dyn std::error::Error + 'static)| match error.downcast_ref::<Errno>() {
        Some(errno) => Some(*errno),
        None => Errno::from_io_error(error.downcast_ref()?),
    };
    failure.chain().find_map(errno)
}

/// True of a call that the file system does not have, or that this process may not make.
fn is_not_offered(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM)
}

/// The remedy where nothing can be written at all, if that is why something has failed.
pub(super) fn remedy(failure: &CommandError) -> Option<&'static str> {
    system_error(failure).and_then(remedy_for)
}

fn remedy_for(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NOSPC => "make room there",
        Errno::DQUOT => "remove something there, or have the quota raised",
        Errno::ROFS => "have its file system mounted for writing",
        _ => return None,
    })
}

/// Returns the remedy if an error of making something in a directory applies to all below it, too.
fn hopeless(errno: Errno) -> Option<&'static str> {
    match errno {
        // A file system of the kernel, or a directory that was removed.
        Errno::NOENT => Some("it takes no directories"),
        other => remedy_for(other),
    }
}

/// Gives a file or a directory its mode.
///
/// # Errors
/// It has another one, and why.
pub(super) fn set_mode(fd: impl AsFd, mode: u32) -> Result<()> {
    let mode = mode & 0o777;
    let set = fchmod(&fd, Mode::from_raw_mode(mode));
    let has = fstat(&fd).context("looking at its mode")?.st_mode & 0o777;
    let why = set.map_or_else(|e| e.to_string(), |()| "its file system decides".into());
    ensure!(has == mode, "its mode is {has:03o}, and not {mode:03o}: {why}");
    Ok(())
}

impl DirectoryEntry {
    pub(super) fn found(&self) -> Result<ExistingKind> {
        let stat = match statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(ExistingKind::Nothing),
            Err(e) => return Err(e).context("looking up the existing entry"),
        };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => ExistingKind::File(u64::try_from(stat.st_size)?),
            FileType::Directory => ExistingKind::Directory,
            FileType::Symlink => ExistingKind::Link,
            _ => ExistingKind::Other,
        })
    }

    /// Makes a directory that is ours to fill, whatever its mode will be.
    pub(super) fn make_directory(&self) -> Result<()> {
        match self.found()? {
            ExistingKind::Directory => {
                // If it stays closed, what is made in it says so.
                if let Err(e) = self.open_to_owner() {
                    tracing::info!(error = %e, "a directory may be closed");
                }
                Ok(())
            }
            ExistingKind::Nothing => {
                let made = mkdirat(&self.directory, &*self.name, Mode::from_raw_mode(0o700));
                made.context(MAKING)
            }
            _ => bail!("something that is no directory has this name: remove it at the receiver"),
        }
    }

    /// Lets the owner of a directory fill it, until it gets its mode.
    fn open_to_owner(&self) -> rustix::io::Result<()> {
        let fd = openat(&self.directory, &*self.name, DIRECTORY, Mode::empty())?;
        let (mode, owner) = (Mode::from_raw_mode(fstat(&fd)?.st_mode), Mode::RWXU);
        if mode.contains(owner) { Ok(()) } else { fchmod(&fd, mode | owner) }
    }

    /// Gives a directory its mode.
    pub(super) fn set_directory_mode(&self, mode: u32) -> Result<()> {
        set_mode(openat(&self.directory, &*self.name, DIRECTORY, Mode::empty())?, mode)
    }

    /// Makes a symbolic link; one that is there already may be the same.
    pub(super) fn make_link(&self, target: &[u8], force: bool) -> Result<()> {
        match self.found()? {
            ExistingKind::Nothing => {}
            ExistingKind::Link
                if readlinkat(&self.directory, &*self.name, Vec::new())?.to_bytes() == target =>
            {
                return Ok(());
            }
            ExistingKind::Link | ExistingKind::File(_) if force => {
                return self.replace_by_link(target);
            }
            _ => bail!("there is something of this name: --force replaces files and links"),
        }
        symlinkat(OsStr::from_bytes(target), &self.directory, &*self.name).context(MAKING)
    }

    /// Replaces the existing entry in one step: where that fails, it stays.
    fn replace_by_link(&self, target: &[u8]) -> Result<()> {
        let (directory, partial) = (&self.directory, self.partial_name());
        // Of a copy that was interrupted.
        let _ = unlinkat(directory, &*partial, AtFlags::empty());
        symlinkat(OsStr::from_bytes(target), directory, &*partial).context(MAKING)?;
        let named = renameat(directory, &*partial, directory, &*self.name);
        Ok(named.inspect_err(|_| self.remove_partial())?)
    }

    /// The file that is there under its final name, to be compared.
    pub(super) fn open(&self) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = openat(&self.directory, &*self.name, flags, Mode::empty())?;
        Ok(File::from(fd))
    }

    /// The name under which it is gathered: the file's own could be too long for more.
    fn partial_name(&self) -> String {
        format!(".{:032x}{PARTIAL}", hash(&self.name))
    }

    /// The file in which it is gathered, with what an earlier copy has left there.
    pub(super) fn open_partial(&self) -> Result<(File, FileClaim)> {
        let (file, claim) = self.open_or_make_partial()?;
        if fstat(&file)?.st_nlink <= 1 {
            return Ok((file, claim));
        }
        // An earlier copy has given it its final name, and ended before it took this one away.
        drop(claim);
        drop(file);
        unlinkat(&self.directory, self.partial_name(), AtFlags::empty())?;
        self.open_or_make_partial()
    }

    #[expect(clippy::disallowed_methods, reason = "the lock is tried only")]
    fn open_or_make_partial(&self) -> Result<(File, FileClaim)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let fd = openat(&self.directory, self.partial_name(), flags, mode).context(MAKING)?;
        ensure!(
            FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::RegularFile,
            "what it would be gathered in is no file"
        );
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(e @ Errno::WOULDBLOCK) => return Err(e).context(BUSY),
            Err(e) => {
                static SAID: OnceLock<()> = OnceLock::new();
                SAID.get_or_init(|| remark!("the file system has no locks ({e}): {ONE_AT_A_TIME}"));
            }
            Ok(()) => {}
        }
        let file = File::from(fd);
        let claim = FileClaim::take(&file)?;
        // The copy that had it before may have finished it, or given it up, before we had the lock.
        // From now on the name is ours: only the holder of the lock renames or removes it.
        ensure!(self.gathers_in(&file)?, "another copy has just finished it");
        Ok((file, claim))
    }

    /// Reports whether the name under which this file is gathered still names it.
    fn gathers_in(&self, file: &File) -> Result<bool> {
        let named = match statat(&self.directory, self.partial_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            named => named?,
        };
        let this = fstat(file)?;
        Ok((named.st_dev, named.st_ino) == (this.st_dev, this.st_ino))
    }

    /// Gives what was gathered its mode and its final name, which nothing else has, or
    /// (`force`) had. Returns why it has another mode, if it has.
    pub(super) fn finish(
        &self,
        file: &File,
        mode: u32,
        force: bool,
    ) -> Result<Option<CommandError>> {
        let mode = set_mode(file, mode).err();
        ensure!(self.gathers_in(file)?, "what was gathered has been taken away");
        match self.name_finally(force) {
            Err(e @ Errno::EXIST) => {
                Err(e).context("there is something of this name: --force replaces it")
            }
            named => Ok(named.map(|()| mode)?),
        }
    }

    fn name_finally(&self, force: bool) -> rustix::io::Result<()> {
        let (directory, from, to) = (&self.directory, self.partial_name(), &*self.name);
        if force {
            return renameat(directory, &*from, directory, to);
        }
        match renameat_with(directory, &*from, directory, to, RenameFlags::NOREPLACE) {
            Err(e) if is_not_offered(e) => {}
            renamed => return renamed,
        }
        // By a second name, which replaces nothing either.
        match linkat(directory, &*from, directory, to, AtFlags::empty()) {
            Ok(()) => {
                self.remove_partial();
                return Ok(());
            }
            Err(Errno::EXIST) => return Err(Errno::EXIST),
            Err(_) => {}
        }
        // What gets this name between these two calls is replaced: such a file system has no better
        // way.
        match statat(directory, to, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => renameat(directory, &*from, directory, to),
            found => Err(found.err().unwrap_or(Errno::EXIST)),
        }
    }

    /// Removes what was gathered in `file`.
    pub(super) fn abandon(&self, file: &File) {
        match self.gathers_in(file) {
            Ok(true) => self.remove_partial(),
            Ok(false) => {}
            Err(e) => tracing::warn!(error = %e, "a part of a file is not looked at"),
        }
    }

    fn remove_partial(&self) {
        if let Err(e) = unlinkat(&self.directory, self.partial_name(), AtFlags::empty()) {
            tracing::warn!(error = %e, "a part of a file was not removed");
        }
    }
}

#[cfg(test)]
mod tests;
