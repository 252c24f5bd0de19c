//! What is copied: a list of entries, and pieces of files that all receivers share.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use rdma_conn::device::Device;
use rdma_conn::direct_read::{Buffer, BufferConfig, FrozenBuffer};

use super::place::is_partial_name;
use super::wire::{Hash, PIECE, What, hash};
use crate::outcome::usage;

/// Something to be copied.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) what: What,
    pub(super) path: PathBuf,
    /// Its path below the receiver's directory.
    pub(super) name: Vec<u8>,
    pub(super) mode: u32,
    pub(super) len: u64,
    /// Of a link: where it leads.
    pub(super) target: Vec<u8>,
}

/// What there is to copy.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) entries: Vec<Entry>,
    /// What cannot be copied, and why; the rest can.
    pub(super) left_out: Vec<(PathBuf, anyhow::Error)>,
}

/// Everything below `paths`, each under its last name, directories before what is in them.
pub(super) fn tree(paths: &[PathBuf]) -> Result<Tree> {
    let mut tree = Tree::default();
    for path in paths {
        let real = real(path).with_context(|| format!("{}", path.display()));
        let real = real.map_err(|e| usage(format!("{e:#}")))?;
        let name = path.file_name().or(real.file_name());
        let name = name.with_context(|| format!("{} has no name", path.display()))?;
        tree.walk(&real, name.as_bytes().to_vec());
    }
    let mut names: Vec<&[u8]> = tree.entries.iter().map(|entry| &*entry.name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let name = String::from_utf8_lossy(twice[0]);
        return Err(usage(format!("two things would be copied to {name}")));
    }
    Ok(tree)
}

/// What a path names: itself, if it is a link, but for `.`, `a/..` and `link/`, whose names
/// are elsewhere.
fn real(path: &Path) -> std::io::Result<PathBuf> {
    let names_itself = path.file_name().is_some() && !path.as_os_str().as_bytes().ends_with(b"/");
    if !names_itself {
        return path.canonicalize();
    }
    std::fs::symlink_metadata(path)?;
    Ok(path.into())
}

impl Tree {
    fn walk(&mut self, path: &Path, name: Vec<u8>) {
        if let Err(e) = self.add(path, name) {
            self.left_out.push((path.into(), e));
        }
    }

    fn add(&mut self, path: &Path, name: Vec<u8>) -> Result<()> {
        let entry = entry(path, name, &std::fs::symlink_metadata(path)?)?;
        let (below, is_directory) = (entry.name.clone(), entry.what == What::Directory);
        self.entries.push(entry);
        if is_directory {
            let mut inside: Vec<_> = std::fs::read_dir(path)?.collect::<Result<_, _>>()?;
            inside.sort_by_key(std::fs::DirEntry::file_name);
            for one in inside {
                if is_partial_name(one.file_name().as_bytes()) {
                    tracing::warn!(path = %one.path().display(), "left out: part of an unfinished copy");
                    continue;
                }
                let name = [&below, &b"/"[..], one.file_name().as_bytes()].concat();
                self.walk(&one.path(), name);
            }
        }
        Ok(())
    }
}

fn entry(path: &Path, name: Vec<u8>, metadata: &Metadata) -> Result<Entry> {
    let kind = metadata.file_type();
    let (what, len, target) = match () {
        () if kind.is_dir() => (What::Directory, 0, Vec::new()),
        () if kind.is_file() => (What::File, metadata.len(), Vec::new()),
        () if kind.is_symlink() => {
            let target = std::fs::read_link(path)?.as_os_str().as_bytes().to_vec();
            (What::Link, target.len() as u64, target)
        }
        () => bail!("neither a file nor a directory nor a symbolic link"),
    };
    Ok(Entry { what, path: path.into(), name, mode: metadata.mode() & 0o777, len, target })
}

/// A piece of a file, in memory that many receivers read.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) buffer: FrozenBuffer,
    pub(super) len: usize,
    pub(super) hash: Hash,
}

/// Pieces that were read lately. Receivers that keep up with each other share them; one
/// that falls behind reads for itself, and holds nobody up.
#[derive(Debug)]
pub(super) struct Pieces {
    device: Device,
    shelf: Mutex<Shelf>,
    /// A piece that was being read is on the shelf, or will not be.
    was_read: Condvar,
}

/// Which piece of which entry.
type At = (u32, u64);

#[derive(Debug, Default)]
struct Shelf {
    recent: VecDeque<(At, Piece)>,
    /// Pieces that somebody is reading.
    reading: Vec<At>,
    free: Vec<Buffer>,
}

impl Pieces {
    /// Pieces that are kept for others.
    const RECENT: usize = 32;

