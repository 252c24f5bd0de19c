//! The peer of an XRC send queue pair is in this process.

use std::sync::Arc;

use crate::engine::execution::{Execution, SqParts};
use crate::engine::link::{Link, Step};
use crate::engine::responder::Session;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, Sq};
use crate::queues::outcome::Outcome;
use crate::queues::wqe::Request;

/// The hold on a peer in this process, if there is one, for requests over XRC.
struct XrcSession<'a>(Option<Session<'a>>);

impl<'a> Link<'a> for XrcSession<'a> {
    fn advance(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &Request<'_>,
        execution: &mut Execution<'a>,
    ) -> Step {
        Step::Ended(self.advance_lossy(qp, parts, request, execution, true))
    }

    fn advance_lossy(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &Request<'_>,
        execution: &mut Execution<'a>,
        arrives: bool,
    ) -> Outcome {
        let session = if arrives { &mut self.0 } else { &mut None };
        qp.execute::<true>(parts.requester, session, execution, parts.scratch, request)
    }
}

/// [`loopback::run`](super::run) over XRC.
pub(crate) fn run(qp: &Arc<Qp>, sq: &mut Sq, deferred: &mut DeferredWork, only_one: bool) {
    qp.resolve_peer(sq);
    let Sq { requester, pending, peer, counters, scratch, .. } = sq;
    let mut link = XrcSession(peer.as_ref().map(Session::open));
    let mut execution = Execution::new();
    let mut parts = SqParts { requester, counters, scratch };
    qp.run_over(&mut link, &mut parts, pending, &mut execution, only_one);
    deferred.append(execution.finish());
}
