//! `figures --world`: in virtual time, the experiments' expectations hold, and fail once a fault is
//! planted into the code.
//!
//! Only on soft0: it simulates the world's card.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

mod support;

use support::text;

/// A folder of its own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures figures of the command in a world, with a fault in the code; returns whether their
/// expectations hold, what is said, and the folder of the report.
fn check(within: &Folder, figures: &[&str], plant: &str) -> (bool, String, PathBuf) {
    let folder = within.0.join(format!("{}-{plant}", figures.join("-")));
    let output = Command::new(env!("CARGO_BIN_EXE_rdma-conn"))
        .arg("figures")
        .args(figures)
        .args(["--world", "--check", "--quick", "--out"])
        .arg(&folder)
        .env("RDMA_CONN_PLANT", plant)
        .output()
        .unwrap();
    let said = text(&output.stderr).to_owned();
    (output.status.success(), said, folder)
}

/// The points of a report.
fn series(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let figures = report["figures"].as_array().unwrap();
    figures.iter().map(|figure| figure["series"].clone()).collect()
}

#[test]
fn a_fault_in_the_code_fails_the_expectations_of_its_figure() {
    let within = Folder::new("faults");
    for (figure, plants) in [
        ("multicast-rate-by-k", &["IgnoredK", "ExchangedK"][..]),
        ("send-recv-rate-by-batch", &["BatchOfOne"]),
        ("send-recv-rate-by-unacked", &["HalfWindow"]),
        ("direct-read-bandwidth-by-size", &["EarlyAck"]),
    ] {
        let (holds, said, _) = check(&within, &[figure], "none");
        assert!(holds, "{figure}: {said}");
        for plant in plants {
            let (holds, said, _) = check(&within, &[figure], plant);
            // A message that is acknowledged early is overwritten while it is read, which the receiver sees.
            let says = if *plant == "EarlyAck" { "runs have failed" } else { "do not hold" };
            assert!(!holds && said.contains(says), "{figure}: {plant} is not found: {said}");
            println!("{figure}, {plant}: {said}");
        }
    }
}

#[test]
fn two_runs_have_the_same_numbers() {
    let within = Folder::new("twice");
    let figures = ["send-recv-rate-by-unacked", "connections-latency"];
    let [one, other] = ["none", "again"].map(|name| series(&check(&within, &figures, name).2));
    assert_eq!(one, other);
    assert!(one.as_array().is_some_and(|figures| figures.len() == 2), "{one}");
}
