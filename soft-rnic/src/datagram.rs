//! Unreliable datagrams, the sending side.
//!
//! A datagram queue pair has no peer: each request brings its address, and what
//! the address leads to is looked up when the request is executed. It leads to a
//! queue pair of this device, or nowhere; the datagram then is dropped, and the
//! request completes all the same.
//!
//! Requests go through the queue even where they execute at once. That costs a
//! copy of the request, and leaves one way for both modes of the device.

use core::ffi::c_int;
use std::sync::Arc;

use verbs_sys::*;

use crate::address::Address;
use crate::after::After;
use crate::device::Device;
use crate::limits;
use crate::post::admit;
use crate::qp::{Qp, State};
use crate::requester::{Line, Outcome, SqParts};
use crate::responder::{Datagram, Reply, Session};
use crate::sq::{Op, Request, Sq};

/// Posts the requests of a list, and executes those that can be at once.
///
/// # Safety
/// `wr` heads a list of valid requests, with address handles of ours.
pub(crate) unsafe fn post_list(
    qp: &Arc<Qp>,
    mut wr: *mut ibv_send_wr,
    after: &mut After,
) -> Result<(), (c_int, *mut ibv_send_wr)> {
    let mut sq = qp.sq.lock();
    let mut result = Ok(());
    while !wr.is_null() {
        // SAFETY: the caller's list.
        if let Err(error) = unsafe { post_one(qp, &mut sq, &*wr) } {
            result = Err((error, wr));
            break;
        }
        // SAFETY: as above.
        wr = unsafe { (*wr).next };
    }
    if qp.pd.context.device.sim.is_none() || qp.state().flushes_sends() {
        qp.run_datagrams(&mut sq, after, false);
    }
    result
}

/// # Safety
/// The request is valid.
unsafe fn post_one(qp: &Qp, sq: &mut Sq, wr: &ibv_send_wr) -> Result<(), c_int> {
    if qp.state().refuses_sends() {
        return Err(crate::errno::EINVAL);
    }
    // SAFETY: the caller's promise.
    let mut request = unsafe { admit(qp, &sq.requester, wr) }?;
    // Other operations have no address there; they fail when they are executed.
    let to = match request.wqe.op {
        // SAFETY: as above.
        Op::Send => unsafe { Address::new(wr) }?,
        _ => Address::default(),
    };
    sq.requester.posted = sq.requester.posted.wrapping_add(1);
    request.wqe.position = sq.requester.posted;
    request.to = Some(&to);
    // SAFETY: inline data were checked by `admit`.
    unsafe { sq.pending.push(&request) };
    Ok(())
}

impl Qp {
    /// [`Qp::run_pending`] for datagrams.
    pub(crate) fn run_datagrams(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        let Sq { requester, pending, peer, counters, scratch, attr, .. } = sq;
        let mut parts = SqParts { requester, counters, scratch };
        let device = &self.pd.context.device;
        while let Some(request) = pending.front() {
            let state = self.state();
            let mut line = Line::new();
            if state.flushes_sends() {
                self.complete(&mut line, &request.wqe, 0, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
                pending.pop();
                after.append(line.finish());
                continue;
            }
            if state != State::Rts || parts.requester.waits.is_some() {
                break;
            }
            let mut session = request.to.and_then(|to| find(device, peer, to)).map(Session::open);
            let outcome = crate::sim::delay(device, &mut parts).unwrap_or_else(|| {
                self.execute_datagram(&mut parts, &mut session, &mut line, &request, attr.qkey)
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
        own_qkey: u32,
    ) -> Outcome {
        let len = request.len();
        let to = match self.check_datagram(parts, request, len) {
            Ok(to) => to,
            Err(status) => return Outcome::Failed(status),
        };
        let datagram = Datagram {
            wqe: &request.wqe,
            from_qpn: self.num,
            from_gid: limits::GID,
            to,
            qkey: to.qkey(own_qkey),
            payload: parts.scratch.local.as_slice(),
            len: len as u32,
        };
        parts.requester.advance_psn(1);
        let reply = match session {
            None => Reply::Silence,
            Some(session) => session.deliver_datagram(
                &datagram,
                &mut parts.scratch.remote,
                &mut line.writer,
                &mut line.after,
            ),
        };
        if reply == Reply::Done { Outcome::Done } else { Outcome::Dropped }
    }

    /// Whether a request can be sent: a send, to an address of our domain, of at
    /// most one packet, with memory that may be read.
    fn check_datagram<'r>(
        &self,
        parts: &mut SqParts<'_>,
        request: &Request<'r>,
        len: u64,
    ) -> Result<&'r Address, ibv_wc_status> {
        let to = request.to.filter(|to| request.wqe.op == Op::Send && to.pd == self.pd.id);
        let to = to.ok_or(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR)?;
        if len > limits::MTU {
            return Err(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
        }
        self.local(parts.requester, request, len, &mut parts.scratch.local)?;
        Ok(to)
    }
}

/// The queue pair at an address, if there is one; `last` is where the previous
/// datagram went.
fn find<'a>(device: &Device, last: &'a mut Option<Arc<Qp>>, to: &Address) -> Option<&'a Arc<Qp>> {
    if to.gid != limits::GID {
        return None;
    }
    let known = |qp: &Arc<Qp>| qp.num == to.qpn && qp.state() != State::Destroyed;
    if !last.as_ref().is_some_and(known) {
        *last = device.qps.get(to.qpn);
    }
    last.as_ref()
}
