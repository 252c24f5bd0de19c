//! `rdma-conn soft --trace` and `rdma-conn trace`: what a program that hangs waits for.
//!
//! Only on soft0: it runs programs on soft0, with the library that it builds.

mod support;
#[path = "support/with_library.rs"]
mod with_library;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdma_conn::raw::{Link, RawEnd};
use rdma_conn::verbs_safe::{CompletionBatch, CqConfig, QueuePairConfig, RecvSide, SendOp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::processes::free_port;
use support::tally;
use support::{ScratchFile, text};
use with_library::{GuardedChild, command, run};

const PINGPONG: &str = "/usr/bin/ibv_rc_pingpong";

/// A folder for the traces of a test, which goes with it.
struct TraceFolder(PathBuf);

impl TraceFolder {
    fn new(name: &str) -> TraceFolder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        TraceFolder(folder)
    }

    fn named(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for TraceFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the output of `trace` about the files.
fn trace(words: &[&str]) -> String {
    let output = run(&[&["trace"], words].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn json(words: &[&str]) -> Vec<Value> {
    let lines = trace(&[&["--json"], words].concat());
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn assert_refused(words: &[&str], status: i32, says: &str) {
    let output = run(words);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert_eq!(text(&output.stdout), "");
    assert!(error.starts_with("rdma-conn: ") && error.contains(says), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// A traced process.
struct Traced(GuardedChild);

impl Traced {
    fn start(file: &str, arguments: &[&str]) -> Traced {
        let words = [&["soft", "--trace", file, "--", PINGPONG, "-g", "0"], arguments].concat();
        let mut command = command(&words);
        Traced(GuardedChild(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()))
    }

    fn number(&self) -> u32 {
        self.0.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0.0), signal).unwrap();
    }

    /// Stops the process; it has stopped when this returns.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let options = rustix::process::WaitOptions::UNTRACED;
        rustix::process::waitpid(Some(Pid::from_child(&self.0.0)), options).unwrap();
    }

    fn kill(&mut self) {
        self.0.0.kill().unwrap();
        self.0.0.wait().unwrap();
    }
}

/// Longest wait of a test for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of looks at a trace after which a missing event is taken not to happen.
const LOOKS: usize = 20;

/// Reports whether Debian's program is there.
fn has_pingpong() -> bool {
    let is_there = Path::new(PINGPONG).exists();
    if !is_there {
        tally::skipped("ibv_rc_pingpong is not installed");
    }
    is_there
}

/// The trace of a process, if it is there and says what is asked.
fn look(file: &str, is: impl Fn(&Value) -> bool) -> Option<Value> {
    let output = run(&["trace", "--json", file]);
    let line = output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap());
    line.filter(is)
}

/// The trace of a process, once it is there and says what is asked.
fn once(file: &str, is: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        if let Some(line) = look(file, &is) {
            return line;
        }
        assert!(start.elapsed() < PATIENCE, "{file} does not say what is asked");
        std::thread::yield_now();
    }
}

/// The first outstanding request of an operation.
fn request<'a>(line: &'a Value, operation: &str) -> Option<&'a Value> {
    let requests = line["queues"][0]["requests"].as_array()?;
    requests.iter().find(|request| request["operation"] == operation)
}

#[test]
fn a_server_without_a_client_waits_for_its_receives() {
    if !has_pingpong() {
        return;
    }
    let folder = TraceFolder::new("server");
    let file = folder.named("hangs");
    let mut server = Traced::start(&file, &["-p", &free_port().to_string(), "-r", "3"]);
    let own = format!("{file}.{}", server.number());
    let all = |line: &Value| line["queues"][0]["requests"].as_array().is_some_and(|r| r.len() == 3);
    once(&own, all);
    server.kill();
    let said = trace(&[&file]);
    let first = format!("process {} (ibv_rc_pingpong), ended: {own}", server.number());
    assert_eq!(said.lines().next().unwrap(), first);
    let reason = "the queue pair is in INIT: it receives from RTR on";
    let receives = said.lines().find(|line| line.contains("RECV")).unwrap();
    assert!(receives.starts_with("    3 × RECV wr_id 0x1, 4096 bytes, posted "), "{said}");
    assert!(receives.ends_with(reason), "{said}");
    let line = &json(&[&file])[0];
    assert_eq!(request(line, "RECV").unwrap()["why"], reason);
    assert_eq!((&line["torn"], &line["left_out"]), (&0.into(), &0.into()));
}

