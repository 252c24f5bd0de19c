//! Cases that run between two ends.

use std::path::Path;

use super::end::{COMMAND, CommandLines, EndDevice};

/// Something that has to go well between two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkCase {
    /// As the tables have it.
    pub(super) name: String,
    pub(super) lines: CommandLines,
    /// Text that the connecting end has to print; empty for our command, which itself checks the
    /// received data.
    pub(super) prints: &'static str,
}

const PROTOCOLS: &[&str] = &[
    "send-recv",
    "buffered-read",
    "buffered-write",
    "direct-write",
    "shared-write",
    "direct-read",
];

/// Verbs of reliable connections without a connection of ours above.
const RELIABLE: &[&str] = &["send", "write", "write-imm", "read"];

/// Those that promise nothing: where packets are lost, they do not run.
const UNRELIABLE: &[(&str, &str)] = &[("send", "uc"), ("write", "uc"), ("send", "ud")];

/// Messages that one packet takes, and that many do; a datagram has one.
const SIZES: &str = "--size 16,65536 --rounds 1";
const DATAGRAMS: &str = "--size 16,1000 --rounds 1";
/// As few packets as show each kind: first ones, middle ones, last ones, with padding.
const FEW: &str = "--size 16,9001 --rounds 1";

/// rdma-core's and perftest's, and what their last lines say: `(line, text)`.
const PROGRAMS: &[(&str, &str)] = &[
    ("ibv_rc_pingpong -n 200 -m 4096", "200 iters in"),
    ("ibv_rc_pingpong -n 30 -s 65537 -m 1024 -c", "30 iters in"),
    ("ibv_uc_pingpong -n 100 -s 1024", "100 iters in"),
    ("ibv_ud_pingpong -n 100 -s 1024", "100 iters in"),
    ("ib_send_bw -F -n 200", "65536 200"),
    ("ib_write_bw -F -n 200", "65536 200"),
    ("ib_read_bw -F -n 200", "65536 200"),
    ("ib_atomic_bw -F -n 100", "8 100"),
    ("ib_send_lat -F -n 200 -s 1000", "1000 200"),
    ("ib_send_bw -F -n 100 -s 1000 -c UD -g -M {mgid}", "1000 100"),
];

/// Conditions of a run, which not every program is fit for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Conditions {
    /// Packets get lost: what is unreliable does not run.
    pub(super) is_lossy: bool,
    /// The path MTU is 4,096 bytes, which some programs of others ask for, or take without asking
    /// the other end.
    pub(super) is_wide: bool,
}

impl NetworkCase {
    fn ours(arguments: &str, more: &str) -> NetworkCase {
        let sizes = if arguments.ends_with("ud") { DATAGRAMS } else { SIZES };
        NetworkCase::sized(arguments, more, sizes)
    }

    fn sized(arguments: &str, more: &str, sizes: &str) -> NetworkCase {
        let lines = CommandLines::ours(arguments, &format!("{more} {sizes}"));
        NetworkCase { name: arguments.to_owned(), lines, prints: "" }
    }

    /// The same case for this number of seconds, for what happens meanwhile.
    pub(super) fn long(arguments: &str, seconds: u32) -> NetworkCase {
        NetworkCase::sized(arguments, &format!("--seconds {seconds}"), "--size 65536 --rounds 1")
    }

    fn verbs(line: &str, prints: &'static str) -> NetworkCase {
        NetworkCase { name: line.to_owned(), lines: CommandLines::verbs(line), prints }
    }

    /// Reads a file over, which the caller compares.
    pub(super) fn copy(from: &Path, into: &Path) -> NetworkCase {
        let (from, into) = (from.display(), into.display());
        let line = format!("{COMMAND} copy --device {{device}}");
        let lines = CommandLines {
            listener: format!("{line} --listen {{socket}} --once --no-sync --into {into}"),
            connector: format!("{line} --to {{socket}} {from}"),
        };
        NetworkCase { name: "copy".to_owned(), lines, prints: "" }
    }

    /// rdma-core's ping-pong at one end, and ours that answers it at the other: the one on our
    /// device, and of two such the one that listens.
    fn compat(devices: [&EndDevice; 2]) -> NetworkCase {
        let program = "ibv_rc_pingpong";
        let theirs = CommandLines::verbs(&format!("{program} -n 200"));
        let ours = CommandLines::ours(&format!("pingpong --compat {program} --iterations 200"), "");
        let meet = |line: String| line.replace("{socket}", "{host}:{port}");
        let lines = match devices[0].is_ours() {
            true => CommandLines { listener: meet(ours.listener), ..theirs },
            false => CommandLines { connector: meet(ours.connector), ..theirs },
        };
        NetworkCase { name: format!("pingpong --compat {program}"), lines, prints: "" }
    }
}

/// All that runs between two devices.
pub(super) fn all(devices: [&EndDevice; 2], conditions: Conditions) -> Vec<NetworkCase> {
    let Conditions { is_lossy, is_wide } = conditions;
    let bench =
        |protocol| NetworkCase::ours(&format!("bench --protocol {protocol}"), "--seconds 0.4");
    let pingpong =
        |protocol| NetworkCase::ours(&format!("pingpong --protocol {protocol}"), "--iterations 40");
    let raw = |(verb, transport)| {
        NetworkCase::ours(&format!("bench --op {verb} --transport {transport}"), "--seconds 0.2")
    };
    let mut cases: Vec<NetworkCase> = PROTOCOLS.iter().map(bench).collect();
    cases.extend(["send-recv", "direct-write", "direct-read"].map(pingpong));
    cases.extend(RELIABLE.iter().map(|verb| raw((*verb, "rc"))));
    if !is_lossy {
        cases.extend(UNRELIABLE.iter().copied().map(raw));
    }
    cases.push(NetworkCase::compat(devices));
    let is_run = |line: &str| {
        let is_reliable = !["_uc_", "_ud_", "-c UD"].iter().any(|kind| line.contains(kind));
        let takes_less = line.starts_with("ibv_") && !line.contains("4096");
        (is_reliable || !is_lossy) && (is_wide || takes_less)
    };
    let programs = PROGRAMS.iter().filter(|(line, _)| is_run(line));
    cases.extend(programs.map(|(line, prints)| NetworkCase::verbs(line, prints)));
    cases
}

/// A few messages of each operation, between devices of ours.
pub(super) fn few(is_lossy: bool) -> Vec<NetworkCase> {
    let raw = |(verb, transport): (&str, &str)| {
        let arguments = format!("bench --op {verb} --transport {transport}");
        NetworkCase::sized(
            &arguments,
            "--messages 20",
            if transport == "ud" { DATAGRAMS } else { FEW },
        )
    };
    let mut cases: Vec<NetworkCase> = RELIABLE.iter().map(|verb| raw((*verb, "rc"))).collect();
    if !is_lossy {
        cases.extend(UNRELIABLE.iter().copied().map(raw));
    }
    let pingpong = |protocol: &&str| {
        NetworkCase::sized(&format!("pingpong --protocol {protocol}"), "--iterations 10", FEW)
    };
    cases.extend(PROTOCOLS.iter().map(pingpong));
    cases.push(NetworkCase::verbs("ib_atomic_bw -F -n 50", "8 50"));
    cases
}
