//! The record of a run: what the processes of one command have reported, for the command that
//! waits for them.
//!
//! [`RECORD`] names a file. A process appends a line when it is first checked, and one for each
//! finding and note that it writes; at that moment and not at its exit, so that a process counts
//! that ends by `_exit` or a signal. The file is opened for each line: a program may close all
//! descriptors.
//!
//! ```text
//!   c 4711 my_program        it is checked
//!   f 4711 the buffer of …   a finding
//!   n 4711 1 memory region … a note
//! ```

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Result, Write};

use crate::enums::{NamedEnum, named_enum};

/// The environment variable that names the file of the record. `rdma-conn soft` sets it.
pub const RECORD: &str = "RDMA_CONN_SOFT_CHECK_RECORD";

/// Bytes of a record that are read; what a program has written beyond is not.
pub const MAX_RECORD: u64 = 64 << 20;

named_enum! {
    /// A kind of line in a record, with its letter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum RecordMark {
        /// It is checked, and what it is called.
        Checked = "c",
        Finding = "f",
        Note = "n",
    }
}

/// File in which a process records what it reports, if it does.
#[derive(Debug, Default)]
pub(crate) struct RecordFile {
    file: Option<OsString>,
    has_failed: AtomicBool,
}

impl RecordFile {
    /// That of the environment.
    pub(crate) fn named() -> RecordFile {
        let file = std::env::var_os(RECORD).filter(|file| !file.is_empty());
        RecordFile { file, ..RecordFile::default() }
    }

    /// Appends a line.
    ///
    /// # Errors
    /// The file cannot be written to. That is said once.
    pub(crate) fn mark(&self, mark: RecordMark, text: &str) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let line = format!("{} {} {text}\n", mark.name(), std::process::id());
        let appended = OpenOptions::new().append(true).open(file);
        let written = appended.and_then(|mut file| file.write_all(line.as_bytes()));
        match written {
            // Relaxed: a flag that guards no memory.
            Err(_) if self.has_failed.swap(true, Ordering::Relaxed) => Ok(()),
            written => written,
        }
    }
}

/// A process that was checked: it has opened a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedProcess {
    /// Its number.
    pub process: u32,
    /// Its name when it was first checked.
    pub program: String,
    /// Its findings, oldest first.
    pub findings: Vec<String>,
    /// Its notes, oldest first.
    pub notes: Vec<String>,
}

/// Reads a record, from its beginning: the processes by number.
///
/// # Errors
/// The record cannot be read.
pub fn read(record: impl Read) -> Result<Vec<CheckedProcess>> {
    let mut all: BTreeMap<u32, CheckedProcess> = BTreeMap::new();
    for line in BufReader::new(record.take(MAX_RECORD)).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let Some((mark, process, text)) = parse(&line) else { continue };
        let of = all
            .entry(process)
            .or_insert_with(|| CheckedProcess { process, ..CheckedProcess::default() });
        match mark {
            RecordMark::Checked => text.clone_into(&mut of.program),
            RecordMark::Finding => of.findings.push(text.to_owned()),
            RecordMark::Note => of.notes.push(text.to_owned()),
        }
    }
    Ok(all.into_values().collect())
}

/// None of a line that no process writes.
fn parse(line: &str) -> Option<(RecordMark, u32, &str)> {
    let (letter, rest) = line.split_once(' ')?;
    let (process, text) = rest.split_once(' ')?;
    let mark = RecordMark::ALL.iter().copied().find(|mark| mark.name() == letter)?;
    Some((mark, process.parse().ok()?, text))
}

#[cfg(test)]
mod tests;