#[test]
fn a_client_of_a_stopped_server_waits_for_its_send() {
    if !has_pingpong() {
        return;
    }
    let folder = TraceFolder::new("client");
    let (file, other) = (folder.named("client"), folder.named("server-%p-trace"));
    let port = free_port().to_string();
    let port = ["-p", &port, "-n", "1000000000"];
    let mut server = Traced::start(&other, &port);
    let theirs = folder.named(&format!("server-{}-trace", server.number()));
    once(&theirs, |_| true);
    // The server may not listen yet.
    let mut client = loop {
        let mut client = Traced::start(&file, &[&port[..], &["127.0.0.1"]].concat());
        let own = format!("{file}.{}", client.number());
        let is_up = loop {
            let ended = client.0.0.try_wait().unwrap().is_some();
            let line = run(&["trace", "--json", &own]);
            let line: Value = serde_json::from_slice(&line.stdout).unwrap_or_default();
            if ended || line["queues"][0]["state"] == "RTS" {
                break !ended;
            }
            std::thread::yield_now();
        };
        if is_up {
            break client;
        }
    };
    let own = format!("{file}.{}", client.number());
    let sent = |line: &Value| request(line, "SEND").is_some_and(|send| send["stage"] == "sent");
    // Where it is stopped between its reply and its own message, the client waits for that one. It
    // is stopped, too: an answer that lies there already may be taken between two looks.
    let start = Instant::now();
    loop {
        server.stop();
        let found = (0..LOOKS).any(|_| {
            client.stop();
            let found = look(&own, sent).is_some();
            if !found {
                client.signal(Signal::CONT);
            }
            found
        });
        if found {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "no SEND was on its way");
        server.signal(Signal::CONT);
    }
    client.kill();
    let said = trace(&[&own, &other]);
    let send = said.lines().find(|line| line.contains("SEND wr_id 0x2, 4096 bytes"));
    assert!(send.is_some_and(|line| line.ends_with("has not answered")), "{said}");
    let peer = format!("    the peer, in process {} (stopped), is in RTS, with", server.number());
    assert!(said.lines().any(|line| line.starts_with(&peer)), "{said}");
    let lines = json(&[&own, &theirs]);
    assert_eq!(lines[0]["queues"][0]["peer_process_state"], "stopped");
    assert_eq!(lines[0]["queues"][0]["peer"], lines[1]["queues"][0]["qp_num"]);
    server.kill();
}

/// Offset of the process's start time in a trace, in bytes (`soft_rnic::trace`'s layout).
const STARTED: u64 = 10 * 8;

/// A number is given again: the trace of an earlier process is not that of the one that has its
/// number now. (To have a number given again takes rights that tests do not have: the trace of a
/// process that runs is changed to be one of a process that started before it.)
#[test]
fn a_reused_process_number_does_not_revive_an_old_trace() {
    if !has_pingpong() {
        return;
    }
    let folder = TraceFolder::new("number");
    let file = folder.named("server");
    let mut server = Traced::start(&file, &["-p", &free_port().to_string()]);
    let own = format!("{file}.{}", server.number());
    once(&own, |line| line["process_state"] == "running");
    server.signal(Signal::STOP);
    once(&own, |line| line["process_state"] == "stopped");
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(&own).unwrap();
    let mut word = [0; 8];
    opened.read_exact_at(&mut word, STARTED).unwrap();
    let started = u64::from_ne_bytes(word);
    assert_eq!(Some(started), soft_rnic::trace::started(server.number()));
    opened.write_all_at(&(started - 1).to_ne_bytes(), STARTED).unwrap();
    assert_eq!(json(&[&own])[0]["process_state"], "ended");
    let first = format!("process {} (ibv_rc_pingpong), ended: {own}", server.number());
    assert_eq!(trace(&[&own]).lines().next().unwrap(), first);
    opened.write_all_at(&word, STARTED).unwrap();
    assert_eq!(json(&[&own])[0]["process_state"], "stopped");
    server.kill();
    assert_eq!(json(&[&own])[0]["process_state"], "ended");
}

