//! Memory of another process that cannot be mapped: cross-memory attach.

use host::sync::Mutex;
use rustix::io::Errno;

use crate::limits::MAX_SGE;
use crate::memory::span::MemSpan;

/// The direction in which the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachDirection {
    /// From here into the other process.
    Into,
    /// From the other process to here.
    From,
}

/// Bytes at the end of a message that are copied last, on their own: when they are there, all is.
const LAST: usize = 8;

/// Moves the bytes of `here` to or from `there .. there + len` in another process.
///
/// # Safety
/// The pieces were checked, `len` bytes together or more; those of on-demand memory may have gone.
/// If `pid` is this process, what lies `there` was checked, too. Programs access all of it
/// atomically only.
pub(crate) unsafe fn attach(
    pid: i32,
    way: AttachDirection,
    here: &[MemSpan<'_>],
    there: u64,
    len: usize,
) -> Result<(), Errno> {
    let none = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
    // One more than there are pieces, because the last bytes may lie in one with others.
    let mut local = [none; MAX_SGE as usize + 1];
    let mut done = 0;
    while done < len {
        // The kernel copies piece after piece. The last bytes are one of our side, because it looks
        // up the pages of each piece of the other side anew.
        let last = len.saturating_sub(LAST).max(done);
        let body = if last > done { pieces(&mut local, here, done, last) } else { 0 };
        let n = (body + pieces(&mut local[body..], here, last, len)) as u64;
        let remote = libc::iovec {
            iov_base: core::ptr::without_provenance_mut((there as usize).wrapping_add(done)),
            iov_len: len - done,
        };
        // SAFETY: the kernel fails for what is not mapped, at both sides; the pieces of `here` in
        // `local`, and what lies `there` in this process, were checked (see # Safety).
        let moved = unsafe {
            match way {
                AttachDirection::Into => {
                    libc::process_vm_writev(pid, local.as_ptr(), n, &raw const remote, 1, 0)
                }
                AttachDirection::From => {
                    libc::process_vm_readv(pid, local.as_ptr(), n, &raw const remote, 1, 0)
                }
            }
        };
        match usize::try_from(moved) {
            Ok(0) => return Err(Errno::FAULT),
            Ok(moved) => done += moved,
            Err(_) => {
                let error = std::io::Error::last_os_error().raw_os_error();
                return Err(Errno::from_raw_os_error(error.unwrap_or(libc::EFAULT)));
            }
        }
    }
    Ok(())
}

/// Writes the pieces of `here` from `skip` up to `len`; returns their number.
fn pieces(to: &mut [libc::iovec], here: &[MemSpan<'_>], skip: usize, len: usize) -> usize {
    let (mut at, mut n) = (0, 0);
    for span in here {
        let start = at.max(skip);
        let end = (at + span.len()).min(len);
        if start < end {
            let iov_base = span.ptr().wrapping_add(start - at).cast();
            to[n] = libc::iovec { iov_base, iov_len: end - start };
            n += 1;
        }
        at += span.len();
    }
    n
}

/// Lets `pid` attach to this process, where the kernel requires that
/// (`/proc/sys/kernel/yama/ptrace_scope` is 1). It takes one process; for a second
/// one, only all processes of this user can be permitted.
pub(crate) fn permit(pid: i32, is_first: bool) {
    if ptrace_scope().as_deref() == Some("1") {
        const ANY: libc::c_ulong = libc::c_ulong::MAX;
        let who = if is_first { pid as libc::c_ulong } else { ANY };
        // SAFETY: it changes who may attach, and nothing else.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, who, 0, 0, 0) };
    }
}

/// An address in the memory of a process, and the value that it says is there. If this
/// process can read the value there, it may attach to the other one, and that one still
/// runs the program that has said so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proof {
    pub(crate) addr: u64,
    pub(crate) value: u64,
}

impl Proof {
    /// A proof of this process.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Proof {
        static VALUE: u64 = 0x736f_6674;
        Proof { addr: (&raw const VALUE).expose_provenance() as u64, value: VALUE }
    }

    pub(crate) fn holds(&self, pid: i32) -> bool {
        self.check(pid).is_ok()
    }

    /// [`holds`](Self::holds), or why not: `EFAULT` if something else is there.
    pub(crate) fn check(&self, pid: i32) -> Result<(), Errno> {
        let mut seen = 0_u64;
        let here = [MemSpan::from_words(core::slice::from_mut(&mut seen))];
        // SAFETY: our own eight bytes.
        unsafe { attach(pid, AttachDirection::From, &here, self.addr, 8) }?;
        if seen == self.value { Ok(()) } else { Err(Errno::FAULT) }
    }
}

/// The process that was refused last, and what the system said.
static REFUSED: Mutex<Option<(i32, Errno)>> = Mutex::new(None);

/// The system does not let us attach to a process.
#[cold]
pub(crate) fn note_refusal(pid: i32, error: Errno) {
    *REFUSED.lock() = Some((pid, error));
}

/// Returns the reason that memory of another process was refused, if it was: the system permits no
/// cross-memory attach to it. Operations on memory there that lies in no sealed memory file end
/// with `REM_OP`, and long messages from it with `LOC_PROT`; this is the reason, of the process
/// that was refused last.
///
/// ```
/// if let Some(reason) = soft_rnic::refused_memory() {
///     eprintln!("{reason}");
/// }
/// ```
pub fn refused_memory() -> Option<String> {
    let (pid, error) = (*REFUSED.lock())?;
    let scope = ptrace_scope().map(|scope| format!("; {YAMA} is {scope}"));
    Some(format!(
        "memory of process {pid} that lies in no sealed memory file is out of reach: the system \
         refuses process_vm_readv and process_vm_writev ({error}){}",
        scope.unwrap_or_default()
    ))
}

const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

fn ptrace_scope() -> Option<String> {
    std::fs::read_to_string(YAMA).ok().map(|scope| scope.trim().to_owned())
}
