//! A signal ends a measurement early: with the results so far, and a word to the other end.
//!
//! Not on apart, distant: its ends are processes, as apart makes them, and soft0@5us joins none.
//! Shows: the command.

mod support;

use rustix::process::Signal;
use support::ScratchFile;
use support::processes::{EndedProcess, SpawnedProcess, connects_processes};

/// Measurements that run until they are interrupted, with what their first result has.
const ENDLESS: [&[&str]; 7] = [
    &["bench", "--size", "16", "--seconds", "86400"],
    &["bench", "--size", "16", "--protocol", "buffered-read", "--messages", "100000000000"],
    &["bench", "--size", "16", "--op", "send", "--seconds", "86400"],
    &["pingpong", "--size", "16", "--iterations", "100000000000"],
    &["pingpong", "--size", "16", "--op", "send", "--iterations", "100000000000"],
    &["bench", "--size", "16", "--op", "write", "--seconds", "86400"],
    &["bench", "--size", "16", "--op", "read", "--seconds", "86400"],
];

/// It has ended by a signal, with one result.
#[track_caller]
fn assert_interrupted(ended: &EndedProcess, status: i32, why: &str) {
    assert_eq!(ended.status.code(), Some(status), "{ended:#?}");
    assert_eq!(ended.out.len(), 1, "the results so far: {ended:#?}");
    let line: serde_json::Value = serde_json::from_str(&ended.out[0]).unwrap();
    assert!(line["messages"].as_u64() > Some(0), "{line}");
    assert_eq!(line["rounds"], 1, "{line}");
    let last = ended.err.last().unwrap();
    assert!(last.starts_with("rdma-conn: ") && last.contains(why), "{ended:#?}");
}

#[test]
fn a_signal_in_one_process_prints_the_results_so_far() {
    for command in ENDLESS {
        for (signal, status, name) in [(Signal::INT, 130, "SIGINT"), (Signal::TERM, 143, "SIGTERM")]
        {
            let mut running = SpawnedProcess::command(&[command, &["-v"]].concat());
            running.wait_for(under_way(command));
            running.signal(signal);
            let why = format!("interrupted by {name}");
            assert_interrupted(&running.ended(), status, &why);
        }
    }
}

#[test]
fn a_list_that_is_interrupted_prints_what_is_measured() {
    let list = ["bench", "--size", "16", "--unacked", "4,8", "--seconds", "86400", "-v"];
    let mut running = SpawnedProcess::command(&list);
    running.wait_for(UNDER_WAY);
    running.signal(Signal::INT);
    let ended = running.ended();
    assert_interrupted(&ended, 130, "interrupted by SIGINT");
    let line: serde_json::Value = serde_json::from_str(&ended.out[0]).unwrap();
    assert_eq!(line["unacked"], 4);
}

/// A script runs jobs in its background with SIGINT ignored, and so does what they start.
#[test]
fn a_list_ends_at_a_signal_where_another_one_is_ignored() {
    let mut command = std::process::Command::new("env");
    command.args(["--default-signal=TERM,HUP", "--ignore-signal=INT"]);
    command.args([env!("CARGO_BIN_EXE_rdma-conn"), "--device", &support::device(), "--json"]);
    command.args(["bench", "--size", "16", "--unacked", "4,8", "--seconds", "86400", "-v"]);
    let mut running = SpawnedProcess::new(&mut command);
    running.wait_for(UNDER_WAY);
    running.signal(Signal::TERM);
    assert_interrupted(&running.ended(), 143, "interrupted by SIGTERM");
}

/// Returns the log message of the end that sends when there is something to be measured, or, of
/// `bench`, of the end that receives.
fn under_way(command: &[&str]) -> &'static str {
    match (command[0], command.contains(&"--op")) {
        ("pingpong", _) => "the warm-up is over",
        (_, true) => "joined",
        _ => UNDER_WAY,
    }
}

/// Log message at the first received message.
const UNDER_WAY: &str = "the first message has arrived";

