//! `rdma-conn soft`: which programs it runs, and which it refuses.
//!
//! Only on soft0: it runs programs on soft0, with the library that it builds.

mod support;
#[path = "support/with_library.rs"]
mod with_library;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use support::{ScratchFile, text};
use with_library::{command, library, run};

/// A program to copy with the bits of setuid: no shell.
const HARMLESS: &str = "/bin/true";

fn soft(words: &[&str]) -> Output {
    run(&[&["soft"], words].concat())
}

/// A file that can be run.
fn file(name: &str, content: &[u8], mode: u32) -> ScratchFile {
    let file = ScratchFile::new(name, 0);
    std::fs::write(&file.0, content).unwrap();
    std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(mode)).unwrap();
    file
}

#[track_caller]
fn assert_refused(output: &Output, status: i32, says: &str) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("rdma-conn: ") && error.contains(says), "{error}");
}

/// The command is itself a program that opens libibverbs.so.1.
#[test]
fn a_program_finds_soft0_behind_libibverbs() {
    let output = soft(&["--", env!("CARGO_BIN_EXE_rdma-conn"), "devices"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("soft0 (rdma-core)"), "{}", text(&output.stdout));
}

#[test]
fn the_exit_status_is_the_programs() {
    assert_eq!(soft(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(soft(&["sh", "-c", "exit 0"]).status.code(), Some(0));
}

/// The command is a correct program.
#[test]
fn a_checked_program_is_summed_up() {
    let devices = [env!("CARGO_BIN_EXE_rdma-conn"), "devices"];
    let run = |flags: &[&str]| soft(&[flags, &["--"], &devices].concat());
    for flag in ["--check", "--check=report", "--check=fail", "--check=strict"] {
        let output = run(&[flag]);
        let report = text(&output.stderr);
        assert!(output.status.success(), "{flag}: {report}");
        assert!(report.starts_with("rdma-conn check "), "{report}");
        assert!(report.lines().all(|line| line.ends_with(": 0 findings, 0 notes")), "{report}");
    }
    assert_eq!(text(&run(&[]).stderr), "");
    assert_eq!(run(&["--check=sometimes"]).status.code(), Some(2));
}

#[test]
fn what_is_preloaded_already_stays_behind_the_library() {
    // If a file does not exist, the dynamic linker reports that, and continues.
    let words = ["sh", "-c", "echo $LD_PRELOAD"];
    let output = command(&["soft"]).env("LD_PRELOAD", "/other.so").args(words).output().unwrap();
    let expected = format!("{}:/other.so\n", library().display());
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn a_script_runs_if_its_interpreter_can() {
    let script = file("soft-script", b"#!/bin/sh\necho \"$LD_PRELOAD\"\n", 0o755);
    let output = soft(&[script.0.to_str().unwrap()]);
    assert_eq!(text(&output.stdout).trim(), library().to_str().unwrap());
    let set_id = file("soft-interpreter", &std::fs::read(HARMLESS).unwrap(), 0o4755);
    let line = format!("#!{}\n", set_id.0.display());
    let script = file("soft-script-of-it", line.as_bytes(), 0o755);
    assert_refused(&soft(&[script.0.to_str().unwrap()]), 2, "setuid");
}

#[test]
fn programs_that_nothing_is_preloaded_into_are_refused() {
    let harmless = std::fs::read(HARMLESS).unwrap();
    for mode in [0o4755, 0o2755] {
        let program = file(&format!("soft-{mode:o}"), &harmless, mode);
        assert_refused(&soft(&[program.0.to_str().unwrap()]), 2, "setuid or setgid");
    }
    let program = file("soft-text", b"no program", 0o755);
    assert_refused(&soft(&[program.0.to_str().unwrap()]), 2, "no program for x86-64");
    assert_refused(&soft(&["soft-is-nowhere"]), 2, "no such program");
}

#[test]
fn a_missing_library_names_the_command_that_builds_it() {
    let output =
        command(&["soft"]).env("RDMA_CONN_SOFT_LIB", "/nowhere.so").arg("true").output().unwrap();
    assert_refused(&output, 1, "cargo build --release --package soft-rnic-abi");
}

#[test]
fn a_library_path_with_a_space_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("soft folder");
    std::fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("library.so");
    std::fs::copy(library(), &copy).unwrap();
    let output = command(&["soft"]).env("RDMA_CONN_SOFT_LIB", &copy).arg("true").output().unwrap();
    assert_refused(&output, 1, "a space or a colon");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_flag_that_is_written_wrong_says_how_to_write_it() {
    for (words, says) in [
        (&["--check", "fail", "--", "true"][..], "--check fail: write --check=fail"),
        (&["--check", "strict", "--", "true"], "--check strict: write --check=strict"),
        (
            &["--chek", "--", "true"],
            "there is no option --chek: there are --trace, --check, --report and --faults",
        ),
        (&["--", "--chek"], "there is no option --chek"),
        (&["--check", "--fail", "true"], "there is no option --fail"),
    ] {
        assert_refused(&soft(words), 2, says);
    }
    // A program may be called so.
    let output = soft(&["--check", "fail", "true"]);
    assert_refused(&output, 2, "fail: no such program");
}

#[test]
fn a_file_that_is_not_executable_says_so() {
    let program = file("soft-mode", &std::fs::read(HARMLESS).unwrap(), 0o644);
    assert_refused(&soft(&[program.0.to_str().unwrap()]), 2, "it is not executable: `chmod +x`");
    assert_refused(&soft(&["./nowhere"]), 2, "no such program");
    assert_refused(&soft(&[env!("CARGO_TARGET_TMPDIR")]), 2, "it is a folder: name a program");
}

#[test]
fn a_trace_that_is_a_folder_names_a_file_in_it() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let says = format!("it is a folder: name a file in it, --trace {folder}/trace");
    assert_refused(&soft(&["--trace", folder, "--", "true"]), 2, &says);
    let says = "there is no folder /nowhere: name a file in one";
    assert_refused(&soft(&["--trace", "/nowhere/trace", "--", "true"]), 2, says);
}

#[test]
fn what_is_not_the_library_is_refused() {
    let run = |file: &str| {
        command(&["soft"]).env("RDMA_CONN_SOFT_LIB", file).arg("true").output().unwrap()
    };
    let words = file("soft-no-library", b"no library", 0o644);
    assert_refused(&run(words.0.to_str().unwrap()), 1, "it is no library for x86-64");
    assert_refused(&run(HARMLESS), 1, "it is no library for x86-64");
    assert_refused(&run("/"), 1, "Is a directory");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        maps.lines().find_map(|line| line.split(' ').next_back().filter(|f| f.contains("libc.so")));
    let says = "it is the library libc.so.6, and not libibverbs.so.1";
    assert_refused(&run(libc.unwrap()), 1, says);
}

#[test]
fn the_help_has_no_flags_that_are_refused() {
    for (command, refused) in [
        ("soft", &["--device=0", "--json", "--cpu=0", "--gid-index=0"][..]),
        ("trace", &["--device=0", "--cpu=0", "--gid-index=0"]),
    ] {
        for help in ["-h", "--help"] {
            let output = run(&[command, help]);
            let shown = text(&output.stdout);
            assert!(output.status.success() && shown.contains("docs/soft-device.md"), "{shown}");
            for flag in refused {
                let flag = flag.trim_end_matches("=0");
                assert!(!shown.contains(&format!("  {flag}")), "{flag}: {shown}");
            }
        }
        for flag in refused {
            let says = format!("{}: {command} only ", flag.trim_end_matches("=0"));
            assert_refused(&run(&[command, flag, "true"]), 2, &says);
            assert_refused(&run(&[flag, command, "true"]), 2, &says);
        }
    }
    assert!(text(&soft(&["--help"]).stdout).contains("soft --check=fail -- make test"));
    assert!(
        text(&run(&["devices", "--help"]).stdout).contains("  --json"),
        "other commands have them"
    );
}

/// The table of what the device offers names tests that are there.
#[test]
fn the_documented_tests_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = std::fs::read_to_string(root.join("docs/soft-device.md")).unwrap();
    let (_, table) = docs.split_once("## What it offers").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut named = 0;
    for row in rows {
        let tests = row.split('|').nth(3).unwrap();
        let files: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!files.is_empty(), "no test: {row}");
        for file in files {
            let folder = if file.contains('/') { "" } else { "soft-rnic/tests" };
            assert!(root.join(folder).join(file).is_file(), "{file} is missing: {row}");
            named += 1;
        }
    }
    assert!(named > 15, "{named}");
}
