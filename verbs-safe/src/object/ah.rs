//! Address handles: where datagrams go.

use std::sync::Arc;

use verbs_sys::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route};

use crate::attr::{LinkLayer, PortAttr};
use crate::errno::Errno;
use crate::error::CreateAhError;
use crate::object::completion::DatagramSource;
use crate::object::context::{Context, PdInner, ProtectionDomain};
use crate::object::endpoint::Endpoint;
use crate::object::gid::{GidEntry, GidKind};
use crate::object::grh::Grh;
use crate::object::pointer::{ObjectPtr, destroyed};

/// From where, and how, packets go to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AhAttr {
    /// The local port, from 1.
    pub port: u8,
    /// The index of the local GID.
    pub gid_index: u8,
    /// The service level (4 bits).
    pub service_level: u8,
    /// The traffic class of the route header.
    pub traffic_class: u8,
    /// The hop limit of the route header.
    pub hop_limit: u8,
}

impl AhAttr {
    /// Port 1, service level 0, traffic class 0, 64 hops.
    #[must_use]
    pub fn new(gid_index: u8) -> AhAttr {
        AhAttr { port: 1, gid_index, service_level: 0, traffic_class: 0, hop_limit: 64 }
    }
}

/// The address of a peer, for datagrams. Clones are handles of the same one.
///
/// A send queue that has it as a peer ([`add_peer`](crate::SendQueue::add_peer)) keeps it for as
/// long as a request may use it, also if all clones are dropped.
#[derive(Clone)]
pub struct AddressHandle {
    pub(crate) inner: Arc<AhInner>,
}

pub(crate) struct AhInner {
    pub(crate) raw: ObjectPtr<ibv_ah>,
    pub(crate) pd: Arc<PdInner>,
}

impl Drop for AhInner {
    fn drop(&mut self) {
        // SAFETY: every queue with a request that may use the handle holds it, so that
        // none is left.
        let result = unsafe { (self.pd.context.table.destroy_ah)(self.raw.as_ptr()) };
        destroyed("an address handle", Errno::check(result), || self.pd.clone());
    }
}

impl ProtectionDomain {
    /// The address of `remote`, for queue pairs of this domain. The queue pair number and Q_Key are
    /// arguments of [`add_peer`](crate::SendQueue::add_peer): all queue pairs of a port share one
    /// address.
    ///
    /// # Errors
    /// [`CreateAhError`]: the device refused, or finds no route to it.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// # let pd = context.alloc_pd()?;
    /// use verbs_safe::{AhAttr, Endpoint};
    /// let gid = context.choose_gid(1, None)?;
    /// let remote = Endpoint { qp_num: 17, psn: 0, lid: 0, gid: gid.gid }; // it was told
    /// let handle = pd.create_ah(&remote, AhAttr::new(gid.index as u8))?;
    /// # let _ = handle;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_ah(
        &self,
        remote: &Endpoint,
        attr: AhAttr,
    ) -> Result<AddressHandle, CreateAhError> {
        let is_global = needs_global_route(&self.context(), remote, attr.port, attr.gid_index);
        self.create_raw_ah(address(remote, attr, is_global))
    }

    /// The source address of a datagram, to reply to it: `source` from its
    /// [`Completion`](crate::Completion::source), `grh` from its
    /// [`RecvBuf`](crate::RecvBuf::grh), `port` is the one at which it arrived.
    ///
    /// # Errors
    /// [`CreateAhError`]: the header is missing where only it tells the address, or the
    /// port has no GID as the one that the datagram was sent to.
    pub fn create_reply_ah(
        &self,
        port: u8,
        source: &DatagramSource,
        grh: Option<&Grh>,
    ) -> Result<AddressHandle, CreateAhError> {
        let context = self.context();
        let known = context.port(port)?;
        let raw = match grh.filter(|_| source.has_grh) {
            Some(grh) => routed_reply(&context, port, source, grh)?,
            None if known.link_layer == LinkLayer::Ethernet => return Err(CreateAhError::NoHeader),
            None => local_reply(port, source),
        };
        self.create_raw_ah(raw)
    }

    fn create_raw_ah(&self, mut attr: ibv_ah_attr) -> Result<AddressHandle, CreateAhError> {
        let (table, pd) = (&self.inner.context.table, self.inner.raw.as_ptr());
        // SAFETY: `self.inner` keeps the domain alive; `attr` is a whole struct.
        let raw = unsafe { (table.create_ah)(pd, &mut attr) };
        let raw = ObjectPtr::new(raw).map_err(CreateAhError::Refused)?;
        Ok(AddressHandle { inner: Arc::new(AhInner { raw, pd: self.inner.clone() }) })
    }
}

