//! The state machine of a queue pair, as `ibv_modify_qp` drives it.
//!
//! ```text
//!                                ┌────> SQE   (UC and UD: a request failed)
//!                                │       │
//!   RESET ──> INIT ──> RTR ──> RTS <─────┴──> SQD
//!     ▲         │       │       │        │     │
//!     │         └───────┴───┬───┴────────┴─────┘
//!     └── any            ERR ◄
//! ```
//!
//! Which attributes a transition requires and allows is the table of the
//! InfiniBand specification (volume 1, "Modify Queue Pair"), as the kernel applies
//! it to every RoCE device: in particular a queue pair in RESET cannot be moved to
//! ERR, because it has nothing to flush. No request moves a queue pair to SQE.

use core::ffi::c_int;
use core::fmt;
use core::ops::RangeInclusive;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::fabric::wire::device::WireMemory;
use crate::fabric::wire::progress;
use crate::objects::deferred_work::{DeferredWork, WorkItem};
use crate::objects::state::{Qp, ResponderState, Sq};
use crate::queues::address::{GidBytes, ROUTE, is_route_to_port};
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::{errno, limits};

/// Attributes: the bit of each in a mask, and all with their names.
macro_rules! attribute_masks {
    ($($name:ident = $abi:ident;)*) => {
        $(const $name: u32 = ibv_qp_attr_mask::$abi.0;)*
        const NAMES: &[(u32, &str)] = &[$(($name, stringify!($abi))),*];
    };
}

attribute_masks! {
    STATE = IBV_QP_STATE;
    CUR_STATE = IBV_QP_CUR_STATE;
    NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY;
    ACCESS = IBV_QP_ACCESS_FLAGS;
    PKEY = IBV_QP_PKEY_INDEX;
    PORT = IBV_QP_PORT;
    QKEY = IBV_QP_QKEY;
    AV = IBV_QP_AV;
    MTU = IBV_QP_PATH_MTU;
    TIMEOUT = IBV_QP_TIMEOUT;
    RETRY = IBV_QP_RETRY_CNT;
    RNR_RETRY = IBV_QP_RNR_RETRY;
    RQ_PSN = IBV_QP_RQ_PSN;
    RD_ATOMIC = IBV_QP_MAX_QP_RD_ATOMIC;
    ALT_PATH = IBV_QP_ALT_PATH;
    RNR_TIMER = IBV_QP_MIN_RNR_TIMER;
    SQ_PSN = IBV_QP_SQ_PSN;
    DEST_RD_ATOMIC = IBV_QP_MAX_DEST_RD_ATOMIC;
    MIG_STATE = IBV_QP_PATH_MIG_STATE;
    DEST_QPN = IBV_QP_DEST_QPN;
    CAP = IBV_QP_CAP;
}

/// All attributes that the kernel accepts for every device; rate limits are some devices'.
const KNOWN: u32 = (DEST_QPN << 1) - 1;

/// Attributes that a transition needs, and those that it also takes; `None` where
/// there is no such transition.
fn attributes(
    transport: QpTransport,
    from: QueuePairState,
    to: QueuePairState,
) -> Option<(u32, u32)> {
    let (required, optional) = attributes_of_rc(from, to)?;
    let of = |mask: u32| match transport {
        QpTransport::Rc => mask,
        QpTransport::XrcSend | QpTransport::XrcRecv => mask & !ignored(transport),
        // There are no replies that could be waited for, repeated or counted.
        QpTransport::Uc => {
            let of_responses = TIMEOUT | RETRY | RNR_RETRY | RD_ATOMIC | DEST_RD_ATOMIC | RNR_TIMER;
            mask & !of_responses
        }
        // No peer and no remote access; a key of the queue stands for both.
        QpTransport::Ud => {
            let key = if mask & ACCESS != 0 { QKEY } else { 0 };
            mask & (CUR_STATE | NOTIFY | PKEY | PORT | SQ_PSN) | key
        }
    };
    // Only a reliable connection can change its port while it is drained.
    let moves = from == QueuePairState::Sqd && !transport.is_reliable();
    Some((of(required), of(optional) & if moves { !PORT } else { !0 }))
}

/// Attributes that are ignored, as the kernel does: programs give both ends of XRC those of a
/// reliable connection. One end sends, and answers nothing; the other one sends nothing.
fn ignored(transport: QpTransport) -> u32 {
    match transport {
        QpTransport::XrcSend => DEST_RD_ATOMIC | RNR_TIMER,
        QpTransport::XrcRecv => RETRY | RNR_RETRY | RD_ATOMIC,
        _ => 0,
    }
}