#[test]
fn a_group_that_is_interrupted_prints_the_results_so_far() {
    let command = ["multicast", "--seconds", "86400", "-v", "--push", "every:1,every:5"];
    let mut running = SpawnedProcess::command(&command);
    running.wait_for("the group sends");
    running.signal(Signal::INT);
    let ended = running.ended();
    assert_eq!((ended.status.code(), ended.out.len()), (Some(130), 1), "{ended:#?}");
}

#[test]
fn an_interrupted_member_prints_its_result_and_ends_the_group() {
    if !connects_processes() {
        return;
    }
    let group = ["multicast", "--seconds", "86400", "-v", "--senders", "3"];
    let mut leader = SpawnedProcess::command(&[&group[..], &["--listen", "127.0.0.1:0"]].concat());
    // "listening on ADDRESS for 2 more, …"
    let said = leader.wait_for("listening on ");
    let address = said.split(' ').nth(2).unwrap();
    let join = || SpawnedProcess::command(&["multicast", "--connect", address]);
    let first = join();
    leader.wait_for("1 of 2 members is there");
    let others = [first, join()];
    leader.wait_for("2 of 2 members are there");
    leader.wait_for("the group sends");
    leader.signal(Signal::INT);
    let ended = leader.ended();
    assert_eq!((ended.status.code(), ended.out.len()), (Some(130), 1), "{ended:#?}");
    for other in others {
        let ended = other.ended();
        assert_eq!((ended.status.code(), ended.out.len()), (Some(1), 1), "{ended:#?}");
        assert!(ended.err.last().unwrap().contains("the group has failed"), "{ended:#?}");
    }
}

#[test]
fn an_interrupted_connecting_end_informs_the_listening_end() {
    if !connects_processes() {
        return;
    }
    for command in ENDLESS {
        let (mut listener, address) = SpawnedProcess::listener(
            &[command[0], "-v"].into_iter().chain(protocol(command)).collect::<Vec<_>>(),
        );
        let address = address.to_string();
        let mut connector =
            SpawnedProcess::command(&[command, &["-v", "--connect", &address]].concat());
        match command[0] {
            "bench" => listener.wait_for(under_way(command)),
            _ => connector.wait_for(under_way(command)),
        };
        connector.signal(Signal::INT);
        assert_interrupted(&connector.ended(), 130, "interrupted by SIGINT");
        let says = "the other end: interrupted by SIGINT";
        assert_interrupted(&listener.ended(), 1, says);
    }
}

#[test]
fn a_listening_end_that_is_interrupted_tells_the_other_one_why() {
    if !connects_processes() {
        return;
    }
    for command in ENDLESS {
        let (mut listener, address) = SpawnedProcess::listener(
            &[command[0], "-v"].into_iter().chain(protocol(command)).collect::<Vec<_>>(),
        );
        let address = address.to_string();
        let connector = SpawnedProcess::command(&[command, &["--connect", &address]].concat());
        listener.wait_for(if command.contains(&"--op") { "joined" } else { UNDER_WAY });
        listener.signal(Signal::TERM);
        let ended = listener.ended();
        if command.contains(&"bench") && !command.contains(&"--op") {
            assert_interrupted(&ended, 143, "interrupted by SIGTERM");
        }
        assert_eq!(ended.status.code(), Some(143), "{ended:#?}");
        let ended = connector.ended();
        ended.assert_failed(1, &["the other end: interrupted by SIGTERM"]);
    }
}

#[test]
fn a_wait_for_the_other_end_is_over_at_a_signal() {
    if !connects_processes() {
        return;
    }
    let listen = ["--listen", "127.0.0.1:0"];
    for command in [
        &["bench"][..],
        &["pingpong"],
        &["bench", "--op", "send"],
        &["pingpong", "--op", "send"],
        &["pingpong", "--compat", "ibv_rc_pingpong"],
        &["multicast", "--members", "2"],
    ] {
        let mut listener = SpawnedProcess::command(&[command, &listen].concat());
        listener.wait_for("listening on ");
        listener.signal(Signal::INT);
        assert_exits(&listener.ended());
    }
}

