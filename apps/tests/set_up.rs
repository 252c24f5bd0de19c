//! A machine that is not set up: each fault is reported in one line that says what to do.
//!
//! Only on soft0, rxe0: it is about the machine, which is the same in other lanes.

use std::process::Command;

mod support;

use support::processes::{SpawnedProcess, connects_processes, is_of_the_kernel};
use support::{device, tally};

const COMMANDS: [&[&str]; 5] = [
    &["bench", "--size", "16", "--messages", "10"],
    &["pingpong", "--size", "16", "--iterations", "10"],
    &["bench", "--protocol", "buffered-read", "--size", "16", "--messages", "10"],
    &["bench", "--protocol", "buffered-write", "--size", "16", "--messages", "10"],
    &["bench", "--op", "send", "--size", "16", "--messages", "10"],
];

#[test]
fn a_device_that_is_not_there_is_refused_with_what_tells_more() {
    is_of_the_kernel();
    for command in COMMANDS {
        let missing = SpawnedProcess::command(&[command, &["--device", "rxe77"]].concat());
        let says = ["no device is called rxe77", "`rdma-conn devices`"];
        missing.ended().assert_failed_in_one_line(2, &says);
    }
}

#[test]
fn a_gid_that_is_not_there_is_refused_with_what_lists_them() {
    if !connects_processes() {
        return;
    }
    let ends = [&[][..], &["--listen", "127.0.0.1:0"], &["--connect", "127.0.0.1:9"]];
    for command in COMMANDS {
        for end in ends {
            let command =
                SpawnedProcess::command(&[command, end, &["--gid-index", "250"]].concat());
            let says = ["250", "`rdma-conn devices`"];
            command.ended().assert_failed_in_one_line(2, &says);
        }
    }
}

/// The command without the right to lock more than 64 KiB of memory; root's does not
/// depend on the limit.
fn limited(args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 64 && exec setpriv --reuid=65534 --clear-groups \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_rdma-conn")).args(["--device", &device(), "--json"]).args(args);
    command
}

#[test]
fn a_limit_of_locked_memory_is_named() {
    if !is_of_the_kernel() {
        return;
    }
    for command in COMMANDS {
        let args: Vec<&str> =
            command.iter().map(|arg| if *arg == "16" { "65536" } else { arg }).collect();
        SpawnedProcess::new(&mut limited(&args))
            .ended()
            .assert_failed_in_one_line(1, &["ulimit -l"]);
    }
}

#[test]
fn what_keeps_soft0_within_its_process_is_named() {
    is_of_the_kernel();
    let limited = ["-c", "ulimit -f 1 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_rdma-conn")];
    let output = Command::new("sh").args(limited).arg("devices").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let says = ["soft0 does not reach other processes: ", "sealed memory files", "ulimit -f"];
    assert!(says.iter().all(|part| said.contains(part)), "{said}");
}

/// A device on a network interface without an address, for as long as it lives.
struct Bare;

impl Bare {
    const DEVICE: &str = "rxe_bare";

    fn new() -> Bare {
        run("ip link add bare0 type dummy");
        run("ip link set bare0 addrgenmode none up");
        run(&format!("rdma link add {} type rxe netdev bare0", Bare::DEVICE));
        Bare
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // Its device goes with it; a test that fails says more than what is left behind.
        let _ = Command::new("ip").args(["link", "del", "bare0"]).status();
    }
}

#[track_caller]
fn run(line: &str) {
    let mut words = line.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status();
    assert!(status.as_ref().is_ok_and(|s| s.success()), "{line}: {status:?}");
}

#[test]
fn a_link_without_an_address_or_down_is_told_apart() {
    // It takes root's rights, and another device for a while.
    if !is_of_the_kernel() || !tally::is_alone() {
        return;
    }
    let _bare = Bare::new();
    let on_it = ["--device", Bare::DEVICE];
    // Without an address there is a link-local GID, which will do within the machine.
    for command in COMMANDS {
        assert_eq!(SpawnedProcess::command(&[command, &on_it].concat()).results().len(), 1);
        let told = if command.contains(&"--protocol") { 3 } else { 1 };
        let (listener, address) = SpawnedProcess::listener(&[&on_it, &command[..told]].concat());
        let (address, mut args) = (address.to_string(), [&on_it, command].concat());
        if command.contains(&"--op") {
            continue; // The listener was started without `--op`.
        }
        args.extend(["--connect", &address]);
        let connector = SpawnedProcess::command(&args);
        assert_eq!((connector.results().len(), listener.results().len()), (1, 1), "{command:?}");
    }
    run("ip link set bare0 down");
    for command in COMMANDS {
        let down = SpawnedProcess::command(&[command, &on_it].concat());
        down.ended().assert_failed_in_one_line(1, &["it is DOWN", "ip link"]);
    }
}
