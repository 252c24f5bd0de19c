//! The trace of this process: whether it has one, and what is in it by its number.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::sync::RwLock;
use rustix::io::Errno;

use crate::per_process::{PerProcess, variable};

use super::file::TraceFile;
use super::layout::{EventKind, kind};
use super::queue::{QueueProperties, QueueTrace};

/// The file, and the queue pairs in it.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(super) file: Arc<TraceFile>,
    /// Queue pairs by number: a completion says only that.
    queues: RwLock<HashMap<u32, Arc<QueueTrace>>>,
}

/// The tracer of this process, if its environment asks for a trace.
///
/// One that cannot be written is reported on standard error, once: the program runs all the same.
pub(crate) fn tracer() -> Option<Arc<Tracer>> {
    static TRACER: PerProcess<Option<Arc<Tracer>>> = PerProcess::new();
    let name = variable(super::VARIABLE)?;
    TRACER.get_or_make(|process| {
        let path = path_of(&name, process);
        let tracer = Tracer::create(&path, process).map(Arc::new);
        tracer.inspect_err(|e| report(&path, *e)).ok()
    })
}

/// The file of this process.
fn path_of(name: &std::ffi::OsStr, process: u32) -> PathBuf {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let (bytes, process) = (name.as_bytes(), process.to_string());
    let path = match bytes.windows(2).position(|two| two == b"%p") {
        Some(at) => [&bytes[..at], process.as_bytes(), &bytes[at + 2..]].concat(),
        None => [bytes, b".", process.as_bytes()].concat(),
    };
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

#[cold]
fn report(path: &Path, error: Errno) {
    use std::io::Write;
    let line = format!(
        "soft0: cannot write a trace to {}: {error}: name a file in a folder that can be written \
         in {}\n",
        path.display(),
        super::VARIABLE
    );
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

impl Tracer {
    /// A trace in a new file, of the process of this number.
    pub(crate) fn create(path: &Path, process: u32) -> Result<Tracer, Errno> {
        let file = Arc::new(TraceFile::create(path, process)?);
        Ok(Tracer { file, queues: RwLock::default() })
    }

    /// A new queue pair. None if there is no room for its table.
    pub(crate) fn pair(
        &self,
        shape: &QueueProperties,
        shared: Option<Arc<QueueTrace>>,
    ) -> Option<Arc<QueueTrace>> {
        let queue = Arc::new(QueueTrace::new(&self.file, kind::QP, shape, shared)?);
        self.queues.write().insert(shape.number, Arc::clone(&queue));
        self.log(EventKind::CreateQp, (0, 0, 0), (shape.number, 0), 0);
        Some(queue)
    }

    /// The queue pair of this number is destroyed.
    pub(crate) fn forget(&self, queue: &QueueTrace) {
        self.queues.write().remove(&queue.number);
        queue.destroyed();
    }

    /// A new shared receive queue. None if there is no room for its table.
    pub(crate) fn shared(&self, number: u32, capacity: u32) -> Option<Arc<QueueTrace>> {
        let shape =
            QueueProperties { number, recv_capacity: capacity, ..QueueProperties::default() };
        let queue = QueueTrace::new(&self.file, kind::SRQ, &shape, None)?;
        self.log(EventKind::CreateSrq, (0, 0, 0), (number, 0), 0);
        Some(Arc::new(queue))
    }

    /// The queue pair of this number, if it is traced.
    pub(super) fn queue(&self, number: u32) -> Option<Arc<QueueTrace>> {
        self.queues.read().get(&number).cloned()
    }

    /// Writes a record ([`TraceFile::log`]).
    pub(crate) fn log(
        &self,
        kind: EventKind,
        what: (u64, u64, u32),
        numbers: (u32, u32),
        wr_id: u64,
    ) -> u64 {
        self.file.log(kind, what, numbers, wr_id)
    }
}
