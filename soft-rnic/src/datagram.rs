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
        let Sq { requester, pending, peer, counters, scratch, attr, .. } = sq;
        let mut parts = SqParts { requester, counters, scratch };
        while let Some(request) = pending.front() {
            let state = self.state();
            let mut line = Line::new();
            if state.flushes_sends() {
                self.flush_pending(pending, &mut line);
                after.append(line.finish());
                break;
            }
            if state != State::Rts || parts.requester.waits.is_some() {
                break;
            }
            let mut session = self.find(peer, request.to).map(Session::open);
            let to = request.to.map(|to| (*to, to.qkey(attr.qkey)));
            let outcome =
                self.send_unreliably(&mut parts, &mut session, &request, to, |parts, session| {
                    self.execute_datagram(parts, session, &mut line, &request, to.as_ref())
                });
            let goes_on = self.settle(&mut parts, &mut line, &request.wqe, request.len(), outcome);
            after.append(line.finish());
            drop(session);
            if !goes_on {
                break;
            }
            pending.pop();
            if only_one {
                break;
            }
        }
        self.check_drained(sq);
    }

    /// Executes one request: it is sent, or fails here. What becomes of it there,
    /// nobody learns.
    fn execute_datagram<'a>(
        &self,
        parts: &mut SqParts<'_>,
        session: &mut Option<Session<'a>>,
        line: &mut Line<'a>,
        request: &Request<'_>,
        to: Option<&(Address, u32)>,
    ) -> Outcome {
        let len = request.len();
        let (to, qkey) = match self.check_datagram(parts, request, to, len) {
            Ok(to) => to,
            Err(status) => return Outcome::Failed(status),
        };
        let message = Message {
            wqe: &request.wqe,
            from_qpn: self.num,
            psn: parts.requester.psn,
            packets: 1,
            len,
            local: parts.scratch.local.as_slice(),
        };
        parts.requester.advance_psn(1);
        let (room, writer) = (&mut parts.scratch.remote, &mut line.writer);
        let reply = match session {
            None => Reply::Silence,
            Some(session) => {
                session.deliver_datagram(&message, to, *qkey, room, writer, &mut line.after)
            }
        };
        if reply == Reply::Done { Outcome::Done } else { Outcome::Dropped }
    }

    /// Whether a request can be sent: a send, to an address of our domain, of at
    /// most one packet, with memory that may be read.
    fn check_datagram<'r>(
        &self,
        parts: &mut SqParts<'_>,
        request: &Request<'_>,
        to: Option<&'r (Address, u32)>,
        len: u64,
    ) -> Result<&'r (Address, u32), ibv_wc_status> {
        let to = to.filter(|(to, _)| request.wqe.op == Op::Send && to.pd == self.pd.id);
        let to = to.ok_or(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR)?;
        if len > limits::MTU {
            return Err(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
        }
        self.local(parts.requester, request, len, &mut parts.scratch.local)?;
        Ok(to)
    }

    /// The queue pair at an address, if there is one; `last` is where the previous
    /// datagram went.
    fn find<'a>(&self, last: &'a mut Option<Arc<Qp>>, to: Option<&Address>) -> Option<&'a Arc<Qp>> {
        let to = to.filter(|to| to.gid == limits::GID)?;
        let known = |qp: &Arc<Qp>| qp.num == to.qpn && qp.state() != State::Destroyed;
        if !last.as_ref().is_some_and(known) {
            *last = self.pd.context.device.qps.get(to.qpn);
        }
        last.as_ref()
    }

    /// Whom a message goes to: whoever is at the address of a datagram, or else the
    /// peer.
    pub(crate) fn resolve<'a>(&self, sq: &'a mut Sq, to: Option<&Address>) -> Option<&'a Arc<Qp>> {
        if to.is_some() {
            return self.find(&mut sq.peer, to);
        }
        self.resolve_peer(sq);
        sq.peer.as_ref()
    }
}
