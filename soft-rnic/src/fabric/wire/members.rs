//! The processes of an address: how this one becomes one of them.
//!
//! 1. It waits for its turn: one process joins at a time.
//! 2. It claims a place, which is a slot of the address's processes
//!    (`peers::process::rendezvous`).
//! 3. It asks a running member for the sockets. Where there is none it binds them.
//! 4. It receives from the socket of its place, and serves others from now on.
//!
//! On a system that lacks what that takes ([`LACKING`]), the process binds the address
//! alone. Any other error, which may pass, is the caller's: alone it would keep all others out.

use core::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::fabric::process::peer_processes::random;
use crate::objects::state::PeerProcesses;
use crate::peers::process::directory::INDEX_BITS;
use crate::peers::process::names::SocketNames;
use crate::peers::process::rendezvous::LocalProcess;
use crate::peers::process::shared_sockets::{JoinTurn, SHARED, Silent, TurnError, ask};
use crate::udp::{PortError, UdpPort};

/// Places of an address, as a power of two.
const PLACE_BITS: u32 = 5;
/// Processes on an address at most.
pub(crate) const PLACES: u32 = 1 << PLACE_BITS;
/// Longest time that a process waits for another one that joins.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Longest time that the sockets of processes that have ended take to go, and time between two
/// looks.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(2);

/// Errors of a system that lacks something, or does not permit it to this process: that stays so.
const LACKING: [Errno; 11] = [
    Errno::NOSYS,
    Errno::AFNOSUPPORT,
    Errno::PROTONOSUPPORT,
    Errno::SOCKTNOSUPPORT,
    Errno::OPNOTSUPP,
    Errno::INVAL,
    Errno::PERM,
    Errno::ACCESS,
    // There is no /proc.
    Errno::NOENT,
    Errno::NOTDIR,
    // Files may not be as long.
    Errno::FBIG,
];

const _: () = assert!(PLACES as usize <= SHARED);

/// The port and the place of a process that has joined, and the others.
pub(super) struct JoinedPort {
    pub(super) port: UdpPort,
    /// The place of this process on the address, if there can be others.
    pub(super) place: Option<u32>,
    /// The others, if there can be any.
    pub(super) peers: Option<PeerProcesses>,
    /// Held until others are served.
    pub(super) _turn: Option<JoinTurn>,
}

/// Joins the processes of an address, or is the first one.
pub(super) fn join(addr: SocketAddr) -> Result<JoinedPort, PortError> {
    let names = SocketNames::of_address(addr.ip(), PLACES);
    let turn = match JoinTurn::take(&names, TURN_WITHIN) {
        Ok(turn) => turn,
        Err(TurnError::Taken(silent)) => return Err(is_silent(addr, silent)),
        Err(TurnError::Foreign) => return Err(is_foreign(addr)),
        Err(TurnError::System(errno)) => return alone_after(addr, "abstract sockets", errno),
    };
    let [anywhere, proof] = random();
    let mut here = match LocalProcess::claim(&names, anywhere, proof) {
        Ok(here) => here,
        Err((_, Errno::ADDRINUSE)) => return Err(is_full(addr)),
        Err((what, errno)) => return alone_after(addr, what, errno),
    };
    let mut sockets = sockets(&names, &here, addr)?;
    let error = |errno| PortError::new(addr, "taking a place of", errno);
    let own = sockets.get_mut(here.slot as usize).ok_or_else(|| error(Errno::PROTO))?;
    let copy = rustix::io::fcntl_dupfd_cloexec(&*own, 3).map_err(error)?;
    let port = UdpPort::take_place(core::mem::replace(own, copy), addr).map_err(error)?;
    here.share(sockets);
    let place = Some(here.slot);
    Ok(JoinedPort { port, place, peers: Some(PeerProcesses::with_own(here)), _turn: Some(turn) })
}

/// Binds the address for this process alone, if the system lacks what joining takes.
fn alone_after(
    addr: SocketAddr,
    what: &'static str,
    errno: Errno,
) -> Result<JoinedPort, PortError> {
    if !LACKING.contains(&errno) {
        let error = PortError::new(addr, "joining the processes of", errno);
        return Err(PortError { why: Some(format!("it takes {what}")), ..error });
    }
    Ok(JoinedPort { port: UdpPort::bind(addr)?, place: None, peers: None, _turn: None })
}

/// The sockets of all places: those of a member, or new ones.
fn sockets(
    names: &SocketNames,
    here: &LocalProcess,
    addr: SocketAddr,
) -> Result<Vec<OwnedFd>, PortError> {
    let end = host::time::now() + GONE_WITHIN;
    loop {
        let found = ask(names, here.slot).map_err(|silent| is_silent(addr, silent))?;
        if let Some(sockets) = found.filter(|sockets| sockets.len() == PLACES as usize) {
            return Ok(sockets);
        }
        match UdpPort::bind_group(addr, INDEX_BITS, PLACE_BITS) {
            Ok(ports) => return Ok(ports.into_iter().map(OwnedFd::from).collect()),
            // The last member is ending: its name goes before its sockets do.
            Err(PortError { errno: Errno::ADDRINUSE, .. }) if host::time::now() < end => {
                host::time::sleep(LOOK);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_silent(addr: SocketAddr, Silent { pid }: Silent) -> PortError {
    let error = PortError::new(addr, "joining the processes of", Errno::TIMEDOUT);
    let which = pid.map_or_else(|| "one of them".to_owned(), |pid| format!("process {pid}"));
    let why = format!(
        "{which} has the address, and does not answer: if it is stopped, continue or end it"
    );
    PortError { why: Some(why), ..error }
}

fn is_foreign(addr: SocketAddr) -> PortError {
    let error = PortError::new(addr, "joining the processes of", Errno::ACCESS);
    PortError { why: Some("another user has the name for that".to_owned()), ..error }
}

fn is_full(addr: SocketAddr) -> PortError {
    let error = PortError::new(addr, "joining the processes of", Errno::USERS);
    let why = format!("{PLACES} processes have it, which is all that can: end one of them");
    PortError { why: Some(why), ..error }
}

#[cfg(test)]
mod tests;