    pub(super) fn new(device: &Device) -> Pieces {
        Pieces { device: device.clone(), shelf: Mutex::default(), was_read: Condvar::new() }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // What is on it is whole, whoever has panicked meanwhile.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of a file that is open: `None` where the file has become shorter. Who comes
    /// while another one reads it waits for that one.
    pub(super) fn get(&self, at: At, entry: &Entry, file: &File) -> Result<Option<Piece>> {
        let mut shelf = self.shelf();
        loop {
            if let Some((_, piece)) = shelf.recent.iter().find(|(key, _)| *key == at) {
                return Ok(Some(piece.clone()));
            }
            if !shelf.reading.contains(&at) {
                break;
            }
            shelf = self.was_read.wait(shelf).unwrap_or_else(PoisonError::into_inner);
        }
        shelf.reading.push(at);
        drop(shelf);
        let reading = Reading { pieces: self, at };
        let piece = self.read(at.1, entry, file)?;
        if let Some(piece) = &piece {
            self.shelf().put(at, piece.clone());
        }
        drop(reading);
        Ok(piece)
    }

    fn read(&self, number: u64, entry: &Entry, file: &File) -> Result<Option<Piece>> {
        let mut buffer = self.buffer()?;
        let offset = number * PIECE as u64;
        let len = (entry.len - offset).min(PIECE as u64) as usize;
        match file.read_exact_at(&mut buffer[..len], offset) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.shelf().free.push(buffer);
                return Ok(None);
            }
            Err(e) => return Err(e).with_context(|| entry.path.display().to_string()),
        }
        let hash = hash(&buffer[..len]);
        Ok(Some(Piece { buffer: buffer.freeze(), len, hash }))
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

/// Whoever reads a piece: in the end nobody waits for it, whatever has come of it.
struct Reading<'a> {
    pieces: &'a Pieces,
    at: At,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.pieces.shelf().reading.retain(|at| *at != self.at);
        self.pieces.was_read.notify_all();
    }
}

impl Shelf {
    fn put(&mut self, at: At, piece: Piece) {
        self.recent.push_back((at, piece));
        if self.recent.len() > Pieces::RECENT
            && let Some((_, old)) = self.recent.pop_front()
        {
            self.take_back(old.buffer);
        }
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
mod tests {
    use super::*;

    #[test]
    fn a_source_that_has_become_shorter_is_told_and_one_piece_is_read_once() {
        let path = std::env::temp_dir().join(format!("copy-shrinks-{}", std::process::id()));
        std::fs::write(&path, [7; 20]).unwrap();
        let mut entries = tree(std::slice::from_ref(&path)).unwrap().entries;
        let entry = entries.pop().unwrap();
        let pieces = Pieces::new(&rdma_conn::device::soft().unwrap());
        let file = File::open(&path).unwrap();
        let piece = pieces.get((0, 0), &entry, &file).unwrap().expect("it is there");
        assert_eq!((&piece.buffer[..20], piece.hash), (&[7; 20][..], hash(&[7; 20])));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert!(pieces.get((1, 0), &entry, &file).unwrap().is_none(), "it has become shorter");
        let again = pieces.get((0, 0), &entry, &file).unwrap().expect("others have read it");
        assert_eq!(again.buffer.as_ptr(), piece.buffer.as_ptr());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_link_is_itself_and_what_cannot_be_copied_keeps_nothing_else() {
        let folder = std::env::temp_dir().join(format!("copy-odd-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(folder.join("sub/file"), b"here").unwrap();
        let fifo = folder.join("sub/a fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        let links = ["sub", "nowhere"].map(|target| {
            let link = folder.join(format!("to {target}"));
            std::os::unix::fs::symlink(target, &link).unwrap();
            link
        });
        let of = |paths: &[PathBuf]| {
            let tree = tree(paths).unwrap();
            let entries = tree.entries.iter();
            let names = entries.map(|e| (String::from_utf8_lossy(&e.name).into_owned(), e.what));
            (names.collect::<Vec<_>>(), tree.left_out)
        };
        let (names, left_out) = of(&links);
        let expected = [("to sub", What::Link), ("to nowhere", What::Link)];
        assert!(names.iter().map(|(name, what)| (&**name, *what)).eq(expected), "{names:?}");
        assert!(left_out.is_empty());
        // What it leads to is asked for by a slash, as elsewhere.
        let (names, left_out) = of(&[folder.join("to sub/")]);
        let expected = [("to sub", What::Directory), ("to sub/file", What::File)];
        assert!(names.iter().map(|(name, what)| (&**name, *what)).eq(expected), "{names:?}");
        assert!(left_out.len() == 1 && left_out[0].0.ends_with("a fifo"), "{left_out:?}");
        assert!(tree(&[folder.join("neither")]).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// However many threads ask for a piece at a time, one of them reads it.
    #[test]
    fn who_comes_while_a_piece_is_read_waits_for_it() {
        let path = std::env::temp_dir().join(format!("copy-shared-{}", std::process::id()));
        std::fs::write(&path, vec![7; PIECE]).unwrap();
        let mut entries = tree(std::slice::from_ref(&path)).unwrap().entries;
        let (entry, file) = (entries.pop().unwrap(), File::open(&path).unwrap());
        let pieces = Pieces::new(&rdma_conn::device::soft().unwrap());
        pieces.shelf().reading.push((0, 0));
        std::thread::scope(|scope| {
            let get = || pieces.get((0, 0), &entry, &file).unwrap().expect("it is there").buffer;
            let both = [scope.spawn(get), scope.spawn(get)];
            // Whoever was reading has failed: one of them takes that over, and the other one
            // gets what it has read.
            drop(Reading { pieces: &pieces, at: (0, 0) });
            let [one, other] = both.map(|thread| thread.join().unwrap());
            assert_eq!(one.as_ptr(), other.as_ptr(), "it was read twice");
        });
        assert_eq!(pieces.shelf().recent.len(), 1);
        assert!(pieces.get((1, 0), &entry, &File::open("/proc/self/mem").unwrap()).is_err());
        assert!(pieces.shelf().reading.is_empty(), "who fails is not waited for");
        std::fs::remove_file(&path).unwrap();
    }
}