/// The reply within a subnet: back to the source LID.
fn local_reply(port: u8, source: &DatagramSource) -> ibv_ah_attr {
    ibv_ah_attr {
        dlid: source.lid,
        sl: source.service_level,
        src_path_bits: source.path_bits,
        port_num: port,
        ..ibv_ah_attr::default()
    }
}

/// The reply along the route: source and destination change places.
fn routed_reply(
    context: &Context,
    port: u8,
    source: &DatagramSource,
    grh: &Grh,
) -> Result<ibv_ah_attr, CreateAhError> {
    let table = context.gid_table(port)?;
    let index = if grh.is_multicast() {
        context.choose_gid(port, None)?.index // a group has no GID of its own
    } else {
        own_gid(&table, grh).ok_or(CreateAhError::NotOurs { port, gid: grh.destination })?
    };
    let sgid_index = u8::try_from(index).map_err(|_| CreateAhError::Refused(Errno::EINVAL))?;
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: grh.source },
            flow_label: grh.flow_label,
            sgid_index,
            hop_limit: u8::MAX,
            traffic_class: grh.traffic_class,
        },
        is_global: 1,
        ..local_reply(port, source)
    })
}

/// The index of the GID that a datagram was sent to. The table may have an address as v1 and as v2,
/// and the header does not tell which was used; v2 is preferred.
fn own_gid(table: &[GidEntry], grh: &Grh) -> Option<u32> {
    let ours = || table.iter().filter(|entry| entry.gid == grh.destination);
    let v2 = ours().find(|entry| entry.kind == GidKind::RoceV2);
    v2.or_else(|| ours().next()).map(|entry| entry.index)
}

/// The attributes of the way to `remote`.
pub(crate) fn address(remote: &Endpoint, attr: AhAttr, is_global: bool) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: remote.gid },
            sgid_index: attr.gid_index,
            hop_limit: attr.hop_limit,
            traffic_class: attr.traffic_class,
            ..ibv_global_route::default()
        },
        dlid: remote.lid,
        sl: attr.service_level,
        is_global: is_global.into(),
        port_num: attr.port,
        ..ibv_ah_attr::default()
    }
}

/// Reports whether packets need a global route header: always on Ethernet; on InfiniBand where the
/// subnet demands it, or the peer is in another subnet.
pub(crate) fn needs_global_route(
    context: &Context,
    remote: &Endpoint,
    port: u8,
    gid_index: u8,
) -> bool {
    // If the port cannot be queried, the next verb fails and reports the reason.
    let Ok(attr) = context.port(port) else { return true };
    let local = context.gid_entry(port, gid_index.into()).map(|entry| entry.gid);
    is_global(&attr, local, remote)
}

fn is_global(port: &PortAttr, local: Option<[u8; 16]>, remote: &Endpoint) -> bool {
    let same_subnet = local.is_none_or(|gid| gid[..8] == remote.gid[..8]);
    port.link_layer == LinkLayer::Ethernet
        || port.grh_required
        || remote.lid == 0
        || !(same_subnet || remote.gid == [0; 16])
}

debug_shows!(AddressHandle);

#[cfg(test)]
mod tests;
