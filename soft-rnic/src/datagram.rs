//! Unreliable datagrams, the sending side.
//!
//! A datagram queue pair has no peer: each request brings its address, and what
//! the address leads to is looked up when the request is executed. It leads to a
//! queue pair of this device, or nowhere; the datagram then is dropped, and the
//! request completes all the same.

use std::sync::Arc;

use verbs_sys::*;

use crate::address::Address;
use crate::after::After;
use crate::limits;
use crate::qp::{Qp, State};
use crate::requester::{Line, Outcome, SqParts};
use crate::responder::{Message, Reply, Session};
use crate::sq::{Op, Request, Sq};

impl Qp {
    /// [`Qp::run_queue`] for datagrams.
    pub(crate) fn run_datagrams(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        while self.run_to_one_peer(sq, after, only_one) && !only_one {}
        self.check_drained(sq);
    }

    /// Executes requests from the head on that go to the same peer, or the first
    /// alone; whether there may be more to do. They share the locks of the receiving
    /// side: alternating between two peers costs more than one after the other.
    fn run_to_one_peer(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) -> bool {
        let Sq { requester, pending, peer, counters, scratch, attr, .. } = sq;
        let Some(first) = pending.front().and_then(|request| request.to.copied()) else {
            return false;
        };
        let mut session = self.find(peer, &first).map(Session::open);
        let mut line = Line::new();
        let mut parts = SqParts { requester, counters, scratch };
        let mut goes_on = true;
        while goes_on && let Some(request) = pending.front() {
            let Some(to) = request.to.filter(|to| to.is_same_peer(&first)) else { break };
            if self.state().flushes_sends() {
                self.flush_pending(pending, &mut line);
                break;
            }
            if self.state() != State::Rts || parts.requester.waits.is_some() {
                goes_on = false;
                break;
            }
            let to = (*to, to.qkey(attr.qkey));
            let outcome = self.send_unreliably(&mut parts, &request, Some(to), |parts, arrives| {
                let session = arrives.then_some(&mut session);
                self.execute_datagram(parts, session, &mut line, &request, &to)
            });
            goes_on = self.settle(&mut parts, &mut line, request.wqe, request.len(), outcome);
            if goes_on {
                pending.pop();
            }
            if only_one {
                break;
            }
        }
        after.append(line.finish());
        goes_on
    }

    /// Executes one request: it is sent, or fails here. What becomes of it there,
    /// nobody learns. Without a `session` it gets lost on its way.
    fn execute_datagram<'a>(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        session: Option<&mut Option<Session<'a>>>,
        line: &mut Line<'a>,
        request: &Request<'_>,
        (to, qkey): &(Address, u32),
    ) -> Outcome {
        let len = request.len();
        if let Err(status) = self.check_datagram(parts, request, to, len) {
            return Outcome::Failed(status);
        }
        if self.is_foreign(to) && session.is_some() {
            return self.send_abroad(parts, line, request, to, *qkey);
        }
        let message = Message {
            wqe: request.wqe,
            from_qpn: self.num,
            psn: parts.requester.psn,
            packets: 1,
            len,
            local: parts.scratch.local.as_slice(),
            on_demand: false,
        };
        parts.requester.advance_psn(1);
        let (room, writer) = (&mut parts.scratch.remote, &mut line.writer);
        let reply = match session {
            None | Some(None) => Reply::Silence,
            Some(Some(session)) => {
                session.deliver_datagram(&message, to, *qkey, room, writer, &mut line.after)
            }
        };
        if reply == Reply::Done { Outcome::Done } else { Outcome::Dropped }
    }

    /// Whether a request can be sent: a send, to an address of our domain, of at
    /// most one packet, with memory that may be read.
    fn check_datagram(
        &self,
        parts: &mut SqParts<'_>,
        request: &Request<'_>,
        to: &Address,
        len: u64,
    ) -> Result<(), ibv_wc_status> {
        if request.wqe.op != Op::Send || to.pd != self.pd.id {
            return Err(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
        }
        if len > limits::MTU {
            return Err(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
        }
        self.local(parts.requester, request, len, &mut parts.scratch.local)
    }

    /// The queue pair at an address, if there is one; `last` is where the previous
    /// datagram went.
    fn find<'a>(&self, last: &'a mut Option<Arc<Qp>>, to: &Address) -> Option<&'a Arc<Qp>> {
        if to.gid != limits::GID || self.is_foreign(to) {
            return None;
        }
        let known = |qp: &Arc<Qp>| qp.num == to.qpn && qp.state() != State::Destroyed;
        if !last.as_ref().is_some_and(known) {
            *last = self.pd.context.device.qps.get(to.qpn);
        }
        last.as_ref()
    }

    /// Whom a message goes to: whoever is at the address of a datagram, or else the
    /// peer.
    pub(crate) fn resolve<'a>(&self, sq: &'a mut Sq, to: Option<&Address>) -> Option<&'a Arc<Qp>> {
        match to {
            Some(to) => self.find(&mut sq.peer, to),
            None => {
                self.resolve_peer(sq);
                sq.peer.as_ref()
            }
        }
    }
}
