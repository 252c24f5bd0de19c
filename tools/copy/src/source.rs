//! Source of a copy: a list of entries.

use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::outcome::usage;

use super::place::is_partial_name;
use super::wire::EntryKind;

/// The reason for which a file is not copied that is not what it was.
pub(super) const CHANGED: &str =
    "it has changed while it was copied: repeat the command to copy it";

/// The reason for which a file is not copied that ends elsewhere.
pub(super) const OTHER_LENGTH: &str = "it has not the length that its metadata tell, as a file of the kernel: write it to \
     another file first, or send it by `rdma-conn pipe`";

/// Something to be copied.
#[derive(Debug)]
pub(super) struct TreeEntry {
    pub(super) what: EntryKind,
    pub(super) path: PathBuf,
    /// Its path below the receiver's directory.
    pub(super) name: Vec<u8>,
    pub(super) mode: u32,
    pub(super) len: u64,
    /// Target of a link.
    pub(super) target: Vec<u8>,
    stamp: Stamp,
}

/// Stamp that changes when a file does: its identity, its length, and the time of the last write.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    dev: u64,
    ino: u64,
    len: u64,
    mtime: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        let mtime = (metadata.mtime(), metadata.mtime_nsec());
        Stamp { dev: metadata.dev(), ino: metadata.ino(), len: metadata.len(), mtime }
    }
}

impl TreeEntry {
    /// Returns the reason for which a file that was read as far as it was found is not kept: it is
    /// another one by now, or has grown. Receivers may read it at different times: all of them get
    /// the same, or none.
    pub(super) fn fault(&self, file: &File) -> std::io::Result<Option<&'static str>> {
        if Stamp::of(&file.metadata()?) != self.stamp {
            return Ok(Some(CHANGED));
        }
        let goes_on = file.read_at(&mut [0], self.len)? > 0;
        Ok(goes_on.then_some(OTHER_LENGTH))
    }
}

/// Entries to copy, and paths that are left out.
#[derive(Debug, Default)]
pub(super) struct SourceTree {
    pub(super) entries: Vec<TreeEntry>,
    /// Paths that cannot be copied, with the reasons; the rest can.
    pub(super) left_out: Vec<(PathBuf, anyhow::Error)>,
}

/// Everything below `paths`, each under its last name, directories before what is in them.
pub(super) fn tree(paths: &[PathBuf]) -> Result<SourceTree> {
    let mut tree = SourceTree::default();
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

/// Returns the path of the entry that a path names: itself, even if it is a link, but for `.`,
/// `a/..` and `link/`, whose names are elsewhere.
fn real(path: &Path) -> std::io::Result<PathBuf> {
    let names_itself = path.file_name().is_some() && !path.as_os_str().as_bytes().ends_with(b"/");
    if !names_itself {
        return path.canonicalize();
    }
    std::fs::symlink_metadata(path)?;
    Ok(path.into())
}

impl SourceTree {
    fn walk(&mut self, path: &Path, name: Vec<u8>) {
        if let Err(e) = self.add(path, name) {
            self.left_out.push((path.into(), e));
        }
    }

    fn add(&mut self, path: &Path, name: Vec<u8>) -> Result<()> {
        let entry = entry(path, name, &std::fs::symlink_metadata(path)?)?;
        let (below, is_directory) = (entry.name.clone(), entry.what == EntryKind::Directory);
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

fn entry(path: &Path, name: Vec<u8>, metadata: &Metadata) -> Result<TreeEntry> {
    let kind = metadata.file_type();
    let (what, len, target) = match () {
        () if kind.is_dir() => (EntryKind::Directory, 0, Vec::new()),
        () if kind.is_file() => (EntryKind::File, metadata.len(), Vec::new()),
        () if kind.is_symlink() => {
            let target = std::fs::read_link(path)?;
            let named = path.parent().map_or(target.clone(), |parent| parent.join(&target));
            // As `/dev/fd/63` of a shell's `<(…)`.
            if std::fs::symlink_metadata(named).is_err() && std::fs::metadata(path).is_ok() {
                bail!("a link to what has no name, as a pipe: `rdma-conn pipe` sends its bytes");
            }
            let target = target.into_os_string().into_encoded_bytes();
            (EntryKind::Link, target.len() as u64, target)
        }
        () => bail!("neither a file nor a directory nor a symbolic link"),
    };
    let (mode, stamp) = (metadata.mode() & 0o777, Stamp::of(metadata));
    Ok(TreeEntry { what, path: path.into(), name, mode, len, target, stamp })
}

#[cfg(test)]
mod tests;
