//! Markers: how a process says that it takes part in multicast groups, to processes that it has
//! not met.
//!
//! A marker is a socket with a name of its own. It is bound together with the listener of its
//! process's slot, and a slot is claimed with both names only: so no other process, of whichever
//! user, can have the name in its place. It refuses connections until its process takes part, and
//! listens from then on. Nothing is accepted there: that a connection is not refused says all.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{bind, connect, listen};

use super::connection::new_socket;
use super::names::SocketNames;

/// The marker of a slot.
#[derive(Debug)]
pub(crate) struct Marker(OwnedFd);

impl Marker {
    /// Takes the name; `EADDRINUSE` if another process has it.
    pub(super) fn bind(names: &SocketNames, slot: u32) -> Result<Marker, Errno> {
        let socket = new_socket()?;
        bind(&socket, &names.marker(slot)?)?;
        Ok(Marker(socket))
    }

    /// From now on others see that this process takes part.
    pub(crate) fn show(&self) -> Result<(), Errno> {
        listen(&self.0, 0)
    }
}

/// Looks for the markers of others.
#[derive(Debug)]
pub(crate) struct MarkerProbe(OwnedFd);

impl MarkerProbe {
    pub(crate) fn new() -> Result<MarkerProbe, Errno> {
        Ok(MarkerProbe(new_socket()?))
    }

    /// Reports whether the process in a slot takes part, if there is one. Any user can have the
    /// marker of a slot that no process has: the process that has the slot is asked when it is met.
    #[expect(clippy::disallowed_methods, reason = "the socket does not block")]
    pub(crate) fn sees(&mut self, names: &SocketNames, slot: u32) -> Result<bool, Errno> {
        match connect(&self.0, &names.marker(slot)?) {
            Ok(()) => {
                self.0 = new_socket()?;
                Ok(true)
            }
            // Connections that are never accepted fill the queue.
            Err(Errno::AGAIN) => Ok(true),
            // No process has the name, or none that this one may talk to.
            Err(Errno::CONNREFUSED | Errno::ACCESS | Errno::PERM) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
