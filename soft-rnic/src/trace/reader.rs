//! Reading a trace, which may be anything: a file of something else, one that was cut off, one
//! that somebody has made up, or one that is written meanwhile.
//!
//! What is outstanding is between two counters, and lies in a table whose length the file says;
//! all three are compared with the bytes that are there before any is used.

mod objects;
mod words;

use std::io::Read;

use verbs_sys::ibv_wc_status;

use crate::enums::NamedEnum;
use crate::reason::{Cause, WcReason};

use super::layout::{
    EventKind, HEADER, LOG_RECORDS, MAGIC, MAX_FILE_BYTES, OBJECTS, RECORD, STATES, VERSION,
    checksum, head, high, kind, low, object, record,
};

use words::TraceWords;

pub use objects::{
    SharedQueue, Stage, TracedCq, TracedQp, TracedRequest, TracedWait, TracedWaitReason,
};

/// Contents of a process's trace.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The number of the process.
    pub process: u32,
    /// Time at which it started, as [`started`](super::started) tells; 0 if that could not be found
    /// out.
    pub started: u64,
    /// The program's name, as the kernel shows it.
    pub program: String,
    /// Time at which the trace began: nanoseconds since 1970.
    pub began_ns: u64,
    /// Time of the last event: nanoseconds of the system's monotonic clock, as all times below.
    pub last_ns: u64,
    /// Queue pairs that were not destroyed.
    pub queue_pairs: Vec<TracedQp>,
    /// Shared receive queues that were not destroyed.
    pub shared_queues: Vec<SharedQueue>,
    /// Completion queues that were not destroyed.
    pub completion_queues: Vec<TracedCq>,
    /// The last events, oldest first.
    pub events: Vec<Event>,
    /// Records and requests that were being written when the process ended, or were damaged.
    pub torn: u64,
    /// Objects for which the trace had no room.
    pub left_out: u64,
}

/// An event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Time of the event.
    pub time_ns: u64,
    /// Name of the event.
    pub what: &'static str,
    /// The operation of a post or a completion.
    pub operation: Option<&'static str>,
    /// The queue pair, or another object.
    pub number: u32,
    /// The completion queue of a completion or a poll; the peer of a change of state.
    pub other: u32,
    /// The `wr_id` of a request; the address of a region.
    pub wr_id: u64,
    /// The status of a completion; the new state after a change of state.
    pub status: Option<&'static str>,
    /// Bytes.
    pub len: u32,
    /// The reason of a completion in error, or the cause of an error state.
    pub why: Option<String>,
}

/// Reason why a file cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It does not begin as a trace does.
    #[error("not a trace of soft0")]
    NotATrace,
    /// It is of another version of this crate.
    #[error("a trace of version {0}: this program reads version {VERSION}")]
    Version(u32),
    /// It ends before what it says it has.
    #[error("the trace is cut off: it has {has} bytes of {needs}")]
    Truncated {
        /// Bytes that are there.
        has: u64,
        /// Bytes that it says are in use.
        needs: u64,
    },
    /// An object in it cannot be.
    #[error("the trace is damaged at byte {at}")]
    Damaged {
        /// Offset in the file, in bytes.
        at: u64,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Io(std::io::Error),
}

/// Reads a trace from its beginning to the end of its used part: at most
/// [`MAX_FILE_BYTES`].
///
/// # Errors
/// It cannot be read, or is no trace.
pub fn load(file: &mut impl Read) -> Result<Trace, TraceError> {
    let mut bytes = Vec::new();
    let mut take = |bytes: &mut Vec<u8>, len: u64| {
        file.take(len).read_to_end(bytes).map_err(TraceError::Io).map(drop)
    };
    take(&mut bytes, HEADER as u64 * 8)?;
    let used = used_words(&TraceWords(&bytes))? as u64 * 8;
    take(&mut bytes, used.saturating_sub(HEADER as u64 * 8))?;
    read(&bytes)
}

