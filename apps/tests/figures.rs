//! `figures`: experiments of the command and of files, and the pages of saved reports.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

mod support;

use support::{Scratch, assert_refused, text};

/// Without a device: it is refused.
fn run(args: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_rdma-conn"))
        .arg("figures")
        .args(args)
        .output()
        .unwrap()
}

#[track_caller]
fn said(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[track_caller]
fn refused(args: &[&str], status: i32, says: &str) {
    let output = run(args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    assert!(error.starts_with("rdma-conn: ") && error.contains(says), "{args:?}: {error}");
}

/// A folder of its own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A report of one figure whose rates rise with x by this factor at each value.
fn report(name: &str, factor: f64) -> Folder {
    let experiment: Value =
        toml::from_str(&said(&["--print", "send-recv-rate-by-poll-and-repost"])).unwrap();
    let points: Vec<Value> = (0..6)
        .map(|n| {
            let rate = 1e6 * factor.powi(n);
            let samples = json!({ "samples": [rate, rate * 1.1, rate * 0.9] });
            json!({ "x": 1 << n, "command": "rdma-conn bench", "values": { "messages_per_s": samples } })
        })
        .collect();
    let cases = experiment["case"].as_array().unwrap().iter();
    let series: Vec<Value> =
        cases.map(|case| json!({ "case": case["label"], "points": points })).collect();
    let figure = json!({ "name": "mine", "experiment": experiment, "series": series });
    let manifest = json!({
        "device": "soft0", "processor": "one", "cores": 2, "topology": "", "build": "", "date": "",
        "quick": false, "rounds": 3, "round_ms": 100, "command": "rdma-conn figures",
    });
    let report = json!({ "format": 1, "manifest": manifest, "figures": [figure] });
    let folder = Folder::new(name);
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("report.json"), report.to_string()).unwrap();
    folder
}

#[test]
fn the_list_has_the_experiments_of_the_command() {
    let output = run(&["--list", "--json"]);
    let all: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("figures")).unwrap();
    assert_eq!(all.len(), files.count());
    for line in &all {
        assert!(line["runs"].as_u64() >= line["runs_quick"].as_u64(), "{line}");
    }
    let one = said(&["--list", "direct-read-latency-by-size"]);
    assert!(one.contains("direct-read-latency-by-size") && !one.contains("send-recv"), "{one}");
}

/// An experiment is printed, changed, and read again; what is wrong with it has a place.
#[test]
fn an_experiment_is_copied_and_changed() {
    let file = Scratch::new("mine.toml", 0);
    let path = file.0.to_str().unwrap();
    let printed = said(&["--print", "send-recv-latency-by-size"]);
    fs::write(&file.0, printed.replace("16..1M*4", "16..64")).unwrap();
    let listed = said(&["--list", path, "--json"]);
    assert!(listed.contains(r#""figure":"mine""#) && listed.contains(r#""runs":9"#), "{listed}");
    fs::write(&file.0, printed.replace("16..1M*4", "16..many")).unwrap();
    refused(&["--list", path], 2, "mine.toml:11:10: column 5: 'many': bytes, e.g. 4096 or 64k");
    fs::write(&file.0, printed.replace("label =", "lable =")).unwrap();
    refused(
        &["--list", path],
        2,
        "mine.toml:21:1: unknown field `lable`, expected one of `label`, `run`, `max_x`",
    );
}

/// The example of the documentation is an experiment.
#[test]
fn the_documented_experiment_is_one() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures.md");
    let docs = fs::read_to_string(docs).unwrap();
    let (_, behind) = docs.split_once("```toml\n").unwrap();
    let file = Scratch::new("documented.toml", 0);
    fs::write(&file.0, behind.split_once("```").unwrap().0).unwrap();
    let listed = said(&["--list", file.0.to_str().unwrap(), "--json"]);
    assert!(listed.contains(r#""cases":2,"runs":11,"runs_quick":7"#), "{listed}");
}

#[test]
fn a_report_becomes_a_page() {
    let (report, out) = (report("report", 1.2), Folder::new("rendered"));
    let written = said(&["--render", report.text(), "--out", out.text(), "--check", "--json"]);
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&written["figures"], &written["failed"]), (&json!(1), &json!(0)), "{written}");
    let page = out.file("index.html");
    assert!(page.contains("<article id=\"mine\"") && page.contains("<svg"));
    assert_eq!(out.file("report.csv").lines().count(), 1 + 3 * 6 * 3);
    // What was written is a report.
    let again = Folder::new("rendered-again");
    said(&["--render", out.text(), "--out", again.text()]);
    assert_eq!(again.file("index.html"), page);
    assert_eq!(again.file("report.json"), out.file("report.json"));
    // Nothing is replaced unasked.
    refused(&["--render", report.text(), "--out", out.text()], 2, "add --force");
    said(&["--render", report.text(), "--out", out.text(), "--force"]);
}

#[test]
fn an_expectation_that_does_not_hold_is_status_1() {
    let (report, out) = (report("falling", 0.5), Folder::new("checked"));
    let check = ["--render", report.text(), "--out", out.text(), "--check"];
    refused(&check, 1, "1 of 1 expectations do not hold");
    assert!(out.file("index.html").contains("class=\"failed\""), "the page is there all the same");
    said(&["--render", report.text(), "--out", out.text(), "--force"]);
}

#[test]
fn two_reports_become_one_page() {
    let (a, b, out) = (report("a", 1.2), report("b", 1.3), Folder::new("compared"));
    let file = b.0.join("report.json");
    said(&["--compare", a.text(), file.to_str().unwrap(), "--out", out.text()]);
    assert!(out.file("index.html").contains("polled, B"));
}

#[test]
fn what_cannot_be_is_refused_with_status_2() {
    let out = Folder::new("never");
    let broken = report("broken", 1.0);
    fs::write(broken.0.join("report.json"), "{}").unwrap();
    for (args, says) in [
        (&["--render", "nowhere"][..], "--out"),
        (&["--render", "nowhere", "--out", out.text()], "nowhere"),
        (&["--render", broken.text(), "--out", out.text()], "no report of figures"),
        (&["--compare", "one", "--out", out.text()], "--compare"),
        (&["--list", "telepathy"], "telepathy: no experiment: `rdma-conn figures --list`"),
        (&["--list", "none.toml"], "none.toml"),
        (&["--list", "--print"], "cannot be used with"),
        (&["--list", "--out", out.text()], "--out: nothing is written"),
        (&["--list", "--check"], "--check needs --render"),
        (&[], "--list"),
    ] {
        refused(args, 2, says);
    }
    assert!(!out.0.exists());
    // The device of the environment is given.
    assert_refused(&["figures", "--list"], 2, "--device: this opens no device");
}
