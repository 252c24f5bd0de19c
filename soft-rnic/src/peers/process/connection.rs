//! Connections between processes, and which process is at the other end.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

/// One end, not connected.
pub(super) fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The process at the other end of a connection, which has to be this user's.
pub(super) fn who(socket: &OwnedFd) -> Result<(i32, OwnedFd), Errno> {
    let pid = credentials(socket)?;
    Ok((Pid::as_raw(Some(pid)), pidfd_open(pid, PidfdFlags::empty())?))
}

/// The number of the process at the other end: `EACCES` if it is another user's, `ESRCH`
/// if it is out of sight (in another namespace it has no number here).
pub(super) fn credentials(socket: &OwnedFd) -> Result<Pid, Errno> {
    let mut seen = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a place for credentials, and its size.
    let result = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut seen).cast(), &raw mut len)
    };
    if result != 0 || len as usize != size_of::<libc::ucred>() {
        return Err(Errno::INVAL);
    }
    if seen.uid != geteuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    Pid::from_raw(seen.pid).ok_or(Errno::SRCH)
}
