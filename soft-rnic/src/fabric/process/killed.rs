//! The death of one of a world's processes, as the others see it: a device that is killed has ended
//! for its peers, and its program finds that all of them have.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::objects::state::{Device, PeerProcesses};

use crate::peers::process::rendezvous::ProcessRendezvous;

impl PeerProcesses {
    /// Reports whether the process was killed.
    pub(super) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }
}

impl Device {
    /// Ends the process of this device for all others: it executes nothing for them any more, and
    /// its connections hang up. Its own queue pairs lose their peers.
    #[expect(clippy::disallowed_methods, reason = "the listener does not block")]
    pub(crate) fn kill(self: &Arc<Device>) {
        let Some(peers) = self.peers.as_ref() else { return };
        // Also one that has not made itself known yet: it never will.
        let Ok(here) = peers.here() else {
            peers.is_killed.store(true, Ordering::Relaxed);
            return;
        };
        {
            // A request that is being executed for others ends first.
            let _progress = peers.progress.lock();
            peers.is_killed.store(true, Ordering::Relaxed);
            here.liveness.end();
        }
        {
            let mut rendezvous = peers.rendezvous.lock();
            let _ = shutdown(&here.listener, Shutdown::Both);
            while accept_with(&here.listener, SocketFlags::CLOEXEC).is_ok() {}
            *rendezvous = ProcessRendezvous::default();
        }
        for pair in peers.all_pairs() {
            // First: what it has sent is not heard.
            pair.declare_dead();
            let _ = shutdown(&pair.socket, Shutdown::Both);
            let _ = shutdown(&pair.accepted, Shutdown::Both);
            self.bury(&pair);
        }
    }
}
