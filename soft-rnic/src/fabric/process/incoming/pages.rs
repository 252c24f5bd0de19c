//! Requests for on-demand memory of this process, whose pages may be slow to be paged in.
//!
//! The thread that takes what others have sent waits for no page. It leaves the request in the
//! ring, as one whose data have to be fetched (`deferred_fetch`), and serves other processes: a
//! polling thread has the pages brought with no lock held, and the progress thread leaves that to a
//! worker. When the request is tried again, it is executed as if its pages had been there.
//!
//! Requests that a dead process has left are executed by a thread that waits: its ring goes.

use crate::engine::responder::ResponderSession;
use crate::memory::paging::RequestPages;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::queues::outcome::PeerReply;

use crate::peers::process::ring::RingRequest;
use crate::peers::process::side::{FetchState, MessageScratch, ReadSide};

impl ReadSide {
    /// Executes a request; what to reply, unless its data have to be fetched first, or pages of this
    /// process's to be brought.
    pub(super) fn execute<'a>(
        &mut self,
        session: &mut ResponderSession<'a>,
        request: &RingRequest,
        scratch: &mut MessageScratch,
        writer: &mut CqWriter<'a>,
        deferred: &mut DeferredWork,
    ) -> Option<(PeerReply, u64)> {
        let brought = self.brought.take().filter(|brought| brought.0 == self.requests);
        let pages = RequestPages::new(brought.map(|brought| (brought.1, brought.2)));
        // Where no thread can be started, nothing else is left than to wait.
        let given_up =
            matches!(self.fetch, FetchState::Over(at, (0, 0), None) if at == self.requests);
        let pages_of = (!self.is_heard_out && !given_up).then_some(&pages);
        let executed = self.execute_with(session, request, scratch, writer, deferred, pages_of);
        match pages.into_parts() {
            (Some(needed), _) => {
                self.want_pages(request, needed);
                None
            }
            (None, Some((needed, is_there))) if executed.is_none() => {
                // They are needed when the data are there.
                self.brought = Some(Box::new((self.requests, needed, is_there)));
                None
            }
            _ => executed,
        }
    }
}
