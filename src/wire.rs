//! What every connection's set-up does with a port: look at it, make a completion queue,
//! join a queue pair to the peer's.

use conn_core::handshake::{self, Endpoint, Parameters};
use conn_core::wr::{self, SendTracker, SendTrackerConfig};
use verbs_safe::{
    CompletionChannel, CompletionQueue, ConnectAttr, CqConfig, Gid, PortAttr, QpControl,
};

use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
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
pub(crate) struct Port {
    pub(crate) attr: PortAttr,
    pub(crate) gid: Gid,
}

impl Port {
    pub(crate) fn of(device: &Device, transport: &Transport) -> Result<Port, ConnectError> {
        let attr = device.context().port(transport.port);
        let attr = attr.map_err(|e| device.error("query the port", &e))?;
        if !attr.is_active {
            return Err(device.inactive(&attr).into());
        }
        let gid = device.context().choose_gid(transport.port, transport.gid_index);
        let gid = gid.map_err(|e| device.error("choose a GID", &e))?;
        Ok(Port { attr, gid })
    }

    /// Its MTU, as the handshake numbers it.
    pub(crate) fn mtu(&self) -> handshake::Mtu {
        let bytes = self.attr.active_mtu.bytes();
        let code = [256, 512, 1024, 2048, 4096].iter().filter(|b| **b <= bytes).count();
        handshake::Mtu::from_code(code as u8).unwrap_or(handshake::Mtu::B256)
    }
}

/// Entries of a completion queue for `max_peers` links that may have `each` completions
/// outstanding: once more for links that have just been dropped.
pub(crate) fn entries_for(each: u32, max_peers: u32) -> Result<u32, ConfigError> {
    let entries = each.checked_mul(max_peers).and_then(|all| all.checked_add(each));
    let rule = "at least 1, and few enough for one completion queue";
    let unfit = || ConfigError { field: "max_peers", value: max_peers.into(), rule };
    entries.filter(|n| max_peers > 0 && *n <= i32::MAX as u32).ok_or_else(unfit)
}

/// A completion queue, with a channel when its user may sleep.
pub(crate) fn completion_queue(
    device: &Device,
    entries: u32,
    wait: WaitStrategy,
) -> Result<(CompletionQueue, Option<CompletionChannel>), ConnectError> {
    let channel = match wait.may_block() {
        true => Some(
            device
                .context()
                .create_channel()
                .map_err(|e| device.error("create a completion channel", &e))?,
        ),
        false => None,
    };
    let config = CqConfig { entries, channel: channel.as_ref(), comp_vector: 0 };
    let cq = device.context().create_cq(config);
    let cq = cq.map_err(|e| device.error("create a completion queue", &e))?;
    Ok((cq, channel))
}

/// What connecting a queue pair takes besides the two ends.
#[derive(Debug, Clone, Copy)]
pub struct Wire<'a> {
    pub(crate) device: &'a Device,
    pub(crate) transport: &'a Transport,
    pub(crate) port: &'a Port,
    /// READs and atomics in flight, of either end: some devices refuse 0.
    pub(crate) rd_atomic: u8,
    pub(crate) peer: &'a Parameters<'a>,
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
