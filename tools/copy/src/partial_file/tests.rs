use super::*;
use crate::place::Root;

#[test]
fn a_truncated_file_or_an_unexpected_piece_is_an_error() {
    let device = rdma_conn::device::soft().unwrap();
    let path = std::env::temp_dir().join(format!("copy-cut-{}", std::process::id()));
    let place = Root::open(&path).unwrap().place(b"file").unwrap();
    let len = 2 * PIECE as u64 + 5;
    let mut file = PartialFile::new(place, 0o600, len, false).unwrap();
    assert!(file.expect(1, false).is_err(), "the first one is not asked for");
    file.expect(0, false).unwrap();
    let room = file.room(&device, 0, PIECE as u64).unwrap();
    assert_eq!((room.len(), file.file.metadata().unwrap().len()), (PIECE, PIECE as u64));
    for (piece, bytes) in [(0, 5), (2, PIECE as u64), (3, 5), (u64::MAX, 5)] {
        assert!(file.room(&device, piece, bytes).is_err(), "{piece} {bytes}");
    }
    assert!(file.landed(0, hash(&[1; PIECE]), PIECE as u64).is_err(), "it has not arrived");
    file.landed(0, hash(&[0; PIECE]), PIECE as u64).unwrap();
    file.expect(1, false).unwrap();
    let _room = file.room(&device, 1, PIECE as u64).unwrap();
    file.file.set_len(PIECE as u64 + 100).unwrap();
    let cut = file.landed(1, hash(&[0; PIECE]), PIECE as u64).unwrap_err();
    assert_eq!(cut.to_string(), "reading it again");
    file.abandon();
    std::fs::remove_dir(&path).unwrap();
}

#[test]
fn a_piece_that_is_another_one_is_neither_written_nor_counted() {
    let path = std::env::temp_dir().join(format!("copy-other-{}", std::process::id()));
    let place = Root::open(&path).unwrap().place(b"file").unwrap();
    let mut file = PartialFile::new(place, 0o600, PIECE as u64, false).unwrap();
    file.expect(0, false).unwrap();
    let mut bytes = vec![1; PIECE];
    let expected = hash(&bytes);
    bytes[PIECE - 1] = 2;
    let other = file.write(0, expected, &bytes).unwrap_err();
    assert_eq!((other.to_string(), file.hashes.len()), (OTHER.to_owned(), 0));
    assert_eq!(file.file.metadata().unwrap().len(), 0, "it was written");
    assert!(file.end(hash_of_hashes(&[expected]), false).is_err());
    file.abandon();
    std::fs::remove_dir(&path).expect("nothing is left in it");
}
