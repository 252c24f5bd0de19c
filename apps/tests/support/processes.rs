//! Processes of the command, and of other programs at the other end: started, listened
//! to line by line, and not outliving their test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rdma_conn::device;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::tally;

/// Longest wait for an expected event. It bounds a hang, and asserts nothing about speed.
pub const PATIENCE: Duration = Duration::from_secs(100);

/// Reports whether the device of the environment connects the ends of two processes: soft0 does
/// where the system lets it.
pub fn connects_processes() -> bool {
    let device = device::of_environment().expect("the device that RDMA_CONN_DEVICE names");
    tally::took(device.name());
    let connects = device.crosses_processes();
    if !connects {
        tally::skipped("the system does not let processes share memory");
    }
    connects
}

/// Reports whether the device of the environment is one of the kernel's, behind rdma-core.
pub fn is_of_the_kernel() -> bool {
    let device = device::of_environment().expect("the device that RDMA_CONN_DEVICE names");
    tally::took(device.name());
    let is = device.provider() == device::Provider::RdmaCore;
    if !is {
        tally::skipped(&format!("{} is no device that other programs know", device.name()));
    }
    is
}

/// A process. What it prints is read at once, so that it never waits for its reader.
pub struct SpawnedProcess {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    /// Lines of standard error that were taken.
    heard: Vec<String>,
    what: String,
}

/// End of a process, and its output.
#[derive(Debug)]
pub struct EndedProcess {
    pub status: ExitStatus,
    pub out: Vec<String>,
    pub err: Vec<String>,
}

impl Drop for SpawnedProcess {
    fn drop(&mut self) {
        // It has ended mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines as they are printed.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).split(b'\n').map_while(Result::ok);
        for line in lines.map(|line| String::from_utf8_lossy(&line).into_owned()) {
            if tell.send(line).is_err() {
                break; // The test has ended.
            }
        }
    });
    told
}

impl SpawnedProcess {
    /// The command, on the device of the environment, with JSON as its results.
    pub fn command(args: &[&str]) -> SpawnedProcess {
        // What runs the tests may ignore signals, as a shell does for a job in the background.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_rdma-conn")]);
        // A test may name another device itself.
        if !args.contains(&"--device") {
            command.args(["--device", &super::device()]);
        }
        SpawnedProcess::new(command.arg("--json").args(args))
    }

    /// Any program.
    pub fn new(command: &mut Command) -> SpawnedProcess {
        SpawnedProcess::between(command, Stdio::null(), Stdio::piped())
    }

    /// Any program, with its standard input and output. What is no pipe of ours is not read.
    pub fn between(command: &mut Command, input: Stdio, output: Stdio) -> SpawnedProcess {
        SpawnedProcess::among(command, input, output, Stdio::piped())
    }

    /// Any program, with all that it reads and writes. What is no pipe of ours is not read.
    pub fn among(
        command: &mut Command,
        input: Stdio,
        output: Stdio,
        error: Stdio,
    ) -> SpawnedProcess {
        command.stdin(input).stdout(output).stderr(error);
        let what = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
        // Or else our own copies of its streams stay open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let out = child.stdout.take().map_or_else(|| channel().1, lines);
        let err = child.stderr.take().map_or_else(|| channel().1, lines);
        SpawnedProcess { child, out, err, heard: Vec::new(), what }
    }

    /// A listener, and where it listens.
    #[track_caller]
    pub fn listener(args: &[&str]) -> (SpawnedProcess, SocketAddr) {
        SpawnedProcess::listening(SpawnedProcess::command(
            &[args, &["--listen", "127.0.0.1:0"]].concat(),
        ))
    }