/// [`attributes`] of a reliable connection, which has most of them.
fn attributes_of_rc(from: QueuePairState, to: QueuePairState) -> Option<(u32, u32)> {
    use QueuePairState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    Some(match (from, to) {
        (_, Reset) | (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (0, 0),
        (Reset, Init) => (PKEY | PORT | ACCESS, 0),
        (Init, Init) => (0, PKEY | PORT | ACCESS),
        (Init, Rtr) => {
            (AV | MTU | DEST_QPN | RQ_PSN | DEST_RD_ATOMIC | RNR_TIMER, ALT_PATH | ACCESS | PKEY)
        }
        (Rtr, Rts) => (
            TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | RD_ATOMIC,
            CUR_STATE | ALT_PATH | ACCESS | RNR_TIMER | MIG_STATE,
        ),
        (Rts, Rts) | (Sqd, Rts) => (0, CUR_STATE | ACCESS | ALT_PATH | MIG_STATE | RNR_TIMER),
        (Rts, Sqd) => (0, NOTIFY),
        (Sqe, Rts) => (0, CUR_STATE | ACCESS),
        (Sqd, Sqd) => (
            0,
            PORT | AV
                | TIMEOUT
                | RETRY
                | RNR_RETRY
                | RD_ATOMIC
                | DEST_RD_ATOMIC
                | ALT_PATH
                | ACCESS
                | PKEY
                | RNR_TIMER
                | MIG_STATE,
        ),
        _ => return None,
    })
}

/// Reason why a transition is refused.
#[derive(Debug, PartialEq, Eq)]
enum Misfit {
    NoTransition,
    /// These attributes are missing.
    Missing(u32),
    /// These are none of the transition's.
    Superfluous(u32),
    /// `cur_qp_state` is another one.
    Current,
    /// The value of a field, and what is allowed.
    Value(&'static str, u32, &'static str),
    /// The address has no global route, or none leads there.
    Route(&'static str),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |mask: u32| {
            let names = NAMES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name);
            names.collect::<Vec<_>>().join(" | ")
        };
        match self {
            Misfit::NoTransition => write!(f, "there is no such transition"),
            Misfit::Missing(mask) => write!(f, "the mask lacks {}", names(*mask)),
            Misfit::Superfluous(mask) => write!(f, "leave {} out of the mask", names(*mask)),
            Misfit::Current => write!(f, "cur_qp_state is another state"),
            Misfit::Value(field, value, allowed) => {
                write!(f, "{field} is {value}: it has to be {allowed}")
            }
            Misfit::Route(what) => write!(f, "ah_attr: {what}"),
        }
    }
}

/// Checks that a queue pair of a transport takes these attributes in a transition.
fn judge(
    transport: QpTransport,
    (from, to): (QueuePairState, QueuePairState),
    attr: &ibv_qp_attr,
    mask: u32,
) -> Result<(), Misfit> {
    let (required, optional) = attributes(transport, from, to).ok_or(Misfit::NoTransition)?;
    let given = mask & !STATE;
    match (required & !given, given & !(required | optional)) {
        (0, 0) => {}
        (0, superfluous) => return Err(Misfit::Superfluous(superfluous)),
        (missing, _) => return Err(Misfit::Missing(missing)),
    }
    if mask & CUR_STATE != 0 && attr.cur_qp_state != from.abi() {
        return Err(Misfit::Current);
    }
    judge_values(attr, mask)
}

