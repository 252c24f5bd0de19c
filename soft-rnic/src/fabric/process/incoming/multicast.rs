//! Messages of other processes to multicast groups that have members here.

use core::sync::atomic::Ordering;

use crate::engine::multicast::deliver_to_all;
use crate::engine::responder::InboundRequest;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Device;
use crate::peers::process::directory::slot_of;
use crate::peers::process::ring::{PayloadLocation, RingRequest};
use crate::peers::process::side::{MessageScratch, ReadSide};
use crate::queues::address::{DatagramAddress, MULTICAST_QPN};
use crate::queues::outcome::PeerReply;

use super::super::gather::Gathered;
use super::execution::{address, wqe};

impl ReadSide {
    /// Delivers a message to the members of a group. It is missed if none receives it.
    #[cold]
    pub(super) fn take_multicast(
        &mut self,
        request: &RingRequest,
        device: &Device,
        scratch: &mut MessageScratch,
        deferred: &mut DeferredWork,
    ) {
        if !self.deliver_multicast(request, device, scratch, deferred) {
            // Relaxed: a statistic.
            device.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn deliver_multicast(
        &mut self,
        request: &RingRequest,
        device: &Device,
        scratch: &mut MessageScratch,
        deferred: &mut DeferredWork,
    ) -> bool {
        // No process of this version writes another one.
        let is_sound = slot_of(request.from) == self.pair.slot
            && request.location == PayloadLocation::Data
            && u64::from(request.len) <= device.mtu();
        let gid = request.group();
        let members = device.members(&gid);
        if !is_sound || members.is_empty() {
            return false;
        }
        let (to, qkey) = address(request, gid);
        let to = (DatagramAddress { qpn: MULTICAST_QPN, ..to }, qkey);
        let MessageScratch { local, room, list } = scratch;
        let Gathered::There(local) = self.gather(request, local, list) else { return false };
        let (wqe, data) = (wqe(request), (local.as_slice(), request.len.into()));
        let message = InboundRequest::new(&wqe, (request.from, 0), data, Some(&to));
        let mut writer = CqWriter::default();
        deliver_to_all(&members, &message, room, &mut writer, deferred) == PeerReply::Done
    }
}
