//! Steps that every connection's set-up takes with a port: look at it, make a completion queue,
//! join a queue pair to the peer's.

use std::net::{Ipv6Addr, SocketAddr};
use std::ops::Deref;

use conn_core::handshake::{self, Endpoint, Parameters};
use conn_core::wr::{self, SendTracker, SendTrackerConfig};
use verbs_safe::{
    CompletionChannel, CompletionQueue, ConnectAttr, CqConfig, Gid, PortAttr, QpControl,
};

use crate::device::Device;
use crate::error::{CloseReason, ConfigError, ConnectError};
use crate::handshake::HandshakeError;
use crate::qp::Transport;
use crate::wait::WaitStrategy;

/// Trackers live with their connection, so their storage is of the depth's size.
pub(crate) type Tracker = SendTracker<Box<[u64]>>;

/// The tracker of a send queue with `depth` places for data and `control` for control.
pub(crate) fn tracker(depth: u32, control: u32, signal_every: u32) -> Tracker {
    let storage = vec![0; wr::words_for(depth + control)].into_boxed_slice();
    let config = SendTrackerConfig { depth: depth + control, control_slots: control, signal_every };
    SendTracker::with_storage(config, storage).expect("a validated configuration has data slots")
}

/// A question to the peer's device: a write of no bytes needs no buffer, no key and
/// no credit, and fails when the device does not answer.
pub(crate) const PROBE: verbs_safe::SendOp = verbs_safe::SendOp::Write {
    len: 0,
    remote: verbs_safe::RemoteSpan { addr: 0, rkey: 0, len: 0 },
};

/// The port that a connection uses, and how it is addressed.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPort {
    pub(crate) attr: PortAttr,
    pub(crate) gid: Gid,
}

impl ConnectionPort {
    /// The port of this number, with the GID at an index or one that is chosen.
    pub(crate) fn query(
        device: &Device,
        number: u8,
        gid_index: Option<u32>,
    ) -> Result<ConnectionPort, ConnectError> {
        let attr = device.context().port(number);
        let attr = attr.map_err(|e| device.error("query the port", &e))?;
        if !attr.is_active {
            return Err(device.inactive(&attr).into());
        }
        let gid = device.context().choose_gid(number, gid_index);
        let gid = gid.map_err(|e| device.error("choose a GID", &e))?;
        Ok(ConnectionPort { attr, gid })
    }

    /// Its MTU, as the handshake numbers it.
    pub(crate) fn mtu(&self) -> handshake::Mtu {
        let bytes = self.attr.active_mtu.bytes();
        let code = [256, 512, 1024, 2048, 4096].iter().filter(|b| **b <= bytes).count();
        handshake::Mtu::from_code(code as u8).unwrap_or(handshake::Mtu::B256)
    }
}

/// Refuses a peer if its device and this one cannot reach each other, as far as their GIDs show:
/// requests to it would only fail after all retries.
pub(crate) fn check_reach(is_local: bool, own: &Gid, peer: &[u8; 16]) -> Result<(), ConnectError> {
    let is_loopback = |gid: &[u8; 16]| Ipv6Addr::from(*gid).to_canonical().is_loopback();
    let why = match is_local {
        true if own.gid != *peer => {
            "soft0 connects the processes of one user in one container of one machine, and a soft device at a distance \
             its own process: run both ends there, or name a card or roce:ADDRESS at both"
        }
        false if is_loopback(&own.gid) != is_loopback(peer) => {
            "one has a device within its machine (soft0, or roce: at a loopback address), the other has not: name a \
             card or the roce: address of an interface at both ends"
        }
        _ => return Ok(()),
    };
    Err(HandshakeError::OutOfReach(why.to_owned()).into())
}

/// Entries of a completion queue for `max_peers` links that may have `each` completions
/// outstanding: once more for links that have just been dropped.
pub(crate) fn entries_for(each: u32, max_peers: u32) -> Result<u32, ConfigError> {
    entries(each.checked_mul(max_peers).and_then(|all| all.checked_add(each)), max_peers)
}

/// Entries of a completion queue for `total` completions of `max_peers` links; `None` is more than
/// can be counted.
pub(crate) fn entries(total: Option<u32>, max_peers: u32) -> Result<u32, ConfigError> {
    let rule = "at least 1, and few enough for one completion queue";
    let unfit = || ConfigError { field: "max_peers", value: max_peers.into(), rule };
    total.filter(|n| max_peers > 0 && *n <= i32::MAX as u32).ok_or_else(unfit)
}

