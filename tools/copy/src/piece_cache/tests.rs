use std::path::{Path, PathBuf};

use super::*;
use crate::source::{CHANGED, tree};

/// A file of pieces, all different, and of a few bytes after them.
struct PiecesFile {
    path: PathBuf,
    entry: TreeEntry,
    file: File,
}

impl PiecesFile {
    fn new(name: &str, pieces: usize, behind: usize) -> PiecesFile {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let mut bytes: Vec<u8> = (0..pieces).flat_map(|at| vec![at as u8; PIECE]).collect();
        bytes.resize(pieces * PIECE + behind, 7);
        std::fs::write(&path, bytes).unwrap();
        let entry = tree(std::slice::from_ref(&path)).unwrap().entries.pop().unwrap();
        let file = File::open(&path).unwrap();
        PiecesFile { path, entry, file }
    }

    fn get(&self, runner: &CacheReader<'_>, piece: u64) -> CachedPiece {
        runner.get((0, piece), &self.entry, &self.file).unwrap().expect("it is there")
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PiecesFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn pieces(patience: Duration) -> Pieces {
    Pieces::with_patience(&rdma_conn::device::soft().unwrap(), patience)
}

/// Longer than any test takes.
const FOREVER: Duration = Duration::from_secs(1 << 20);

#[test]
fn a_shortened_source_is_reported_and_a_piece_is_read_once() {
    let source = PiecesFile::new("copy-shrinks", 0, 20);
    let pieces = pieces(FOREVER);
    let (one, other) = (pieces.join(), pieces.join());
    let piece = source.get(&one, 0);
    assert_eq!((&piece.buffer[..20], piece.hash), (&[7; 20][..], hash(&[7; 20])));
    File::options().write(true).open(source.path()).unwrap().set_len(10).unwrap();
    let shorter = one.get((1, 0), &source.entry, &source.file).unwrap();
    assert_eq!(shorter.unwrap_err(), CHANGED, "it has become shorter");
    assert_eq!(source.entry.fault(&source.file).unwrap(), Some(CHANGED));
    assert_eq!(source.get(&other, 0).buffer.as_ptr(), piece.buffer.as_ptr());
}

/// However many threads ask for a piece at a time, one of them reads it.
#[test]
fn a_receiver_waits_for_a_piece_that_another_one_reads() {
    let source = PiecesFile::new("copy-shared", 1, 0);
    let pieces = pieces(FOREVER);
    let runners = [pieces.join(), pieces.join()];
    pieces.cache().reading.push((0, 0));
    std::thread::scope(|scope| {
        let source = &source;
        let both = runners.each_ref().map(|runner| scope.spawn(|| source.get(runner, 0).buffer));
        // The read under way has failed: one of them reads it instead, and the other one gets
        // that piece.
        drop(PieceRead { pieces: &pieces, at: (0, 0) });
        let [one, other] = both.map(|thread| thread.join().unwrap());
        assert_eq!(one.as_ptr(), other.as_ptr(), "it was read twice");
    });
    let is_error = |file: File| runners[0].get((1, 0), &source.entry, &file).unwrap().is_err();
    assert!(is_error(File::open("/proc/self/mem").unwrap()));
    assert!(pieces.cache().reading.is_empty(), "a failed read is not waited for");
}

/// A receiver that is ahead waits: nothing is read twice, and no more is kept than has room.
#[test]
fn each_piece_is_read_once_for_all_that_keep_up() {
    const COUNT: usize = 3 * Pieces::KEPT;
    let (source, pieces) = (PiecesFile::new("copy-once", COUNT, 0), pieces(FOREVER));
    let runners = [pieces.join(), pieces.join(), pieces.join()];
    let get_all = |runner: CacheReader<'_>| {
        let get = |at| {
            let piece = source.get(&runner, at as u64);
            assert!(pieces.cache().kept.len() <= Pieces::KEPT + 3);
            piece
        };
        (0..COUNT).map(get).collect::<Vec<_>>()
    };
    let got = std::thread::scope(|scope| {
        let threads = runners.map(|runner| scope.spawn(|| get_all(runner)));
        threads.map(|thread| thread.join().unwrap())
    });
    for at in 0..COUNT {
        let pointers = got.each_ref().map(|got| got[at].buffer.as_ptr());
        assert!(pointers.iter().all(|pointer| *pointer == pointers[0]), "{at} was read again");
        assert_eq!(got[0][at].buffer[PIECE - 1], at as u8);
    }
    assert!(pieces.cache().kept.is_empty(), "no receiver needs it");
}

/// A receiver that stalls does not stop the others for good, and reads on its own when it resumes;
/// one that has left is not waited for at all.
#[test]
fn a_receiver_that_stands_still_does_not_stop_the_others() {
    const COUNT: u64 = 3 * Pieces::KEPT as u64;
    let (source, pieces) = (PiecesFile::new("copy-slow", COUNT as usize, 0), pieces(PATIENCE));
    let (fast, slow) = (pieces.join(), pieces.join());
    drop(pieces.join());
    source.get(&slow, 0);
    (0..COUNT).for_each(|at| drop(source.get(&fast, at)));
    assert!(pieces.cache().kept.is_empty(), "it is kept for one that is behind");
    for at in 1..COUNT {
        assert!(pieces.cache().kept.is_empty(), "no other receiver needs it");
        assert_eq!(source.get(&slow, at).buffer[0], at as u8);
    }
    drop((fast, slow));
}
