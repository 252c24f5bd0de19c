//! Runs of plain messages: the short way through the step function.
//!
//! Most of what is posted are SENDs of one piece of memory to a peer whose oldest
//! receive request has one buffer, in lists. A run of those shares the locks, the
//! looks at the indices of rings, at the state and at the regions; of the other
//! checks none is left out. The first request that is anything else, or that
//! would fail, ends the run before anything of it was done: the long way decides
//! what becomes of it.
//!
//! Measured by the raw loop (`verbs_safe::yardstick`, 16 bytes, lists of 8; valgrind
//! counts the instructions of post, poll, repost and loop): 833 instructions and 46 ns
//! a message within one thread without this module, 372 and 21 ns with it; 73 ns and
//! 50 ns between two threads.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::copy;
use crate::cq::{Completion, Filling};
use crate::mr::{LOCAL_WRITE, MrTable, View};
use crate::qp::Qp;
use crate::recv_ring::{Consumer, RecvRing};
use crate::requester::{Line, SqParts, packets};
use crate::responder::{LONG, Session};

/// At most so many messages under the lock of a shared receive queue.
const AT_ONCE: u32 = 64;

/// Executes the plain messages at the front of a list, and returns the first
/// request that was not executed. The queue pair may send, and nothing waits
/// before the list.
///
/// # Safety
/// `wr` heads a list of valid requests.
#[inline]
pub(crate) unsafe fn run<'a>(
    qp: &'a Arc<Qp>,
    parts: &mut SqParts<'_>,
    session: &mut Session<'a>,
    line: &mut Line<'a>,
    mut wr: *mut ibv_send_wr,
) -> *mut ibv_send_wr {
    let mut regions = Regions::default();
    while !wr.is_null() && session.expects(qp.num, parts.requester.psn) {
        // SAFETY: the caller's promise.
        let (rest, signaled) = unsafe { stretch(qp, parts, session, line, &mut regions, wr) };
        if rest == wr {
            break;
        }
        wr = rest;
        if let Some(last) = signaled {
            complete(qp, parts.requester.posted, line, last);
        }
    }
    wr
}

/// The regions that were looked up last.
#[derive(Default)]
struct Regions {
    source: Held,
    target: Held,
}

/// A region and its key. Under the lock that a deregistration waits for.
#[derive(Default)]
pub(crate) struct Held {
    key: u32,
    view: View,
}

impl Held {
    /// The address of a piece of memory that the key permits to access.
    #[inline(always)]
    pub(crate) fn at(
        &mut self,
        mrs: &MrTable,
        pd: u32,
        sge: &ibv_sge,
        len: u32,
        access: u32,
    ) -> Option<*mut u8> {
        if self.key != sge.lkey {
            self.view = mrs.view(sge.lkey, pd, access)?;
            self.key = sge.lkey;
        }
        self.view.at(sge.addr, len.into())
    }
}

/// Executes messages up to one that is signalled; returns the request that comes
/// next, and the signalled one.
///
/// # Safety
/// As [`run`].
unsafe fn stretch<'a, 'w>(
    qp: &'a Arc<Qp>,
    parts: &mut SqParts<'_>,
    session: &mut Session<'a>,
    line: &mut Line<'a>,
    regions: &mut Regions,
    wr: *mut ibv_send_wr,
) -> (*mut ibv_send_wr, Option<&'w ibv_send_wr>) {
    let peer = session.peer;
    // Relaxed: a count that guards no memory.
    let used = parts.requester.posted.wrapping_sub(qp.freed.load(Ordering::Relaxed));
    let slots = qp.cap.max_send_wr.saturating_sub(used).min(AT_ONCE);
    let mut filling = line.writer.fill(&peer.recv_cq, peer.num, qp.num);
    let mut left = slots.min(filling.room(&peer.recv_cq));
    let mut taker;
    let (ring, consumer) = match &peer.srq {
        None => (&peer.rq, &mut session.responder.consumer),
        Some(srq) => {
            taker = srq.taker.lock();
            left = left.min(srq.before_limit(&mut taker));
            (&srq.ring, &mut taker.consumer)
        }
    };
    let left = left.min(ring.known(consumer));
    let mut stretch =
        Stretch { qp, peer, regions, ring, consumer, filling: &mut filling, bytes: 0, packets: 0 };
    // SAFETY: the caller's promise.
    let (rest, done, signaled) = unsafe { stretch.go(wr, left, parts.requester.mtu_shift) };
    let (bytes, packets) = (stretch.bytes, stretch.packets);
    parts.counters.requests += u64::from(done);
    parts.counters.bytes += bytes;
    parts.requester.posted = parts.requester.posted.wrapping_add(done);
    parts.requester.psn = parts.requester.psn.wrapping_add(packets) & 0x00ff_ffff;
    session.responder.psn = parts.requester.psn;
    (rest, signaled)
}

