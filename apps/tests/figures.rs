//! `figures`: experiments of the command and of files, and the pages of saved reports.
//!
//! Only on soft0: experiments and pages are of measurements that other tests make.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

mod support;

use support::{ScratchFile, assert_refused, text};

/// Folder with the experiments of the command.
const EXPERIMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/figures/experiments");

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
struct ReportFolder(PathBuf);

impl ReportFolder {
    fn new(name: &str) -> ReportFolder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        ReportFolder(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for ReportFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A report of one figure. Its rates rise with x by this factor at each value.
fn report(name: &str, factor: f64) -> ReportFolder {
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
    let folder = ReportFolder::new(name);
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("report.json"), report.to_string()).unwrap();
    folder
}

#[test]
fn the_list_has_the_experiments_of_the_command() {
    let output = run(&["--list", "--json"]);
    let all: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let files = fs::read_dir(EXPERIMENTS).unwrap();
    assert_eq!(all.len(), files.count());
    for line in &all {
        assert!(line["runs"].as_u64() >= line["runs_quick"].as_u64(), "{line}");
    }
    let one = said(&["--list", "direct-read-latency-by-size"]);
    assert!(one.contains("direct-read-latency-by-size") && !one.contains("send-recv"), "{one}");
}

/// The parser of the command line takes every run.
#[test]
fn every_run_is_a_command_line() {
    let files = fs::read_dir(EXPERIMENTS).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.collect();
    let names = files.iter().map(|file| file.to_str().unwrap());
    let listed = said(&["--list", "--json"].into_iter().chain(names).collect::<Vec<_>>());
    assert_eq!(listed.lines().count(), files.len());
}

/// An experiment is printed, changed, and read again; what is wrong with it has a place.
#[test]
fn an_experiment_is_copied_and_changed() {
    let file = ScratchFile::new("mine.toml", 0);
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
    fs::write(&file.0, printed.replace("--size", "--sise")).unwrap();
    refused(&["--list", path], 2, "x = 16: unexpected argument '--sise' found");
}

/// The example of the documentation is an experiment.
#[test]
fn the_documented_experiment_is_one() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures.md");
    let docs = fs::read_to_string(docs).unwrap();
    let (_, behind) = docs.split_once("```toml\n").unwrap();
    let file = ScratchFile::new("documented.toml", 0);
    fs::write(&file.0, behind.split_once("```").unwrap().0).unwrap();
    let listed = said(&["--list", file.0.to_str().unwrap(), "--json"]);
    assert!(listed.contains(r#""cases":2,"runs":11,"runs_quick":7"#), "{listed}");
}

#[test]
fn a_report_becomes_a_page() {
    let (report, out) = (report("report", 1.2), ReportFolder::new("rendered"));
    let written = said(&["--render", report.text(), "--out", out.text(), "--check", "--json"]);
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&written["figures"], &written["failed"]), (&json!(1), &json!(0)), "{written}");
    let page = out.file("index.html");
    assert!(page.contains("<article id=\"mine\"") && page.contains("<svg"));
    assert_eq!(out.file("report.csv").lines().count(), 1 + 4 * 6 * 3);
    // What was written is a report.
    let again = ReportFolder::new("rendered-again");
    said(&["--render", out.text(), "--out", again.text()]);
    assert_eq!(again.file("index.html"), page);
    assert_eq!(again.file("report.json"), out.file("report.json"));
    // Nothing is replaced unasked.
    refused(&["--render", report.text(), "--out", out.text()], 2, "add --force");
    said(&["--render", report.text(), "--out", out.text(), "--force"]);
}

#[test]
fn an_expectation_that_does_not_hold_is_status_1() {
    let (report, out) = (report("falling", 0.5), ReportFolder::new("checked"));
    let check = ["--render", report.text(), "--out", out.text(), "--check"];
    refused(&check, 1, "2 of 2 expectations do not hold: mine: Messages per second: ");
    assert!(out.file("index.html").contains("class=\"failed\""), "the page is there all the same");
    said(&["--render", report.text(), "--out", out.text(), "--force"]);
}

#[test]
fn two_reports_become_one_page() {
    let (a, b, out) = (report("a", 1.2), report("b", 1.3), ReportFolder::new("compared"));
    let file = b.0.join("report.json");
    said(&["--compare", a.text(), file.to_str().unwrap(), "--out", out.text()]);
    assert!(out.file("index.html").contains("polled, B"));
}

#[test]
fn what_cannot_be_is_refused_with_status_2() {
    let out = ReportFolder::new("never");
    let broken = report("broken", 1.0);
    fs::write(broken.0.join("report.json"), "{}").unwrap();
    for (args, says) in [
        (&["--render", "nowhere"][..], "--out"),
        (&["--render", "nowhere", "--out", out.text()], "nowhere: no report is there"),
        (&["--render", broken.text(), "--out", out.text()], "no report of figures"),
        (&["--compare", "one", "--out", out.text()], "--compare"),
        (&["--list", "telepathy"], "telepathy: no experiment: `rdma-conn figures --list`"),
        (&["--list", "none.toml"], "none.toml: no such file: `rdma-conn figures --print NAME"),
        (&["--list", "--print"], "cannot be used with"),
        (&["--list", "--out", out.text()], "--out: nothing is written"),
        (&["--list", "--check"], "--check needs results"),
        (&[], "--out DIR is missing"),
        (&["--list", "--quick"], "cannot be used with"),
        (&["--resume", "--out", out.text()], "has no report: leave --resume out to begin one"),
    ] {
        refused(args, 2, says);
    }
    assert!(!out.0.exists());
    // The device of the environment is given.
    assert_refused(&["figures", "--list"], 2, "--device: this opens no device");
}

