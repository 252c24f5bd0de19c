//! Raw verbs between two processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

mod support;

use support::{device, text};

/// How long what must come may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process of the command that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a process ended, and what it printed.
struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Running {
    fn new(args: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
        command.args(["--device", &device(), "--json"]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// A listener, and where it listens.
    fn listener(args: &[&str]) -> (Running, SocketAddr) {
        let mut running = Running::new(&[args, &["--listen", "127.0.0.1:0"]].concat());
        let said = running.wait_for("listening on ");
        let address = said.trim().rsplit(' ').next().unwrap().parse().unwrap();
        (running, address)
    }

    /// Waits for a line on standard error that has this in it.
    #[track_caller]
    fn wait_for(&mut self, says: &str) -> String {
        let mut err = BufReader::with_capacity(1, self.0.stderr.as_mut().unwrap());
        let mut said = String::new();
        loop {
            let before = said.len();
            assert!(err.read_line(&mut said).unwrap() > 0, "no {says} in all it said:\n{said}");
            if said[before..].contains(says) {
                return said.split_off(before);
            }
        }
    }

    #[track_caller]
    fn ended(mut self) -> Ended {
        let (out, err) = (self.0.stdout.take().unwrap(), self.0.stderr.take().unwrap());
        let [out, err] = [read_all(out), read_all(err)];
        // A process that has ended has closed them.
        let [out, err] = [out, err].map(|text| text.recv_timeout(PATIENCE).expect("it ends"));
        Ended { status: self.0.wait().unwrap().code(), out, err }
    }

    #[track_caller]
    fn lines(self) -> Vec<Value> {
        let Ended { status, out, err } = self.ended();
        assert_eq!(status, Some(0), "{err}");
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// All that a stream says, once it has ended.
fn read_all(mut stream: impl Read + Send + 'static) -> Receiver<String> {
    let (told, all) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        // Who has given up waiting does not listen.
        let _ = told.send(read.map(|_| text(&bytes).to_owned()).unwrap_or_default());
    });
    all
}

/// What both ends are told, what the connecting one is told besides, and how many lines
/// both print.
const SESSIONS: [(&[&str], &[&str], usize); 8] = [
    (&["pingpong", "--op", "send"], &["--size", "1,4096", "--iterations", "30"], 2),
    (
        &["pingpong", "--op", "write"],
        &["--size", "64", "--iterations", "30", "--assume-in-order"],
        1,
    ),
    (&["pingpong", "--op", "write-imm"], &["--size", "64", "--iterations", "30", "--qps", "2"], 1),
    (&["pingpong", "--op", "read"], &["--size", "64", "--iterations", "30"], 1),
    (
        &["pingpong", "--op", "send"],
        &["--transport", "uc", "--size", "64", "--iterations", "30"],
        1,
    ),
    (
        &["pingpong", "--op", "send", "--transport", "ud"],
        &["--peers", "3", "--size", "64", "--iterations", "30"],
        1,
    ),
    (&["bench", "--op", "send"], &["--srq-classes", "--size", "16,4096", "--messages", "100"], 2),
    (&["bench", "--op", "write"], &["--size", "16,4096", "--messages", "100"], 2),
];

#[test]
fn both_ends_print_the_same_results() {
    for (both, more, count) in SESSIONS {
        let (listener, address) = Running::listener(both);
        let address = address.to_string();
        let connector = Running::new(&[both, more, &["--connect", &address]].concat()).lines();
        let listened = listener.lines();
        assert_eq!((connector.len(), listened.len()), (count, count), "{both:?} {more:?}");
        for (near, far) in connector.iter().zip(&listened) {
            for field in ["protocol", "transport", "size_bytes", "messages", "messages_per_s"] {
                assert_eq!(near[field], far[field], "{both:?} {more:?}");
            }
            assert!(near["messages"].as_u64().unwrap() > 0, "{near}");
        }
    }
}

#[test]
fn a_listener_refuses_strangers_and_goes_on() {
    let (mut listener, address) = Running::listener(&["bench", "--op", "read"]);
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    listener.wait_for("refused a connection");
    let address = address.to_string();
    // A connection of another kind hears so.
    let connection = Running::new(&["bench", "--size", "16", "--connect", &address]).ended();
    assert_eq!(connection.status, Some(1), "{}", connection.err);
    assert!(connection.err.contains("raw queue pairs"), "{}", connection.err);
    // And so does who wants something else than was said here.
    let other = Running::new(&["bench", "--op", "write", "--size", "16", "--connect", &address]);
    let other = other.ended();
    assert_eq!(other.status, Some(1), "{}", other.err);
    assert!(other.err.contains("--op"), "{}", other.err);
    assert!(listener.wait_for("refused a connection").contains("raw queue pairs"));
    assert!(listener.wait_for("refused a connection").contains("--op"));
    let few = ["--size", "16", "--messages", "10", "--connect", &address];
    let served = Running::new(&[&["bench", "--op", "read"], &few[..]].concat());
    assert_eq!((served.lines().len(), listener.lines().len()), (1, 1));
}

/// A peer that is killed in the middle is noticed by the other end, whichever it is and
/// whatever it waits for.
#[test]
fn a_killed_peer_ends_the_other_end() {
    let forever = ["--size", "64", "--iterations", "100000000"];
    for (op, more) in [
        (&["--op", "send"][..], &[][..]),
        (&["--op", "write", "--assume-in-order"], &[]),
        (&["--op", "read"], &[]),
        (&["--op", "send", "--transport", "ud"], &["--answer-timeout", "100"]),
    ] {
        for kills_listener in [true, false] {
            let both = [&["pingpong", "-v"], op].concat();
            let (mut listener, address) = Running::listener(&both);
            let address = address.to_string();
            let args = [&both, &forever[..], more, &["--connect", &address]].concat();
            let mut connector = Running::new(&args);
            listener.wait_for("joined");
            connector.wait_for("joined");
            let (mut killed, survivor) =
                if kills_listener { (listener, connector) } else { (connector, listener) };
            killed.0.kill().unwrap();
            let survivor = survivor.ended();
            assert_eq!(survivor.status, Some(1), "{op:?}: {}", survivor.err);
            let said = survivor.err.lines().last().unwrap_or_default();
            assert!(said.starts_with("rdma-conn: "), "{op:?}: {}", survivor.err);
        }
    }
}
