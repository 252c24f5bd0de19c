//! Messages between the ends of a copy: the sender uses the application data of its messages, the
//! receiver control messages on the stream of the handshake. A sender that a signal ends says so there
//! in one of them, its last word.
//!
//! | bytes | of a message's application data |
//! |---|---|
//! | 1 | kind: 1 begin, 2 data, 3 end, 4 abandon, 5 finish |
//! | 4 | number of the entry |
//! | … | of begin: kind (1 directory, 2 file, 3 symbolic link), mode (4), length (8), name |
//! | … | of data: number of the piece (8), its hash (16) |
//! | … | of end: the hash of all hashes (16) |
//!
//! Integers are little-endian. The target of a link is the message itself.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// The sender's application data in the handshake.
pub(super) const GREETING: &[u8] = b"rdma-conn copy 9";

/// Start of a copy's greeting, in each version.
const COPY: &[u8] = b"rdma-conn copy ";

/// Reports whether the application data of a handshake is the greeting of `rdma-conn copy`, of any
/// version.
pub fn is_copy(greeting: &[u8]) -> bool {
    greeting.starts_with(COPY)
}

/// Bytes of a piece of a file; the last one may be shorter. What is read, hashed and written at
/// a time stays in a processor's cache, and ext4 takes 1 MiB at half the speed. Each piece is
/// mapped and registered separately where it lands in its file.
pub(super) const PIECE: usize = 256 << 10;
/// Application data of a message: a name of 4 KiB, and more.
pub(super) const APP_BYTES: u32 = 4200;

/// Longest time that a reply may take on its way, once it has begun: a live sender reads it at
/// once.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The longest reply.
pub(super) const MOST_REPLY: usize = 1 << 16;

/// Hash of a piece, or of hashes.
pub(super) type Hash = u128;

pub(super) fn hash(bytes: &[u8]) -> Hash {
    XxHash3_128::oneshot(bytes)
}

/// The hash of all pieces' hashes.
pub(super) fn hash_of_hashes(hashes: &[Hash]) -> Hash {
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    hash(&bytes)
}

/// Pieces of a file.
pub(super) fn pieces(len: u64) -> u64 {
    len.div_ceil(PIECE as u64)
}

/// Kind of an entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Directory,
    File,
    Link,
}

/// Content of a message's application data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// An entry, by its path below the receiver's directory.
    Begin { entry: u32, what: EntryKind, mode: u32, len: u64, name: Vec<u8> },
    /// A piece of a file: the message.
    Data { entry: u32, piece: u64, hash: Hash },
    /// All pieces were sent.
    End { entry: u32, hash: Hash },
    /// The source has failed: the receiver drops the file.
    Abandon { entry: u32 },
    /// There are no more entries.
    Finish,
}

impl Word {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, entry, rest): (u8, u32, Vec<u8>) = match self {
            Word::Begin { entry, what, mode, len, name } => {
                let (mode, len) = (mode.to_le_bytes(), len.to_le_bytes());
                (1, *entry, [&[*what as u8 + 1][..], &mode[..], &len[..], &name[..]].concat())
            }
            Word::Data { entry, piece, hash } => {
                (2, *entry, [&piece.to_le_bytes()[..], &hash.to_le_bytes()[..]].concat())
            }
            Word::End { entry, hash } => (3, *entry, hash.to_le_bytes().to_vec()),
            Word::Abandon { entry } => (4, *entry, Vec::new()),
            Word::Finish => (5, 0, Vec::new()),
        };
        [&[kind][..], &entry.to_le_bytes()[..], &rest[..]].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Word> {
        let (kind, rest) = bytes.split_first().context("a message without a word")?;
        let (entry, rest) = number::<4>(rest)?;
        let entry = u32::from_le_bytes(entry);
        Ok(match kind {
            1 => {
                let (what, rest) = rest.split_first().context("an entry of no kind")?;
                let what = match what {
                    1 => EntryKind::Directory,
                    2 => EntryKind::File,
                    3 => EntryKind::Link,
                    other => bail!("an entry of the unknown kind {other}"),
                };
                let (mode, rest) = number(rest)?;
                let (len, name) = number(rest)?;
                let (mode, len) = (u32::from_le_bytes(mode), u64::from_le_bytes(len));
                Word::Begin { entry, what, mode, len, name: name.to_vec() }
            }
            2 => {
                let (piece, rest) = number(rest)?;
                let (hash, rest) = number(rest)?;
                ensure!(rest.is_empty(), "too long a word");
                let (piece, hash) = (u64::from_le_bytes(piece), Hash::from_le_bytes(hash));
                Word::Data { entry, piece, hash }
            }
            3 => Word::End { entry, hash: Hash::from_le_bytes(number(rest)?.0) },
            4 => Word::Abandon { entry },
            5 => Word::Finish,
            other => bail!("an unknown word {other}"),
        })
    }
}

fn number<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8])> {
    let (number, rest) = bytes.split_first_chunk().context("too short a word")?;
    Ok((*number, rest))
}

/// Reply of the receiver, about an entry or the whole copy.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub(super) enum CopyReply {
    /// The receiver has this number of pieces of the file already; `hash` is the hash of their
    /// hashes.
    Have { entry: u32, pieces: u64, hash: Hash },
    /// It is here, verified and under its name.
    Done { entry: u32 },
    /// It could not be copied, and why.
    Failed { entry: u32, why: String },
    /// It is here, but for what the receiver's file system does not take of it.
    Differs { entry: u32, why: String },
    /// That was all.
    Finished(Finished),
    /// Nothing more will be received, and why.
    GivenUp { why: String },
}

/// The receiver's account of a copy that is done.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Finished {
    /// Bytes of pieces that have landed in the files themselves, and that were written out
    /// of buffers.
    pub(super) mapped: u64,
    pub(super) buffered: u64,
    /// True if all of it is on the disk.
    #[serde(default)]
    pub(super) synced: bool,
}

#[cfg(test)]
mod tests;
