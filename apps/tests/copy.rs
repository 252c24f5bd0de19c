//! `rdma-conn copy` between processes: trees that compare equal, receivers that die and go
//! on, files that are not replaced, sources that shrink.
//!
//! Not on apart, distant: its ends are processes, as apart makes them, and soft0@5us joins none.
//! Shows: the command.
//! Not on wired: a device over UDP needs more descriptors than a test leaves.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rdma_conn::conn_core::handshake::{Frame, MAX_FRAME, Reason, Refusal};
use rdma_conn::device;
use rdma_conn::direct_read::{Buffer, Config, connect_over};
use rustix::process::Signal;
use support::processes::{PATIENCE, SpawnedProcess, connects_processes};

/// A directory of its own, removed in the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Tree(path)
    }

    /// A tree with something of everything.
    fn of_everything(name: &str) -> Tree {
        let tree = Tree::new(name);
        let at = |name: &str| tree.0.join(name);
        fs::create_dir_all(at("sub/deeper")).unwrap();
        fs::create_dir(at("nothing in it")).unwrap();
        fs::write(at("empty"), b"").unwrap();
        fs::write(at("one byte"), b"1").unwrap();
        fs::write(at("sub/exactly four pieces"), noise(1 << 20)).unwrap();
        fs::write(at("sub/deeper/pieces"), noise((3 << 20) + 17)).unwrap();
        let odd = std::ffi::OsString::from("na\u{fc}ve \u{1f980}");
        fs::write(tree.0.join(odd), b"crab").unwrap();
        symlink("sub/deeper/pieces", at("link")).unwrap();
        symlink("/nowhere", at("sub/dangling")).unwrap();
        fs::set_permissions(at("one byte"), fs::Permissions::from_mode(0o751)).unwrap();
        fs::set_permissions(at("sub/deeper"), fs::Permissions::from_mode(0o555)).unwrap();
        tree
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.0.join("sub/deeper"), fs::Permissions::from_mode(0o755));
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
    let mut noise = vec![0; bytes];
    for eight in noise.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Its highest bits repeat the latest.
        eight.copy_from_slice(&state.to_be_bytes()[..eight.len()]);
    }
    noise
}

/// Paths below `root`, with the modes and bytes of their files.
fn contents(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let bytes = match metadata.file_type() {
            kind if kind.is_dir() => {
                open.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
                b"directory".to_vec()
            }
            kind if kind.is_symlink() => {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            }
            _ => fs::read(&path).unwrap(),
        };
        let mode = if metadata.is_symlink() { 0 } else { metadata.permissions().mode() & 0o777 };
        found.insert(path.strip_prefix(root).unwrap().to_path_buf(), (mode, bytes));
    }
    found
}

#[track_caller]
fn assert_same(source: &Path, copy: &Path) {
    let (source, copy) = (contents(source), contents(copy));
    let names = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&source), names(&copy));
    assert!(source == copy, "a mode or some bytes differ");
}

/// A receiver into `tree`, and where it listens.
fn receiver(tree: &Tree, more: &[&str]) -> (SpawnedProcess, String) {
    let (running, address) =
        SpawnedProcess::listener(&[&["copy", "--into", tree.text()], more].concat());
    (running, address.to_string())
}

fn sender(source: &Tree, to: &[&str]) -> SpawnedProcess {
    let to: Vec<&str> = to.iter().flat_map(|to| ["--to", to]).collect();
    SpawnedProcess::command(&[&["copy"], &to[..], &[source.text()]].concat())
}

/// Either end says how a tree of everything was written: soft0 maps files wherever they are,
/// if it is asked to, and a kernel those in memory. Pieces of 256 KiB are worth it, and of two
/// files all but 17 bytes.
#[track_caller]
fn check_destination(line: &serde_json::Value, was_there: bool, is_asked_to: bool) {
    let mapped = line["bytes_mapped"].as_u64().unwrap();
    let expected = match mapped {
        0 if was_there => "nothing",
        0 if line["device"] != "soft0" || !is_asked_to => "buffers",
        _ => "mapped and buffers",
    };
    assert_eq!(line["destination"], expected, "{line}");
    assert!(is_asked_to || line["device"] != "soft0" || mapped == 0, "{line}");
    assert!(mapped == 0 || mapped == 4 << 20, "{line}");
}

