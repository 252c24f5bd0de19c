//! `rdma-conn soft --faults`: programs that were not written for it fail as they are asked to.
//!
//! Only on soft0: it runs programs on soft0, with the library that it builds.

mod support;
#[path = "support/with_library.rs"]
mod with_library;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use support::tally;
use support::text;
use with_library::{GuardedChild, command, run};

const PINGPONG: &str = "/usr/bin/ibv_rc_pingpong";
const ASYNCWATCH: &str = "/usr/bin/ibv_asyncwatch";

/// Reports whether Debian's program is there.
fn is_installed(program: &str) -> bool {
    let is_there = Path::new(program).exists();
    if !is_there {
        tally::skipped(&format!("{program} is not installed"));
    }
    is_there
}

#[test]
fn what_is_no_plan_is_refused_and_says_what_is() {
    for (plan, says) in [
        ("lost=1", "no fault is called lost: there are rnr, retry, loss, flush, delay and event"),
        ("rnr=2", "rnr=2: a probability is a number from 0 to 1"),
        ("event=port_err", "the events are device_fatal, port_active, port_err, lid_change"),
    ] {
        let output = run(&["soft", "--faults", plan, "--", "true"]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("rdma-conn: --faults ") && error.contains(says), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// The program says what it is given.
#[test]
fn a_seed_that_is_not_given_is_drawn_and_printed() {
    let say = ["--", "sh", "-c", "echo $RDMA_CONN_SOFT_FAULTS"];
    let given = run(&[&["soft", "--faults", "rnr=0.5,seed=7"], &say[..]].concat());
    assert_eq!((text(&given.stdout), text(&given.stderr)), ("rnr=0.5,seed=7\n", ""));
    // Nothing is drawn for.
    let sure = run(&[&["soft", "--faults", "delay=5us"], &say[..]].concat());
    assert_eq!((text(&sure.stdout), text(&sure.stderr)), ("delay=5us\n", ""));
    let drawn = run(&[&["soft", "--faults", "rnr=0.5"], &say[..]].concat());
    let seed = text(&drawn.stderr).trim().strip_prefix("rdma-conn soft: faults with seed ");
    let seed: u64 = seed.unwrap().parse().unwrap();
    assert_eq!(text(&drawn.stdout), format!("rnr=0.5,seed={seed}\n"));
}

/// The command is itself a program that opens libibverbs.so.1.
#[test]
fn a_program_without_the_command_says_why_it_has_no_faults() {
    let mut devices = command(&["soft", "--", env!("CARGO_BIN_EXE_rdma-conn"), "devices"]);
    let output = devices.env("RDMA_CONN_SOFT_FAULTS", "rnr=2").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let says = "soft0: no faults are injected: RDMA_CONN_SOFT_FAULTS: rnr=2: a probability is a";
    assert_eq!(text(&output.stderr).matches(says).count(), 2, "{}", text(&output.stderr));
}

#[test]
fn ibv_asyncwatch_prints_an_event_of_the_port() {
    if !is_installed(ASYNCWATCH) {
        return;
    }
    let words = ["soft", "--faults", "event=port_err@500ms,seed=1", "--", ASYNCWATCH];
    let mut watch = GuardedChild(command(&words).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let event = lines.find(|line| line.as_ref().unwrap().contains("event_type"));
    assert_eq!(event.unwrap().unwrap(), "  event_type IBV_EVENT_PORT_ERR (10), port 1");
}

/// The client fails, and the server does not learn of it.
fn client(plan: &str) -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let arguments = ["--", PINGPONG, "-g", "0", "-p", &port];
    let words = [&["soft"], &arguments[..]].concat();
    let mut server = command(&words);
    let mut server =
        GuardedChild(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    loop {
        assert!(server.0.try_wait().unwrap().is_none(), "the server has ended");
        // The server may not listen yet.
        let words = [&["soft", "--faults", plan], &arguments[..], &["127.0.0.1"]].concat();
        let output = run(&words);
        // The last line has the number of a process.
        let (error, met) = text(&output.stderr).split_once("rdma-conn faults ").unwrap();
        let error = error.to_owned();
        if !error.contains("Couldn't connect to") {
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(met.contains(" struck, 1 failed"), "{met}");
            return error;
        }
        std::thread::yield_now();
    }
}

#[test]
fn ibv_rc_pingpong_fails_the_same_way_twice_with_one_seed() {
    if !is_installed(PINGPONG) {
        return;
    }
    let first = client("flush=0.01,seed=7");
    assert_eq!(client("flush=0.01,seed=7"), first);
    assert!(first.contains("Failed status Work Request Flushed Error (5) for wr_id "), "{first}");
    let lost = client("retry=1,seed=7");
    assert!(
        lost.contains("Failed status transport retry counter exceeded (12) for wr_id 2"),
        "{lost}"
    );
}
