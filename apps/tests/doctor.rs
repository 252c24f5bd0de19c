//! `rdma-conn doctor`: what it finds on a path that is sound, and on paths that are not.
//!
//! Only on soft0: it makes devices over UDP itself.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

use serde_json::Value;

mod support;

use support::processes::{EndedProcess, SpawnedProcess};
use support::text;

/// A line of a report.
#[track_caller]
fn line<'l>(lines: &'l [Value], check: &str) -> &'l Value {
    let found = lines.iter().find(|line| line["check"] == check);
    found.unwrap_or_else(|| panic!("no {check} in {lines:#?}"))
}

#[track_caller]
fn assert_line(lines: &[Value], check: &str, verdict: &str, says: &str) {
    let found = line(lines, check);
    assert_eq!(found["verdict"], verdict, "{found}");
    assert!(found["found"].as_str().unwrap().contains(says), "{found} says not {says:?}");
    assert_eq!(found["remedy"].is_null(), verdict == "ok", "{found}");
}

fn lines(out: &[String]) -> Vec<Value> {
    out.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs it to its end: the report, and its exit status.
fn doctor(args: &[&str]) -> (Vec<Value>, Option<i32>) {
    let command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"))
        .args(["doctor", "--json"])
        .args(args)
        .output();
    let output = command.unwrap();
    let out: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    (lines(&out), output.status.code())
}

/// An end that answers.
fn listening(device: &str) -> SpawnedProcess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
    let mut running =
        SpawnedProcess::new(command.args(["doctor", "--device", device, "--listen", "--json"]));
    running.wait_for("listening on");
    running
}

fn report(running: SpawnedProcess) -> (Vec<Value>, Option<i32>) {
    let EndedProcess { status, out, .. } = running.ended();
    (lines(&out), status.code())
}

/// Forwards packets that arrive at `at` from the peer of `to`, and back, with its own address, as
/// an address translator does. Packets for which `drops` is true, by number and length, are lost.
fn translate(at: &'static str, to: &'static str, drops: fn(u32, usize) -> bool) {
    let socket = UdpSocket::bind((at, 4_791)).unwrap();
    std::thread::spawn(move || {
        let (mut client, mut number, mut room) = (None, 0, [0; 8_192]);
        while let Ok((len, from)) = socket.recv_from(&mut room) {
            number += 1;
            let dest = match from.ip().to_string() == to {
                true => client,
                false => {
                    client = Some(from);
                    Some(SocketAddr::new(to.parse().unwrap(), 4_791))
                }
            };
            if let (false, Some(dest)) = (drops(number, len), dest) {
                let _ = socket.send_to(&room[..len], dest);
            }
        }
    });
}

#[test]
fn a_machine_is_tested_without_a_peer() {
    let (lines, status) = doctor(&["--device", "roce:127.31.4.1"]);
    assert_eq!(status, Some(0), "{lines:#?}");
    assert_line(&lines, "address", "ok", "127.31.4.1 is an address of lo");
    assert_line(&lines, "port", "ok", "is free");
    assert_line(&lines, "mtu", "ok", "MTU of 65536 bytes, so packets carry up to 4096");
    assert_line(&lines, "offloads", "ok", "GSO");
    for check in ["receive_room", "send_room"] {
        assert!(["ok", "warning"].contains(&line(&lines, check)["verdict"].as_str().unwrap()));
    }
    let (lines, status) = doctor(&["--device", "roce:192.0.2.1"]);
    assert_eq!((status, lines.len()), (Some(1), 1));
    assert_line(&lines, "address", "failed", "no interface that is up has 192.0.2.1");
}

#[test]
fn the_process_that_has_the_port_is_named() {
    let _held = UdpSocket::bind("127.31.4.2:4791").unwrap();
    let (lines, status) = doctor(&["--device", "roce:127.31.4.2"]);
    assert_eq!(status, Some(1));
    assert_line(&lines, "port", "failed", "127.31.4.2:4791");
    let remedy = line(&lines, "port")["remedy"].as_str().unwrap();
    assert!(remedy.contains(&format!("(process {})", std::process::id())), "{remedy}");
}

#[test]
fn a_shared_port_fails_only_tests_with_a_peer() {
    let held = SpawnedProcess::listener(&["bench", "--device", "roce:127.31.4.10"]);
    let (lines, status) = doctor(&["--device", "roce:127.31.4.10"]);
    assert_eq!(status, Some(0), "{lines:#?}");
    assert_line(&lines, "port", "ok", "shares it with this user's processes");
    let (lines, status) = doctor(&["--device", "roce:127.31.4.10", "--connect", "127.31.4.11"]);
    assert_eq!(status, Some(1), "{lines:#?}");
    assert_line(&lines, "port", "failed", "rdma-conn (process");
    drop(held);
}