/// Messages that need nothing to be looked up but their regions.
struct Stretch<'s, 'w> {
    qp: &'s Qp,
    peer: &'s Qp,
    regions: &'s mut Regions,
    ring: &'s RecvRing,
    consumer: &'s mut Consumer,
    filling: &'s mut Filling<'w>,
    bytes: u64,
    packets: u32,
}

impl Stretch<'_, '_> {
    /// Executes at most `left` messages; returns the next request, how many were
    /// executed, and the last one if it is signalled.
    ///
    /// # Safety
    /// As [`run`]; there are `left` receive requests, and as many places in the
    /// completion queue.
    #[inline(always)]
    unsafe fn go<'w>(
        &mut self,
        mut wr: *mut ibv_send_wr,
        left: u32,
        mtu_shift: u32,
    ) -> (*mut ibv_send_wr, u32, Option<&'w ibv_send_wr>) {
        let mut done = 0;
        while done < left && !wr.is_null() {
            // SAFETY: a request of the caller's list.
            let request = unsafe { &*wr };
            // SAFETY: as above; there are `left` receive requests.
            let Some(len) = (unsafe { self.message(request) }) else { break };
            self.bytes += u64::from(len);
            self.packets += packets(len.into(), mtu_shift);
            done += 1;
            wr = request.next;
            if self.qp.sig_all || request.send_flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 {
                return (wr, done, Some(request));
            }
        }
        (wr, done, None)
    }

    /// Executes one message, if it is plain; returns its length.
    ///
    /// # Safety
    /// A receive request is there, and room for its completion.
    #[inline(always)]
    unsafe fn message(&mut self, request: &ibv_send_wr) -> Option<u32> {
        // SAFETY: the caller's promise.
        let (wr_id, buffer) = unsafe { self.ring.plain_front(self.consumer) }?;
        // SAFETY: as above.
        let sge = unsafe { plain(request) }?;
        let len = sge.length;
        if len > buffer.length {
            return None;
        }
        let mrs = &self.qp.pd.context.device.mrs;
        let from = if request.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
            let from = core::ptr::with_exposed_provenance_mut(sge.addr as usize);
            (len <= self.qp.cap.max_inline_data).then_some(from)?
        } else {
            self.regions.source.at(mrs, self.qp.pd.id, sge, len, 0)?
        };
        let to = self.regions.target.at(mrs, self.peer.pd.id, &buffer, len, LOCAL_WRITE)?;
        // SAFETY: both were checked; the buffers of sends and receives are the
        // device's while they are posted.
        unsafe { copy::owned(to, from, len as usize) };
        // The slot is free before the completion is visible.
        self.ring.pop(self.consumer);
        let solicited = request.send_flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0;
        self.filling.put(wr_id, len, solicited);
        Some(len)
    }
}

/// The piece of memory of a plain message: a SEND of at least one byte, and not of
/// so many that others should not wait for the copy.
///
/// # Safety
/// The request is valid.
#[inline(always)]
pub(crate) unsafe fn plain(request: &ibv_send_wr) -> Option<&ibv_sge> {
    if request.opcode != ibv_wr_opcode::IBV_WR_SEND || request.num_sge != 1 {
        return None;
    }
    // SAFETY: NULL, or a list of one entry.
    let sge = unsafe { request.sg_list.as_ref() }?;
    (sge.length.wrapping_sub(1) < LONG as u32 - 1).then_some(sge)
}

/// Completes a signalled request, the last that was executed.
fn complete<'a>(qp: &'a Arc<Qp>, position: u32, line: &mut Line<'a>, request: &ibv_send_wr) {
    // SAFETY: the request was executed, so its list has one entry.
    let byte_len = unsafe { (*request.sg_list).length };
    let completion = Completion {
        wr_id: request.wr_id,
        status: ibv_wc_status::IBV_WC_SUCCESS,
        opcode: ibv_wc_opcode::IBV_WC_SEND,
        byte_len,
        imm: 0,
        flags: 0,
        qp_num: qp.num,
        src_qp: 0,
        solicited: false,
    };
    line.writer.push(&qp.send_cq, &completion, Some((&**qp, position)), &mut line.after);
}
