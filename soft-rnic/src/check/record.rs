//! The record of a run: what the processes of one command have reported, for the command that
//! waits for them.
//!
//! [`RECORD`] names a file. A process appends a byte when it is first checked, one at its first finding and
//! one at its first note; at that moment and not at its exit, so that a process counts that ends by
//! `_exit` or a signal. The file is opened for each byte: a program may close all descriptors.

use core::sync::atomic::{AtomicU8, Ordering};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufReader, Read, Result, Write};

/// The environment variable that names the file of the record. `rdma-conn soft` sets it.
pub const RECORD: &str = "RDMA_CONN_SOFT_CHECK_RECORD";

/// What a process records of itself, once each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is checked.
    Checked,
    Finding,
    Note,
}

impl Mark {
    const ALL: [Mark; 3] = [Mark::Checked, Mark::Finding, Mark::Note];

    fn byte(self) -> u8 {
        match self {
            Mark::Checked => b'c',
            Mark::Finding => b'f',
            Mark::Note => b'n',
        }
    }
}

/// Where a process records what it reports, if it does.
#[derive(Debug, Default)]
pub(crate) struct Record {
    file: Option<OsString>,
    /// A bit for each mark that was made.
    made: AtomicU8,
}

impl Record {
    /// That of the environment.
    pub(crate) fn named() -> Record {
        let file = std::env::var_os(RECORD).filter(|file| !file.is_empty());
        Record { file, made: AtomicU8::new(0) }
    }

    /// Makes a mark, if it is the first of its kind.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub(crate) fn mark(&self, mark: Mark) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let bit = 1 << mark as u8;
        // Relaxed: it guards no memory.
        if self.made.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        OpenOptions::new().append(true).open(file)?.write_all(&[mark.byte()])
    }
}

/// How many processes of a run have reported what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Were checked: they have opened a device.
    pub checked: u64,
    /// Have findings.
    pub with_findings: u64,
    /// Have notes.
    pub with_notes: u64,
}

impl Tally {
    /// Reads a record, from its beginning.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn read(record: impl Read) -> Result<Tally> {
        let mut counts = [0; Mark::ALL.len()];
        for byte in BufReader::new(record).bytes() {
            let byte = byte?;
            if let Some(mark) = Mark::ALL.into_iter().find(|mark| mark.byte() == byte) {
                counts[mark as usize] += 1;
            }
        }
        let [checked, with_findings, with_notes] = counts;
        Ok(Tally { checked, with_findings, with_notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_makes_each_mark_once() {
        let file = std::env::temp_dir().join(format!("record-{}", std::process::id()));
        std::fs::write(&file, b"").unwrap();
        let record = || Record { file: Some(file.clone().into()), ..Record::default() };
        let (one, other) = (record(), record());
        for mark in [Mark::Checked, Mark::Finding, Mark::Finding, Mark::Note, Mark::Checked] {
            one.mark(mark).unwrap();
        }
        other.mark(Mark::Checked).unwrap();
        let tally = Tally::read(std::fs::File::open(&file).unwrap()).unwrap();
        assert_eq!(tally, Tally { checked: 2, with_findings: 1, with_notes: 1 });
        std::fs::remove_file(&file).unwrap();
        assert!(record().mark(Mark::Note).is_err());
        Record::default().mark(Mark::Note).unwrap();
    }

    #[test]
    fn what_is_no_mark_counts_nothing() {
        assert_eq!(Tally::read(&b""[..]).unwrap(), Tally::default());
        assert_eq!(Tally::read(&b"f\0xff"[..]).unwrap().with_findings, 3);
    }
}
