//! The table of conformance: what each protocol promises, on each device.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::workspace::cargo;

/// Promises, and the generic tests that show each: test target, function.
const CASES: &[(&str, &[(&str, &str)])] = &[
    ("order, each message once", &[(EVERY, "messages_go_both_ways_in_order")]),
    ("every boundary size", &[(EVERY, "messages_of_every_boundary_size_arrive_once")]),
    (
        "full and empty, a slow reader",
        &[
            (EVERY, "without_room_a_send_waits_as_long_as_it_is_told"),
            (EVERY, "room_that_is_not_there_is_waited_for"),
            (EVERY, "a_message_that_another_thread_frees_makes_room"),
        ],
    ),
    (
        "many peers",
        &[
            (EVERY, "one_receiver_takes_from_many_senders"),
            (EVERY, "a_sender_joins_in_the_place_that_another_has_just_left"),
        ],
    ),
    (
        "close by either end, at any point",
        &[
            (EVERY, "both_ends_see_a_close"),
            (EVERY, "an_end_that_closes_at_any_point_is_seen_by_the_other"),
            (EVERY, "a_receiver_closes_while_its_sender_goes_on"),
            (EVERY, "calls_after_the_end_know_what_was_acknowledged"),
        ],
    ),
    (
        "death at any point",
        &[(KILLED, "a_peer_that_is_killed_at_any_point_is_found_by_both_halves")],
    ),
    (
        "timeouts",
        &[
            (EVERY, "without_room_a_send_waits_as_long_as_it_is_told"),
            (EVERY, "a_ticket_is_acknowledged_without_further_sends"),
        ],
    ),
    ("hostile set-up", &[(EVERY, "a_hello_that_cannot_be_is_refused_and_takes_no_place")]),
    (
        "wake-ups of event loops",
        &[
            (EVERY, "an_event_loop_of_ones_own_drives_both_halves"),
            (EVERY, "what_comes_while_a_sender_joins_wakes_an_event_loop"),
            (EVERY, "an_armed_half_is_readable_for_news_and_after_a_keepalive_interval_only"),
        ],
    ),
];

const EVERY: &str = "every_protocol";
const KILLED: &str = "killed_peer";

/// Modules of the tests, and the protocols' names.
const PROTOCOLS: &[(&str, &str)] = &[
    ("send_recv", "Send/Receive"),
    ("buffered_write", "Buffered Write"),
    ("direct_write", "Direct Write"),
    ("shared_write", "Shared Write"),
    ("buffered_read", "Buffered Read"),
    ("direct_read", "Direct Read"),
];

/// The tests: each takes a device for each end.
pub(crate) const TARGETS: [&str; 2] = [EVERY, KILLED];

/// A device of this machine, or two.
struct TestedDevice {
    name: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// A case that cannot be there, and why.
    cannot: Option<(&'static str, &'static str)>,
}

const DEVICES: &[TestedDevice] = &[
    TestedDevice { name: "soft0", environment: &[], cannot: None },
    TestedDevice {
        name: "soft0@5us",
        environment: &[("RDMA_CONN_DEVICE", "soft0@5us")],
        cannot: Some(("death at any point", "one process")),
    },
    TestedDevice {
        name: "soft0, the way between processes",
        environment: &[("SOFT_RNIC_APART", "1")],
        cannot: None,
    },
    TestedDevice {
        name: "roce and roce",
        environment: &[
            ("RDMA_CONN_DEVICE", "roce:127.0.0.2"),
            ("RDMA_CONN_OTHER_DEVICE", "roce:127.0.0.3"),
        ],
        cannot: None,
    },
];

/// Results of tests, by target and name: true if the test has passed.
type TestResults = BTreeMap<(String, String), bool>;