/// Checks that the values of the attributes in `mask` are ones that the device knows.
fn judge_values(attr: &ibv_qp_attr, mask: u32) -> Result<(), Misfit> {
    const _: () = assert!(limits::PORT == 1 && limits::MAX_RD_ATOMIC == 128);
    // Any access flags: the kernel takes them as they are, and so do the drivers, which look at
    // the three remote ones.
    let values: [(u32, &str, u32, RangeInclusive<u32>, &str); 10] = [
        (PKEY, "pkey_index", attr.pkey_index.into(), 0..=0, "0"),
        (PORT, "port_num", attr.port_num.into(), 1..=1, "1, the device's only port"),
        (MTU, "path_mtu", attr.path_mtu.0, 1..=5, "1 (IBV_MTU_256) to 5 (IBV_MTU_4096)"),
        (DEST_QPN, "dest_qp_num", attr.dest_qp_num, 0..=0x00ff_ffff, "a number of 24 bits"),
        (TIMEOUT, "timeout", attr.timeout.into(), 0..=31, "31 at most"),
        (RETRY, "retry_cnt", attr.retry_cnt.into(), 0..=7, "7 at most"),
        (RNR_RETRY, "rnr_retry", attr.rnr_retry.into(), 0..=7, "7 at most"),
        (RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer.into(), 0..=31, "31 at most"),
        (RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic.into(), 0..=128, "128 at most"),
        (
            DEST_RD_ATOMIC,
            "max_dest_rd_atomic",
            attr.max_dest_rd_atomic.into(),
            0..=128,
            "128 at most",
        ),
    ];
    let is_bad = |(bit, _, value, allowed, _): &(u32, &str, u32, RangeInclusive<u32>, &str)| {
        mask & bit != 0 && !allowed.contains(value)
    };
    if let Some((_, field, value, _, allowed)) = values.iter().find(|value| is_bad(value)) {
        return Err(Misfit::Value(field, *value, allowed));
    }
    if mask & AV != 0 && !is_route_to_port(&attr.ah_attr) {
        return Err(Misfit::Route(ROUTE));
    }
    match mask & ALT_PATH {
        0 => Ok(()),
        // There is one path, and it does not migrate.
        path => Err(Misfit::Superfluous(path)),
    }
}

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let mut deferred = DeferredWork::default();
    // SAFETY: NULL, or objects of ours and of the caller.
    let result = unsafe { Qp::named(qp) }.and_then(|qp| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        let (real, mask) = (qp.real(), mask as u32);
        if mask & !KNOWN != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        let mask = mask & !ignored(real.transport);
        real.meet_for(attr, mask)?;
        let to = (mask & STATE != 0).then_some(attr.qp_state);
        if matches!(to, Some(ibv_qp_state::IBV_QPS_RESET | ibv_qp_state::IBV_QPS_ERR)) {
            progress::settle(real);
        } else {
            // A child of fork may put away what its parent has made.
            real.pd.context.device.is_ours()?;
        }
        real.modify(attr, mask, &mut deferred)?;
        if to == Some(ibv_qp_state::IBV_QPS_RESET) {
            progress::drain(&real.pd.context.device);
        }
        qp.show_state();
        Ok(())
    });
    deferred.run();
    errno::code(result)
}

impl Qp {
    fn modify(
        self: &Arc<Qp>,
        attr: &ibv_qp_attr,
        mask: u32,
        deferred: &mut DeferredWork,
    ) -> Result<(), Errno> {
        let mut sq = self.sq.lock();
        let mut responder = self.responder.lock();
        let from = self.state();
        let to =
            if mask & STATE == 0 { Some(from) } else { QueuePairState::from_abi(attr.qp_state) };
        let to = to.ok_or(errno::EINVAL)?;
        let leads_somewhere = || match mask & AV == 0 || self.has_route(&attr.ah_attr) {
            true => Ok(()),
            false => Err(Misfit::Route("no route leads to the GID")),
        };
        judge(self.transport, (from, to), attr, mask).and_then(|()| leads_somewhere()).map_err(
            |misfit| {
                self.check_transition(from, to, &misfit);
                errno::EINVAL
            },
        )?;
        let responses = (mask & DEST_RD_ATOMIC != 0).then_some(attr.max_dest_rd_atomic);
        let mut memory = self.wire_memory((from, to), responses)?;
        store((&mut sq, &mut responder), attr, mask, &self.pd.context.device.gid());
        let changed = (mask & AV != 0, mask & DEST_RD_ATOMIC != 0);
        self.change_wire(&mut sq, &mut responder, changed, &mut memory);
        if from == QueuePairState::Init && to == QueuePairState::Rtr {
            self.connect(&mut sq, &mut responder);
            self.connect_wire(&sq, &mut responder, &mut memory);
        }
        self.publish_connection(&responder);
        if let Some(trace) = self.trace() {
            let requester = &sq.requester;
            let retries = [requester.timeout, requester.retry_cnt, requester.rnr_retry];
            trace.connection((requester.dest_qpn, self.peer_address(&sq)), retries);
        }
        self.enter((from, to), &mut sq, &mut responder, memory, deferred);
        drop(responder);
        if to == QueuePairState::Rts && self.pd.context.device.sim().is_none() {
            self.run_pending(&mut sq, deferred, false);
        }
        self.check_drained(&mut sq);
        Ok(())
    }

    /// Enters a state; both locks are held.
    fn enter(
        self: &Arc<Qp>,
        (from, to): (QueuePairState, QueuePairState),
        sq: &mut Sq,
        responder: &mut ResponderState,
        memory: WireMemory,
        deferred: &mut DeferredWork,
    ) {
        match to {
            QueuePairState::Err => {
                self.set_state(to);
                deferred.push(WorkItem::Flush(Arc::clone(self)));
            }
            QueuePairState::Reset => {
                self.set_state(to);
                // A process that does not leave within seconds is stopped: it is not waited for.
                let _ = self.clear(sq, responder);
                // SAFETY: zero is a valid value of every field.
                sq.attr = unsafe { core::mem::zeroed() };
                *responder = ResponderState {
                    consumer: core::mem::take(&mut responder.consumer),
                    generation: responder.generation,
                    ..ResponderState::default()
                };
            }
            _ if from == to => {}
            _ => {
                sq.draining = to == QueuePairState::Sqd;
                self.set_state(to);
            }
        }
        if to == QueuePairState::Rts && from == QueuePairState::Rtr {
            sq.requester.next_request();
            if let Some(remote) = &mut sq.remote {
                remote.begin(sq.requester.psn);
            }
            self.begin_to_send(sq, memory);
        }
    }

