//! Objects that a send queue is given besides its slots: peers for datagrams, and regions that
//! requests send from or land in.

use std::sync::Arc;

use verbs_sys::ibv_sge;

use crate::error::{AttachError, StageError};
use crate::object::ah::AddressHandle;
use crate::queue::pinned::{Item, MAX_ENTRIES};
use crate::queue::send::SendQueue;
use crate::queue::send::check::check_remote;
use crate::queue::send::entries::{LocalRegionEntry, PeerEntry, PeerId, RegionId};
use crate::queue::send::op::{SendFlags, SendOp};
use crate::region::registration::Registration;
use crate::region::shared::SharedRegion;
use crate::transport::OpSet;

/// Datagrams.
impl SendQueue {
    /// Adds a peer: queue pair `qp_num` at the address `at`, which takes datagrams of the key
    /// `qkey`. (By the specification, a key with the top bit set stands for that of this queue
    /// pair; not every device implements this.) The queue keeps the address handle until the peer
    /// is [removed](Self::remove_peer) and no request to it is in flight.
    ///
    /// # Errors
    /// [`AttachError`]: the queue pair is connected, or the address is another domain's.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// # let pd = context.alloc_pd()?;
    /// # use verbs_safe::{AhAttr, CqConfig, Endpoint, QueuePairConfig, SendOp, Transport};
    /// # let cq = context.create_cq(CqConfig::new(256))?;
    /// # let gid = context.choose_gid(1, None)?;
    /// # let told = Endpoint { qp_num: 17, psn: 0, lid: 0, gid: gid.gid };
    /// let transport = Transport::Ud { qkey: 0x1111_1111 };
    /// let config = QueuePairConfig { transport, ..QueuePairConfig::new(&cq, &cq) };
    /// let mut qp = pd.create_qp(&config, ())?;
    /// qp.control.activate(0)?;
    /// let address = pd.create_ah(&told, AhAttr::new(gid.index as u8))?;
    /// let peer = qp.send.add_peer(&address, told.qp_num, 0x1111_1111)?;
    /// qp.send.next_slot().expect("all are free")[..5].copy_from_slice(b"hello");
    /// qp.send.stage_to(peer, SendOp::Send { len: 5 }, true)?;
    /// qp.send.post()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_peer(
        &mut self,
        at: &AddressHandle,
        qp_num: u32,
        qkey: u32,
    ) -> Result<PeerId, AttachError> {
        let transport = self.qp.transport;
        if !transport.is_datagram() {
            return Err(AttachError::Connected { transport });
        }
        if !Arc::ptr_eq(&at.inner.pd, &self.qp.uses.pd) {
            return Err(AttachError::OtherDomain { what: "address handle" });
        }
        let (item, peer) =
            (Item::Address(at.inner.clone()), PeerEntry { ah: at.inner.raw, qp_num, qkey });
        let entry = self.peers.add(&self.qp.uses.pinned, item, peer);
        entry.map(PeerId).ok_or(AttachError::TooMany(MAX_ENTRIES))
    }

    /// Removes a peer; returns true if there was one. Requests to it that are staged or in
    /// flight proceed.
    pub fn remove_peer(&mut self, peer: PeerId) -> bool {
        self.leaving.remove(&mut self.peers, peer.0, &self.qp.uses.pinned, self.retired)
    }

    /// Stages a datagram to `peer`: as [`stage`](Self::stage), of a SEND with or without
    /// an immediate.
    ///
    /// # Errors
    /// [`StageError`], as where the message is longer than
    /// [`max_datagram`](Self::max_datagram); nothing has changed.
    #[inline]
    pub fn stage_to(
        &mut self,
        peer: PeerId,
        op: SendOp,
        signalled: bool,
    ) -> Result<(), StageError> {
        self.stage_to_with(peer, op, SendFlags { signalled, ..SendFlags::default() })
    }

    /// As [`stage_to`](Self::stage_to), with all flags.
    ///
    /// # Errors
    /// [`StageError`]; nothing has changed.
    #[inline]
    pub fn stage_to_with(
        &mut self,
        peer: PeerId,
        op: SendOp,
        flags: SendFlags,
    ) -> Result<(), StageError> {
        self.check_datagram(&op)?;
        let place = self.peers.get(peer.0).ok_or(StageError::UnknownPeer)?;
        place.last_used = self.staged + 1;
        let to = place.value;
        let work = self.take_place(op, flags);
        work.wr.ud.ah = to.ah.as_ptr();
        work.wr.ud.remote_qpn = to.qp_num;
        work.wr.ud.remote_qkey = to.qkey;
        Ok(())
    }

    #[inline]
    fn check_datagram(&self, op: &SendOp) -> Result<(), StageError> {
        if !OpSet::sends().has(op.opcode()) {
            return Err(StageError::NotOffered);
        }
        self.check_room()?;
        let len = op.len();
        if len > self.max_datagram {
            let (len, mtu) = (len as usize, self.max_datagram as usize);
            return Err(StageError::OverMtu { len, mtu });
        }
        self.check_slot(len)
    }
}