pub(crate) fn run(rxe0: bool) -> Result<()> {
    let mut failed = false;
    for TestedDevice { name, environment, cannot } in DEVICES {
        failed |= print(name, &on_device(environment)?, *cannot)?;
    }
    if rxe0 {
        let results = on_rxe0(&on_device(&[])?)?;
        failed |= print("rxe0", &results, None)?;
        for (pair, results) in with_rxe()? {
            failed |= print(&pair, &results, None)?;
        }
    }
    ensure!(!failed, "a cell says FAILED: run its tests with `cargo test --test {EVERY}`");
    Ok(())
}

fn on_device(environment: &[(&str, &str)]) -> Result<TestResults> {
    let mut results = TestResults::new();
    for target in TARGETS {
        let mut cargo = cargo(&["test", "--quiet", "--package", "rdma-conn", "--test", target]);
        cargo.args(["--", "--format=pretty"]).envs(environment.iter().copied());
        for line in said(&mut cargo)?.lines() {
            note(&mut results, target, line);
        }
    }
    ensure!(!results.is_empty(), "no test has run: does `cargo test --test {EVERY}` build?");
    Ok(results)
}

/// Runs cargo; what it prints, also where tests fail.
fn said(cargo: &mut Command) -> Result<String> {
    let out = cargo.stderr(Stdio::null()).output().context("starting cargo")?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Notes what a line of the test harness says, if it is about a test.
fn note(results: &mut TestResults, target: &str, line: &str) {
    let Some((test, result)) = line.split_once(" ... ") else { return };
    let test = test.strip_prefix("test ").unwrap_or(test).to_owned();
    results.insert((target.to_owned(), test), result == "ok");
}

/// In the virtual machine, with the kernel's device at one end, and `roce` at the other: by pairs.
fn with_rxe() -> Result<BTreeMap<String, TestResults>> {
    let mut pairs = BTreeMap::<String, TestResults>::new();
    for line in said(&mut cargo(&["xtask", "vm", "interop", "conformance"]))?.lines() {
        if let [pair, target, said] = line.splitn(3, ": ").collect::<Vec<_>>()[..]
            && TARGETS.contains(&target)
        {
            note(pairs.entry(pair.to_owned()).or_default(), target, said);
        }
    }
    ensure!(pairs.len() == 2, "no tests have run: try `cargo xtask vm interop conformance`");
    Ok(pairs)
}

/// In the virtual machine, which names the tests that fail: `known` are all of them.
fn on_rxe0(known: &TestResults) -> Result<TestResults> {
    let text = said(&mut cargo(&["xtask", "vm", "test", "--test", EVERY, "--test", KILLED]))?;
    ensure!(
        text.contains("tests ran on rxe0"),
        "the virtual machine has run no tests: try `cargo xtask vm test --test {EVERY}`"
    );
    let has_failed = |target: &str, test: &str| {
        text.lines().any(|line| line == format!("failed: rdma-conn {target}: {test}"))
    };
    let each = known
        .keys()
        .map(|(target, test)| ((target.clone(), test.clone()), !has_failed(target, test)));
    Ok(each.collect())
}

/// Prints the table of a device; returns true if something has failed.
fn print(device: &str, results: &TestResults, cannot: Option<(&str, &str)>) -> Result<bool> {
    let heads: String = PROTOCOLS.iter().map(|(_, name)| format!(" {name} |")).collect();
    let mut table = format!("\n{device}\n\n| |{heads}\n|---|{}\n", "---|".repeat(PROTOCOLS.len()));
    let mut failed = false;
    for (case, tests) in CASES {
        write!(table, "| {case} |")?;
        for (module, protocol) in PROTOCOLS {
            let mut passed = true;
            for (target, test) in *tests {
                let test = format!("{module}::{test}");
                let result = results.get(&((*target).to_owned(), test.clone()));
                passed &= result.with_context(|| format!("{protocol}: no test {test}"))?;
            }
            failed |= !passed;
            let ok = cannot.filter(|(other, _)| other == case).map_or("ok", |(_, why)| why);
            write!(table, " {} |", if passed { ok } else { "FAILED" })?;
        }
        writeln!(table)?;
    }
    print!("{table}");
    Ok(failed)
}