#[test]
fn copied_trees_are_equal_and_present_files_are_not_sent_again() {
    if !connects_processes() {
        return;
    }
    let source = Tree::of_everything("copy-source");
    let copies = [Tree::new("copy-one"), Tree::new("copy-two")];
    let name = source.0.file_name().unwrap();
    for again in [false, true] {
        let (one, a) = receiver(&copies[0], &["--once", "--mapped"]);
        let (two, b) = receiver(&copies[1], &["--once"]);
        let sent = sender(&source, &[&a, &b]).ended();
        assert!(sent.status.success(), "{sent:?}");
        for (ended, is_mapped) in [(one.ended(), true), (two.ended(), false)] {
            assert!(ended.status.success(), "{ended:?}");
            let line: serde_json::Value = serde_json::from_str(&ended.out[0]).unwrap();
            assert_eq!(line["bytes"].as_u64() == Some(0), again, "{line}");
            assert_eq!((&line["ok"], &line["failed"]), (&true.into(), &0.into()));
            check_destination(&line, again, is_mapped);
        }
        for (line, is_mapped) in sent.out.iter().zip([true, false]) {
            check_destination(&serde_json::from_str(line).unwrap(), again, is_mapped);
        }
        for copy in &copies {
            assert_same(&source.0, &copy.0.join(name));
        }
    }
    for copy in &copies {
        let _ = fs::set_permissions(
            copy.0.join(name).join("sub/deeper"),
            fs::Permissions::from_mode(0o755),
        );
    }
}

#[test]
fn nothing_that_differs_is_replaced_but_by_force() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-new"), Tree::new("copy-old"));
    let name = source.0.file_name().unwrap();
    fs::write(source.0.join("same length"), b"new").unwrap();
    fs::write(source.0.join("longer"), b"newer").unwrap();
    fs::write(source.0.join("added"), b"added").unwrap();
    fs::create_dir(copy.0.join(name)).unwrap();
    fs::write(copy.0.join(name).join("same length"), b"old").unwrap();
    fs::write(copy.0.join(name).join("longer"), b"old").unwrap();

    let (receiving, to) = receiver(&copy, &["--once"]);
    let sent = sender(&source, &[&to]).ended();
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    assert!(sent.err.iter().filter(|line| line.contains("--force")).count() == 2, "{sent:?}");
    assert_eq!(receiving.ended().status.code(), Some(1));
    let files = contents(&copy.0.join(name));
    let bytes = |file: &str| &*files[Path::new(file)].1;
    assert_eq!(
        (bytes("same length"), bytes("longer"), bytes("added")),
        (&b"old"[..], &b"old"[..], &b"added"[..])
    );
    assert_eq!(files.len(), 4, "nothing else is left: {:?}", files.keys());

    fs::write(source.0.join("longer"), noise(1 << 20)).unwrap();
    let (receiving, to) = receiver(&copy, &["--once", "--force", "--buffers"]);
    assert!(sender(&source, &[&to]).ended().status.success());
    let ended = receiving.ended();
    assert!(ended.status.success());
    assert!(ended.out[0].contains(r#""destination":"buffers""#), "as it was asked to: {ended:?}");
    assert_same(&source.0, &copy.0.join(name));
}

/// A receiver has fewer descriptors than the tree has directories.
#[test]
fn directories_take_no_descriptors() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-broad"), Tree::new("copy-limited"));
    for at in 0..2000 {
        fs::create_dir_all(source.0.join(format!("{}/{at}", at % 40))).unwrap();
    }
    let file = source.0.join("39/1999/the last");
    fs::write(&file, b"bytes").unwrap();
    fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o750)).unwrap();
    let receiver = ["copy", "--into", copy.text(), "--once"];
    let (receiving, to) = SpawnedProcess::listener_limited(200, &receiver);
    let sent = sender(&source, &[&to.to_string()]).ended();
    assert!(sent.status.success(), "{sent:?}");
    assert!(receiving.ended().status.success());
    assert_same(&source.0, &copy.0.join(source.0.file_name().unwrap()));
}