/// A completion queue, with a channel when its user may sleep.
pub(crate) fn completion_queue(
    device: &Device,
    entries: u32,
    wait: WaitStrategy,
) -> Result<(CompletionQueue, Option<CompletionChannel>), ConnectError> {
    let channel = wait.may_block().then(|| device.context().create_channel()).transpose();
    let channel = channel.map_err(|e| device.error("create a completion channel", &e))?;
    let config = CqConfig { entries, channel: channel.as_ref(), comp_vector: 0 };
    let cq = device.context().create_cq(config);
    let cq = cq.map_err(|e| device.error("create a completion queue", &e))?;
    Ok((cq, channel))
}

/// A queue pair that is connected to a peer's.
#[derive(Debug)]
pub struct ConnectedQp {
    control: QpControl,
    ends: Option<StreamAddresses>,
}

/// The addresses of the stream that a set-up went over: here, and there.
pub(crate) type StreamAddresses = (SocketAddr, SocketAddr);

impl ConnectedQp {
    /// Its peer's address on the stream that the set-up went over, if that went over a network.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.ends.map(|(_, there)| there)
    }

    /// This end's address on that stream.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.ends.map(|(here, _)| here)
    }

    /// The reason with the peer's address, where that says something.
    #[must_use]
    pub fn explain(&self, reason: CloseReason) -> CloseReason {
        reason.with_peer(self.peer_addr())
    }
}

impl Deref for ConnectedQp {
    type Target = QpControl;

    fn deref(&self) -> &QpControl {
        &self.control
    }
}

/// Parameters of connecting a queue pair, besides the two ends.
#[derive(Debug, Clone, Copy)]
pub struct Wire<'a> {
    pub(crate) device: &'a Device,
    pub(crate) transport: &'a Transport,
    pub(crate) port: &'a ConnectionPort,
    /// READs and atomics in flight, of either end: some devices refuse 0.
    pub(crate) rd_atomic: u8,
    pub(crate) peer: &'a Parameters<'a>,
    pub(crate) ends: Option<StreamAddresses>,
}

impl Wire<'_> {
    /// The device that the queue pair is of.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.device
    }

    /// Connects a queue pair in INIT to the peer's `end`; its packets are numbered from
    /// `local_psn`, which [`NewHalf::endpoint`](crate::setup::NewHalf::endpoint) has named.
    ///
    /// # Errors
    /// [`ConnectError::Device`].
    pub fn connect(
        &self,
        control: QpControl,
        local_psn: u32,
        end: &Endpoint,
    ) -> Result<ConnectedQp, ConnectError> {
        self.join(&control, local_psn, end)?;
        Ok(self.unjoined(control))
    }

    /// For a half that is made before its queue pair is [joined](Self::join).
    pub(crate) fn unjoined(&self, control: QpControl) -> ConnectedQp {
        ConnectedQp { control, ends: self.ends }
    }

    /// As [`connect`](Self::connect).
    pub(crate) fn join(
        &self,
        qp: &QpControl,
        local_psn: u32,
        end: &Endpoint,
    ) -> Result<(), ConnectError> {
        let remote = verbs_safe::Endpoint {
            qp_num: end.qp_num,
            psn: end.psn,
            lid: self.peer.lid,
            gid: self.peer.gid,
        };
        let mtu = self.port.attr.active_mtu.bytes().min(self.peer.mtu.bytes());
        let attr = ConnectAttr {
            port: self.transport.port,
            gid_index: self.port.gid.index as u8,
            mtu: verbs_safe::Mtu::from_bytes(mtu).unwrap_or(self.port.attr.active_mtu),
            min_rnr_timer: self.transport.min_rnr_timer,
            rnr_retry: self.transport.rnr_retry,
            retry_cnt: self.transport.retry_count,
            timeout: self.transport.timeout,
            max_rd_atomic: self.rd_atomic,
            max_dest_rd_atomic: self.rd_atomic,
            local_psn,
        };
        qp.connect(&remote, &attr).map_err(|e| self.device.error("connect a queue pair", &e).into())
    }
}

#[cfg(test)]
mod tests;
