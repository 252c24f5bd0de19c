//! Diagnosis of a peer on the network that has not answered, as far as this end can know the
//! reason.
//!
//! A queue pair whose retries are over notes its peer here, and what the device has counted names
//! causes, the likeliest first. Nothing is counted for packets that are in order.

use core::fmt;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::Write;
use std::sync::{Arc, Weak};

use host::sync::Mutex;
use rustix::io::Errno;

use crate::objects::state::{Device, Qp};

use crate::peers::wire::state::{Reliable, RoceWire};

/// A peer that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreached {
    /// The device: `roce:10.0.0.1`.
    pub device: String,
    /// The address of the peer.
    pub peer: IpAddr,
    /// It has answered requests of the same queue pair before.
    pub has_answered: bool,
    /// Bytes of payload in the longest packet that was not answered.
    pub packet_bytes: u32,
    /// The interface of this end is down, has no carrier, or has not got the address.
    pub is_port_down: bool,
    /// The error with which the system has refused to send some of the device's packets.
    pub refused: Option<Errno>,
    /// Source address of the last packet for a queue pair of the device that was not from
    /// its peer's address.
    pub foreign: Option<IpAddr>,
    /// Packets that arrived with a checksum that does not fit.
    pub bad_icrc: u64,
    /// Packets that this end's socket had no room for.
    pub overflowed: u64,
}

/// The peer that was noted last: of which device, and what was known of its queue pair.
static LAST: Mutex<Option<(Weak<Device>, Unreached)>> = Mutex::new(None);

/// True if the next peer that is noted is to be reported on standard error.
static SPEAKS: AtomicBool = AtomicBool::new(false);

impl Qp {
    /// The retries of a request are over.
    #[cold]
    pub(super) fn note_unreached(&self, wire: &Reliable, len: u64) {
        let device = &self.pd.context.device;
        let Some(network) = device.wire() else { return };
        let longest = network.port_state.mtu().min(u32::try_from(len).unwrap_or(u32::MAX));
        let unreached = Unreached {
            device: device.name().to_owned(),
            peer: wire.path.peer.ip().to_canonical(),
            has_answered: wire.first > 0,
            packet_bytes: longest,
            is_port_down: false,
            refused: None,
            foreign: None,
            bad_icrc: 0,
            overflowed: 0,
        }
        .with(network);
        if SPEAKS.swap(false, Ordering::Relaxed) {
            // There may be no standard error.
            let _ = writeln!(std::io::stderr(), "{}: {unreached}", unreached.device);
        }
        *LAST.lock() = Some((Arc::downgrade(device), unreached));
    }
}

impl Unreached {
    /// With what the device has counted by now.
    fn with(self, wire: &RoceWire) -> Unreached {
        // Relaxed: statistics.
        let refused = wire.symptoms.refused.load(Ordering::Relaxed);
        Unreached {
            is_port_down: self.is_port_down || wire.port_state.is_down(),
            refused: (refused != 0).then(|| Errno::from_raw_os_error(refused)),
            foreign: *wire.symptoms.foreign.lock(),
            bad_icrc: wire.counts.bad_icrc.load(Ordering::Relaxed),
            // Another thread may hold the receive lock.
            overflowed: wire.rx.try_lock().map_or(0, |rx| rx.inbox.dropped().into()),
            ..self
        }
    }

    /// The causes that what was counted speaks for, the likeliest first.
    fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        if self.is_port_down {
            let why =
                "the interface of this end is down, has no carrier, or has not got the address";
            causes.push(format!("{why} (`ip address`)"));
        }
        if let Some(errno) = self.refused {
            causes.push(refusal(errno));
        }
        if let Some(from) = self.foreign {
            causes.push(format!(
                "packets for a queue pair came from {from}, which is not its peer: address translation \
                 lies between, or another device has the peer's part"
            ));
        }
        if self.bad_icrc > 0 {
            causes.push(format!(
                "{} packets came with a checksum that does not fit: address translation, or something \
                 that rewrites packets",
                self.bad_icrc
            ));
        }
        if self.has_answered && self.packet_bytes > SHORT {
            causes.push(format!(
                "it has answered before, and the packets have {} bytes of payload: the path may not take \
                 packets that long (MTU)",
                self.packet_bytes
            ));
        }
        if self.overflowed > 0 {
            causes.push(format!(
                "this end's socket had no room for {} packets: raise net.core.rmem_max",
                self.overflowed
            ));
        }
        causes.push(match self.has_answered {
            true => "the peer has ended, or was cut off".into(),
            false => format!(
                "nothing came from {}: a firewall for UDP port 4791 between here and there (either \
                 way), a wrong address, or a peer that has ended",
                self.peer
            ),
        });
        causes
    }
}

/// Packets with more payload are of interest for the MTU of a path: all paths take these.
const SHORT: u32 = 1_024;

fn refusal(errno: Errno) -> String {
    let why = match errno {
        Errno::MSGSIZE => "the interface does not take packets that long: its MTU has changed",
        Errno::PERM | Errno::ACCESS => {
            "a firewall of this machine refuses packets to UDP port 4791"
        }
        Errno::NETUNREACH | Errno::HOSTUNREACH => "no route leads there (`ip route get`)",
        _ => "see `ip link` and `ip route`",
    };
    format!("this machine has not sent packets: {errno}; {why}")
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unreached { device, peer, .. } = self;
        write!(f, "{peer} does not answer: ")?;
        for (at, cause) in self.causes().iter().enumerate() {
            let between = if at == 0 { "" } else { "; or " };
            write!(f, "{between}{cause}")?;
        }
        write!(f, "; next: `rdma-conn doctor --device {device} --connect {peer}`")
    }
}

/// The peer that a device on the network has last failed to reach (`RETRY_EXC`), with causes that
/// this end's counts speak for.
///
/// ```
/// if let Some(unreached) = soft_rnic::peer_unreached() {
///     eprintln!("{unreached}");
/// }
/// ```
#[must_use]
pub fn peer_unreached() -> Option<Unreached> {
    let last = LAST.lock().clone();
    let (device, unreached) = last?;
    Some(match device.upgrade().as_deref().and_then(Device::wire) {
        Some(wire) => unreached.with(wire),
        None => unreached,
    })
}

/// Reports the first [`peer_unreached`] on standard error when it is noted: for programs that print
/// a status and no more.
pub fn report_peer_unreached() {
    // Relaxed: a flag.
    SPEAKS.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