/// Connections wait for a descriptor, and are not refused; that is reported once.
#[test]
fn a_connection_that_cannot_be_accepted_waits() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-waits"), Tree::new("copy-crowded"));
    fs::write(source.0.join("file"), b"bytes").unwrap();
    let receiver = ["copy", "--into", copy.text(), "--once"];
    let (mut receiving, to) = SpawnedProcess::listener_limited(50, &receiver);
    let silent: Vec<_> = (0..60).map(|_| TcpStream::connect(to).unwrap()).collect();
    receiving.wait_for("cannot accept a connection");
    // Accepting is retried many times until the first handshake times out.
    receiving.wait_for("did not finish the handshake");
    drop(silent);
    let sent = sender(&source, &[&to.to_string()]).ended();
    assert!(sent.status.success(), "{sent:?}");
    let ended = receiving.ended();
    assert!(ended.status.success(), "{ended:?}");
    let stuck: Vec<_> = ended.err.iter().filter(|line| line.contains("open files")).collect();
    assert_eq!(stuck.len(), 1, "{stuck:#?}");
}

/// 12 of 140 descriptors are left for copies, which is what one copy takes.
#[test]
fn a_receiver_has_as_many_copies_as_descriptors_are_left_for() {
    if !connects_processes() {
        return;
    }
    let copy = Tree::new("copy-places");
    let (_receiving, to) = SpawnedProcess::listener_limited(140, &["copy", "--into", copy.text()]);
    // As a sender of copies connects (tools/copy/src/wire.rs), which then says nothing.
    let device = device::of_environment().unwrap();
    let config = Config { app_bytes: 4200, ..Config::default() };
    let connect = || {
        let mut stream = TcpStream::connect(to).unwrap();
        let sender = connect_over::<Buffer, _>(&mut stream, &device, &config, b"rdma-conn copy 9");
        sender.map(|sender| (stream, sender))
    };
    let _copies = connect().unwrap();
    let refused = connect().map(drop).unwrap_err().to_string();
    assert!(refused.contains("1 copies are being received already"), "{refused}");
}

#[test]
fn a_copy_is_on_the_disk_unless_that_is_not_wanted() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-syncs"), Tree::new("copy-synced"));
    fs::write(source.0.join("file"), b"bytes").unwrap();
    for (more, synced) in [(&["--once"][..], true), (&["--once", "--no-sync"], false)] {
        let (receiving, to) = receiver(&copy, more);
        let lines = [sender(&source, &[&to]).results(), receiving.results()].concat();
        assert!(lines.iter().all(|line| line["synced"] == synced), "{lines:?}");
    }
}

/// Waits until more of a file is in `inside` than could be room only.
fn wait_for_a_part(inside: &Path) {
    let begun = Instant::now();
    let has_part = || {
        let sizes = fs::read_dir(inside).ok()?.filter_map(|e| e.ok()?.metadata().ok());
        sizes.map(|m| m.len()).max().filter(|bytes| *bytes >= 16 << 20)
    };
    while has_part().is_none() {
        assert!(begun.elapsed() < PATIENCE, "nothing has arrived");
        std::thread::yield_now();
    }
}

