//! Running what is pending in a send queue, when it is due, over the fabric that its peer is on.

use std::sync::Arc;

use crate::engine::execution::{Execution, SqParts};
use crate::engine::responder::ResponderSession;
use crate::fabric::loopback::InProcess;
use crate::fabric::process::remote::RemoteLink;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, Sq};
use crate::queues::qp_state::QpTransport;

impl Qp {
    /// Executes what is pending, oldest first, until something blocks or, with
    /// `only_one`, one request has been tried. The send queue's lock is held.
    pub(crate) fn run_pending(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) {
        if let Some(distance) = self.pd.context.device.distance() {
            return self.run_distant(sq, distance.now(), deferred);
        }
        self.run_arrived(sq, deferred, only_one);
        self.trace_progress(sq);
    }

    /// [`run_pending`](Self::run_pending), also of requests that are due later.
    pub(crate) fn run_arrived(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) {
        if !self.transport.is_reliable() && self.pd.context.device.network.is_faulty() {
            return self.run_faulty(sq, deferred, only_one);
        }
        self.run_queue(sq, deferred, only_one);
    }

    /// [`run_pending`](Self::run_pending) on a network without faults.
    pub(crate) fn run_queue(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) {
        match self.transport {
            _ if sq.wire.is_some() => self.run_wire(sq, deferred, only_one),
            QpTransport::Rc | QpTransport::Uc => {
                self.run_connected::<false>(sq, deferred, only_one)
            }
            QpTransport::XrcSend | QpTransport::XrcRecv => {
                self.run_connected::<true>(sq, deferred, only_one);
            }
            QpTransport::Ud => self.run_datagrams(sq, deferred, only_one),
        }
        self.check_drained(sq);
    }

    /// [`run_queue`](Self::run_queue) of a connection within this machine; `XRC` says whether
    /// requests go over XRC.
    fn run_connected<const XRC: bool>(
        self: &Arc<Qp>,
        sq: &mut Sq,
        deferred: &mut DeferredWork,
        only_one: bool,
    ) {
        if sq.remote.is_none() {
            self.resolve_peer(sq);
        }
        let Sq { requester, pending, peer, remote, counters, scratch, .. } = sq;
        let (mut near, mut execution) = (InProcess::<XRC>(None), Execution::new());
        let mut parts = SqParts { requester, counters, scratch };
        match remote.as_deref_mut() {
            None => {
                near.0 = peer.as_ref().map(ResponderSession::open);
                self.run_over(&mut near, &mut parts, pending, &mut execution, only_one);
            }
            Some(remote) => remote.hold(self, |link: &mut RemoteLink<'_, XRC>| {
                self.run_over(link, &mut parts, pending, &mut execution, only_one);
            }),
        }
        // A peer in this process is held until the completions are there.
        deferred.append(execution.finish());
        drop(near);
    }
}
