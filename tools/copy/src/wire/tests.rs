use super::*;

#[test]
fn words_go_there_and_back() {
    let name = b"a/b c\xff".to_vec();
    let words = [
        Word::Begin {
            entry: 7,
            what: EntryKind::File,
            mode: 0o644,
            len: 1 << 40,
            name: name.clone(),
        },
        Word::Begin { entry: 8, what: EntryKind::Link, mode: 0, len: 3, name: name.clone() },
        Word::Begin { entry: 9, what: EntryKind::Directory, mode: 0o755, len: 0, name },
        Word::Data { entry: 7, piece: 3, hash: 1 << 100 },
        Word::End { entry: 7, hash: 5 },
        Word::Abandon { entry: 7 },
        Word::Finish,
    ];
    for word in words {
        assert_eq!(Word::decode(&word.encode()).unwrap(), word);
    }
    for junk in [&b""[..], b"\x01", b"\x09\0\0\0\0", b"\x02\0\0\0\0\x01", b"\x01\0\0\0\0\x07"] {
        assert!(Word::decode(junk).is_err(), "{junk:?}");
    }
}

#[test]
fn the_last_piece_counts() {
    let piece = PIECE as u64;
    assert_eq!([0, 1, piece, piece + 1].map(pieces), [0, 1, 1, 2]);
}
