//! `rdma-conn copy` of a tree to three receivers on `soft0`, beside `cp -r` to three
//! directories at a time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::cores::{as_neighbours, tell_repeated};
use super::processes::build;
use super::{Target, line, median, typical_of};

/// The tree, in files of 32 MiB.
const FILES: usize = 64;
const FILE: usize = 32 << 20;
const COPIES: usize = 3;
/// Rounds: of 6 GiB that each way writes, in seconds; a disk takes its time.
const IN_MEMORY: usize = 5;
const ON_DISK: usize = 3;
/// Room that a file system has to have: the tree, and two times its copies.
const ROOM: u64 = (FILES * FILE * (1 + 2 * COPIES)) as u64;

pub(crate) fn in_memory() {
    compare(Path::new("/dev/shm"), "memory", true);
}

pub(crate) fn on_disk() {
    // Beside what cargo builds: temporary directories are in memory here and there.
    let program = std::env::current_exe().expect("a program knows its path");
    compare(program.parent().expect("a folder"), "disk", false);
}

fn compare(place: &Path, name: &str, is_memory: bool) {
    let (files, mib) = (FILES, FILE >> 20);
    println!("A copy of {files} files of {mib} MiB to {COPIES} receivers : cp -r, in {name}");
    let stat = rustix::fs::statvfs(place).expect("a file system");
    if stat.f_bavail * stat.f_frsize < ROOM {
        return println!("  left out: {} has less than {} GiB", place.display(), ROOM >> 30);
    }
    let program = build();
    let scratch = TempTree::new(place);
    let ways: &[(&str, &[&str])] = match is_memory {
        true => &[("buffers", &[]), ("--mapped", &["--mapped"])],
        false => &[("buffers", &[]), ("--mapped", &["--mapped"]), ("--no-sync", &["--no-sync"])],
    };
    // Not counted: memory that a virtual machine uses first, its host has to find.
    scratch.rate(|| cp(&scratch.0, false));
    for (what, flags) in ways {
        let syncs = !is_memory && *what != "--no-sync";
        let receivers = Receivers::new(&program, &scratch.0, flags);
        let ours = || scratch.rate(|| receivers.copy(&program, &scratch.0));
        let theirs = || scratch.rate(|| cp(&scratch.0, syncs));
        let (ours, theirs) = match is_memory {
            true => typical_of(IN_MEMORY, as_neighbours(ours), as_neighbours(theirs)),
            false => typical_of(ON_DISK, ours, theirs),
        };
        let beside = if syncs { "cp -r, then sync" } else { "cp -r" };
        line(&format!("{what} : {beside}"), ours, theirs, "GB/s", Target::AtLeast(1.0));
    }
    tell_repeated();
    let limit = limit(&scratch.0, is_memory);
    println!(
        "  the limit, one file of 1 GiB written{}: {limit:.2} GB/s",
        if is_memory { "" } else { " and synced" }
    );
}

/// A directory with the tree, removed in the end.
struct TempTree(PathBuf);

impl TempTree {
    fn new(place: &Path) -> TempTree {
        let path = place.join(format!("rdma-conn-ratios-{}", std::process::id()));
        fs::create_dir_all(path.join("tree")).expect("a directory");
        let scratch = TempTree(path);
        // Nothing that a file system could compress or share.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        for file in 0..FILES {
            let bytes: Vec<u8> = (0..FILE / 8).flat_map(|_| next()).collect();
            fs::write(scratch.0.join(format!("tree/{file}")), bytes).expect("room for a tree");
        }
        scratch
    }

    /// Bytes per second that were written by making all copies, which are removed then.
    fn rate(&self, make: impl FnOnce()) -> f64 {
        sync(&self.0);
        let start = Instant::now();
        make();
        let time = start.elapsed().as_secs_f64();
        for copy in 0..COPIES {
            let copy = self.0.join(format!("copy{copy}/tree"));
            let files = fs::read_dir(&copy).expect("a copy").map(|file| file.expect("a file"));
            let bytes: u64 = files.map(|file| file.metadata().expect("a file").len()).sum();
            assert_eq!(bytes, (FILES * FILE) as u64, "all of it");
            fs::remove_dir_all(copy).expect("a copy is removed");
        }
        (FILES * FILE * COPIES) as f64 / time / 1e9
    }
}

impl Drop for TempTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sync(path: &Path) {
    let directory = fs::File::open(path).expect("a directory");
    rustix::fs::syncfs(directory).expect("it is written out");
}

/// Processes that receive one copy after the other.
struct Receivers(Vec<(Child, String)>);

impl Receivers {
    fn new(program: &Path, path: &Path, flags: &[&str]) -> Receivers {
        let start = |copy| {
            let mut receiver = Command::new(program)
                .args(["copy", "--device", "soft0", "--listen", "127.0.0.1:0", "--into"])
                .arg(path.join(format!("copy{copy}")))
                .args(flags)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("rdma-conn starts");
            let mut said = String::new();
            let mut lines = BufReader::new(receiver.stderr.take().expect("piped"));
            lines.read_line(&mut said).expect("it says where it listens");
            let address = said.trim().rsplit(' ').next().expect("an address").to_owned();
            // What else it says is of no interest, and has to go somewhere.
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            (receiver, address)
        };
        Receivers((0..COPIES).map(start).collect())
    }

    fn copy(&self, program: &Path, path: &Path) {
        let mut sender = Command::new(program);
        sender.args(["copy", "--device", "soft0"]);
        for (_, address) in &self.0 {
            sender.args(["--to", address]);
        }
        let status = sender.arg(path.join("tree")).stdout(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "all receivers have all files");
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        for (receiver, _) in &mut self.0 {
            let _ = receiver.kill();
            let _ = receiver.wait();
        }
    }
}

fn cp(path: &Path, syncs: bool) {
    let start = |copy| {
        let to = path.join(format!("copy{copy}"));
        fs::create_dir_all(&to).expect("a directory");
        Command::new("cp").arg("-r").arg(path.join("tree")).arg(to).spawn().expect("cp starts")
    };
    let copies: Vec<Child> = (0..COPIES).map(start).collect();
    for mut copy in copies {
        assert!(copy.wait().is_ok_and(|status| status.success()), "cp has copied");
    }
    if syncs {
        sync(path);
    }
}

/// Bytes per second that this process alone can write: to a new file, and to the disk.
fn limit(path: &Path, is_memory: bool) -> f64 {
    let (path, bytes) = (path.join("limit"), vec![7; 1 << 20]);
    let rates = (0..ON_DISK).map(|_| {
        let _ = fs::remove_file(&path);
        let start = Instant::now();
        let mut file = fs::File::create(&path).expect("a file");
        (0..1024).for_each(|_| file.write_all(&bytes).expect("room for it"));
        if !is_memory {
            file.sync_all().expect("it is on the disk");
        }
        (1 << 30) as f64 / start.elapsed().as_secs_f64() / 1e9
    });
    median(rates.collect())
}