/// Requests without a slot.
impl SendQueue {
    /// Attaches a region, for requests to send from, or land in. The queue keeps it
    /// until it is [detached](Self::detach) and no request that refers to it is in
    /// flight: until then it stays registered, and peers can reach it as before, even if
    /// it is dropped.
    ///
    /// # Errors
    /// [`AttachError`]: the region is another domain's.
    pub fn attach(&mut self, region: &SharedRegion) -> Result<RegionId, AttachError> {
        self.attach_registration(region.registration())
    }

    /// As [`attach`](Self::attach), of memory that its owner may lend: give the number only
    /// to code that knows when the memory is lent.
    pub(crate) fn attach_registration(
        &mut self,
        registration: &Arc<Registration>,
    ) -> Result<RegionId, AttachError> {
        let local = self.local(registration)?;
        let item = Item::Region(registration.clone());
        let entry = self.regions.add(&self.qp.uses.pinned, item, local);
        entry.map(RegionId).ok_or(AttachError::TooMany(MAX_ENTRIES))
    }

    /// Returns the values of a region that requests need.
    pub(super) fn local(
        &self,
        registration: &Registration,
    ) -> Result<LocalRegionEntry, AttachError> {
        if !Arc::ptr_eq(registration.pd(), &self.qp.uses.pd) {
            return Err(AttachError::OtherDomain { what: "region" });
        }
        let addr = registration.base().as_ptr() as u64;
        Ok(LocalRegionEntry { addr, len: registration.len(), lkey: registration.lkey() })
    }

    /// Detaches a region; returns true if there was one. Requests that refer to it, and are staged
    /// or in flight, proceed.
    pub fn detach(&mut self, region: RegionId) -> bool {
        self.leaving.remove(&mut self.regions, region.0, &self.qp.uses.pinned, self.retired)
    }

    /// Stages a one-sided request with bytes at `offset` of `region`, and not in a slot: WRITE
    /// sends the bytes that the device finds there, READ and atomics land there. It is never handed
    /// over inline.
    ///
    /// # Errors
    /// [`StageError`], also for a SEND: its bytes must belong to the device until it has completed,
    /// and bytes of a region do not. Nothing has changed.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// # let pd = context.alloc_pd()?;
    /// # use verbs_safe::*;
    /// # let gid = context.choose_gid(1, None)?;
    /// # let cq = context.create_cq(CqConfig::new(256))?;
    /// # let config = QueuePairConfig { access: RemoteAccess::ALL, ..QueuePairConfig::new(&cq, &cq) };
    /// # let mut qp = pd.create_qp(&config, ())?;
    /// # let end = qp.control.endpoint(1, gid, 7)?;
    /// # qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 7))?; // to itself
    /// # let all = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    /// # let far = pd.register_shared(Mapping::new(4096)?, all)?;
    /// # let remote = far.remote(0, 4096)?;
    /// let region = pd.register_shared(Mapping::new(1 << 20)?, SharedRegionConfig::default())?;
    /// let local = qp.send.attach(&region)?;
    /// let flags = SendFlags { signalled: true, ..SendFlags::default() };
    /// qp.send.stage_at(local, 4096, SendOp::Read { len: 4096, remote }, flags)?;
    /// qp.send.post()?;
    /// // When it has completed, the bytes are in `region`, at 4096.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn stage_at(
        &mut self,
        region: RegionId,
        offset: usize,
        op: SendOp,
        flags: SendFlags,
    ) -> Result<(), StageError> {
        let len = op.len();
        if OpSet::sends().has(op.opcode()) {
            return Err(StageError::SendFromRegion);
        }
        self.check_offered(&op)?;
        self.check_room()?;
        check_remote(&op, len)?;
        let place = self.regions.get(region.0).ok_or(StageError::UnknownRegion)?;
        let local = place.value;
        if offset > local.len || len as usize > local.len - offset {
            let (len, region_len) = (len as usize, local.len);
            return Err(StageError::OutsideRegion { offset, len, region_len });
        }
        place.last_used = self.staged + 1;
        let addr = local.addr + offset as u64;
        self.write_place(op, flags.to_raw(), ibv_sge { addr, length: len, lkey: local.lkey });
        Ok(())
    }
}
