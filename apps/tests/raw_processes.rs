//! Raw verbs between two processes.
//!
//! Not on apart, distant: its ends are processes, as apart makes them, and soft0@5us joins none.
//! Shows: the command.
//! Not on wired: a ping-pong of READs ends there by its timeout.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

mod support;

use support::processes::{SpawnedProcess, connects_processes};

/// The arguments of both ends, more arguments of the connecting one, and how many lines both
/// print.
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
    if !connects_processes() {
        return;
    }
    for (both, more, count) in SESSIONS {
        let (listener, address) = SpawnedProcess::listener(both);
        let address = address.to_string();
        let connector =
            SpawnedProcess::command(&[both, more, &["--connect", &address]].concat()).results();
        let listened = listener.results();
        assert_eq!((connector.len(), listened.len()), (count, count), "{both:?} {more:?}");
        for (near, far) in connector.iter().zip(&listened) {
            for field in ["protocol", "transport", "size_bytes", "messages", "messages_per_s"] {
                assert_eq!(near[field], far[field], "{both:?} {more:?}");
            }
            assert!(near["messages"].as_u64().unwrap() > 0, "{near}");
        }
    }
}

/// The connecting end takes the time, whichever way the bytes go, and tells the other one.
#[test]
fn tables_name_the_end_at_which_a_figure_was_taken() {
    if !connects_processes() {
        return;
    }
    let start = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
        SpawnedProcess::new(command.args(["--device", &support::device()]).args(args))
    };
    for op in ["send", "read"] {
        let bench = ["bench", "--op", op];
        let listener = start(&[&bench[..], &["--listen", "127.0.0.1:0"]].concat());
        let (listener, address) = SpawnedProcess::listening(listener);
        let address = address.to_string();
        let more = ["--messages", "100", "--connect", &address];
        let connected = start(&[&bench[..], &more].concat()).ended();
        for (ended, listens) in [(connected, false), (listener.ended(), true)] {
            let table = ended.out.join("\n");
            assert!(ended.status.success() && !table.contains("(sender)"), "{ended:?}");
            assert!(table.contains("(connecting"), "{table}");
            assert_eq!(table.contains("(listening"), listens, "{table}");
        }
    }
}

#[test]
fn a_listener_refuses_strangers_and_goes_on() {
    if !connects_processes() {
        return;
    }
    let (mut listener, address) = SpawnedProcess::listener(&["bench", "--op", "read"]);
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    listener.wait_for("refused a connection");
    let address = address.to_string();
    // A connection of another kind hears so.
    let connection = SpawnedProcess::command(&["bench", "--size", "16", "--connect", &address]);
    connection.ended().assert_failed_in_one_line(1, &["the listening end --op"]);
    // And so does one that wants another operation.
    let other =
        SpawnedProcess::command(&["bench", "--op", "write", "--size", "16", "--connect", &address]);
    other.ended().assert_failed_in_one_line(1, &["--op"]);
    assert!(listener.wait_for("refused a connection").contains("this end --op"));
    assert!(listener.wait_for("refused a connection").contains("--op"));
    let few = ["--size", "16", "--messages", "10", "--connect", &address];
    let served = SpawnedProcess::command(&[&["bench", "--op", "read"], &few[..]].concat());
    assert_eq!((served.results().len(), listener.results().len()), (1, 1));
}

