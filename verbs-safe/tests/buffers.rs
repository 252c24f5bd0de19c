//! Buffers of the user: which peers can access them, and which end has them meanwhile.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use common::*;
use verbs_safe::*;

const SIGNALLED: SendFlags = SendFlags { signalled: true, solicited: false, fence: false };

fn rig(config: BufferConfig, len: usize) -> (ProtectionDomain, TestEnd, TestEnd, Buffer) {
    let pd = context().alloc_pd().unwrap();
    let (a, b) = pair_on(&pd, PairConfig { budget: budget::mortal(), ..PairConfig::default() });
    let buffer = pd.register_buffer(len, config).unwrap();
    (pd, a, b, buffer)
}

/// Reads all of `remote` to the beginning of `into`.
fn read(end: &mut TestEnd, into: Buffer, remote: RemoteSpan) -> (Buffer, WcStatus) {
    let loan = end.send.lend(into).unwrap();
    let op = SendOp::Read { len: remote.len as u32, remote };
    end.send.stage_lent(loan, 0, op, SIGNALLED).unwrap();
    assert!(end.send.reclaim(loan).is_none(), "it is staged");
    end.send.post().unwrap();
    assert!(end.send.reclaim(loan).is_none(), "it is posted");
    let status = end.status_of_one();
    let buffer = end.send.reclaim(loan).expect("the request is retired");
    assert!(end.send.reclaim(loan).is_none(), "it was given back");
    (buffer, status)
}

#[test]
fn a_read_lands_only_in_its_lent_buffer() {
    let (pd, mut a, _b, mut theirs) = rig(BufferConfig::READABLE, 10_000);
    theirs.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 ^ (i >> 8) as u8);
    let ours = pd.register_buffer(10_000, BufferConfig::default()).unwrap();
    let at = ours.as_ptr();
    let (ours, status) = read(&mut a, ours, theirs.remote(0, 9_999).unwrap());
    assert_eq!((status, ours.as_ptr()), (WcStatus::SUCCESS, at));
    assert_eq!(ours[..9_999], theirs[..9_999]);
    assert_eq!(ours[9_999], 0);
}