/// Reads a trace out of the bytes of its file.
///
/// ```
/// assert!(soft_rnic::trace::read(b"something else").is_err());
/// ```
///
/// # Errors
/// The bytes are no trace.
pub fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    let words = TraceWords(bytes);
    let used = used_words(&words)?;
    if used > words.len() {
        return Err(TraceError::Truncated { has: bytes.len() as u64, needs: used as u64 * 8 });
    }
    let mut trace = Trace {
        process: low(words.get(head::PROCESS)),
        started: words.get(head::STARTED),
        program: program(&words),
        began_ns: words.get(head::BEGAN),
        last_ns: words.get(head::LAST),
        left_out: words.get(head::LEFT_OUT),
        ..Trace::default()
    };
    trace.read_log(&words);
    trace.read_objects(&words, used)?;
    Ok(trace)
}

/// Words in use, which is no more than a trace may have.
fn used_words(words: &TraceWords<'_>) -> Result<usize, TraceError> {
    if words.get(head::MAGIC) != MAGIC {
        return Err(TraceError::NotATrace);
    }
    let version = low(words.get(head::VERSION));
    if version != VERSION {
        return Err(TraceError::Version(version));
    }
    let used = words.get(head::USED);
    if used < OBJECTS as u64 || used > MAX_FILE_BYTES / 8 {
        return Err(TraceError::Damaged { at: head::USED as u64 * 8 });
    }
    Ok(used as usize)
}

fn program(words: &TraceWords<'_>) -> String {
    let halves = [words.get(head::NAME), words.get(head::NAME + 1)];
    let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

impl Trace {
    fn read_log(&mut self, words: &TraceWords<'_>) {
        let logged = words.get(head::LOGGED);
        let first = logged.saturating_sub(LOG_RECORDS as u64);
        for nth in first..logged {
            let at = HEADER + (nth as usize & (LOG_RECORDS - 1)) * RECORD;
            let all: [u64; RECORD] = core::array::from_fn(|i| words.get(at + i));
            let is_whole = all[record::NUMBER] == nth.wrapping_add(1)
                && all[record::CHECK] == checksum(&all[..record::CHECK]);
            match is_whole.then(|| event(&all)).flatten() {
                Some(event) => self.events.push(event),
                None => self.torn += 1,
            }
        }
    }

    fn read_objects(&mut self, words: &TraceWords<'_>, used: usize) -> Result<(), TraceError> {
        let mut at = OBJECTS;
        while at < used {
            let len = words.get(at + object::WORDS);
            // Each step is a header at least, and the end is one of a file that may not be longer.
            if len < HEADER as u64 || len > (used - at) as u64 {
                return Err(TraceError::Damaged { at: at as u64 * 8 });
            }
            self.read_object(words, at, len as usize)?;
            at += len as usize;
        }
        Ok(())
    }

    fn read_object(
        &mut self,
        words: &TraceWords<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), TraceError> {
        let damaged = TraceError::Damaged { at: at as u64 * 8 };
        let table = objects::QueueTable::new(words, at, len).ok_or(damaged);
        match words.get(at + object::KIND) {
            kind::QP => self.queue_pairs.push(table?.queue_pair(&mut self.torn)),
            kind::SRQ => self.shared_queues.push(table?.shared_queue(&mut self.torn)),
            kind::CQ => self.completion_queues.push(objects::completion_queue(words, at)),
            kind::GONE => {}
            _ => return Err(TraceError::Damaged { at: at as u64 * 8 }),
        }
        Ok(())
    }
}

/// None of a kind that there is not.
fn event(all: &[u64; RECORD]) -> Option<Event> {
    let what = all[record::WHAT];
    let [event, operation, status, reason, ..] = what.to_le_bytes();
    let name = EventKind::ALL.get(usize::from(event))?.name();
    let why = match name {
        "state" => {
            Cause::from_code(u16::from_le_bytes([reason, operation])).map(|why| why.to_string())
        }
        _ => WcReason::from_number(reason).map(|reason| reason.text().to_owned()),
    };
    let operation = super::layout::OPERATIONS.get(usize::from(operation));
    Some(Event {
        time_ns: all[record::TIME],
        what: name,
        operation: operation.copied().filter(|_| matches!(name, "post" | "complete")),
        number: low(all[record::OBJECT]),
        other: high(all[record::OBJECT]),
        wr_id: all[record::WR_ID],
        status: status_of(name, status),
        len: high(what),
        why,
    })
}

fn status_of(event: &str, status: u8) -> Option<&'static str> {
    match event {
        "complete" | "poll" => Some(verbs_sys::wc_status_name(ibv_wc_status(status.into()))),
        "state" => STATES.get(usize::from(status)).copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
