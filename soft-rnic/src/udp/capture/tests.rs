use super::*;

fn packet<'p>(addrs: [&str; 2], bytes: &'p [u8]) -> Captured<'p> {
    let [from, to] = addrs.map(|addr| addr.parse().unwrap());
    Captured { from, to, marks: Marks { class: 0xb8, hops: 17 }, id: (5, true), bytes }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("soft-rnic-capture-{name}-{}", std::process::id()))
}

#[test]
fn headers_are_those_of_the_wire() {
    // RFC 1071: what has its checksum sums to ones.
    let v4 = packet(["10.0.0.1:4791", "10.0.0.2:4791"], b"odd");
    let (bytes, len) = headers(&v4).unwrap();
    assert_eq!((len, bytes[1], bytes[8], bytes[9]), (28, 0xb8, 17, 17));
    assert_eq!(bytes[2..8], [0, 31, 0, 5, 0x40, 0]);
    assert_eq!(checksum(sum_of(&bytes[..20], 0)), 0);
    let pseudo = sum_of(&bytes[12..20], 17 + 11);
    assert_eq!(checksum(sum_of(b"odd", sum_of(&bytes[20..28], pseudo))), 0);
    let v6 = packet(["[fd00::1]:4791", "[fd00::2]:4791"], b"even");
    let (bytes, len) = headers(&v6).unwrap();
    assert_eq!((len, bytes[0], bytes[1], bytes[6], bytes[7]), (48, 0x6b, 0x80, 17, 17));
    let pseudo = sum_of(&bytes[8..40], 17 + 12);
    assert_eq!(checksum(sum_of(b"even", sum_of(&bytes[40..48], pseudo))), 0);
    assert!(headers(&packet(["10.0.0.1:1", "[fd00::1]:1"], b"")).is_none());
}

#[test]
fn packets_beyond_the_buffer_are_counted_and_not_written() {
    let path = file("full");
    let capture = Capture::create(&path).unwrap();
    let bytes = vec![7; 60_000];
    let one = packet(["10.0.0.1:4791", "10.0.0.2:4791"], &bytes);
    let room = CAPTURE / (RECORD + 28 + bytes.len());
    {
        // As a disk that takes nothing.
        let _disk = capture.shared.file.lock();
        // The thread has at most one buffer in its hands, which is empty.
        for _ in 0..room + 3 {
            capture.record(&one);
        }
        assert_eq!(capture.dropped(), 3);
    }
    drop(capture);
    let len = std::fs::metadata(&path).unwrap().len() as usize;
    assert_eq!(len, 24 + room * (RECORD + 28 + bytes.len()));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_capture_replaces_captures_and_leaves_other_files_alone() {
    let path = file("other");
    std::fs::write(&path, "a letter").unwrap();
    assert_eq!(Capture::create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
    std::fs::remove_file(&path).unwrap();
    let first = Capture::create(&path).unwrap();
    assert_eq!(Capture::create(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
    first.record(&packet(["10.0.0.1:4791", "10.0.0.2:4791"], b"1234"));
    drop(first);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 24 + 16 + 32);
    drop(Capture::create(&path).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 24);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_disk_that_is_full_takes_no_more() {
    let path = file("no-room");
    let capture = Capture::create(&path).unwrap();
    capture.shared.file.lock().0 = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let one = packet(["10.0.0.1:4791", "10.0.0.2:4791"], b"1234");
    capture.record(&one);
    capture.shared.write();
    capture.record(&one);
    // Its own thread may have been there first.
    assert_eq!(capture.dropped(), 2);
    assert_eq!(capture.shared.waiting.lock().failed, Some(ErrorKind::StorageFull));
    std::fs::remove_file(path).unwrap();
}