/// The command is itself a program that opens libibverbs.so.1.
#[test]
fn a_program_that_posts_nothing_has_nothing_outstanding() {
    let folder = TraceFolder::new("nothing");
    let file = folder.named("file");
    let program = env!("CARGO_BIN_EXE_rdma-conn");
    let output = run(&["soft", "--trace", &file, "--", program, "devices"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = trace(&["--events", "4", &file]);
    assert!(said.contains("  nothing is outstanding\n"), "{said}");
    assert!(said.contains(" before: open\n"), "{said}");
    // One that opens no device writes no trace.
    let other = folder.named("other");
    assert!(run(&["soft", "--trace", &other, "--", "true"]).status.success());
    assert_refused(&["trace", &other], 2, "no trace of this name");
}

/// The client's first request fails by a fault, and all has been polled when it ends.
#[test]
fn a_failed_request_is_listed_with_its_reason() {
    if !has_pingpong() {
        return;
    }
    let folder = TraceFolder::new("failed");
    let file = folder.named("fails");
    let port = free_port().to_string();
    let server = Traced::start(&file, &["-p", &port]);
    let words = ["soft", "--trace", &file, "--faults", "flush=1,seed=1", "--", PINGPONG];
    let client = || run(&[&words[..], &["-g", "0", "-p", &port, "127.0.0.1"]].concat());
    let start = Instant::now();
    // The server may not listen yet.
    let said = loop {
        client();
        let said = trace(&[&file]);
        if said.contains("  failed ") {
            break said;
        }
        assert!(start.elapsed() < PATIENCE, "{said}");
    };
    assert!(said.contains("WR_FLUSH: injected: the queue pair fails"), "{said}");
    let why = "a request of its own has failed: injected: the queue pair fails";
    assert!(said.contains(" went to ERR ") && said.contains(why), "{said}");
    let lines = json(&[&file]);
    let failed = lines.iter().find_map(|line| line["failed"].get(0)).unwrap();
    assert_eq!((&failed["status"], &failed["event"]), (&"WR_FLUSH".into(), &"complete".into()));
    let ended = lines.iter().find_map(|line| line["ended"].get(0)).unwrap();
    assert_eq!((&ended["state"], &ended["why"]), (&"ERR".into(), &why.into()));
    drop(server);
}

/// The variable of a process that is to be traced.
const IS_TRACED: &str = "RDMA_CONN_TEST_IS_TRACED";

/// A program whose message is longer than the receive request that it finds: both of its queue pairs fail. It does
/// nothing as a test.
#[test]
fn the_traced_process() {
    if std::env::var_os(IS_TRACED).is_none() {
        return;
    }
    let device = rdma_conn::device::soft().unwrap();
    let cq = device.context().create_cq(CqConfig::new(64)).unwrap();
    let recv = RecvSide::Own { slots: 4, slot_bytes: 8 };
    let config = QueuePairConfig { max_send_wr: 4, recv, ..QueuePairConfig::new(&cq, &cq) };
    let [mut near, mut far] =
        [(); 2].map(|()| RawEnd::new(&device, &config, Link::default()).unwrap());
    far.queues.recv.as_mut().unwrap().post(&[0]).unwrap();
    let (here, there) = (near.endpoint(), far.endpoint());
    near.join(&there, far.mtu_bytes()).unwrap();
    far.join(&here, near.mtu_bytes()).unwrap();
    near.queues.send.next_slot().unwrap()[..9].fill(7);
    near.queues.send.stage(SendOp::Send { len: 9 }, true).unwrap();
    near.queues.send.post().unwrap();
    let (mut batch, mut failed) = (CompletionBatch::new(8), 0);
    while failed < 2 {
        cq.poll(&mut batch).unwrap();
        failed += batch.drain().filter(|completion| completion.error().is_some()).count();
    }
    // It ends as it is.
    std::mem::forget((near, far));
}

#[test]
fn the_end_of_a_peer_is_listed_with_its_reason() {
    let folder = TraceFolder::new("peers");
    let file = folder.named("both");
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["the_traced_process", "--exact", "--nocapture"]);
    program.env(IS_TRACED, "1").env(soft_rnic::trace::VARIABLE, &file);
    let ended = program.output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let said = trace(&[&file]);
    let line = &json(&[&file])[0];
    let ended = line["ended"].as_array().unwrap();
    assert_eq!(ended.len(), 2, "{line}");
    assert_ne!(ended[0]["why"], ended[1]["why"]);
    for (one, other) in [(&ended[0], &ended[1]), (&ended[1], &ended[0])] {
        assert_eq!((&one["peer"], &one["peer_why"]), (&other["qp_num"], &other["why"]));
        assert_eq!(one["peer_process"], line["process"]);
        let (number, why) = (other["qp_num"].as_u64().unwrap(), other["why"].as_str().unwrap());
        let process = &line["process"];
        let says = format!("    its peer, QP {number:#08x} in process {process}: {why}");
        assert!(said.lines().any(|line| line == says), "{said}");
    }
}

#[test]
fn what_is_no_trace_is_refused_and_says_what_is() {
    let other = ScratchFile::new("trace-of-something-else", 4096);
    let other = other.0.to_str().unwrap();
    assert_refused(&["trace", other], 2, "not a trace of soft0: name a file that");
    assert_refused(&["trace", "/"], 2, "no file");
    assert_refused(&["trace", "/dev/zero"], 2, "no file");
    assert_refused(&["trace", "--device", "soft0", other], 2, "--device: trace only reads files");
    let missing = ["soft", "--trace", "/no/folder/file", "--", "true"];
    assert_refused(
        &missing,
        2,
        "--trace /no/folder/file: there is no folder /no/folder: name a file in one",
    );
}

#[test]
fn a_trace_that_is_cut_off_is_refused() {
    let folder = TraceFolder::new("cut");
    let file = folder.named("file");
    let program = env!("CARGO_BIN_EXE_rdma-conn");
    assert!(run(&["soft", "--trace", &file, "--", program, "devices"]).status.success());
    let entry = std::fs::read_dir(&folder.0).unwrap().next().unwrap().unwrap();
    let opened = std::fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
    opened.set_len(100_000).unwrap();
    let name = entry.path().to_str().unwrap().to_owned();
    assert_refused(&["trace", &name], 1, "the trace is cut off: it has 100000 bytes of ");
}