#[test]
fn a_member_that_waits_for_the_others_exits_at_a_signal() {
    if !connects_processes() {
        return;
    }
    let group = ["multicast", "--members", "3", "--listen", "127.0.0.1:0"];
    let mut leader = SpawnedProcess::command(&group);
    let said = leader.wait_for("listening on ");
    let address = said.split(' ').nth(2).unwrap();
    let mut member = SpawnedProcess::command(&["multicast", "--connect", address]);
    member.wait_for("joining ");
    member.signal(Signal::INT);
    assert_exits(&member.ended());
    leader.signal(Signal::INT);
    assert_exits(&leader.ended());
}

/// A file that is sent one byte at a time, which takes far longer than the test.
fn long_input(name: &str) -> ScratchFile {
    let scratch = ScratchFile::new(name, 0);
    std::fs::File::create(&scratch.0).unwrap().set_len(256 << 20).unwrap();
    scratch
}

#[test]
fn a_file_that_is_sent_in_one_process_ends_at_a_signal() {
    let file = long_input("interrupted-alone");
    let path = file.0.to_str().unwrap();
    let mut running = SpawnedProcess::command(&["bench", "--input", path, "--size", "1", "-v"]);
    running.wait_for(UNDER_WAY);
    running.signal(Signal::INT);
    assert_exits(&running.ended());
}

#[test]
fn an_interrupted_end_of_a_file_transfer_informs_the_other_end() {
    if !connects_processes() {
        return;
    }
    let file = long_input("interrupted-ends");
    let path = file.0.to_str().unwrap();
    for listener_is_interrupted in [false, true] {
        let (mut listener, address) = SpawnedProcess::listener(&["bench", "-v"]);
        let address = address.to_string();
        let connect = ["bench", "--input", path, "--size", "1", "--connect", &address];
        let connector = SpawnedProcess::command(&connect);
        listener.wait_for(UNDER_WAY);
        let (interrupted, other) = match listener_is_interrupted {
            true => (listener, connector),
            false => (connector, listener),
        };
        interrupted.signal(Signal::INT);
        let (interrupted, other) = (interrupted.ended(), other.ended());
        assert_eq!(interrupted.status.code(), Some(130), "{interrupted:#?}");
        let says = interrupted.err.last().unwrap();
        assert_eq!(says, "rdma-conn: interrupted by SIGINT", "{interrupted:#?}");
        assert_eq!(other.status.code(), Some(1), "{other:#?}");
        let says = other.err.last().unwrap();
        assert_eq!(says, "rdma-conn: the other end: interrupted by SIGINT", "{other:#?}");
    }
}

#[test]
fn a_signal_in_a_later_round_prints_the_rounds_before_it() {
    let mut running = SpawnedProcess::command(&[
        "bench",
        "--size",
        "16",
        "--rounds",
        "1000",
        "--seconds",
        "100",
        "-v",
    ]);
    running.wait_for("a round is over");
    running.signal(Signal::INT);
    let ended = running.ended();
    assert_eq!((ended.status.code(), ended.out.len()), (Some(130), 1), "{ended:#?}");
    let line: serde_json::Value = serde_json::from_str(&ended.out[0]).unwrap();
    assert!(line["rounds"].as_u64() > Some(0), "{line}");
    assert_eq!(ended.err.last().unwrap(), "rdma-conn: interrupted by SIGINT", "{ended:#?}");
}

/// It has exited because of SIGINT, without results, and says no more than that: nothing was under
/// way that had to be given up.
#[track_caller]
fn assert_exits(ended: &EndedProcess) {
    assert_eq!((ended.status.code(), ended.out.len()), (Some(130), 0), "{ended:#?}");
    assert_eq!(ended.err.last().unwrap(), "rdma-conn: interrupted by SIGINT", "{ended:#?}");
}

/// The flags of a command that both ends have.
fn protocol(command: &[&'static str]) -> Vec<&'static str> {
    let of = |flag| command.iter().position(|arg| *arg == flag);
    let at = of("--protocol").or(of("--op"));
    at.map_or(Vec::new(), |at| command[at..at + 2].to_vec())
}
