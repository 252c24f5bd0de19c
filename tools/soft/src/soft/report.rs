//! The report of a checked program, as a file for other programs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use base::outcome::{CommandError, printable, usage};
use maud::{PreEscaped, html};
use serde::Serialize;
use soft_rnic::check::CheckedProcess;

/// Format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportFormat {
    Junit,
    Json,
}

/// A file that is asked for.
#[derive(Debug)]
pub(super) struct ReportFile {
    format: ReportFormat,
    file: PathBuf,
}

/// Result of a run.
#[derive(Serialize)]
pub(super) struct ProgramRun<'a> {
    /// The program, and its arguments.
    pub(super) command: &'a [String],
    /// As a shell has it.
    pub(super) program_status: i32,
    /// The command fails, for this reason.
    pub(super) failed: bool,
    pub(super) why: Option<&'a str>,
    /// Notes are failures, too.
    #[serde(skip)]
    pub(super) counts_notes: bool,
    #[serde(serialize_with = "processes")]
    pub(super) processes: &'a [CheckedProcess],
}

#[derive(Serialize)]
struct ReportedProcess<'a> {
    process: u32,
    program: &'a str,
    findings: &'a [String],
    notes: &'a [String],
}

fn processes<S: serde::Serializer>(all: &[CheckedProcess], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.iter().map(|of| ReportedProcess {
        process: of.process,
        program: &of.program,
        findings: &of.findings,
        notes: &of.notes,
    }))
}

impl ReportFile {
    /// The words behind `--report`: a format, and a file in a folder that is there.
    pub(super) fn parse(words: &[OsString]) -> Result<Option<ReportFile>, CommandError> {
        let [format, file] = words else { return Ok(None) };
        let format = match format.as_encoded_bytes() {
            b"junit" => ReportFormat::Junit,
            b"json" => ReportFormat::Json,
            _ => {
                let shown = printable(&format.to_string_lossy());
                return Err(usage(format!("--report {shown}: write --report junit FILE, or json")));
            }
        };
        let file = file_in_a_folder("--report", Path::new(file))?;
        Ok(Some(ReportFile { format, file }))
    }

    /// Writes the file; an older one is replaced.
    pub(super) fn write(&self, run: &ProgramRun<'_>) -> io::Result<()> {
        let text = match self.format {
            ReportFormat::Junit => junit(run),
            ReportFormat::Json => serde_json::to_string(run)? + "\n",
        };
        let said = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.file.display()));
        std::fs::write(&self.file, text).map_err(said)
    }
}

/// A suite for each process, and in it a case for each finding, or one that has passed.
fn junit(run: &ProgramRun<'_>) -> String {
    let suite = |of: &CheckedProcess| {
        let notes: &[String] = if run.counts_notes { &of.notes } else { &[] };
        let failures: Vec<_> = of.findings.iter().chain(notes).map(|text| xml(text)).collect();
        let program = xml(&of.program);
        let name = format!("{program} {}", of.process);
        html! {
            testsuite name=(name) tests=(failures.len().max(1)) failures=(failures.len()) {
                @for (nth, text) in failures.iter().enumerate() {
                    testcase classname=(program) name={ "finding " (nth + 1) } {
                        failure message=(text) {}
                    }
                }
                @if failures.is_empty() {
                    testcase classname=(program) name="no findings" {}
                }
                @if notes.is_empty() && !of.notes.is_empty() {
                    system-out { (xml(&of.notes.join("\n"))) }
                }
            }
        }
    };
    let nothing = html! {
        testsuite name="rdma-conn soft" tests="1" failures=(u32::from(run.failed)) {
            testcase classname="rdma-conn soft" name="a process opens a device" {
                @if let Some(why) = run.why.filter(|_| run.failed) {
                    failure message=(why) {}
                }
            }
        }
    };
    let suites = html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
        testsuites name="rdma-conn soft --check" {
            @for of in run.processes { (suite(of)) }
            @if run.processes.is_empty() { (nothing) }
        }
    };
    suites.into_string() + "\n"
}

/// A text without characters that XML does not have.
fn xml(text: &str) -> String {
    let is_bad = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    text.replace(is_bad, "\u{fffd}")
}

/// The whole name of a file that a flag names.
pub(super) fn file_in_a_folder(flag: &str, file: &Path) -> Result<PathBuf, CommandError> {
    let file = std::path::absolute(file)
        .map_err(|e| usage(format!("{flag} {}: {e}: name a file", file.display())))?;
    let folder = file.parent().unwrap_or(&file);
    let name = flag.trim_start_matches('-');
    if file.is_dir() {
        let (shown, within) = (file.display(), file.join(name));
        let advice = format!("it is a folder: name a file in it, {flag} {}", within.display());
        return Err(usage(format!("{flag} {shown}: {advice}")));
    }
    if !folder.is_dir() {
        let advice = format!("there is no folder {}: name a file in one", folder.display());
        return Err(usage(format!("{flag} {}: {advice}", file.display())));
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
