//! Long messages out of memory that cannot be mapped here: fetched and placed part by
//! part, so that what a message takes up meanwhile does not grow with its length.
//!
//! The receive request stays at the front of its queue until the last part is there, and its
//! buffers are the device's as long as it is posted. If another request is there when the next part
//! has arrived, the message begins anew. Fetched as a whole instead are messages whose receive
//! request another sender may fill or take meanwhile (of unreliable connections, and of shared
//! receive queues), those for on-demand buffers, and those for a process that is checked.

use crate::engine::responder::{InboundRequest, ResponderSession};
use crate::memory::span::{MemSpan, SpanBuf};
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::queues::outcome::PeerReply;

use crate::peers::process::ring::RingRequest;
use crate::peers::process::side::{FetchState, PART, Placed, ReadSide, SgeList};

/// The state of a message that arrives in parts.
pub(super) enum Coming {
    /// Its last part is placed.
    Placed,
    /// The next part has to be fetched.
    Later,
    Refused(PeerReply),
}

/// The next part: where it begins, and its length.
fn next(placed: &Placed) -> (usize, usize) {
    (placed.done, PART.min(placed.total - placed.done))
}

impl ReadSide {
    /// Places the part that has arrived, and wants the next one.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "those of a delivery")]
    pub(super) fn go_on_with<'a>(
        &mut self,
        session: &mut ResponderSession<'a>,
        request: &RingRequest,
        message: &InboundRequest<'_>,
        list: (&SgeList, usize),
        room: &mut SpanBuf,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
    ) -> Coming {
        let (index, total) = (self.requests, request.len as usize);
        let begins = Placed { index, total, done: 0, receive: None };
        let is_this = |it: &Placed| (it.index, it.total) == (index, total);
        let mut placed = self.placed.take().filter(is_this).unwrap_or(begins);
        let unreadable = Coming::Refused(PeerReply::Refused(self.pair.unreadable()));
        match core::mem::take(&mut self.fetch) {
            FetchState::Over(at, _, None) if at == index => return unreadable,
            FetchState::Over(at, part, Some(mut bytes)) if (at, part) == (index, next(&placed)) => {
                let len = part.1;
                let Some(part) = bytes.get_mut(..len) else { return unreadable };
                let part = MemSpan::from_slice(part);
                match session.place_part(message, (placed.done, part), room, writer, deferred) {
                    Err(reply) => return Coming::Refused(reply),
                    Ok(receive) if placed.receive.is_none_or(|known| known == receive) => {
                        placed.done += len;
                        placed.receive = Some(receive);
                    }
                    Ok(_) => placed = begins,
                }
                self.buffer = bytes;
                if placed.done == total {
                    return Coming::Placed;
                }
            }
            _ => {}
        }
        self.placed = Some(placed);
        if self.want(request, &list.0[..list.1], next(&placed)) {
            Coming::Later
        } else {
            unreadable
        }
    }
}
