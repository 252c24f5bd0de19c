//! A receiver on a file system that lacks services, or fails: each system call that a receiver
//! makes there is refused in turn, with each of six errors, by a seccomp filter of the thread that
//! receives. (Not `close`, which is over when it fails, `sync`, which cannot fail, and `mmap`,
//! which the thread's memory needs: a file that cannot be mapped has a test of its own.)

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStringExt;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::*;
use crate::place::is_partial_name;
use crate::wire::pieces;

const ERRORS: [Errno; 6] =
    [Errno::NOSYS, Errno::INVAL, Errno::PERM, Errno::OPNOTSUPP, Errno::NOSPC, Errno::IO];

/// A call, those that are missing besides, and the outcome of a copy for each of [`ERRORS`]:
/// `c` all is copied, `d` all is there and something differs, `f` some entries fail and all others
/// are there, `e` the copy ends.
type RefusedRow = (&'static str, i64, &'static [i64], &'static str);

const TABLE: [RefusedRow; 22] = [
    // Services that file systems lack: the copy does without.
    ("fallocate", libc::SYS_fallocate, &[], "cccccc"),
    ("fchmod", libc::SYS_fchmod, &[], "dddddd"),
    ("flock", libc::SYS_flock, &[], "cccccc"),
    ("fstatfs", libc::SYS_fstatfs, &[], "cccccc"),
    ("renameat2", libc::SYS_renameat2, &[], "ccccef"),
    ("linkat", libc::SYS_linkat, &[], "cccccc"),
    ("linkat", libc::SYS_linkat, &[libc::SYS_renameat2], "cccccc"),
    ("syncfs", libc::SYS_syncfs, &[], "ccccee"),
    ("unlinkat", libc::SYS_unlinkat, &[], "cccccc"),
    ("unlinkat", libc::SYS_unlinkat, &[libc::SYS_renameat2], "cccccc"),
    // What nothing replaces: what needs it fails.
    ("fcntl", libc::SYS_fcntl, &[], "ffffff"),
    ("fstat", libc::SYS_fstat, &[], "ffffff"),
    ("ftruncate", libc::SYS_ftruncate, &[], "ffffef"),
    ("mkdirat", libc::SYS_mkdirat, &[], "ffffef"),
    ("newfstatat", libc::SYS_newfstatat, &[], "ffffef"),
    ("openat", libc::SYS_openat, &[], "ffffef"),
    ("pread64", libc::SYS_pread64, &[], "ffffef"),
    ("pwrite64", libc::SYS_pwrite64, &[], "ffffef"),
    ("readlinkat", libc::SYS_readlinkat, &[], "ffffef"),
    ("renameat", libc::SYS_renameat, &[], "ffffef"),
    ("renameat", libc::SYS_renameat, &[libc::SYS_renameat2, libc::SYS_linkat], "ffffef"),
    ("symlinkat", libc::SYS_symlinkat, &[], "ffffef"),
];

/// From now on the system refuses these calls to this thread.
fn refuse(calls: &[i64], errno: Errno) {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(errno.raw_os_error() as u32);
    let here = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, here).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// An entry that is sent.
struct SentEntry {
    what: EntryKind,
    name: &'static str,
    /// Content of a file, or target of a link.
    bytes: Vec<u8>,
    /// It replaces what exists.
    force: bool,
}

/// Something of everything: what is new, the same, to be replaced, and resumed.
fn all() -> Vec<SentEntry> {
    let bytes = |seed: u8, len: usize| (0..len).map(|at| seed ^ (at >> 10) as u8).collect();
    let few = PIECE + 5;
    let sent = |what, name, bytes, force| SentEntry { what, name, bytes, force };
    vec![
        sent(EntryKind::Directory, "new", Vec::new(), false),
        sent(EntryKind::File, "new/empty", Vec::new(), false),
        sent(EntryKind::File, "new/file", bytes(1, few), false),
        sent(EntryKind::Link, "new/link", b"file".to_vec(), false),
        sent(EntryKind::File, "same", bytes(2, few), false),
        sent(EntryKind::File, "replaced", bytes(3, few), true),
        sent(EntryKind::Link, "link", b"new".to_vec(), true),
        sent(EntryKind::File, "resumed", bytes(4, (BUFFERS + 2) * PIECE + 5), false),
        sent(EntryKind::File, "begun anew", bytes(5, few), false),
    ]
}

/// Puts there what the entries find.
fn put(scratch: &ReceivingEnd, all: &[SentEntry]) {
    let at = |name: &str| scratch.path.join(name);
    let bytes = |name: &str| &*all.iter().find(|sent| sent.name == name).unwrap().bytes;
    fs::write(at("same"), bytes("same")).unwrap();
    fs::write(at("replaced"), vec![9; PIECE + 5]).unwrap();
    std::os::unix::fs::symlink("old", at("link")).unwrap();
    let begun = |name: &str, bytes: &[u8]| {
        let place = scratch.root.place(name.as_bytes()).unwrap();
        std::io::Write::write_all(&mut place.open_partial().unwrap().0, bytes).unwrap();
    };
    begun("resumed", &bytes("resumed")[..(BUFFERS + 1) * PIECE]);
    begun("begun anew", b"another version");
}

/// Sends an entry as a sender does; how many bytes of a file the receiver has taken is put into
/// `taken`.
fn send(
    receiving: &mut CopyReceiver<'_>,
    entry: u32,
    sent: &SentEntry,
    taken: &mut HashMap<&'static str, usize>,
) -> Result<()> {
    let SentEntry { what, name, ref bytes, force } = *sent;
    receiving.force = force;
    if what != EntryKind::File {
        return receiving.begin(entry, what, 0o750, bytes.len() as u64, name.as_bytes(), bytes);
    }
    receiving.begin(entry, what, 0o640, bytes.len() as u64, name.as_bytes(), b"")?;
    let hashes: Vec<Hash> = bytes.chunks(PIECE).map(hash).collect();
    let Some(file) = receiving.files.get(&entry) else { return Ok(()) };
    let has_same = hashes.starts_with(&file.hashes);
    let first = if has_same { file.hashes.len() } else { 0 };
    for (piece, part) in bytes.chunks(PIECE).enumerate().skip(first) {
        let (number, len) = (piece as u64, part.len() as u64);
        let room = receiving.prepare(entry, number, len)?;
        receiving.piece(entry, number, hash(part), part)?;
        drop(room);
        if !receiving.files.contains_key(&entry) {
            return Ok(());
        }
        taken.insert(name, piece * PIECE + part.len());
    }
    assert_eq!(pieces(bytes.len() as u64), hashes.len() as u64);
    receiving.end(entry, hash_of_hashes(&hashes))
}

/// The kind and the bytes of what is at a path, without following it.
fn found(path: &Path) -> Option<(EntryKind, Vec<u8>)> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    Some(match () {
        () if kind.is_dir() => (EntryKind::Directory, Vec::new()),
        () if kind.is_symlink() => {
            (EntryKind::Link, fs::read_link(path).unwrap().into_os_string().into_vec())
        }
        () => (EntryKind::File, fs::read(path).unwrap()),
    })
}