/// Has a receiver stand still in the middle of a large file, and so the sender. Should the
/// file have been there before, there is a larger one.
#[track_caller]
fn in_the_middle(
    source: &Tree,
    copies: &[&Tree],
    receiver: &SpawnedProcess,
    to: &[&str],
) -> SpawnedProcess {
    let name = source.0.file_name().unwrap();
    let insides = copies.iter().map(|copy| copy.0.join(name)).collect::<Vec<_>>();
    for doubled in 0..4 {
        fs::write(source.0.join("large"), noise(128 << (20 + doubled))).unwrap();
        let sending = sender(source, to);
        wait_for_a_part(&insides[0]);
        receiver.stop();
        if !insides[0].join("large").exists() {
            return sending;
        }
        receiver.resume();
        sending.ended();
        insides.iter().for_each(|inside| fs::remove_dir_all(inside).unwrap());
    }
    panic!("each copy was over before it stood still");
}

#[test]
fn an_interrupted_sender_leaves_no_half_file_and_can_resume() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-stops"), Tree::new("copy-stopped"));
    let inside = copy.0.join(source.0.file_name().unwrap());
    let (mut receiving, to) = receiver(&copy, &[]);
    let sending = in_the_middle(&source, &[&copy], &receiving, &[&to]);
    sending.terminate();
    let sent = sending.ended();
    receiving.resume();
    assert_eq!(sent.status.code(), Some(143), "{sent:?}");
    let says = |line: &String| line.contains("interrupted by SIGTERM: the same command resumes");
    assert!(sent.err.iter().any(says), "{sent:?}");
    let line: serde_json::Value = serde_json::from_str(&sent.out[0]).unwrap();
    assert!(line["bytes"].as_u64() >= Some(16 << 20), "what was received so far: {line}");
    assert_eq!((&line["ok"], &line["error"]), (&false.into(), &"interrupted by SIGTERM".into()));
    receiving.wait_for("the sender has gone: interrupted by SIGTERM");
    assert!(!inside.join("large").exists(), "half a file under its final name");
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 1, "what there is of it");

    let sent = sender(&source, &[&to]).ended();
    assert!(sent.status.success(), "{sent:?}");
    let line: serde_json::Value = serde_json::from_str(&sent.out[0]).unwrap();
    assert!(line["bytes_present"].as_u64() >= Some(8 << 20), "it began anew: {line}");
    assert_same(&source.0, &inside);
    receiving.kill();
}

#[test]
fn a_killed_receiver_is_reported_and_can_resume() {
    if !connects_processes() {
        return;
    }
    let (source, dies, lives) =
        (Tree::new("copy-large"), Tree::new("copy-dies"), Tree::new("copy-lives"));
    let name = source.0.file_name().unwrap();
    let (victim, a) = receiver(&dies, &["--mapped"]);
    let (other, b) = receiver(&lives, &[]);
    let sending = in_the_middle(&source, &[&dies, &lives], &victim, &[&a, &b]);
    victim.kill();
    let sent = sending.ended();
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    let says = format!("{a}: the receiver has gone");
    assert!(sent.err.iter().any(|line| line.contains(&says)), "{sent:?}");
    let lines = sent.out.iter().map(|line| serde_json::from_str(line).unwrap());
    let [lost, got]: [serde_json::Value; 2] = lines.collect::<Vec<_>>().try_into().unwrap();
    assert!(lost["bytes"].as_u64() >= Some(16 << 20), "what was received: {lost}");
    assert_eq!(lost["entries"], 1, "the directory: {lost}");
    assert!(lost["bytes_mapped"].is_null(), "the receiver has not reported it: {lost}");
    assert_eq!((&lost["ok"], &got["ok"]), (&false.into(), &true.into()));
    assert!(!dies.0.join(name).join("large").exists(), "half a file under its final name");
    assert_same(&source.0, &lives.0.join(name));
    other.kill();

    let (again, a) = receiver(&dies, &["--once", "--mapped"]);
    assert!(sender(&source, &[&a]).ended().status.success());
    let ended = again.ended();
    let line: serde_json::Value = serde_json::from_str(&ended.out[0]).unwrap();
    // Of the 16 MiB and more that were there, the last 8 may have been room only.
    assert!(line["bytes"].as_u64() > Some(0), "nothing was missing: {line}");
    assert!(line["bytes_present"].as_u64() >= Some(8 << 20), "it began anew: {line}");
    assert_same(&source.0, &dies.0.join(name));
}

