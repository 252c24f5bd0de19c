//! Where a datagram arrives: at one queue pair, or at all members of a multicast group.

use std::sync::Arc;

use crate::deferred_work::DeferredWork;
use crate::engine::responder::{Message, Session};
use crate::objects::cq::CqWriter;
use crate::objects::pending::Reply;
use crate::objects::span::SpanBuf;
use crate::objects::state::Qp;

/// The queue pairs that datagrams to one address reach.
pub(crate) enum Receivers<'a> {
    /// The one that the address names, if there is one. Its lock is held.
    One(Option<Session<'a>>),
    /// The members of a multicast group. Their locks are taken one after the other.
    Group(&'a [Arc<Qp>]),
}

impl<'a> Receivers<'a> {
    /// Delivers a datagram: `Done` if a queue pair has received it.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        message: &Message<'_>,
        room: &mut SpanBuf,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
    ) -> Reply {
        match self {
            Receivers::One(None) => Reply::Silence,
            Receivers::One(Some(session)) => session.deliver(message, room, writer, deferred),
            Receivers::Group(members) => deliver_to_all(members, message, room, writer, deferred),
        }
    }
}

/// Delivers a datagram to each member of a group that receives it.
fn deliver_to_all<'a>(
    members: &'a [Arc<Qp>],
    message: &Message<'_>,
    room: &mut SpanBuf,
    writer: &mut CqWriter<'a>,
    deferred: &mut DeferredWork,
) -> Reply {
    let mut reply = Reply::Silence;
    for member in members {
        if member.blocks_own_multicast && member.num == message.from_qpn {
            continue;
        }
        // A completion queue's lock comes after that of a receiving side.
        writer.release();
        if Session::open(member).deliver(message, room, writer, deferred) == Reply::Done {
            reply = Reply::Done;
        }
    }
    reply
}
