mod refused;

use rdma_conn::Common;
use rdma_conn::ZeroCopySend;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Parser;
use rdma_conn::direct_read::{NotReadReason, Sender, pair};
use rdma_conn::verbs_safe::{WcError, WcStatus};
use rustix::io::Errno;

use super::entries::{DIRECTORIES, FILES};
use super::*;
use crate::ending::{CopyLimits, Underway};
use crate::wire::{EntryKind, MOST_REPLY, hash, hash_of_hashes};

/// A command line, for its options.
#[derive(Parser)]
struct CopyCommandLine {
    #[command(flatten)]
    options: CopyArgs,
}

#[test]
fn the_flags_select_mapped_files_or_buffers() {
    let device = rdma_conn::device::soft().unwrap();
    let landing = |flags: &[&str]| {
        let line = [&["copy", "--listen", "127.0.0.1:0", "--into", "."], flags].concat();
        PieceDestination::choose(&CopyCommandLine::parse_from(line).options, &device)
    };
    assert_eq!(landing(&["--mapped"]), PieceDestination::Files);
    let why = |flags: &[&str]| match landing(flags) {
        PieceDestination::Buffers(why) => why,
        PieceDestination::Files => panic!("{flags:?}: into files"),
    };
    assert!(why(&[]).contains("--mapped") && why(&["--buffers"]).contains("--buffers"));
}

#[test]
fn other_versions_and_commands_are_refused_with_a_reason() {
    assert_eq!(judge(GREETING), Ok(()));
    for other in [&b"rdma-conn copy 5"[..], b"rdma-conn copy 7 s1000.00000000"] {
        let why = judge(other).unwrap_err();
        assert!(why.contains("another version"), "{why}");
    }
    let why = judge(b"{}").unwrap_err();
    assert!(why.contains("copy --to"), "{why}");
}

/// A directory that a receiver fills, and the senders' end of its streams.
struct ReceivingEnd {
    path: PathBuf,
    root: Root,
    device: Device,
    /// The senders' end of the streams: connected, and never read.
    listener: TcpListener,
    hand: Hand,
}

