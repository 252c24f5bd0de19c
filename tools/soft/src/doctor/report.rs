//! Tests, with their results and the remedies.

use base::outcome::CommandResult;
use base::say;
use serde::Serialize;
use serde_json::json;

/// Tests have failed; their lines have said why.
#[derive(Debug, thiserror::Error)]
#[error("failed: {0}")]
pub struct TestsFailed(String);

/// Result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TestVerdict {
    Ok,
    /// It works, and could work better.
    Warning,
    Failed,
}

/// Prints each test as it is done.
pub(super) struct DoctorReport {
    json: bool,
    failed: Vec<&'static str>,
}

impl DoctorReport {
    pub(super) fn new(json: bool) -> DoctorReport {
        DoctorReport { json, failed: Vec::new() }
    }

    pub(super) fn ok(&mut self, check: &'static str, found: impl AsRef<str>) {
        self.add(check, TestVerdict::Ok, found.as_ref(), None);
    }

    pub(super) fn warn(
        &mut self,
        check: &'static str,
        found: impl AsRef<str>,
        remedy: impl AsRef<str>,
    ) {
        self.add(check, TestVerdict::Warning, found.as_ref(), Some(remedy.as_ref()));
    }

    pub(super) fn fail(
        &mut self,
        check: &'static str,
        found: impl AsRef<str>,
        remedy: impl AsRef<str>,
    ) {
        self.failed.push(check);
        self.add(check, TestVerdict::Failed, found.as_ref(), Some(remedy.as_ref()));
    }

    fn add(&self, check: &str, verdict: TestVerdict, found: &str, remedy: Option<&str>) {
        if self.json {
            let keys =
                json!({ "check": check, "verdict": verdict, "found": found, "remedy": remedy });
            say!("{keys}");
            return;
        }
        let word = match verdict {
            TestVerdict::Ok => "ok",
            TestVerdict::Warning => "warning",
            TestVerdict::Failed => "FAILED",
        };
        say!("{word:8} {check:12} {found}");
        if let Some(remedy) = remedy {
            say!("{:21} -> {remedy}", "");
        }
    }

    /// The command's end: [`TestsFailed`] if a test has.
    pub(super) fn finish(self) -> CommandResult {
        match &self.failed[..] {
            [] => Ok(()),
            failed => Err(TestsFailed(failed.join(", ")).into()),
        }
    }
}