#[test]
fn a_receiver_that_is_interrupted_says_what_ends_with_it() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-ends"), Tree::new("copy-ended"));
    let (receiving, to) = receiver(&copy, &[]);
    let sending = in_the_middle(&source, &[&copy], &receiving, &[&to]);
    receiving.terminate();
    receiving.resume();
    let says = "interrupted by SIGTERM in the middle of a copy: start it again";
    let ended = receiving.ended();
    assert_eq!(ended.status.code(), Some(143), "{ended:?}");
    assert!(ended.err.last().unwrap().contains(says), "{ended:?}");
    let line: serde_json::Value = serde_json::from_str(&ended.out[0]).unwrap();
    assert!(line["bytes"].as_u64() > Some(0), "what was received so far: {line}");
    assert_eq!((&line["ok"], &line["error"]), (&false.into(), &"interrupted by SIGTERM".into()));
    let sent = sending.ended();
    let says = "the receiver has given up: interrupted by SIGTERM";
    assert!(sent.err.iter().any(|line| line.contains(says)), "{sent:?}");
    let (idle, _) = receiver(&copy, &[]);
    idle.terminate();
    let idle = idle.ended();
    assert_eq!(idle.status.code(), Some(0), "{idle:?}");
    assert!(idle.err.last().unwrap().contains("no copy was under way"), "{idle:?}");
    let (wants_one, _) = receiver(&copy, &["--once"]);
    wants_one.terminate();
    wants_one.ended().assert_failed(143, &["no copy was under way"]);
}

/// As in a terminal that was closed: all that it says has no reader.
#[test]
fn a_receiver_whose_standard_error_is_closed_serves_and_ends() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-unheard"), Tree::new("copy-mute"));
    fs::write(source.0.join("file"), b"bytes").unwrap();
    let (said, error) = std::io::pipe().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
    command.args(["--device", &support::device(), "copy", "--into", copy.text()]);
    command.args(["--listen", "127.0.0.1:0"]);
    let receiving =
        SpawnedProcess::among(&mut command, Stdio::null(), Stdio::piped(), error.into());
    let mut lines = BufReader::new(said).lines().map(Result::unwrap);
    let to = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
    drop(lines);
    let sent = sender(&source, &[&to]).ended();
    assert!(sent.status.success(), "{sent:?}");
    assert_same(&source.0, &copy.0.join(source.0.file_name().unwrap()));
    receiving.terminate();
    let ended = receiving.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

/// As in the background of a script, and with `nohup`.
#[test]
fn signals_that_were_ignored_from_the_beginning_stay_so() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-undisturbed"), Tree::new("copy-deaf"));
    fs::write(source.0.join("file"), b"bytes").unwrap();
    let mut command = Command::new("sh");
    let ignores = "trap '' INT TERM HUP; exec \"$@\"";
    command.args(["-c", ignores, "sh", env!("CARGO_BIN_EXE_rdma-conn")]);
    command.args(["--device", &support::device(), "copy", "--into", copy.text()]);
    command.args(["--listen", "127.0.0.1:0"]);
    let (receiving, to) = SpawnedProcess::listening(SpawnedProcess::new(&mut command));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        receiving.signal(signal);
        let sent = sender(&source, &[&to.to_string()]).ended();
        assert!(sent.status.success(), "{signal:?}: {sent:?}");
    }
    receiving.kill();
}

