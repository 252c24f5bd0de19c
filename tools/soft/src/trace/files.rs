//! Finding traces, and what has become of their processes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::outcome::{CommandError, printable, usage};
use base::remark;
use rustix::fs::OFlags;
use soft_rnic::trace::{self, Trace, TraceError};

/// Traces that are read at a time.
const MOST_FILES: usize = 1024;

/// A trace that was read.
#[derive(Debug)]
pub(super) struct ReadTrace {
    pub(super) file: PathBuf,
    pub(super) trace: Trace,
    pub(super) process: ProcessState,
}

/// State of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessState {
    Running,
    Stopped,
    Ended,
}

impl ProcessState {
    pub(super) fn name(self) -> &'static str {
        match self {
            ProcessState::Running => "running",
            ProcessState::Stopped => "stopped",
            ProcessState::Ended => "ended",
        }
    }

    /// The process of this number, if it is still the one that started then: a number is used
    /// again.
    fn query(number: u32, started: u64) -> ProcessState {
        let text = std::fs::read(format!("/proc/{number}/stat")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if trace::started(number) != Some(started) {
            return ProcessState::Ended;
        }
        // 4711 (program) S …
        match text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().bytes().next()) {
            Some(b'Z' | b'X') | None => ProcessState::Ended,
            Some(b'T' | b't') => ProcessState::Stopped,
            _ => ProcessState::Running,
        }
    }
}

/// Reads all traces that are named.
pub(super) fn read(names: &[PathBuf]) -> Result<Vec<ReadTrace>, CommandError> {
    let mut found = Vec::new();
    for name in names {
        let files = named(name)?;
        if found.len() + files.len() > MOST_FILES {
            return Err(usage(format!("more than {MOST_FILES} traces: name those of interest")));
        }
        let is_one = files.len() == 1;
        for file in files {
            match read_one(&file) {
                Ok(trace) => found.push(ReadTrace::new(file, trace)),
                Err(failure) if is_one => return Err(failure),
                // The others are worth reading all the same.
                Err(failure) => remark!("rdma-conn: {}", printable(&format!("{failure:#}"))),
            }
        }
    }
    Ok(found)
}

impl ReadTrace {
    fn new(file: PathBuf, trace: Trace) -> ReadTrace {
        let process = ProcessState::query(trace.process, trace.started);
        ReadTrace { file, trace, process }
    }
}

/// The file, or those of the processes that were given this name.
fn named(name: &Path) -> Result<Vec<PathBuf>, CommandError> {
    if name.symlink_metadata().is_ok() {
        return Ok(vec![name.to_owned()]);
    }
    let bytes = name.as_os_str().as_bytes();
    let (before, after) = match bytes.windows(2).position(|two| two == b"%p") {
        Some(at) => (bytes[..at].to_vec(), &bytes[at + 2..]),
        None => ([bytes, b"."].concat(), &[][..]),
    };
    let (folder, prefix) = match before.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => before.split_at(slash + 1),
        None => (&b"./"[..], &before[..]),
    };
    let folder = Path::new(OsStr::from_bytes(folder));
    let number = |name: &OsStr| {
        let number = name.as_bytes().strip_prefix(prefix)?.strip_suffix(after)?;
        std::str::from_utf8(number).ok()?.parse::<u32>().ok()
    };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name());
    let mut files: Vec<_> = names.filter_map(|name| Some((number(&name)?, name))).collect();
    if files.is_empty() {
        return Err(usage(format!(
            "{}: no trace of this name, nor of a process: name what `rdma-conn soft --trace FILE -- \
             COMMAND` was given (a process that opens no device writes none)",
            name.display()
        )));
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, name)| folder.join(name)).collect())
}

fn read_one(file: &Path) -> Result<Trace, CommandError> {
    let said = |e: std::io::Error| CommandError::new(e).context(file.display().to_string());
    let mut opened = open(file).map_err(said)?;
    if !opened.metadata().map_err(said)?.is_file() {
        return Err(usage(format!("{}: no file: {ADVICE}", file.display())));
    }
    trace::load(&mut opened).map_err(|e| match e {
        TraceError::NotATrace => usage(format!("{}: {e}: {ADVICE}", file.display())),
        TraceError::Version(_) => {
            usage(format!("{}: {e}: read it with the rdma-conn that wrote it", file.display()))
        }
        TraceError::Io(e) if e.kind() != ErrorKind::UnexpectedEof => said(e),
        _ => CommandError::msg(format!("{}: {e}: run the program again", file.display())),
    })
}

const ADVICE: &str = "name a file that `rdma-conn soft --trace FILE -- COMMAND` has written";

/// Opens a file; a pipe without a writer does not keep it waiting.
fn open(file: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(file)
}

#[cfg(test)]
mod tests;
