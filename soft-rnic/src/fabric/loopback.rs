//! The peer is in this process: the requester calls its responder (`ResponderSession`), and every
//! request ends when it is sent.

pub(crate) mod fast_path;

use std::sync::Arc;

use crate::engine::execution::{Execution, SqParts, packets};
use crate::engine::link::SqLink;
use crate::engine::responder::{InboundRequest, ResponderSession};
use crate::memory::span::RequestScratch;
use crate::objects::state::{Qp, Sq};
use crate::queues::outcome::{PeerReply, WqeOutcome};
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::WqeRef;

/// The hold on a peer in this process, if there is one; `XRC` says whether requests go over XRC.
/// Nothing that can be executed goes without the peer: its lock is taken first.
pub(crate) struct InProcess<'a, const XRC: bool>(pub(crate) Option<ResponderSession<'a>>);

impl<'a, const XRC: bool> SqLink<'a> for InProcess<'a, XRC> {
    #[inline(always)]
    fn advance_lossy(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        request: &WqeRef<'_>,
        execution: &mut Execution<'a>,
        arrives: bool,
    ) -> WqeOutcome {
        let session = if arrives { &mut self.0 } else { &mut None };
        qp.execute::<XRC>(parts.requester, session, execution, parts.scratch, request)
    }
}

impl Qp {
    /// Looks the peer up, if that has not been done or it is gone.
    #[inline]
    pub(crate) fn resolve_peer(&self, sq: &mut Sq) {
        let stale = sq.peer.as_ref().is_none_or(|peer| peer.state() == QueuePairState::Destroyed);
        if stale {
            let qps = &self.pd.context.device.qps;
            let found = sq.requester.reaches_us.then(|| qps.get(sq.requester.dest_qpn)).flatten();
            // Packets of another transport than a queue pair's are dropped.
            sq.peer = found.filter(|peer| peer.transport == self.transport.far_end());
        }
    }

    /// [`execute`](Self::execute), whatever the transport.
    pub(crate) fn execute_any<'a>(
        &self,
        requester: &mut RequesterState,
        session: &mut Option<ResponderSession<'a>>,
        execution: &mut Execution<'a>,
        scratch: &mut RequestScratch,
        request: &WqeRef<'_>,
    ) -> WqeOutcome {
        match self.transport {
            QpTransport::XrcSend => {
                self.execute::<true>(requester, session, execution, scratch, request)
            }
            _ => self.execute::<false>(requester, session, execution, scratch, request),
        }
    }

    /// Executes one work request; `XRC` says whether it is over XRC.
    #[inline(always)]
    pub(crate) fn execute<'a, const XRC: bool>(
        &self,
        requester: &mut RequesterState,
        session: &mut Option<ResponderSession<'a>>,
        execution: &mut Execution<'a>,
        scratch: &mut RequestScratch,
        request: &WqeRef<'_>,
    ) -> WqeOutcome {
        let len = request.len();
        let RequestScratch { local, remote } = scratch;
        let local = match self.local(requester, request, len, local) {
            Ok(local) => local,
            Err(reason) => return WqeOutcome::Failed(reason),
        };
        let reply = match session {
            None => PeerReply::Silence,
            Some(session) => {
                let message = InboundRequest {
                    wqe: request.wqe,
                    from_qpn: self.num,
                    psn: requester.psn,
                    packets: packets(len, requester.mtu_shift),
                    len,
                    local: local.as_slice(),
                    on_demand: local.on_demand,
                    pages: None,
                    to: None,
                };
                let Execution { writer, deferred } = execution;
                match XRC {
                    true => session.deliver_xrc(&message, request.srqn(), remote, writer, deferred),
                    false => session.deliver(&message, remote, writer, deferred),
                }
            }
        };
        requester.started = true;
        self.judge(requester, reply, len)
    }
}
