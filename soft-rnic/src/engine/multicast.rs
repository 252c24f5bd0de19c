//! Receivers of a datagram: one queue pair, or all members of a multicast group.

use std::sync::Arc;

use crate::engine::execution::Execution;
use crate::engine::responder::{InboundRequest, ResponderSession};
use crate::memory::span::SpanBuf;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::queues::address::GidBytes;
use crate::queues::outcome::{PeerReply, WqeOutcome};
use crate::queues::requester::{FanOut, RequesterState};

/// The queue pairs that datagrams to one address reach.
pub(crate) enum DatagramReceivers<'a> {
    /// The one that the address names, if there is one. Its lock is held.
    One(Option<ResponderSession<'a>>),
    /// The members of a multicast group. Their locks are taken one after the other.
    Group(&'a [Arc<Qp>]),
}

impl Qp {
    /// Sends a datagram to the members of a group: those of this process, then those of others. It
    /// is tried again where it has to wait for room.
    pub(crate) fn send_to_group<'a>(
        &self,
        requester: &mut RequesterState,
        members: &'a [Arc<Qp>],
        message: &InboundRequest<'_>,
        room: &mut SpanBuf,
        execution: &mut Execution<'a>,
    ) -> WqeOutcome {
        let Execution { writer, deferred } = execution;
        let fan_out = requester.fan_out.take().unwrap_or_else(|| {
            let reply = match self.is_apart() {
                true => PeerReply::Silence,
                false => deliver_to_all(members, message, room, writer, deferred),
            };
            FanOut { slot: 0, is_received: reply == PeerReply::Done }
        });
        // What was completed can be seen while it is copied to others.
        writer.release();
        self.send_to_processes(requester, fan_out, message)
    }

    /// Delivers a datagram to a group that was under way. True if a queue pair has received it, or
    /// another process's ring has taken it.
    pub(crate) fn arrive_at_group(
        &self,
        message: &InboundRequest<'_>,
        gid: &GidBytes,
        room: &mut SpanBuf,
        deferred: &mut DeferredWork,
    ) -> bool {
        let device = &self.pd.context.device;
        let members = if self.is_apart() { Arc::default() } else { device.members(gid) };
        let mut execution = Execution::new();
        let Execution { writer, deferred: entailed } = &mut execution;
        let reply = deliver_to_all(&members, message, room, writer, entailed);
        deferred.append(execution.finish());
        self.post_to_processes(message) || reply == PeerReply::Done
    }
}

/// Delivers a datagram to each member of a group: `Done` if one has received it.
pub(crate) fn deliver_to_all<'a>(
    members: &'a [Arc<Qp>],
    message: &InboundRequest<'_>,
    room: &mut SpanBuf,
    writer: &mut CqWriter<'a>,
    deferred: &mut DeferredWork,
) -> PeerReply {
    let mut reply = PeerReply::Silence;
    // A completion queue's lock is taken after that of a receiving side.
    writer.release();
    for member in members {
        if member.blocks_own_multicast && member.num == message.from_qpn {
            continue;
        }
        let mut session = ResponderSession::open(member);
        if session.deliver(message, room, writer, deferred) == PeerReply::Done {
            reply = PeerReply::Done;
        }
        // As for other messages, its completion is there before the member can be destroyed.
        writer.release();
    }
    reply
}