    /// Says that the send queue is drained, if it was to be and is: the request
    /// that was under way has ended, later ones wait. The lock is held.
    pub(crate) fn check_drained(self: &Arc<Qp>, sq: &mut Sq) {
        let is_answered = sq.pending.front().is_none_or(|head| !head.wqe.ahead);
        if sq.draining
            && self.state() == QueuePairState::Sqd
            && !sq.requester.started
            && is_answered
        {
            sq.draining = false;
            if sq.attr.en_sqd_async_notify != 0 {
                self.raise(ibv_event_type::IBV_EVENT_SQ_DRAINED);
            }
        }
    }
}

/// Takes the attributes over, where they are used and where they are reported.
fn store(
    (sq, responder): (&mut Sq, &mut ResponderState),
    attr: &ibv_qp_attr,
    mask: u32,
    own: &GidBytes,
) {
    macro_rules! take {
        ($($bit:ident: $field:ident $(=> $to:expr)?;)*) => {
            $( if mask & $bit != 0 {
                sq.attr.$field = attr.$field;
                $( $to = attr.$field; )?
            } )*
        };
    }
    const PSN: u32 = 0x00ff_ffff;
    take! {
        PKEY: pkey_index;
        PORT: port_num;
        ACCESS: qp_access_flags => responder.access;
        QKEY: qkey => responder.qkey;
        AV: ah_attr;
        MTU: path_mtu;
        DEST_QPN: dest_qp_num => sq.requester.dest_qpn;
        DEST_RD_ATOMIC: max_dest_rd_atomic => responder.max_dest_rd_atomic;
        RNR_TIMER: min_rnr_timer => responder.min_rnr_timer;
        TIMEOUT: timeout => sq.requester.timeout;
        RETRY: retry_cnt => sq.requester.retry_cnt;
        RNR_RETRY: rnr_retry => sq.requester.rnr_retry;
        RD_ATOMIC: max_rd_atomic => sq.requester.max_rd_atomic;
        MIG_STATE: path_mig_state;
        NOTIFY: en_sqd_async_notify;
    }
    if mask & RQ_PSN != 0 {
        responder.psn = attr.rq_psn & PSN;
    }
    if mask & SQ_PSN != 0 {
        sq.requester.psn = attr.sq_psn & PSN;
    }
    if mask & MTU != 0 {
        // IBV_MTU_256 is 1.
        sq.requester.mtu_shift = 7 + attr.path_mtu.0;
    }
    if mask & DEST_QPN != 0 {
        responder.dest_qpn = attr.dest_qp_num;
    }
    if mask & AV != 0 {
        // SAFETY: bytes, whichever member was written.
        let gid = unsafe { attr.ah_attr.grh.dgid.raw };
        sq.requester.reaches_us = gid == *own;
        responder.peer_is_here = gid == *own;
    }
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: NULL, or a queue pair of ours.
    let object = match unsafe { Qp::named(qp) } {
        Ok(object) if !attr.is_null() && !init.is_null() => object,
        Ok(_) => return errno::code(Err(errno::EINVAL)),
        Err(error) => return errno::code(Err(error)),
    };
    // SAFETY: the caller's places; the ABI's struct of a live queue pair.
    unsafe {
        attr.write(object.real().query());
        object.show_state();
        init.write(ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap: object.cap,
            qp_type: object.transport.abi(),
            sq_sig_all: c_int::from(object.sig_all),
        });
    }
    0
}

impl Qp {
    fn query(&self) -> ibv_qp_attr {
        let sq = self.sq.lock();
        let responder = self.responder.lock();
        let state = self.state().abi();
        // SAFETY: both locks are held. An error may have happened asynchronously.
        unsafe { (*self.abi.get()).qp_base.state = state };
        ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            rq_psn: responder.psn,
            sq_psn: sq.requester.psn,
            cap: self.cap,
            sq_draining: u8::from(sq.draining && self.state() == QueuePairState::Sqd),
            ..sq.attr
        }
    }
}

/// 1: every byte of a message becomes visible after those before it (see
/// `copy`).
pub(crate) unsafe extern "C" fn query_qp_data_in_order(
    qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    c_int::from(!qp.is_null())
}

#[cfg(test)]
mod tests;