/// A file of an experiment with two cases, each over these values.
fn experiment(folder: &ReportFolder, name: &str, values: &str, at_least: &str) -> String {
    fs::create_dir_all(&folder.0).unwrap();
    let text = format!(
        r#"group = "Mine"
title = "Rate by window"
about = "A test."

[x]
label = "Unacknowledged messages"
scale = "log2"
values = "{values}"

[[y]]
key = "messages_per_s"
label = "Messages per second"
unit = "M msg/s"

[[case]]
label = "16 B"
run = "bench --size 16 --unacked {{x}}"

[[case]]
label = "pingpong"
run = "bench --protocol direct-read --size {{x}}"

[[expect]]
ratio = {{ of = "16 B", to = "16 B", x = 64, to_x = 1, at_least = {at_least} }}
"#
    );
    let path = folder.0.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Measures on the device of the environment.
fn measure(args: &[&str]) -> std::process::Output {
    support::run(&[&["figures", "--seconds", "0.02", "--rounds", "2", "--json"], args].concat())
}

fn samples(folder: &ReportFolder, figure: usize, case: usize) -> Vec<(u64, Vec<f64>)> {
    let report: Value = serde_json::from_str(&folder.file("report.json")).unwrap();
    let points = report["figures"][figure]["series"][case]["points"].as_array().unwrap().iter();
    let samples = |point: &Value| {
        let samples = point["values"]["messages_per_s"]["samples"].as_array().unwrap();
        samples.iter().map(|sample| sample.as_f64().unwrap()).collect()
    };
    points.map(|point| (point["x"].as_u64().unwrap(), samples(point))).collect()
}

#[test]
fn an_experiment_is_measured_and_a_report_goes_on() {
    let (files, out) = (ReportFolder::new("measured-files"), ReportFolder::new("measured"));
    let first = experiment(&files, "first", "1,64", "0.0001");
    let output = measure(&[&first, "--out", out.text(), "--check"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!((&line["figures"], &line["passed"]), (&1.into(), &1.into()));
    let measured = samples(&out, 0, 0);
    assert_eq!(measured.iter().map(|(x, _)| *x).collect::<Vec<_>>(), [1, 64]);
    assert!(measured.iter().all(|(_, rounds)| rounds.len() == 2 && rounds[0] > 0.0));
    let page = out.file("index.html");
    assert!(page.contains("Rate by window") && page.contains("<svg"), "{page}");
    assert_eq!(out.file("report.csv").lines().count(), 1 + 2 * 2 * 2);
    assert!(out.file("charts/first.svg").starts_with("<svg"));

    // A folder with a report is not overwritten, and is continued only with the same command.
    let again = measure(&[&first, "--out", out.text()]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    let other = measure(&[&first, "--out", out.text(), "--resume", "--quick"]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    // What was measured stays, and what is missing is measured.
    let second = experiment(&files, "second", "1,64", "0.0001");
    let resumed = measure(&[&first, &second, "--out", out.text(), "--resume"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert_eq!(samples(&out, 0, 0), measured);
    assert_eq!(samples(&out, 1, 0).len(), 2);
    let changed = experiment(&files, "second", "1,2,64", "0.0001");
    let resumed = measure(&[&changed, "--out", out.text(), "--resume"]);
    assert!(text(&resumed.stderr).contains("another experiment under second"), "{resumed:?}");
}

#[test]
fn an_expectation_that_does_not_hold_gives_status_1() {
    let (files, out) = (ReportFolder::new("turned-files"), ReportFolder::new("turned"));
    let turned = experiment(&files, "turned", "1,64", "1000000");
    let output = measure(&[&turned, "--out", out.text(), "--check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("1 of 1 expectations do not hold"), "{output:?}");
}

/// A key that no result has, and points of which none was measured, are no success.
#[test]
fn what_is_not_there_is_status_1() {
    let (files, out) = (ReportFolder::new("absent-files"), ReportFolder::new("absent"));
    let path = experiment(&files, "absent", "1,64", "0.0001");
    let text_of = fs::read_to_string(&path).unwrap();
    fs::write(&path, text_of.replace("key = \"messages_per_s\"", "key = \"messages_per_sec\""))
        .unwrap();
    let output = measure(&[&path, "--out", out.text()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("absent: no result has the key messages_per_sec"));
    let none = text_of.replace("--unacked {x}", "--unacked 100000{x}");
    fs::write(&path, none).unwrap();
    let output = measure(&[&path, "--out", out.text(), "--force", "--check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("nothing that the experiments expect was measured"));
}

/// A run that cannot be done is named in the figure, and all else is measured.
#[test]
fn a_run_that_is_refused_is_left_out_with_the_reason() {
    let (files, out) = (ReportFolder::new("refused-files"), ReportFolder::new("refused"));
    let refused = experiment(&files, "refused", "1,64,1000000", "0.0001");
    let output = measure(&[&refused, "--out", out.text()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(samples(&out, 0, 0).len(), 2);
    let page = out.file("index.html");
    assert!(page.contains("at 1000000: --unacked 1000000: it may be 1 to 16384"), "{page}");
}

#[test]
fn a_figure_that_is_interrupted_leaves_a_report() {
    let (files, out) = (ReportFolder::new("interrupted-files"), ReportFolder::new("interrupted"));
    let long = experiment(&files, "long", "1,64", "0.0001");
    let begin = ["figures", &long, "--seconds", "3600", "--out", out.text(), "-v"];
    let mut running = support::processes::SpawnedProcess::command(&begin);
    running.wait_for("a run has begun");
    running.signal(rustix::process::Signal::INT);
    let ended = running.ended();
    assert_eq!(ended.status.code(), Some(130), "{ended:#?}");
    assert_eq!(samples(&out, 0, 0), []);
    assert!(out.file("index.html").contains("Rate by window"));
}

#[test]
fn a_model_is_beside_the_papers_figures() {
    let out = ReportFolder::new("model");
    let lines = said(&["--model", "connectx5", "--out", out.text(), "--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let number = |key: &str| line[key].as_f64().unwrap();
        let error = (number("model") - number("paper")) / number("paper");
        assert!((number("error") - error).abs() < 1e-9, "{line}");
        let holds = match line["compare"].as_str().unwrap() {
            "about" => error.abs() <= 0.15,
            "at_least" => error >= 0.0,
            "at_most" => error <= 0.0,
            other => panic!("{other}"),
        };
        assert_eq!(line["is_explained"], holds, "{line}");
        assert_eq!(line["why"].is_string(), !holds, "{line}");
    }
    let fits = lines.iter().filter(|line| line["is_fit"] == true).count();
    assert!(fits > 0 && fits < lines.len() - fits, "{fits} of {}", lines.len());
    let table = said(&["--model", "connectx5"]);
    assert!(table.contains("predictions") && table.contains("not explained: Derecho: "), "{table}");
    let page = out.file("index.html");
    assert!(page.contains("id=\"send-recv-rate-by-unacked\"") && page.contains("predicted"));
    refused(&["--model", "telepathy"], 2, "connectx5");
}

#[test]
fn an_experiment_may_ask_for_a_curve_of_a_model() {
    let (files, out) = (ReportFolder::new("curve-files"), ReportFolder::new("curve"));
    let path = experiment(&files, "curve", "1,64", "0.0001");
    let curve = "\n[[curve]]\nlabel = \"LogGP\"\nmodel = \"connectx5\"\ncase = \"16 B\"\n";
    let asking = fs::read_to_string(&path).unwrap() + curve;
    fs::write(&path, &asking).unwrap();
    let output = measure(&[&path, "--out", out.text()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(out.file("index.html").contains("LogGP"));
    // Beside it is the curve of the device itself, and how far each is from what was measured.
    let report: Value = serde_json::from_str(&out.file("report.json")).unwrap();
    // Beside other programs, a cost may be measured as none.
    assert!(report["manifest"]["calibration"]["o_snd_ns"].as_f64().unwrap() >= 0.0);
    let labels = report["figures"][0]["predicted"].as_array().unwrap().iter();
    let labels: Vec<&str> = labels.map(|curve| curve["label"].as_str().unwrap()).collect();
    assert!(labels.contains(&"LogGP") && labels.contains(&"model: 16 B"), "{labels:?}");
    assert!(out.file("index.html").contains("Errors of the model"));
    fs::write(&path, asking.replace("connectx5", "telepathy")).unwrap();
    refused(&["--list", &path], 2, "there is no such model: connectx5");
}

/// The values are a matter of the machine; all parameters are there, and a device that takes a
/// card's time says how much slower it is.
#[test]
fn a_calibration_has_every_parameter_of_the_model() {
    let is_complete = |line: &Value| {
        for key in
            ["o_snd", "o_snd_batched", "o_rcv", "o_post", "o_post_batched", "o_nic", "o_queue"]
        {
            assert!(line[format!("{key}_ns")].as_f64().unwrap() >= 0.0, "{key}: {line}");
        }
        for key in ["o_srq", "g", "g_read", "l", "gap_per_byte", "gap_per_byte_alone"] {
            assert!(line[format!("{key}_ns")].is_number(), "{key}: {line}");
        }
        assert!(line["reads"].as_f64().unwrap() >= 1.0, "{line}");
    };
    is_complete(&support::one(&["calibrate"]));
    let card = support::one(&["calibrate", "--device", "soft0@card=connectx5,slow=50"]);
    is_complete(&card);
    assert_eq!(card["slow"], 50.0);
}
