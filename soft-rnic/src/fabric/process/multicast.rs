//! Multicast groups across the processes of a user.
//!
//! A process *takes part* from the first time on that a queue pair of its is attached to a group,
//! or sends to one. It shows its [marker]; then it looks for the markers of all other slots, and
//! meets those processes. Of two that take part, the later one has seen the marker of the other: so
//! both are a pair, and a sender finds all members among its pairs, without asking.
//!
//! Each process publishes a filter of its groups ([`ProcessDirectory`]), as an Ethernet card has
//! one of the addresses that it listens to. A message goes once into the ring to each process whose
//! filter has its group, and is copied to the members there.
//!
//! [marker]: crate::peers::process::marker
//! [`ProcessDirectory`]: crate::peers::process::directory::ProcessDirectory

pub(crate) mod meeting;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::engine::responder::InboundRequest;
use crate::objects::state::{PeerProcesses, Qp};
use crate::peers::process::directory::GroupBit;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::ring::EntryOp;
use crate::queues::address::DatagramAddress;
use crate::queues::outcome::WqeOutcome;
use crate::queues::requester::{FanOut, RequesterState};

use super::out::OutRing;

impl PeerProcesses {
    /// The first process from a slot on that may have members of a group.
    fn next_with(&self, group: GroupBit, slot: u32) -> Option<Arc<ProcessPair>> {
        let pairs = self.pairs.read();
        let mut pairs = pairs.range(slot..).map(|(_, pair)| pair);
        pairs.find(|pair| !pair.is_dead() && pair.theirs.has_group(group)).cloned()
    }
}

impl Qp {
    /// Reports whether this process has met the processes that may have members, or has tried to.
    pub(crate) fn has_met_members(&self, requester: &mut RequesterState) -> bool {
        let was_tried = core::mem::take(&mut requester.peer_not_found);
        let peers = self.pd.context.device.peers.as_ref();
        was_tried || peers.is_none_or(|peers| peers.participation.is_settled())
    }

    /// Reports whether members of this process are reached as those of another one: for tests.
    pub(crate) fn is_apart(&self) -> bool {
        self.pd.context.device.peers.as_ref().is_some_and(|peers| peers.is_foreign(self.num))
    }

    /// Sends a message to a group's members in other processes, out of the memory that it lies in.
    pub(crate) fn send_to_processes(
        &self,
        requester: &mut RequesterState,
        mut fan_out: FanOut,
        message: &InboundRequest<'_>,
    ) -> WqeOutcome {
        let blocked = self.put_to_processes(&mut fan_out, message, |pair| {
            let outcome = self.await_room(requester, pair, pair.has_drained());
            matches!(outcome, WqeOutcome::Blocked(..)).then_some(outcome)
        });
        if let Some(blocked) = blocked {
            requester.fan_out = Some(fan_out);
            return blocked;
        }
        if fan_out.is_received { WqeOutcome::Done } else { WqeOutcome::Dropped }
    }

    /// Puts a late message into the rings that have room; returns true if there were any.
    pub(crate) fn post_to_processes(&self, message: &InboundRequest<'_>) -> bool {
        let mut fan_out = FanOut::default();
        self.put_to_processes(&mut fan_out, message, |_full| None);
        fan_out.is_received
    }

    /// Puts a message into the ring of each process that may have members. Where there is no room,
    /// `full` says whether to wait, or else it is dropped.
    fn put_to_processes(
        &self,
        fan_out: &mut FanOut,
        message: &InboundRequest<'_>,
        mut full: impl FnMut(&ProcessPair) -> Option<WqeOutcome>,
    ) -> Option<WqeOutcome> {
        let peers = self.pd.context.device.peers.as_ref()?;
        let (to, qkey) = message.to?;
        let group = GroupBit::of(&to.gid);
        while let Some(pair) = peers.next_with(group, fan_out.slot) {
            fan_out.slot = pair.slot;
            if self.put_to_group(&pair, message, to, *qkey) {
                fan_out.is_received = true;
            } else if let Some(outcome) = full(&pair) {
                return Some(outcome);
            } else {
                // Relaxed: a statistic.
                self.pd.context.device.overflowed.fetch_add(1, Ordering::Relaxed);
            }
            fan_out.slot += 1;
        }
        None
    }

    /// Puts a message to a group into the ring of a process. False if there is no room.
    fn put_to_group(
        &self,
        pair: &ProcessPair,
        message: &InboundRequest<'_>,
        to: &DatagramAddress,
        qkey: u32,
    ) -> bool {
        let mut request = self.datagram(message.wqe, message.local, to, qkey);
        request.what = EntryOp::Multicast;
        request.name_group(&to.gid);
        OutRing::new(pair).put_data(&mut request, message.local)
    }
}