impl ReceivingEnd {
    fn new(name: &str) -> ReceivingEnd {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let root = Root::open(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let device = rdma_conn::device::soft().unwrap();
        let hand = Underway::default().enter(None, CopyLimits::of_process()).unwrap();
        ReceivingEnd { path, root, device, listener, hand }
    }

    fn ends(&self) -> (Sender<Buffer>, CopyReceiver<'_>) {
        let base = Config {
            common: Common { linger: std::time::Duration::ZERO, ..Common::default() },
            ..Config::default()
        };
        let (sender, receiver) = pair(&self.device, &self.device, &config(base)).unwrap();
        let stream = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let CopyCommandLine { options } = CopyCommandLine::parse_from([
            "copy",
            "--listen",
            "127.0.0.1:0",
            "--into",
            ".",
            "--mapped",
        ]);
        let (device, root, hand) = (&self.device, &self.root, &self.hand);
        let receiving = CopyReceiver::new(receiver, device, stream, root, &options, hand);
        (sender, receiving.unwrap())
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        self.device.pd().register_buffer(bytes, BufferConfig::READABLE).unwrap()
    }
}

impl Drop for ReceivingEnd {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The only file in a directory.
fn only_file(inside: &Path) -> PathBuf {
    let mut files: Vec<_> = std::fs::read_dir(inside).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// A piece of a file that has been begun, offered and seen.
fn offered(
    scratch: &ReceivingEnd,
    sender: &mut Sender<Buffer>,
    receiving: &mut CopyReceiver<'_>,
) -> EntryPiece {
    receiving.begin(0, EntryKind::File, 0o600, 2 * PIECE as u64, b"file", b"").unwrap();
    let (entry, number, hash) = (0, 0, hash(&[0; PIECE]));
    let app = Word::Data { entry, piece: number, hash }.encode();
    sender.offer(scratch.buffer(PIECE), &app).unwrap();
    receiving.receiver.next_request().unwrap();
    EntryPiece { entry, number, hash, bytes: PIECE as u64 }
}

#[test]
fn words_without_bytes_are_not_taken_without_end() {
    let scratch = ReceivingEnd::new("copy-words");
    let (mut sender, mut receiving) = scratch.ends();
    for _ in 0..STEPS {
        // As many as the window takes, each time; what was taken leaves room for more.
        let app = Word::Abandon { entry: 0 }.encode();
        while sender.try_offer_part(scratch.buffer(0), 0..0, &app).is_ok() {
            receiving.ask().unwrap();
        }
        while let Ok(Some(_)) = sender.try_take() {}
    }
    assert_eq!(receiving.steps.len(), STEPS, "more is kept than is to be done at a time");
}

#[test]
fn a_sender_that_does_not_read_its_answers_keeps_no_place() {
    let scratch = ReceivingEnd::new("copy-deaf");
    let (_sender, mut receiving) = scratch.ends();
    receiving.patience = std::time::Duration::from_millis(20);
    let why = "x".repeat(MOST_REPLY / 2);
    // What the system keeps of it on the way is less.
    let reply = |entry| CopyReply::Failed { entry, why: why.clone() };
    let told = (0..2048).find_map(|entry| receiving.reply(&reply(entry)).err());
    assert!(told.unwrap().to_string().contains("does not listen"));
}

/// Whichever is noticed first: the end of the stream, or that of the queue pair.
#[test]
fn a_sender_that_has_gone_is_said_to_have_gone() {
    let scratch = ReceivingEnd::new("copy-gone");
    let (_sender, mut receiving) = scratch.ends();
    drop(scratch.listener.accept().unwrap());
    // The system learns it from the answer to the first one.
    let untold = (0..1 << 20).find_map(|entry| receiving.reply(&CopyReply::Done { entry }).err());
    assert!(untold.unwrap().to_string().contains(SENDER_GONE));
    let lost = WcError { status: WcStatus::RETRY_EXC, vendor_err: 0, qp_num: 1 };
    receiving.give_up_all(NotReadReason::Ended(CloseReason::from(lost)).into());
    let said = format!("{:#}", receiving.received.error.as_ref().unwrap());
    assert!(said.starts_with(SENDER_GONE), "{said}");
}

/// On a device that is full as a disk is.
#[test]
fn a_full_disk_ends_a_copy_and_leaves_what_has_come() {
    let scratch = ReceivingEnd::new("copy-full");
    let (_sender, mut receiving) = scratch.ends();
    let mut answers = scratch.listener.accept().unwrap().0;
    receiving.begin(0, EntryKind::File, 0o600, 2 * PIECE as u64, b"file", b"").unwrap();
    receiving.prepare(0, 0, PIECE as u64).unwrap();
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    receiving.files.get_mut(&0).unwrap().set_file(full);
    let bytes = vec![7; PIECE];
    let why = receiving.piece(0, 0, hash(&bytes), &bytes).unwrap_err();
    assert!(why.to_string().contains("writing file: No space left"), "{why:#}");
    receiving.give_up_all(why);
    assert_eq!(receiving.received.failed.count, 0, "each entry would say the same");
    only_file(&scratch.path);
    let mut said = || -> CopyReply { frame::read(&mut answers, MOST_REPLY, PATIENCE).unwrap() };
    let (have, last) = (said(), said());
    assert!(matches!(have, CopyReply::Have { .. }), "{have:?}");
    let CopyReply::GivenUp { why } = &last else { panic!("{last:?}") };
    assert!(why.ends_with(": make room there"), "{why}");
}

/// All other files have room, and so only this one fails; and what was received of it stays.
#[test]
fn a_full_disk_that_is_mounted_below_fails_what_is_on_it() {
    let mut scratch = ReceivingEnd::new("copy-mounted");
    scratch.root.set_disk(u64::MAX);
    let (_sender, mut receiving) = scratch.ends();
    for entry in 0..2 {
        let name = format!("{entry}");
        receiving
            .begin(entry, EntryKind::File, 0o600, 2 * PIECE as u64, name.as_bytes(), b"")
            .unwrap();
    }
    receiving.give_up(0, &CommandError::from(Errno::NOSPC).context("writing")).unwrap();
    receiving.give_up(1, &anyhow!("its checksum is another one")).unwrap();
    let failed = receiving.received.failed.first.iter().map(|(name, why)| (&**name, &**why));
    let full = "writing: No space left on device (os error 28)";
    let other = "its checksum is another one";
    assert_eq!(failed.collect::<Vec<_>>(), [("0", full), ("1", other)]);
    only_file(&scratch.path);
}

/// Verified, and without a name of its own: what may be wanting is the room for one.
#[test]
fn a_received_file_stays_when_there_is_no_room_for_its_name() {
    let scratch = ReceivingEnd::new("copy-unnamed");
    let (_sender, mut receiving) = scratch.ends();
    receiving.begin(0, EntryKind::File, 0o600, 0, b"file", b"").unwrap();
    std::fs::write(scratch.path.join("file"), b"another one's").unwrap();
    let file = receiving.files.get_mut(&0).unwrap();
    assert!(file.end(hash_of_hashes(&[]), false).is_err());
    assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), 2, "the file decides alone");
    let why = receiving.give_up(0, &Errno::NOSPC.into()).unwrap_err();
    assert!(why.to_string().contains("make room there"), "{why:#}");
    assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), 2, "nothing has arrived");
}