/// No receiver gets a file that is half the old one and half the new one.
#[test]
fn a_source_that_changes_while_it_is_copied_is_not_kept() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-changes"), Tree::new("copy-changed"));
    let (receiving, to) = receiver(&copy, &[]);
    let sending = in_the_middle(&source, &[&copy], &receiving, &[&to]);
    let file = fs::File::options().write(true).open(source.0.join("large")).unwrap();
    file.write_all_at(b"another byte", 0).unwrap();
    receiving.resume();
    let sent = sending.ended();
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    let says = |line: &&String| line.contains("large: it has changed while it was copied");
    assert_eq!(sent.err.iter().filter(says).count(), 1, "{sent:?}");
    let inside = copy.0.join(source.0.file_name().unwrap());
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 0, "something is left of it");
    assert!(sender(&source, &[&to]).ended().status.success());
    assert_same(&source.0, &inside);
    receiving.kill();
}

/// A file of the kernel that no user may read, not even root.
const UNREADABLE: &str = "/sys/bus/platform/drivers_probe";

#[test]
fn what_cannot_be_read_is_named_once_and_the_rest_is_copied() {
    if !connects_processes() {
        return;
    }
    if !fs::File::open(UNREADABLE).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied) {
        return support::tally::skipped("everything can be read here");
    }
    let (source, copies) =
        (Tree::new("copy-readable"), [Tree::new("copy-first"), Tree::new("copy-second")]);
    fs::write(source.0.join("file"), b"bytes").unwrap();
    let (one, a) = receiver(&copies[0], &["--once"]);
    let (two, b) = receiver(&copies[1], &["--once"]);
    let sent =
        SpawnedProcess::command(&["copy", "--to", &a, "--to", &b, UNREADABLE, source.text()])
            .ended();
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    let why =
        format!("rdma-conn: {UNREADABLE}: it cannot be read: Permission denied (os error 13)");
    assert_eq!(sent.err.iter().filter(|line| line.contains("denied")).collect::<Vec<_>>(), [&why]);
    for line in &sent.out {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["failed"], &line["missing"]), (&1.into(), &0.into()), "{line}");
        assert_eq!(line["failures"][0]["path"], UNREADABLE, "{line}");
        assert_eq!(line["ok"], false, "{line}");
    }
    for (ended, copy) in [one.ended(), two.ended()].into_iter().zip(&copies) {
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert_same(&source.0, &copy.0.join(source.0.file_name().unwrap()));
    }
}

/// An entry that is neither file, directory nor link makes the command fail, and the JSON says so.
#[test]
fn what_is_left_out_is_counted_and_is_no_success() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-odd"), Tree::new("copy-even"));
    fs::write(source.0.join("file"), b"bytes").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(source.0.join("socket")).unwrap();
    let (receiving, to) = receiver(&copy, &["--once"]);
    let sent = sender(&source, &[&to]).ended();
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    let line: serde_json::Value = serde_json::from_str(&sent.out[0]).unwrap();
    assert_eq!((&line["left_out"], &line["ok"]), (&1.into(), &false.into()), "{line}");
    assert!(receiving.ended().status.success());
}