/// True while what was taken of a file is still there, under another name.
fn is_kept(path: &Path, taken: &[u8]) -> bool {
    let entries = fs::read_dir(path.parent().unwrap()).into_iter().flatten().map(Result::unwrap);
    let mut parts = entries.filter(|entry| is_partial_name(entry.file_name().as_encoded_bytes()));
    taken.is_empty() || parts.any(|part| fs::read(part.path()).unwrap().starts_with(taken))
}

/// Returns the outcome of a copy, as in [`TABLE`]; checks that nothing is lost or half there, and
/// that the copy reports all that is not as it was sent.
fn outcome(all: &[SentEntry], call: &str, (refused, missing): (i64, &[i64]), errno: Errno) -> char {
    let scratch = ReceivingEnd::new("copy-calls");
    put(&scratch, all);
    let before: Vec<_> = all.iter().map(|sent| found(&scratch.path.join(sent.name))).collect();
    let (received, taken, has_failed) = std::thread::scope(|scope| {
        let copy = || {
            let (_sender, mut receiving) = scratch.ends();
            // It writes out the whole disk.
            receiving.syncs = call == "syncfs";
            let mut taken = HashMap::new();
            if !missing.is_empty() {
                refuse(missing, Errno::NOSYS);
            }
            refuse(&[refused], errno);
            let mut each = (0..).zip(all);
            let copied =
                each.try_for_each(|(entry, one)| send(&mut receiving, entry, one, &mut taken));
            if let Err(why) = copied.and_then(|()| receiving.finish()) {
                receiving.give_up_all(why);
            }
            let has_failed = receiving.tally.failed() > 0 || receiving.received.error.is_some();
            (std::mem::take(&mut receiving.received), taken, has_failed)
        };
        scope.spawn(copy).join().unwrap()
    });
    for (sent, before) in all.iter().zip(before) {
        let (path, what) = (scratch.path.join(sent.name), format!("{call} {errno}: {}", sent.name));
        let now = found(&path);
        let is_named = received.failed.first.iter().any(|(name, _)| name == sent.name);
        if now.as_ref().is_some_and(|(what, bytes)| (*what, bytes) == (sent.what, &sent.bytes)) {
            assert!(!is_named || now == before, "{what}: it is there, and has failed");
            continue;
        }
        assert!(is_named || received.error.is_some(), "{what}: not a word of it");
        assert!(now == before, "{what}: something else is there");
        let taken = taken.get(sent.name).copied().unwrap_or(0);
        assert!(is_kept(&path, &sent.bytes[..taken]), "{what}: received bytes are lost");
    }
    let ReceivedCopy { error, failed, differing, finished, .. } = received;
    match (error, failed.count, differing.count) {
        (Some(_), ..) => 'e',
        (None, 1.., _) => 'f',
        (None, 0, 1..) => 'd',
        (None, 0, 0) => {
            assert!(finished.is_some() && !has_failed);
            'c'
        }
    }
}

#[test]
fn whatever_the_system_refuses_nothing_is_lost_or_half_there() {
    let all = all();
    let outcomes = TABLE.map(|(call, refused, missing, _)| {
        let of = |errno| outcome(&all, call, (refused, missing), errno);
        (call, missing.len(), ERRORS.map(of).iter().collect::<String>())
    });
    let expected = TABLE.map(|(call, _, missing, of)| (call, missing.len(), of.to_owned()));
    assert_eq!(outcomes, expected);
}

/// The calls with which a receiver begins: it starts where it can, and where not, nothing has
/// arrived yet.
#[test]
fn a_receiver_begins_where_it_can_write() {
    let calls = [
        ("openat", libc::SYS_openat, "------"),
        ("fstat", libc::SYS_fstat, "------"),
        ("mkdirat", libc::SYS_mkdirat, "++++-+"),
        ("unlinkat", libc::SYS_unlinkat, "++++++"),
    ];
    for (call, refused, expected) in calls {
        let begins = ERRORS.map(|errno| {
            let scratch = ReceivingEnd::new("copy-begins");
            let begin = || {
                refuse(&[refused], errno);
                Root::open(&scratch.path).is_ok()
            };
            let begins = std::thread::scope(|scope| scope.spawn(begin).join().unwrap());
            if begins { '+' } else { '-' }
        });
        assert_eq!(begins.iter().collect::<String>(), expected, "{call}");
    }
}
