//! The processes of an address: how this one becomes one of them.
//!
//! 1. It waits for its turn: one process joins at a time.
//! 2. It claims a place, which is a slot of the address's processes (`fabric::process::rendezvous`).
//! 3. It asks a member that lives for the sockets. Where there is none it binds them.
//! 4. It receives from the socket of its place, and serves others from now on.
//!
//! Where the system lacks what that takes, the process binds the address for itself alone.

use core::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::fabric::process::directory::INDEX_BITS;
use crate::fabric::process::names::Names;
use crate::fabric::process::peer_processes::random;
use crate::fabric::process::rendezvous::Here;
use crate::fabric::process::shared_sockets::{SHARED, Silent, Turn, TurnError, ask};
use crate::objects::state::PeerProcesses;
use crate::udp::{Port, PortError};

/// Places of an address, as a power of two.
const PLACE_BITS: u32 = 5;
/// Processes on an address at most.
pub(crate) const PLACES: u32 = 1 << PLACE_BITS;
/// How long a process waits for its turn to join.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// How long the sockets of processes that have ended may take to go, and between two looks.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(2);

const _: () = assert!(PLACES as usize <= SHARED);

/// What a process has that has joined.
pub(super) struct Joined {
    pub(super) port: Port,
    /// The others, if there can be any.
    pub(super) peers: Option<PeerProcesses>,
    /// Held until others are served.
    pub(super) _turn: Option<Turn>,
}

/// Joins the processes of an address, or is the first one.
pub(super) fn join(addr: SocketAddr) -> Result<Joined, PortError> {
    let names = Names::of_address(addr.ip(), PLACES);
    let turn = match Turn::take(&names, TURN_WITHIN) {
        Ok(turn) => turn,
        Err(TurnError::Taken(silent)) => return Err(is_silent(addr, silent)),
        Err(TurnError::System(_)) => return alone(addr),
    };
    let [anywhere, proof] = random();
    let mut here = match Here::claim(&names, anywhere, proof) {
        Ok(here) => here,
        Err((_, Errno::ADDRINUSE)) => return Err(is_full(addr)),
        Err(_) => return alone(addr),
    };
    let mut sockets = sockets(&names, &here, addr)?;
    let error = |errno| PortError::new(addr, "taking a place of", errno);
    let own = sockets.get_mut(here.slot as usize).ok_or_else(|| error(Errno::PROTO))?;
    let copy = rustix::io::fcntl_dupfd_cloexec(&*own, 3).map_err(error)?;
    let port = Port::take_place(core::mem::replace(own, copy), addr).map_err(error)?;
    here.share(sockets);
    Ok(Joined { port, peers: Some(PeerProcesses::of(here)), _turn: Some(turn) })
}

/// Binds the address for this process alone.
fn alone(addr: SocketAddr) -> Result<Joined, PortError> {
    Ok(Joined { port: Port::bind(addr)?, peers: None, _turn: None })
}

/// The sockets of all places: those of a member, or new ones.
fn sockets(names: &Names, here: &Here, addr: SocketAddr) -> Result<Vec<OwnedFd>, PortError> {
    let end = Instant::now() + GONE_WITHIN;
    loop {
        let found = ask(names, here.slot).map_err(|silent| is_silent(addr, silent))?;
        if let Some(sockets) = found.filter(|sockets| sockets.len() == PLACES as usize) {
            return Ok(sockets);
        }
        match Port::bind_group(addr, INDEX_BITS, PLACE_BITS) {
            Ok(ports) => return Ok(ports.into_iter().map(OwnedFd::from).collect()),
            // The last member is ending: its name goes before its sockets do.
            Err(PortError { errno: Errno::ADDRINUSE, .. }) if Instant::now() < end => {
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_silent(addr: SocketAddr, Silent { pid }: Silent) -> PortError {
    let error = PortError::new(addr, "joining the processes of", Errno::TIMEDOUT);
    let why = format!(
        "process {pid} has the address, and does not answer: if it is stopped, continue or end it"
    );
    PortError { why: Some(why), ..error }
}

fn is_full(addr: SocketAddr) -> PortError {
    let error = PortError::new(addr, "joining the processes of", Errno::USERS);
    let why = format!("{PLACES} processes have it, which is all that can: end one of them");
    PortError { why: Some(why), ..error }
}