#[test]
fn files_are_not_begun_without_end() {
    let scratch = ReceivingEnd::new("copy-many");
    let (_sender, mut receiving) = scratch.ends();
    let mut begin = |entry: u32| {
        receiving.begin(entry, EntryKind::File, 0o600, 1, format!("{entry}").as_bytes(), b"")
    };
    (0..FILES as u32).for_each(|entry| begin(entry).unwrap());
    assert!(begin(FILES as u32).unwrap_err().to_string().contains("at a time"));
}

/// Directories are many: a receiver keeps the modes only of those into which it may still write
/// something.
#[test]
fn modes_of_directories_are_not_kept_without_end() {
    let scratch = ReceivingEnd::new("copy-broad");
    let (_sender, mut receiving) = scratch.ends();
    let mut answers = scratch.listener.accept().unwrap().0;
    std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    let directory = |at: u32| if at == 0 { "all".to_owned() } else { format!("all/{at}") };
    for at in 0..=2 * DIRECTORIES as u32 {
        let name = directory(at);
        receiving.begin(at, EntryKind::Directory, 0o550, 0, name.as_bytes(), b"").unwrap();
        assert!(receiving.modes.len() <= DIRECTORIES, "at {at}");
    }
    let mode = |at| {
        let path = scratch.path.join(directory(at));
        std::fs::metadata(path).unwrap().mode() & 0o777
    };
    assert_eq!((mode(1), mode(0)), (0o550, 0o700), "the first one, and the open one");
    receiving.syncs = false;
    receiving.finish().unwrap();
    assert_eq!((mode(0), mode(2 * DIRECTORIES as u32)), (0o550, 0o550));
    assert_eq!(receiving.received.differing.count, 0);
    let open = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(scratch.path.join("all"), open).unwrap();
}

/// A file that cannot be mapped is one that was opened for writing only.
#[test]
fn where_registration_was_refused_no_other_piece_tries() {
    let scratch = ReceivingEnd::new("copy-refused");
    let (_sender, mut receiving) = scratch.ends();
    receiving.begin(0, EntryKind::File, 0o600, 3 * PIECE as u64, b"file", b"").unwrap();
    let path = only_file(&scratch.path);
    let bytes = || std::fs::metadata(&path).unwrap().len();
    let opened = |read| {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        File::options().read(read).write(true).custom_flags(flags).open(&path).unwrap()
    };
    receiving.files.get_mut(&0).unwrap().set_file(opened(false));
    assert!(receiving.prepare(0, 0, PIECE as u64).unwrap().is_none());
    let why = receiving.received.not_mapped.clone().unwrap();
    assert!(why.contains("mapping a file"), "{why}");
    let before = bytes();
    receiving.files.get_mut(&0).unwrap().set_file(opened(true));
    assert!(receiving.prepare(0, 1, PIECE as u64).unwrap().is_none(), "it tried again");
    assert_eq!(bytes(), before, "room was made for nothing");
    receiving.refused.clear();
    assert!(receiving.prepare(0, 2, PIECE as u64).unwrap().is_some());
}

#[test]
fn a_piece_that_has_no_place_to_land_in_says_what_to_do() {
    let scratch = ReceivingEnd::new("copy-cut-off");
    let (mut sender, mut receiving) = scratch.ends();
    let piece = offered(&scratch, &mut sender, &mut receiving);
    let room = receiving.prepare(0, 0, PIECE as u64).unwrap();
    assert!(room.is_some());
    File::options().write(true).open(only_file(&scratch.path)).unwrap().set_len(0).unwrap();
    let buffer = receiving.buffers.pop().unwrap();
    receiving.read_piece(piece, room, buffer).unwrap();
    let step = receiving.steps.pop_front().unwrap();
    let why = format!("{:#}", receiving.step(step).unwrap_err());
    for says in ["writing to file itself", "run the copy again", "--buffers", "LOC_PROT"] {
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn entries_come_in_order_and_fail_once() {
    let scratch = ReceivingEnd::new("copy-order");
    let (_sender, mut receiving) = scratch.ends();
    let mut begin = |entry: u32| receiving.begin(entry, EntryKind::Directory, 0o700, 0, b"..", b"");
    assert!(begin(1).is_err(), "the second one first");
    begin(0).unwrap();
    assert!(begin(0).is_err(), "twice");
    receiving.step(CopyStep::Word(Word::Abandon { entry: 0 })).unwrap();
    let count = |failed: &Noted| (failed.count, failed.first.len());
    assert_eq!(count(&receiving.received.failed), (1, 1));
    for entry in 1..=Noted::MOST as u32 {
        receiving.begin(entry, EntryKind::Directory, 0o700, 0, b"..", b"").unwrap();
    }
    let failed = count(&receiving.received.failed);
    assert_eq!((failed, receiving.names.len()), ((Noted::MOST as u64 + 1, Noted::MOST), 0));
}
