//! `kill -9` in the middle of a transfer, in every mode of the connections:
//! the other end fails within the transport's timeout, in one line that says why.
//!
//! Not on apart, distant: its ends are processes, as apart makes them, and soft0@5us joins none.
//! Shows: the command.
//! Not on wired: programs that are not of this project do not know the device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

mod support;

use support::ScratchFile;
use support::modes::{MODES, Mode, UNCONTROLLED};
use support::processes::{SpawnedProcess, connects_processes, is_of_the_kernel};

/// Error of an end about a peer that has gone without a word.
const LOST: &[&str] = &[" was lost: it does not answer"];

/// Log messages of an end that has received something, and of one that waits without result.
const UNDER_WAY: &str = "the first message has arrived";
const WAITS: &str = "nothing has happened for a while";

/// Tests that take the modes in turn.
const TESTS: usize = 3;

/// The modes of one of these tests: every third one, so that the tests together have each mode
/// once. Worlds kill each end of each connection at any point; here it is processes of the system
/// that die.
fn modes(test: usize) -> impl Iterator<Item = &'static Mode> {
    MODES.iter().skip(test).step_by(TESTS)
}

/// Sessions at a time.
const AT_A_TIME: usize = 8;

/// A session without an end, under way. How much the connecting ends say is `-v` or `-vv`.
#[track_caller]
fn under_way(mode: &Mode, verbosity: &str) -> (SpawnedProcess, Vec<SpawnedProcess>) {
    let (mut listener, address) = SpawnedProcess::listener(&mode.listener(&["-v"]));
    let address = address.to_string();
    let endless = match mode.command {
        "bench" => ["--size", "16", "--seconds", "86400"],
        _ => ["--size", "16", "--iterations", "1000000000"],
    };
    let args = mode.connector(&address, &[&endless[..], &[verbosity]].concat());
    let mut connectors: Vec<_> =
        (0..mode.processes).map(|_| SpawnedProcess::command(&args)).collect();
    if mode.command == "bench" {
        connectors.iter_mut().for_each(|connector| drop(connector.wait_for("it begins")));
    }
    listener.wait_for(UNDER_WAY);
    (listener, connectors)
}

/// Tries all modes, some at a time: most of what it takes is waiting for a transport to
/// give up.
#[track_caller]
fn each<'a>(modes: impl Iterator<Item = &'a Mode>, test: impl Fn(&Mode) + Sync) {
    let (modes, failures) = (Mutex::new(modes.collect::<Vec<_>>()), Mutex::new(Vec::new()));
    let next = || modes.lock().unwrap().pop();
    let work = || {
        for mode in std::iter::from_fn(next) {
            let tried = catch_unwind(AssertUnwindSafe(|| test(mode)));
            if let Err(panic) = tried {
                let why = panic.downcast::<String>().map(|why| *why).unwrap_or_default();
                failures.lock().unwrap().push(format!("{mode:?}: {why}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_sender_notices_that_its_receiver_was_killed() {
    if !connects_processes() {
        return;
    }
    each(modes(0).chain(UNCONTROLLED), |mode| {
        let (listener, connectors) = under_way(mode, "-v");
        listener.kill();
        for connector in connectors {
            connector.ended().assert_failed(1, LOST);
        }
    });
}

#[test]
fn a_receiver_notices_that_a_sender_was_killed() {
    if !connects_processes() {
        return;
    }
    each(modes(1).chain(UNCONTROLLED), |mode| {
        let (listener, mut connectors) = under_way(mode, "-v");
        connectors.remove(0).kill();
        listener.ended().assert_failed(1, LOST);
        for connector in connectors {
            let ended = connector.ended();
            let why = ended.failure(1);
            // It was told by the listening end, or has seen that one leave.
            assert!(why.contains(LOST[0]) || why.contains("the other end: "), "{why}");
        }
    });
}

/// The receiver takes nothing any more, but its device answers: the sender has used up
/// its credits, and nothing of it is on its way.
#[test]
fn a_blocked_sender_notices_that_its_receiver_was_killed() {
    if !connects_processes() {
        return;
    }
    each(modes(2), |mode| {
        let (listener, mut connectors) = under_way(mode, "-vv");
        listener.stop();
        connectors[0].wait_for(WAITS);
        listener.kill();
        for connector in connectors {
            connector.ended().assert_failed(1, LOST);
        }
    });
}

/// Without credits it keeps sending to a receiver that has nothing left to receive with.
/// That takes a device which answers while its process stands still: soft0's is part of it.
#[test]
fn a_sender_without_credits_gives_up_on_a_stopped_receiver() {
    if !is_of_the_kernel() {
        return;
    }
    let mode = &UNCONTROLLED[0];
    let (listener, mut connectors) = under_way(mode, "-v");
    listener.stop();
    let says = ["the receiver fell behind"];
    connectors.remove(0).ended().assert_failed(1, &says);
    listener.kill();
}

#[test]
fn half_a_file_is_no_file() {
    if !connects_processes() {
        return;
    }
    let file = ScratchFile::new("a-file-that-is-cut-off", 1 << 24);
    let path = file.0.to_str().unwrap();
    for kills_listener in [true, false] {
        let (mut listener, address) = SpawnedProcess::listener(&["bench", "-v"]);
        let slow = ["--size", "16", "--preset", "sequential", "--input", path];
        let address = address.to_string();
        let args = [&["bench", "--connect", &address], &slow[..]].concat();
        let connector = SpawnedProcess::command(&args);
        listener.wait_for(UNDER_WAY);
        if kills_listener {
            listener.kill();
            connector.ended().assert_failed_in_one_line(1, LOST);
        } else {
            connector.kill();
            listener.ended().assert_failed(1, LOST);
        }
    }
}
