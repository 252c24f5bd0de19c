//! Devices over UDP: how they are named, and what the command says of them.
//!
//! Only on soft0: it makes devices over UDP itself.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

mod support;

use support::processes::{SpawnedProcess, connects_processes};
use support::{ScratchFile, assert_refused, text};

/// Lines of `devices --json`, without `--device`.
fn devices() -> Vec<Value> {
    let command =
        Command::new(env!("CARGO_BIN_EXE_rdma-conn")).args(["devices", "--json"]).output();
    let output = command.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn nameable(name: &str) -> Value {
    let all = devices();
    let found = all.iter().find(|line| line["kind"] == "nameable" && line["device"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {all:?}")).clone()
}

#[test]
fn devices_names_those_that_an_address_could_have() {
    let line = nameable("roce:127.0.0.1");
    assert_eq!(line["interface"], "lo");
    assert_eq!(
        (line["mtu_bytes"].as_u64(), line["path_mtu_bytes"].as_u64()),
        (Some(65_536), Some(4_096))
    );
    let all = Command::new(env!("CARGO_BIN_EXE_rdma-conn")).arg("devices").output().unwrap();
    let all = text(&all.stdout);
    assert!(all.contains("--device roce:127.0.0.1 "), "{all}");
    assert!(all.contains("lo, MTU 65536 B: path MTU 4096 B; UDP port 4791 is"), "{all}");
}

/// The listening end has the address of `--listen`, the connecting one that of its stream.
#[test]
fn a_device_without_an_address_takes_that_of_the_stream() {
    let listen = ["bench", "--device", "roce", "--listen", "127.31.0.1:0"];
    let (listener, address) = SpawnedProcess::listening(SpawnedProcess::command(&listen));
    let address = address.to_string();
    // Over the loopback interface the system takes its first address.
    let connect =
        ["bench", "--device", "roce", "--connect", &address, "--messages", "100", "--size", "16"];
    let (near, far) = (SpawnedProcess::command(&connect).results(), listener.results());
    assert_eq!(
        (&near[0]["device"], &far[0]["device"]),
        (&"roce:127.0.0.1".into(), &"roce:127.31.0.1".into())
    );
    let held = SpawnedProcess::listener(&["bench", "--device", "roce:lo"]);
    let line = nameable("roce:127.0.0.1");
    assert_eq!((&line["port_free"], &line["port_shared"]), (&false.into(), &true.into()));
    let holder = line["held_by"][0].as_str().unwrap();
    assert!(holder.starts_with("rdma-conn (process "), "{holder}");
    drop(held);
    assert_eq!(nameable("roce:127.0.0.1")["port_free"], true);
}

#[test]
fn names_without_an_address_are_refused_where_nothing_has_one() {
    let refused = [
        (
            &["bench", "--device", "roce"][..],
            2,
            "--device roce takes the address of --listen or --connect",
        ),
        (&["bench", "--device", "roce", "--listen", "0.0.0.0:0"], 2, "write --listen ADDRESS"),
        (
            &["pipe", "--device", "roce,seed=1", "--listen", "[::]:0"],
            2,
            "--device roce,seed=1 takes",
        ),
        (&["calibrate", "--device", "roce"], 2, "write roce:ADDRESS or roce:INTERFACE"),
        (
            &["bench", "--device", "roce:no-such-if"],
            1,
            "\"no-such-if\" is no IP address, and no interface",
        ),
        (&["devices", "--device", "roce"], 2, "roce:ADDRESS"),
    ];
    for (args, status, says) in refused {
        assert_refused(args, status, says);
    }
}

/// The listening end's device loses all received packets.
#[test]
fn an_unanswering_peer_is_named_with_the_next_command() {
    let (listener, address) =
        SpawnedProcess::listener(&["bench", "--device", "roce:127.31.0.3,loss=1"]);
    let address = address.to_string();
    let connect = ["bench", "--device", "roce:127.31.0.2", "--connect", &address, "--size", "16"];
    let says = [
        "127.31.0.3 does not answer: nothing came from",
        "`rdma-conn doctor --device roce:127.31.0.2 --connect 127.31.0.3`",
    ];
    SpawnedProcess::command(&connect).ended().assert_failed(1, &says);
    drop(listener);
}

/// Runs both ends in a network namespace with addresses that are no loopback addresses: what the
/// connecting end says, and whether it succeeds.
fn between(listening: &str, connecting: &str) -> Option<(bool, String)> {
    let script = format!(
        "ip link set lo up && for n in 1 2 3; do ip address add 10.9.0.$n/24 dev lo; done || exit 77
         $COMMAND bench --device {listening} --listen 10.9.0.1:7600 >/dev/null 2>&1 & listener=$!
         until $COMMAND bench --device {connecting} --connect 10.9.0.1:7600 --messages 100 --size 16; do
             kill -0 $listener || exit 1
         done
         wait $listener"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", &script]);
    let output = command.env("COMMAND", env!("CARGO_BIN_EXE_rdma-conn")).output().unwrap();
    let said = text(&output.stderr).to_owned();
    if output.status.code() == Some(77) || said.contains("unshare") {
        support::tally::skipped("the system does not let this user make network namespaces");
        return None;
    }
    Some((output.status.success(), said))
}

#[test]
fn a_peer_behind_another_address_causes_one_warning() {
    let Some((is_success, said)) = between("roce:10.9.0.2", "roce") else { return };
    assert!(is_success, "{said}");
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "three rounds, one warning: {said}");
    let says =
        ["the peer's device has the address 10.9.0.2", "stream 10.9.0.1", "address translation"];
    assert!(says.iter().all(|says| warnings[0].contains(says)), "{warnings:?}");
}

#[test]
fn networks_apart_for_handshake_and_data_are_no_reason_to_warn() {
    let Some((is_success, said)) = between("roce:10.9.0.2", "roce:10.9.0.3") else { return };
    assert!(is_success && !said.contains("WARN"), "{said}");
}

/// The set-up refuses, the command says what it says, and the listening end serves the next one.
#[test]
fn an_end_out_of_reach_is_refused_and_does_not_count() {
    if !connects_processes() {
        return;
    }
    let source = ScratchFile::new("out-of-reach", 16);
    let source = source.0.to_str().unwrap();
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("out-of-reach-copy");
    std::fs::create_dir_all(&into).unwrap();
    let few = ["--size", "16", "--messages", "50", "--connect"];
    let bench = [&["bench"], &few[..]].concat();
    let raw = [&["bench", "--op", "send"], &few[..]].concat();
    for (listening, connecting) in [
        (&["bench"][..], &bench[..]),
        (&["pingpong"], &["pingpong", "--size", "16", "--iterations", "20", "--connect"]),
        (&["bench", "--op", "send"], &raw[..]),
        (&["copy", "--into", into.to_str().unwrap(), "--once"], &["copy", source, "--to"]),
    ] {
        let on_soft0 = [listening, &["--device", "soft0"]].concat();
        let (mut listener, address) = SpawnedProcess::listener(&on_soft0);
        let address = address.to_string();
        let connector = |device: &str| {
            SpawnedProcess::command(&[connecting, &[&*address, "--device", device]].concat())
        };
        let refused = connector("roce:127.31.0.4").ended();
        let says = format!("{address} refused: the ends cannot reach each other: soft0 connects ");
        let told = refused.err.iter().find(|line| line.contains(&says));
        let names_flag = told.is_some_and(|line| line.contains("(--device)"));
        assert!(names_flag && !refused.status.success(), "{listening:?}: {refused:#?}");
        let said = listener.wait_for("refused a connection");
        assert!(said.contains("the ends cannot reach each other: soft0"), "{listening:?}: {said}");
        let served = connector("soft0");
        assert_eq!((served.results().len(), listener.results().len()), (1, 1), "{listening:?}");
    }
    std::fs::remove_dir_all(&into).unwrap();
}