#[test]
fn peers_reach_what_they_may_and_nothing_else() {
    let cases = [
        (BufferConfig::READABLE, true, WcStatus::SUCCESS),
        (BufferConfig::default(), true, WcStatus::REM_ACCESS),
        (BufferConfig::READABLE, false, WcStatus::REM_ACCESS),
        (BufferConfig { peers_read: true, signal: true }, false, WcStatus::REM_ACCESS),
    ];
    for (config, reads, expected) in cases {
        let (pd, mut a, _b, theirs) = rig(config, 64);
        let key = theirs.remote(0, 64).unwrap_or_else(|e| {
            assert_eq!(e, RegionError::NotForPeers);
            // As if the peer had guessed: addresses and keys are no secrets.
            let readable = pd.register_buffer(64, BufferConfig::READABLE).unwrap();
            RemoteSpan { addr: theirs.as_ptr() as u64, ..readable.remote(0, 64).unwrap() }
        });
        let ours = pd.register_buffer(64, BufferConfig::default()).unwrap();
        let status = if reads { read(&mut a, ours, key).1 } else { a.write(key) };
        assert_eq!(status, expected, "{config:?}, reads: {reads}");
        assert!(theirs.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_signal_is_the_one_word_that_peers_can_write() {
    for len in [0, 1, 8, 4093, 4096] {
        let config = BufferConfig { peers_read: true, signal: true };
        let (_pd, mut a, _b, buffer) = rig(config, len);
        let signal = buffer.signal().expect("asked for");
        assert_eq!(signal.len(), 8);
        let word = signal.remote(0, 8).unwrap();
        assert!(word.addr >= buffer.as_ptr() as u64 + len as u64);
        assert!(word.addr < buffer.as_ptr() as u64 + len as u64 + 16, "right behind");
        let slot = a.send.next_slot().unwrap();
        slot[..8].fill(3);
        assert_eq!(a.write(RemoteSpan { len: 1, ..word }), WcStatus::SUCCESS);
        assert_eq!((signal.observe_byte(0), signal.observe_byte(1)), (Ok(3), Ok(0)));
        let before = RemoteSpan { addr: word.addr - 1, len: 1, ..word };
        assert_eq!(a.write(before), WcStatus::REM_ACCESS);
        assert!(buffer.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_lent_buffer_outlives_its_dropped_queue() {
    let (pd, mut a, mut b, theirs) = rig(BufferConfig::READABLE, 1 << 16);
    let ours = pd.register_buffer(1 << 16, BufferConfig::default()).unwrap();
    let loan = a.send.lend(ours).unwrap();
    let op = SendOp::Read { len: 1 << 16, remote: theirs.remote(0, 1 << 16).unwrap() };
    a.send.stage_lent(loan, 0, op, SIGNALLED).unwrap();
    a.send.post().unwrap();
    // Nothing else has the buffer now: it goes with the queue pair.
    drop(a);
    std::mem::forget(theirs);
    b.send(b"");
    let _ = b.status_of_one();
}

#[test]
fn loans_of_other_domains_and_unknown_loans_are_refused() {
    let (pd, mut a, mut b, _) = rig(BufferConfig::READABLE, 8);
    let stranger = context().alloc_pd().unwrap();
    let foreign = stranger.register_buffer(8, BufferConfig::default()).unwrap();
    let refused = a.send.lend(foreign).unwrap_err();
    assert!(matches!(refused.reason, AttachError::OtherDomain { .. }));
    assert_eq!(refused.buffer.len(), 8);
    let theirs = pd.register_buffer(8, BufferConfig::READABLE).unwrap();
    let (op, ours) = (
        SendOp::Read { len: 8, remote: theirs.remote(0, 8).unwrap() },
        pd.register_buffer(8, BufferConfig::default()).unwrap(),
    );
    let loan = a.send.lend(ours).unwrap();
    assert_eq!(b.send.stage_lent(loan, 0, op, SIGNALLED), Err(StageError::UnknownRegion));
    assert!(matches!(
        a.send.stage_lent(loan, 1, op, SIGNALLED),
        Err(StageError::OutsideRegion { .. })
    ));
    assert!(b.send.reclaim(loan).is_none(), "another queue's");
    assert!(a.send.reclaim(loan).is_some(), "unused");
    assert_eq!(a.send.stage_lent(loan, 0, op, SIGNALLED), Err(StageError::UnknownRegion));
}

#[test]
fn a_failed_read_gives_the_buffer_back_as_well() {
    let (pd, mut a, _b, theirs) = rig(BufferConfig::READABLE, 64);
    let span = theirs.remote(0, 64).unwrap();
    drop(theirs); // the key is revoked
    let ours = pd.register_buffer(64, BufferConfig::default()).unwrap();
    let (ours, status) = read(&mut a, ours, span);
    assert_eq!((status, ours.len()), (WcStatus::REM_ACCESS, 64));
}

#[test]
fn the_last_holder_of_a_frozen_buffer_can_thaw_it() {
    let (_pd, _a, _b, mut buffer) = rig(BufferConfig::READABLE, 8);
    buffer.fill(5);
    let one = buffer.freeze();
    let other = one.clone();
    assert_eq!(*other, [5; 8]);
    let one = one.thaw().unwrap_err();
    drop(other);
    assert_eq!(one.thaw().unwrap()[..], [5; 8]);
}

/// A file without a name, in memory where there is such a place: of those on disks, kernels
/// do not let devices have the pages.
fn file(len: u64) -> std::fs::File {
    let shm = std::path::Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = place.join(format!("buffers-{}-{number}", std::process::id()));
    let options = std::fs::File::options().read(true).write(true).create_new(true).to_owned();
    let file = options.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(len).unwrap();
    file
}

/// Reads `bytes` bytes of a peer into a piece of a file.
fn read_file(end: &mut TestEnd, into: FileRegion, remote: RemoteSpan) -> (FileRegion, WcStatus) {
    let loan = end.send.lend_file(into).unwrap();
    let op = SendOp::Read { len: remote.len as u32, remote };
    end.send.stage_lent(loan, 0, op, SIGNALLED).unwrap();
    end.send.post().unwrap();
    assert!(end.send.reclaim_file(loan).is_none(), "it is posted");
    let status = end.status_of_one();
    assert!(end.send.reclaim(loan).is_none(), "it is no buffer");
    (end.send.reclaim_file(loan).expect("the request is retired"), status)
}

#[test]
fn a_read_changes_only_its_range_of_the_file() {
    let (pd, mut a, _b, mut theirs) = rig(BufferConfig::READABLE, 10_000);
    theirs.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 ^ (i >> 8) as u8);
    let file = file(20_000);
    let region = pd.register_file(&file, 4096, 10_000).unwrap();
    let (region, status) = read_file(&mut a, region, theirs.remote(0, 9_999).unwrap());
    assert_eq!(status, WcStatus::SUCCESS);
    drop(region);
    let mut found = vec![1; 20_000];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
    assert_eq!(found[4096..4096 + 9_999], theirs[..9_999]);
    let (before, behind) = (&found[..4096], &found[4096 + 9_999..]);
    assert!(before.iter().chain(behind).all(|byte| *byte == 0));
}

#[test]
fn a_read_into_a_truncated_file_never_extends_it() {
    for left in [0, 8192] {
        let (pd, mut a, mut b, theirs) = rig(BufferConfig::READABLE, 1 << 16);
        let file = file(1 << 16);
        let region = pd.register_file(&file, 0, 1 << 16).unwrap();
        file.set_len(left).unwrap();
        let (region, status) = read_file(&mut a, region, theirs.remote(0, 1 << 16).unwrap());
        // A device that has the pages writes to them, whosever they are.
        let has_pages = pd.context().device_name() != "soft0" && status == WcStatus::SUCCESS;
        assert!(has_pages || status == WcStatus::LOC_PROT, "{status:?}");
        assert_eq!(file.metadata().unwrap().len(), left);
        drop(region);
        b.send(b"");
        // The queue pair that was to write there has ended.
        assert!(has_pages || b.status_of_one() == WcStatus::RETRY_EXC);
    }
}

#[test]
fn only_long_reads_land_in_files_and_only_in_what_is_there() {
    let (pd, mut a, _b, theirs) = rig(BufferConfig::READABLE, 1 << 16);
    let file = file(8192);
    let loan = a.send.lend_file(pd.register_file(&file, 0, 8192).unwrap()).unwrap();
    let remote = theirs.remote(0, 4096).unwrap();
    for op in [
        SendOp::Read { len: 4095, remote },
        SendOp::Write { len: 4096, remote },
        SendOp::FetchAdd { add: 1, remote },
    ] {
        let staged = a.send.stage_lent(loan, 0, op, SIGNALLED);
        assert_eq!(staged, Err(StageError::NotForFiles), "{op:?}");
    }
    let op = SendOp::Read { len: 4096, remote };
    let outside = a.send.stage_lent(loan, 4097, op, SIGNALLED);
    assert!(matches!(outside, Err(StageError::OutsideRegion { .. })));
    assert_eq!(a.send.reclaim_file(loan).map(|region| region.len()), Some(8192));
    for (offset, len) in [(0, 8193), (4096, 4097), (8192, 1), (100, 100), (0, 0), (u64::MAX, 2)] {
        let refused = pd.register_file(&file, offset, len).unwrap_err();
        assert!(matches!(refused, RegisterError::Map(_)), "{offset} {len}: {refused}");
    }
    let device = std::fs::File::options().read(true).write(true).open("/dev/zero").unwrap();
    assert!(pd.register_file(&device, 0, 4096).is_err(), "no file");
    let stranger = context().alloc_pd().unwrap();
    let foreign = stranger.register_file(&file, 0, 4096).unwrap();
    let refused = a.send.lend_file(foreign).unwrap_err();
    assert!(matches!(refused.reason, AttachError::OtherDomain { .. }));
}