    /// The command under a limit of the process, as `ulimit` takes it: `-n 140`.
    pub fn limited(limit: &str, args: &[&str]) -> SpawnedProcess {
        let limit = format!("ulimit {limit} && exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_rdma-conn"), "--json"]);
        SpawnedProcess::new(command.args(args))
    }

    /// A listener with a limit of open descriptors.
    #[track_caller]
    pub fn listener_limited(descriptors: u32, args: &[&str]) -> (SpawnedProcess, SocketAddr) {
        let device = super::device();
        let args = [&["--device", &*device], args, &["--listen", "127.0.0.1:0"]].concat();
        SpawnedProcess::listening(SpawnedProcess::limited(&format!("-n {descriptors}"), &args))
    }

    /// A listener that was started, and where it listens.
    #[track_caller]
    pub fn listening(mut running: SpawnedProcess) -> (SpawnedProcess, SocketAddr) {
        let said = running.wait_for("listening on ");
        let address = said.trim().rsplit(' ').next().unwrap().parse().unwrap();
        (running, address)
    }

    /// Waits for a line on standard error that has this in it.
    #[track_caller]
    pub fn wait_for(&mut self, says: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.err.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.contains(says) {
                        return line;
                    }
                }
                Err(e) => panic!("{}: {e} without saying {says}: {:#?}", self.what, self.heard),
            }
        }
    }

    /// Its standard input, if that is a pipe of ours.
    pub fn input(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// As a supervisor does it. (A process in the background of a shell may ignore Ctrl-C.)
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Has it stand still; it is there, and does nothing.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        let end = Instant::now() + PATIENCE;
        // The state is what follows the name, which is in brackets.
        let is_stopped = |stat: &str| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T'));
        while !is_stopped(&std::fs::read_to_string(&stat).unwrap()) {
            assert!(Instant::now() < end, "{} does not stop", self.what);
            std::thread::yield_now();
        }
    }

    /// Resumes it after [`stop`](Self::stop).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and asserts that it has not ended before.
    #[track_caller]
    pub fn kill(mut self) {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "{}: {:#?}", self.what, self.err.iter().collect::<Vec<_>>());
        self.signal(Signal::KILL);
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(mut self) -> EndedProcess {
        let end = Instant::now() + PATIENCE;
        // A process that has ended has closed both.
        let rest = |lines: &Receiver<String>, mut all: Vec<String>| loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => all.push(line),
                Err(RecvTimeoutError::Disconnected) => break (all, true),
                Err(RecvTimeoutError::Timeout) => break (all, false),
            }
        };
        let (err, has_ended) = rest(&self.err, std::mem::take(&mut self.heard));
        assert!(has_ended, "{} does not end: {err:#?}", self.what);
        let (out, has_ended) = rest(&self.out, Vec::new());
        assert!(has_ended, "{} does not end: {out:#?}", self.what);
        EndedProcess { status: self.child.wait().unwrap(), out, err }
    }

    /// Its results, once it has ended well.
    #[track_caller]
    pub fn results(self) -> Vec<Value> {
        let what = self.what.clone();
        let EndedProcess { status, out, err } = self.ended();
        assert!(status.success(), "{what}: {status}: {err:#?}");
        let parse =
            |line: &String| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        out.iter().map(parse).collect()
    }
}

impl EndedProcess {
    /// Returns the reason for which it failed with `status`: one line, the last one, after nothing
    /// but what was asked for by `-v`. Checks that it printed no result.
    #[track_caller]
    pub fn failure(&self, status: i32) -> &str {
        let err = &self.err;
        assert_eq!(self.status.code(), Some(status), "{err:#?}");
        assert!(self.out.is_empty(), "{:#?}", self.out);
        let warns = |line: &String| ["WARN", "ERROR", "panicked"].iter().any(|w| line.contains(w));
        assert!(!err.iter().any(warns), "{err:#?}");
        let is_failure = |line: &&String| line.starts_with("rdma-conn: ");
        assert_eq!(err.iter().filter(is_failure).count(), 1, "{err:#?}");
        err.last().filter(is_failure).unwrap_or_else(|| panic!("{err:#?}"))
    }

    /// It has failed in one line that says all this.
    #[track_caller]
    pub fn assert_failed(&self, status: i32, says: &[&str]) {
        let failure = self.failure(status);
        assert!(says.iter().all(|says| failure.contains(says)), "{failure:?} says not {says:?}");
    }

    /// As [`assert_failed`](Self::assert_failed), and there is nothing else on standard
    /// error.
    #[track_caller]
    pub fn assert_failed_in_one_line(&self, status: i32, says: &[&str]) {
        self.assert_failed(status, says);
        assert_eq!(self.err.len(), 1, "{:#?}", self.err);
    }
}

/// rdma-core's RC ping-pong (Debian: ibverbs-utils).
pub const PROGRAM: &str = "ibv_rc_pingpong";

/// [`PROGRAM`] on the device of the environment, with the GID that ours chooses.
pub fn rc_pingpong(port: u16, more: &[&str]) -> Command {
    let devices = super::json(&["devices"]);
    let ours = devices.iter().find(|line| line["kind"] == "device").unwrap();
    let gid_index = ours["ports"][0]["gid_index"].to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["-d", &super::device(), "-g", &gid_index, "-p", &port.to_string()]).args(more);
    command
}

/// A TCP port that is not in use at the moment.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
