//! Records that checked processes make for the command that waits for them, however they end.
//!
//! A scene is played by this program, started again.
//!
//! Only on soft0: soft0 records its scenes.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use common::checked::*;
use common::other::*;
use common::*;
use soft_rnic::check::{RECORD, VARIABLE, read};

/// Names of the scenes, and their functions.
const SCENES: &[(&str, fn())] = &[
    ("clean", clean),
    ("exits", exits_without_handlers),
    ("killed", killed),
    ("child", finding_of_a_child),
    ("leak", leak),
];

#[test]
fn the_other_process() {
    let Some(scene) = role() else { return };
    let found = SCENES.iter().find(|(name, _)| *name == scene);
    found.unwrap_or_else(|| panic!("{scene}")).1();
}

/// Numbers of processes that were checked, that have findings, and that have notes.
type Tally = (usize, usize, usize);

/// Has a scene played; its record, and how it has ended.
fn recorded(scene: &str) -> (Tally, Output) {
    let name = format!("check-record-{scene}-{}", std::process::id());
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, b"").unwrap();
    let named = file.to_str().unwrap();
    let output = play("the_other_process", scene, &[(VARIABLE, "report"), (RECORD, named)]);
    let all = read(std::fs::File::open(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    // Each line of the report is in the record, too.
    for of in &all {
        let begins = |level: &str, text: &str| lines(&output).contains(&format!("{level}: {text}"));
        assert!(of.findings.iter().all(|text| begins("finding", text)), "{output:?}");
        assert!(of.notes.iter().all(|text| begins("note", text)), "{output:?}");
        assert!(!of.program.is_empty());
    }
    let findings = all.iter().filter(|of| !of.findings.is_empty()).count();
    let notes = all.iter().filter(|of| !of.notes.is_empty()).count();
    ((all.len(), findings, notes), output)
}

/// The buffer of a SEND that waits is changed, and the SEND executed.
fn mistake(ends: &CheckedEnds) {
    ends.send(7, 1000, SIGNALED);
    ends.change(0, 130);
    ends.receive(1, 0, 4096);
    let _ = [ends.poll(0), ends.poll(1)];
}

fn clean() {
    CheckedEnds::new().close();
}

fn exits_without_handlers() {
    mistake(&CheckedEnds::new());
    // SAFETY: the process ends here.
    unsafe { libc::_exit(0) };
}

fn killed() {
    mistake(&CheckedEnds::new());
    // SAFETY: the process ends here.
    unsafe { libc::raise(libc::SIGKILL) };
}

/// The child uses what its parent has opened.
fn finding_of_a_child() {
    let net = Net::on(soft_rnic::table(), "soft0");
    // SAFETY: the child does nothing that another thread might have a lock of: the harness waits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        exits_without_handlers();
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    net.close();
}

fn leak() {
    core::mem::forget(CheckedEnds::new());
}

#[test]
fn a_process_is_recorded_with_what_it_has_reported() {
    for (scene, expected) in [("clean", (1, 0, 0)), ("leak", (1, 0, 1))] {
        let (tally, output) = recorded(scene);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(tally, expected, "{scene}: {output:?}");
    }
}

#[test]
fn a_finding_counts_however_the_process_ends() {
    let (found, output) = recorded("exits");
    assert_eq!((found, output.status.code()), ((1, 1, 0), Some(0)), "{output:?}");
    let (found, output) = recorded("killed");
    let signal = output.status.signal();
    assert_eq!((found, signal), ((1, 1, 0), Some(libc::SIGKILL)), "{output:?}");
}

#[test]
fn a_finding_of_a_child_counts() {
    let (found, output) = recorded("child");
    assert_eq!(found, (2, 1, 0), "{output:?}");
}

#[test]
fn a_record_that_cannot_be_written_is_said() {
    let environment = [(VARIABLE, "report"), (RECORD, "/nowhere/record")];
    let output = play("the_other_process", "clean", &environment);
    assert!(output.status.success(), "{output:?}");
    let begins = "`rdma-conn soft` does not count this process: RDMA_CONN_SOFT_CHECK_RECORD: ";
    let said = lines(&output);
    assert_line(&said[0], begins, "No such file");
    assert_eq!(said[1..], ["0 findings, 0 notes"]);
}
