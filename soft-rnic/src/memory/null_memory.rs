//! The memory behind null regions: what is read is zero, and what is written is discarded.
//!
//! It is the same behind all of them: zeroes that nothing can write, for which
//! there are no pages, and a sink of a few megabytes that is mapped over and over. Both are as
//! long as a message may be, so that a piece of any message lies in either, whatever its address
//! says; no copy has to know that it is one.

use host::sync::OnceLock;

use host::sync::Mutex;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::errno;
use crate::limits::MAX_MESSAGE;
use crate::memory::span::MemSpan;

/// Bytes that the sink has; as many are mapped as a message may have.
const SINK: usize = 4 << 20;
const LEN: usize = MAX_MESSAGE as usize;

const _: () = assert!(LEN.is_multiple_of(SINK));

/// The memory behind null regions; it stays mapped for as long as the process lives.
#[derive(Debug)]
pub(crate) struct NullMemory {
    pub(crate) zeroes: usize,
    sink: usize,
}

static MEMORY: OnceLock<NullMemory> = OnceLock::new();

impl NullMemory {
    /// Maps it, unless it is mapped: what fails now may succeed the next time.
    pub(crate) fn get() -> Result<&'static NullMemory, Errno> {
        static MAPS: Mutex<()> = Mutex::new(());
        let _maps = MAPS.lock();
        if MEMORY.get().is_none() {
            let memory = NullMemory::map().map_err(|_| errno::ENOMEM)?;
            let _ = MEMORY.set(memory); // the lock is held: it is empty
        }
        MEMORY.get().ok_or(errno::ENOMEM)
    }

    fn map() -> Result<NullMemory, Errno> {
        let (none, flags) = (core::ptr::null_mut(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: new mappings at addresses that the kernel chooses overlap nothing, and what is
        // mapped over and unmapped again is the reservation, which nothing has seen.
        unsafe {
            let zeroes = mmap_anonymous(none, LEN, ProtFlags::READ, flags)?;
            let sink = mmap_anonymous(none, LEN, ProtFlags::empty(), flags)?;
            let mapped = sink_file().and_then(|file| {
                let prot = ProtFlags::READ | ProtFlags::WRITE;
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                (0..LEN).step_by(SINK).try_for_each(|at| {
                    mmap(sink.byte_add(at), SINK, prot, flags, &file, 0).map(drop)
                })
            });
            if let Err(error) = mapped {
                let _ = (munmap(zeroes, LEN), munmap(sink, LEN));
                return Err(error);
            }
            let [zeroes, sink] = [zeroes, sink].map(|at| at.expose_provenance());
            Ok(NullMemory { zeroes, sink })
        }
    }
}

fn sink_file() -> Result<std::os::fd::OwnedFd, Errno> {
    let file = memfd_create("soft-rnic sink", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, SINK as u64)?;
    Ok(file)
}

/// `len` bytes of a null region, if a message may have as many: those to be read, or to be
/// written.
pub(crate) fn piece(len: u64, is_written: bool) -> Option<MemSpan<'static>> {
    let memory = MEMORY.get()?;
    let at = if is_written { memory.sink } else { memory.zeroes };
    let ptr = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the mappings are as long, and stay. Any thread may write to the sink meanwhile.
    (len <= MAX_MESSAGE).then(|| unsafe { MemSpan::shared(ptr, len as usize) })
}

/// Reports whether a piece is one of a null region that is read.
pub(crate) fn is_zeroes(span: &MemSpan<'_>) -> bool {
    MEMORY.get().is_some_and(|memory| memory.zeroes == span.ptr().addr())
}
