//! `rdma-conn soft --check=fail` and `strict`: what all processes of a program have reported decides.
//!
//! Most programs here are shells, which write into the record what a checked process would.
//!
//! Only on soft0: it runs programs on soft0, with the library that it builds.

mod support;
#[path = "support/with_library.rs"]
mod with_library;

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::text;
use with_library::{GuardedChild, command, run};

/// The exit status for findings.
const FOUND: Option<i32> = Some(99);

/// Runs a script under a check; `mark LETTER PROCESS` in it records a line.
fn script(check: &str, script: &str) -> Output {
    script_with(&[check], script)
}

fn script_with(flags: &[&str], script: &str) -> Output {
    let mark = "mark() { echo $1 $2 a text >>$RDMA_CONN_SOFT_CHECK_RECORD; }";
    let script = format!("{mark}; {script}");
    run(&[&["soft"], flags, &["--", "sh", "-c", &script]].concat())
}

#[track_caller]
fn assert_ends(output: &Output, status: Option<i32>, says: &str) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), status, "{error}");
    assert!(error.contains(says) && (error.is_empty() == says.is_empty()), "{error}");
}

#[test]
fn a_finding_of_any_process_counts() {
    let says = "rdma-conn soft: 1 of 2 processes that opened a device: findings\n";
    assert_ends(
        &script("--check=fail", "mark c 1; (mark c 2; mark f 2) & wait; exit 0"),
        FOUND,
        says,
    );
    assert_ends(&script("--check=strict", "mark c 1; mark f 1; mark c 2; exit 7"), FOUND, says);
    assert_ends(&script("--check=fail", "mark c 1; mark c 2; mark f 2; kill -9 $$"), FOUND, says);
}

#[test]
fn a_note_counts_only_under_strict() {
    assert_ends(&script("--check=fail", "mark c 1; mark n 1"), Some(0), "");
    let says = "rdma-conn soft: 1 of 1 processes that opened a device: notes\n";
    assert_ends(&script("--check=strict", "mark c 1; mark n 1"), FOUND, says);
}

#[test]
fn without_findings_the_status_is_the_programs() {
    for check in ["--check=fail", "--check=strict"] {
        assert_ends(&script(check, "mark c 1; exit 7"), Some(7), "");
        assert_ends(&script(check, "mark c 1; kill -9 $$"), Some(128 + 9), "");
    }
}

#[test]
fn a_program_that_opens_nothing_is_not_checked() {
    let says = "rdma-conn soft: no process opened a device: nothing was checked\n";
    assert_ends(&run(&["soft", "--check=fail", "--", "true"]), FOUND, says);
    assert_ends(&run(&["soft", "--check=strict", "--", "true"]), FOUND, says);
}

/// The file of a report, which is gone with it.
struct ScratchReport(std::path::PathBuf);

impl ScratchReport {
    fn new(name: &str) -> ScratchReport {
        let name = format!("{}-{name}", std::process::id());
        ScratchReport(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for ScratchReport {
    fn drop(&mut self) {
        // It is there if it was written.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_report_has_what_each_process_has_found() {
    let (junit, json) = (ScratchReport::new("report.xml"), ScratchReport::new("report.json"));
    let words = "mark c 1; mark c 2; mark f 2; mark n 1; exit 3";
    for (format, file) in [("junit", &junit), ("json", &json)] {
        let named = file.0.to_str().unwrap();
        let output = script_with(&["--check", "--report", format, named], words);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    }
    assert!(junit.text().contains("<failure message=\"a text\"></failure>"), "{}", junit.text());
    let value: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
    assert_eq!((&value["program_status"], &value["failed"]), (&3.into(), &false.into()));
    assert_eq!(value["processes"][1]["findings"][0], "a text");
    assert_eq!(value["processes"][0]["notes"][0], "a text");
    let output =
        script_with(&["--check=fail", "--report", "json", json.0.to_str().unwrap()], words);
    let value: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
    assert_eq!((output.status.code(), &value["failed"]), (FOUND, &true.into()));
}

#[test]
fn a_report_that_cannot_be_is_refused_before_the_program_runs() {
    for (flags, says) in [
        (
            &["--check", "--report", "xml", "r"][..],
            "--report xml: write --report junit FILE, or json",
        ),
        (&["--check", "--report", "json", "/nowhere/r"], "there is no folder /nowhere"),
        (&["--report", "json", "r"], "--check"),
    ] {
        let output = script_with(flags, "echo ran");
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

/// The command is itself a program that opens libibverbs.so.1.
#[test]
fn processes_that_open_the_device_are_counted() {
    let devices = format!("{0} devices; {0} devices", env!("CARGO_BIN_EXE_rdma-conn"));
    let output = run(&["soft", "--check=strict", "--", "sh", "-c", &devices]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        !text(&output.stderr).contains("no process opened a device"),
        "{}",
        text(&output.stderr)
    );
}

/// The program ends as it wants to when the signal arrives, which the command alone gets.
#[test]
fn signals_are_passed_on() {
    // Not INT and HUP: where the tests run in the background these are ignored, and a shell that
    // begins so cannot trap them.
    for (signal, name, status) in
        [(Signal::TERM, "TERM", 3), (Signal::USR2, "USR2", 4), (Signal::USR1, "USR1", 5)]
    {
        // A shell waits for a background process until a signal arrives.
        let script = format!(
            "echo c 1 sh >>$RDMA_CONN_SOFT_CHECK_RECORD; \
             trap 'kill $!; exit {status}' {name}; sleep 1000 >/dev/null & echo ready; wait"
        );
        let mut soft = command(&["soft", "--check=fail", "--", "sh", "-c", &script]);
        let mut soft = GuardedChild(soft.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(soft.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        kill_process(Pid::from_child(&soft.0), signal).unwrap();
        assert_eq!(soft.0.wait().unwrap().code(), Some(status), "{name}");
    }
}

/// Without a status to decide about, the command becomes the program.
#[test]
fn a_report_needs_no_process_of_its_own() {
    let words = ["--", "sh", "-c", "echo $$ $RDMA_CONN_SOFT_CHECK_RECORD"];
    for flags in [&["soft"][..], &["soft", "--check"]] {
        let mut soft = command(&[flags, &words].concat());
        let soft = soft.stdout(Stdio::piped()).spawn().unwrap();
        let number = soft.id();
        let output = soft.wait_with_output().unwrap();
        assert_eq!(text(&output.stdout), format!("{number}\n"));
    }
}