/// A value given at the listening end holds there, as with connections: both values are named.
#[test]
fn a_listener_refuses_other_values_than_its_own() {
    if !connects_processes() {
        return;
    }
    let both = ["bench", "--op", "send"];
    for (here, there, says) in [
        (&["--size", "64"][..], &["--size", "16"][..], "--size 16, the listening end 64"),
        (&["--size", "16,64"], &["--size", "16"], "1 size, the listening end 2 sizes"),
        (
            &["--unacked", "8"],
            &["--size", "16", "--unacked", "4"],
            "--unacked 4, the listening end 8",
        ),
        (&["--no-verify"], &["--size", "16"], "--no-verify off, the listening end on"),
        (&["--qps", "2"], &["--size", "16"], "--qps 1, the listening end 2"),
        (&["--rounds", "2"], &["--size", "16"], "--rounds 3, the listening end 2"),
        (
            &["--srq-classes", "--size", "16,64"],
            &["--srq-classes", "--size", "16,32"],
            "--size 16,32, the listening end 16,64",
        ),
        (&["--size", "16"], &["--srq-classes", "--size", "16,64"], "--size 16,64"),
    ] {
        let (mut listener, address) = SpawnedProcess::listener(&[&both, here].concat());
        let address = address.to_string();
        let rest = ["--messages", "10", "--connect", &address];
        let other = SpawnedProcess::command(&[&both[..], there, &rest].concat());
        other.ended().assert_failed_in_one_line(1, &[says]);
        let says = says.replace("the listening end", "this end");
        assert!(listener.wait_for("refused a connection").contains(&says), "{says}");
        // A peer with the same values is served.
        let like = SpawnedProcess::command(&[&both[..], here, &rest].concat()).results();
        assert_eq!(like.len(), listener.results().len());
    }
}

/// A peer that is killed in the middle is noticed by the other end, whichever it is and
/// whatever it waits for.
#[test]
fn a_killed_peer_ends_the_other_end() {
    if !connects_processes() {
        return;
    }
    for both in [
        &["pingpong", "--op", "send"][..],
        &["pingpong", "--op", "write", "--assume-in-order"],
        &["pingpong", "--op", "write-imm"],
        &["pingpong", "--op", "read"],
        &["pingpong", "--op", "send", "--transport", "uc"],
        &["pingpong", "--op", "send", "--transport", "ud"],
        &["bench", "--op", "send"],
        &["bench", "--op", "write"],
        &["bench", "--op", "read"],
        &["bench", "--op", "send", "--transport", "uc"],
        &["bench", "--op", "send", "--transport", "ud"],
    ] {
        let forever = match both[0] {
            "pingpong" => ["--size", "64", "--iterations", "100000000"],
            _ => ["--size", "64", "--seconds", "86400"],
        };
        for kills_listener in [true, false] {
            let both = [both, &["-v"]].concat();
            let (mut listener, address) = SpawnedProcess::listener(&both);
            let address = address.to_string();
            let args = [&both, &forever[..], &["--connect", &address]].concat();
            let mut connector = SpawnedProcess::command(&args);
            listener.wait_for("joined");
            connector.wait_for("joined");
            let (killed, survivor) =
                if kills_listener { (listener, connector) } else { (connector, listener) };
            killed.kill();
            let says = ["the other end has gone: look why it has ended, and start both again"];
            survivor.ended().assert_failed(1, &says);
        }
    }
}

/// Nothing gets lost on a connection between two processes: a message that is missing has found no
/// receive, and the end that knows it is the other one.
#[test]
fn what_the_other_process_had_no_receive_for_is_told() {
    if !connects_processes() {
        return;
    }
    let both = ["bench", "--op", "send", "--transport", "uc"];
    let (listener, address) = SpawnedProcess::listener(&both);
    let more = ["--size", "64", "--messages", "20000", "--unacked", "64", "--recv-depth", "1"];
    let address = address.to_string();
    let args = [&both[..], &more, &["--connect", &address]].concat();
    for lines in [SpawnedProcess::command(&args).results(), listener.results()] {
        let count = |of: &str| lines[0][of].as_u64();
        let lost = count("lost").unwrap();
        assert_eq!(count("messages").unwrap() + lost, 20_000, "{lines:?}");
        // The kernel's devices do not count them.
        let told = support::device() == "soft0";
        assert_eq!(count("dropped"), told.then_some(lost), "{lines:?}");
        assert!(lost > 0 || !told, "{lines:?}");
    }
}
