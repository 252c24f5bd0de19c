//! `rdma-conn roced`: an address of the network that stays bound.
//!
//! Only on soft0: it makes devices over UDP itself.

mod support;

use std::net::UdpSocket;
use std::process::Command;

use rustix::process::Signal;
use support::processes::SpawnedProcess;
use support::text;

/// An address of this run: tests of other runs have others.
fn address() -> String {
    let run = std::process::id();
    format!("127.{}.{}.131", 1 + run / 256 % 254, run % 256)
}

fn is_free() -> bool {
    // The port of RoCE v2.
    UdpSocket::bind((address(), 4_791)).is_ok()
}

fn roced() -> SpawnedProcess {
    // What runs the tests may ignore signals, as a shell does for a job in the background.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_rdma-conn")]);
    let mut running = SpawnedProcess::new(command.args(["roced", &address()]));
    running.wait_for(&format!("roce:{} is bound", address()));
    running
}

#[test]
fn an_address_stays_bound_until_the_last_process_of_it_ends() {
    let (first, second) = (roced(), roced());
    first.signal(Signal::KILL);
    assert_eq!(first.ended().status.code(), None);
    assert!(!is_free());
    let third = roced();
    for process in [second, third] {
        assert!(!is_free());
        process.signal(Signal::TERM);
        assert_eq!(process.ended().status.code(), Some(0));
    }
    assert!(is_free());
}

#[test]
fn what_is_no_address_of_this_machine_is_refused() {
    let address = &*address();
    for (words, status, says) in [
        (&["roced", "here"][..], 2, "here"),
        (&["roced", "192.0.2.1"], 1, "no interface here has this address"),
        (&["roced", address, "--device", "soft0"], 2, "leave --device out"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_rdma-conn")).args(words).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.starts_with("rdma-conn: ") && error.contains(says), "{error}");
    }
}