/// A copy does what a directory's mode forbids even its owner, and root is no other user here.
#[test]
fn a_second_copy_fills_a_directory_that_nothing_may_be_made_in() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-closed"), Tree::new("copy-closed-there"));
    let closed = source.0.join("closed");
    fs::create_dir(&closed).unwrap();
    let there = copy.0.join(source.0.file_name().unwrap());
    for name in ["first", "second"] {
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(closed.join(name), name).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        let program = env!("CARGO_BIN_EXE_rdma-conn");
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            command = Command::new("setpriv");
            let without = "--bounding-set=-dac_override,-dac_read_search";
            command.args(["--inh-caps=-all", without, program]);
        }
        command.args(["--device", &support::device(), "copy", "--into", copy.text(), "--once"]);
        command.args(["--listen", "127.0.0.1:0"]);
        let (receiving, to) = SpawnedProcess::listening(SpawnedProcess::new(&mut command));
        let sent = sender(&source, &[&to.to_string()]).ended();
        assert!(sent.status.success(), "{sent:?}");
        assert!(receiving.ended().status.success());
        assert_same(&source.0, &there);
    }
    for tree in [&closed, &there.join("closed")] {
        fs::set_permissions(tree, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Such files have no bytes by their metadata, and some to read.
#[test]
fn a_file_of_the_kernel_does_not_arrive_empty() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-known"), Tree::new("copy-unknown"));
    fs::write(source.0.join("file"), b"bytes").unwrap();
    let (receiving, to) = receiver(&copy, &["--once"]);
    let sent =
        SpawnedProcess::command(&["copy", "--to", &to, "/proc/version", source.text()]).ended();
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    let says = |line: &String| line.contains("/proc/version: it has not the length");
    assert!(sent.err.iter().any(says), "{sent:?}");
    assert_eq!(receiving.ended().status.code(), Some(1));
    assert_eq!(fs::read_dir(&copy.0).unwrap().count(), 1, "something is left of it");
    assert_same(&source.0, &copy.0.join(source.0.file_name().unwrap()));
}

#[test]
fn a_refused_connection_does_not_count_as_the_one_copy() {
    if !connects_processes() {
        return;
    }
    let (source, copy) = (Tree::new("copy-told"), Tree::new("copy-tells"));
    fs::write(source.0.join("file"), b"bytes").unwrap();
    let command = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
        command.args(["--device", &support::device()]).args(args);
        SpawnedProcess::new(&mut command)
    };
    let listen = ["copy", "--into", copy.text(), "--once", "--listen", "127.0.0.1:0"];
    let (receiving, to) = SpawnedProcess::listening(command(&listen));
    let to = &*to.to_string();
    let other = ["pipe", "--protocol", "direct-read", "--connect", to];
    SpawnedProcess::command(&other)
        .ended()
        .assert_failed(1, &["the listening end receives copies"]);
    let sent = command(&["copy", "--to", to, source.text()]).ended();
    assert!(sent.status.success(), "{sent:?}");
    assert!(sent.err.iter().any(|line| line == "sending 2 entries, 5 B"), "{sent:?}");
    let ended = receiving.ended();
    assert!(ended.status.success(), "{ended:?}");
    let count = |says: &str| ended.err.iter().filter(|line| line.contains(says)).count();
    assert_eq!((count("refused a connection from"), count(": has connected")), (1, 1), "{ended:?}");
    assert!(ended.out[0].contains(": 2 entries, 5 B read (buffers) in "), "{ended:?}");
}

#[test]
fn the_words_of_a_stranger_do_not_drive_a_terminal() {
    if !connects_processes() {
        return;
    }
    let tree = Tree::new("copy-stranger");
    let (mut listener, address) = receiver(&tree, &[]);
    let (mut bytes, reason) = ([0; MAX_FRAME], Reason::PROTOCOL);
    let refusal = Frame::Refuse(Refusal { reason, text: "\x1b[2J" });
    let length = refusal.encode(&mut bytes).unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(&bytes[..length]).unwrap();
    listener.wait_for("the peer refused: \\u001b[2J");
}

#[test]
fn a_command_line_that_cannot_be_is_refused() {
    let refused = support::assert_refused;
    refused(&["copy"], 2, "--to");
    refused(&["copy", "--listen", "127.0.0.1:0"], 2, "--into");
    refused(&["copy", "--to", "127.0.0.1:1", "no such file"], 2, "no such file");
    refused(&["copy", "--to", "127.0.0.1:1", "src", "src"], 2, "two things");
    if !connects_processes() {
        return;
    }
    refused(&["copy", "--listen", "127.0.0.1:0", "--into", "/proc"], 1, "choose another --into");
    let alone = SpawnedProcess::command(&["copy", "--to", "127.0.0.1:1", "src"]).ended();
    let says = "rdma-conn: nothing listens on 127.0.0.1:1: start the other end with --listen first";
    assert_eq!(alone.err[0], says, "it is named once, and nothing else is tried");
}