#[test]
fn a_sound_path_passes_all_tests_despite_packet_loss() {
    let far = listening("roce:127.31.4.3,loss=0.05,seed=3");
    let (near, status) = doctor(&[
        "--device",
        "roce:127.31.4.4,duplication=0.1,reordering=0.1",
        "--connect",
        "roce:127.31.4.3",
    ]);
    assert_eq!(status, Some(0), "{near:#?}");
    assert_line(&near, "reach", "ok", "127.31.4.3 answers");
    assert_line(&near, "translation", "ok", "both ways");
    assert_line(&near, "round_trip", "ok", "µs");
    assert_line(&near, "path_mtu", "ok", "4096 bytes pass");
    assert!(line(&near, "loss")["found"].as_str().unwrap().contains(" of 1000 packets"));
    assert_line(&near, "queue_pair", "ok", "16 messages");
    let (far, status) = report(far);
    assert_eq!(status, Some(0), "{far:#?}");
    assert_line(&far, "reach", "ok", "from 127.31.4.4");
    assert_line(&far, "translation", "ok", "as they are");
    assert_line(&far, "queue_pair", "ok", "16 messages");
}

#[test]
fn translated_addresses_short_paths_and_lost_packets_are_found() {
    // A path of 1,100 bytes, which loses each 50th packet.
    translate("127.31.4.6", "127.31.4.5", |number, len| len > 1_100 || number % 50 == 0);
    let far = listening("roce:127.31.4.5");
    let (near, status) = doctor(&["--device", "roce:127.31.4.7", "--connect", "127.31.4.6"]);
    assert_eq!(status, Some(1), "{near:#?}");
    assert_line(&near, "reach", "ok", "answers");
    assert_line(&near, "translation", "failed", "127.31.4.7:4791 come from 127.31.4.6:4791");
    assert_line(
        &near,
        "path_mtu",
        "failed",
        "both interfaces permit packets with 4096 bytes, and only 1024 pass",
    );
    assert_line(&near, "loss", "warning", " of 1000 packets were lost");
    assert!(!line(&near, "loss")["found"].as_str().unwrap().starts_with("0 "), "{near:#?}");
    assert_line(&near, "queue_pair", "warning", "not tried");
    let (far, status) = report(far);
    assert_eq!(status, Some(1), "{far:#?}");
    assert_line(&far, "translation", "failed", "127.31.4.7:4791 come from 127.31.4.6:4791");
}

#[test]
fn a_peer_that_is_not_there_is_told_from_one_that_is_silent() {
    let (lines, status) = doctor(&["--device", "roce:127.31.4.8", "--connect", "127.31.4.9"]);
    assert_eq!(status, Some(1));
    assert_line(&lines, "reach", "failed", "nothing has UDP port 4791 at 127.31.4.9");
    let remedy = line(&lines, "reach")["remedy"].as_str().unwrap();
    assert!(remedy.contains("`rdma-conn doctor --device roce:127.31.4.9 --listen`"), "{remedy}");
    let _silent = UdpSocket::bind("127.31.4.9:4791").unwrap();
    let (lines, _) = doctor(&["--device", "roce:127.31.4.8", "--connect", "127.31.4.9"]);
    assert_line(&lines, "reach", "failed", "127.31.4.9 does not answer");
    assert!(line(&lines, "reach")["remedy"].as_str().unwrap().contains("firewall"));
}

/// In a network namespace whose loopback interface has the MTU of Ethernet.
#[test]
fn a_small_mtu_is_found_and_is_no_failure() {
    let script = "ip link set lo up mtu 1500 || exit 77
        $COMMAND doctor --device roce:127.0.0.2 --listen --json >/dev/null & listener=$!
        $COMMAND doctor --device roce:127.0.0.3 --connect 127.0.0.2 --json || exit 1
        wait $listener";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", script]);
    let output = command.env("COMMAND", env!("CARGO_BIN_EXE_rdma-conn")).output().unwrap();
    if output.status.code() == Some(77) || text(&output.stderr).contains("unshare") {
        return support::tally::skipped(
            "the system does not let this user make network namespaces",
        );
    }
    let out: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    let lines = lines(&out);
    assert!(output.status.success(), "{lines:#?}: {}", text(&output.stderr));
    assert_line(
        &lines,
        "mtu",
        "warning",
        "lo has an MTU of 1500 bytes, so packets carry up to 1024",
    );
    assert_line(&lines, "path_mtu", "ok", "1024 bytes pass");
    assert_line(&lines, "queue_pair", "ok", "16 messages");
}

#[test]
fn other_devices_and_flags_are_refused() {
    for (args, says) in [
        (&["doctor", "--device", "mlx5_0"][..], "doctor tests devices on the network"),
        (&["doctor", "--device", "roce:here"], "\"here\" is no IP address"),
        (&["doctor"], "name the device to be tested"),
        (&["doctor", "--device", "roce:127.31.4.1", "--cpu", "0"], "leave --cpu out"),
        (&["doctor", "--device", "roce:127.31.4.1", "--connect", "::1"], "family"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_rdma-conn")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(says), "{args:?}: {}", text(&output.stderr));
    }
}
