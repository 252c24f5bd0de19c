//! Findings of a checked process about requests that fail, and calls that are refused, by its own mistake:
//! a line that names the call, the object, what is wrong, and what would be right.
//!
//! Nothing of this is reported where a fault was injected, or a peer does not answer, and no call that only asks.

use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::check::checker::Checker;
use crate::check::queue::QpAccount;
use crate::check::report::{ReportKind, number};
use crate::errno;
use crate::memory::denial::{Denial, Registered, rights};
use crate::memory::mr_table::{LOCAL_WRITE, MrTable};
use crate::objects::state::{Context, Cq, Pd, Qp, Srq};
use crate::queues::qp_state::QueuePairState;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{SqOp, Wqe, len_of};
use crate::reason::WcReason;

/// Regions in a line; those beyond are counted.
const SHOWN: usize = 8;

/// Memory that a request names at its peer.
pub(crate) struct NamedMemory {
    pub(crate) op: SqOp,
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// Says what is wrong with an access by a key, and which regions there are. `of` is the queue that has the domain.
fn describe(
    mrs: &MrTable,
    (pd, of): (u32, &str),
    (key, name): (u32, &str),
    (addr, len): (u64, u64),
    denial: Denial,
) -> String {
    let bytes = format!("{} at {addr:#x}", number(len, "byte"));
    let region = mrs.registered(key).map_or_else(|| format!("key {key:#x}"), |it| it.to_string());
    let there_are = || regions(&mrs.regions_of(pd), of);
    match denial {
        Denial::Key => format!("{name} {key:#x} is that of no region: {}", there_are()),
        Denial::Ended => format!("{name} {key:#x} is that of a window that is no longer bound"),
        Denial::Domain => {
            format!("{region} is in another protection domain: {}", there_are())
        }
        Denial::QueuePair => format!("{name} {key:#x} is that of a window of another queue pair"),
        Denial::Range => format!("{bytes} are not all in {region}{}", others(mrs, pd, of, key)),
        Denial::Rights(missing) => {
            format!("{region} lacks {}: register it with that right", rights(missing))
        }
        Denial::Gone => format!("pages of {bytes} are gone or protected"),
    }
}

/// The other regions of a domain, if there are any.
fn others(mrs: &MrTable, pd: u32, of: &str, key: u32) -> String {
    let mut all = mrs.regions_of(pd);
    all.retain(|region| region.key != key);
    if all.is_empty() { String::new() } else { format!(": {}", regions(&all, of)) }
}

fn regions(all: &[Registered], of: &str) -> String {
    let shown: Vec<_> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    match (all.len(), all.len() - shown.len()) {
        (0, _) => format!("the protection domain of {of} has no region"),
        (_, 0) => format!("the protection domain of {of} has {}", shown.join(", ")),
        (_, more) => {
            format!("the protection domain of {of} has {} and {more} more", shown.join(", "))
        }
    }
}

/// Failures.
impl Qp {
    /// A request of the send queue has failed.
    #[cold]
    pub(crate) fn check_failed(&self, wqe: &Wqe, reason: WcReason, requester: &RequesterState) {
        let Some(check) = self.check() else { return };
        let (mut sges, mut len, mut is_said) = (Vec::new(), 0, false);
        check.with_send(wqe.position, |posted| {
            (sges, len, is_said) = (posted.sges.clone(), posted.len, posted.is_said);
        });
        let (what, kind) = match reason {
            _ if is_said => return,
            WcReason::LocalKey
            | WcReason::LocalDomain
            | WcReason::LocalRange
            | WcReason::LocalRight
            | WcReason::LocalGone => (self.why_local(check, wqe, &sges), ReportKind::Failed),
            WcReason::Rnr => (why_not_ready(requester), ReportKind::Failed),
            WcReason::TooLong
            | WcReason::AtomicLength
            | WcReason::NoReads
            | WcReason::Operation
            | WcReason::Bind
            | WcReason::Invalidate
            | WcReason::PeerReads
            | WcReason::PeerWord
            | WcReason::PeerQueue
            | WcReason::LocalUnattached
            | WcReason::PeerUnattached => (reason.text().to_owned(), ReportKind::Failed),
            WcReason::PeerFlags => {
                let right = rights(wqe.op.remote_access());
                (format!("{}: {right} is missing", reason.text()), ReportKind::Failed)
            }
            WcReason::PeerKey
            | WcReason::PeerDomain
            | WcReason::PeerRange
            | WcReason::PeerRight
            | WcReason::PeerGone
            | WcReason::PeerWindow => {
                let Wqe { op, rkey, remote_addr: addr, .. } = *wqe;
                self.why_remote(requester, &NamedMemory { op, rkey, addr, len }, reason)
            }
            // Over the network there are no more details. What is wrong with a receive request is
            // said there.
            WcReason::PeerInvalid | WcReason::PeerAccess | WcReason::PeerOperation
                if wqe.op != SqOp::Send && self.peer_here(requester).is_none() =>
            {
                let bytes = format!("{} at {:#x}", number(len, "byte"), wqe.remote_addr);
                let what =
                    format!("{bytes} by rkey {:#x}: its process says why under --check", wqe.rkey);
                (what, ReportKind::Failed)
            }
            // The peer reports it, or there is no mistake of the program's.
            _ => return,
        };
        check.checker.report.say(kind, || {
            let (op, id, status) = (wqe.op.name(), wqe.wr_id, wc_status_name(reason.status()));
            let of = format!("{op} wr_id {id:#x} on {}", check.name);
            format!("ibv_post_send: {of} failed with {status}: {what}")
        });
    }

    /// The queue pair at the other end, if it is in this process.
    fn peer_here(&self, requester: &RequesterState) -> Option<Arc<Qp>> {
        let qps = &self.pd.context.device.qps;
        qps.get(requester.dest_qpn).filter(|_| requester.reaches_us)
    }

    fn why_local(&self, check: &QpAccount, wqe: &Wqe, sges: &[ibv_sge]) -> String {
        let access = if wqe.op.is_response() { LOCAL_WRITE } else { 0 };
        let (mrs, pd) = (&self.pd.context.device.mrs, self.pd.id);
        let (sge, denial) = mrs.denial_of(pd, sges, len_of(sges), access);
        let Some(sge) = sge else { return WcReason::LocalGone.text().into() };
        let piece = (sge.addr, sge.length.into());
        describe(mrs, (pd, &check.name), (sge.lkey, "lkey"), piece, denial)
    }

    /// Says more of a peer in this process: the process of another one reports it, too.
    fn why_remote(
        &self,
        requester: &RequesterState,
        asked: &NamedMemory,
        reason: WcReason,
    ) -> (String, ReportKind) {
        let device = &self.pd.context.device;
        let NamedMemory { op, rkey, addr, len } = *asked;
        let peer = self.peer_here(requester).filter(|peer| peer.target.is_none());
        let Some(peer) = peer else {
            let bytes = format!("{} at {addr:#x} by rkey {rkey:#x}", number(len, "byte"));
            let is_window = reason == WcReason::PeerWindow;
            let kind = if is_window { ReportKind::WindowEnded } else { ReportKind::Failed };
            return (format!("{bytes}: {}", reason.text()), kind);
        };
        let (pd, piece) = (peer.pd.id, (addr, len));
        let denial = device.mrs.denial(rkey, (pd, peer.num), piece, op.remote_access());
        let of = format!("QP {:#x}", peer.num);
        (describe(&device.mrs, (pd, &of), (rkey, "rkey"), piece, denial), kind_of(denial))
    }

    /// Reason for which the device may not write to the buffers of a receive request, for a message
    /// of this length.
    #[cold]
    pub(crate) fn check_buffer(
        &self,
        wr_id: u64,
        (sges, len): (&[ibv_sge], u64),
        pd: u32,
    ) -> WcReason {
        let mrs = &self.pd.context.device.mrs;
        let (sge, denial) = mrs.denial_of(pd, sges, len, LOCAL_WRITE);
        if let Some(check) = self.check().filter(|check| !check.is_receive_said(wr_id)) {
            check.checker.report.say(ReportKind::Failed, || {
                let queue = &check.receives.name;
                let call = if self.srq.is_some() { "ibv_post_srq_recv" } else { "ibv_post_recv" };
                let piece = |sge: ibv_sge| (sge.addr, sge.length.into());
                let what = sge.map_or_else(
                    || WcReason::LocalGone.text().into(),
                    |sge| describe(mrs, (pd, queue), (sge.lkey, "lkey"), piece(sge), denial),
                );
                let status = wc_status_name(denial.local().status());
                format!("{call}: RECV wr_id {wr_id:#x} on {queue} failed with {status}: {what}")
            });
        }
        denial.local()
    }

    /// Finds the reason why a peer's request may not access the memory that it names in a domain.
    #[cold]
    pub(crate) fn why_denied(&self, from: u32, pd: u32, asked: &NamedMemory) -> WcReason {
        let &NamedMemory { op, rkey, addr, len } = asked;
        let mrs = &self.pd.context.device.mrs;
        let denial = mrs.denial(rkey, (pd, self.num), (addr, len), op.remote_access());
        self.check_denied(from, pd, asked, denial);
        denial.remote()
    }

    /// A peer's request may not access the memory that it names. One in this process is told so at its end.
    #[cold]
    fn check_denied(&self, from: u32, pd: u32, asked: &NamedMemory, denial: Denial) {
        let Some(check) = self.check() else { return };
        let device = &self.pd.context.device;
        if device.wire().is_none() && device.qps.get(from).is_some() {
            return;
        }
        check.checker.report.say(kind_of(denial), || {
            let NamedMemory { op, rkey, addr, len } = *asked;
            let named = (rkey, "rkey");
            let what = describe(&device.mrs, (pd, &check.name), named, (addr, len), denial);
            format!("{} refuses a {} from QP {from:#x}: {what}", check.name, op.name())
        });
    }
}

fn why_not_ready(requester: &RequesterState) -> String {
    format!(
        "QP {:#x} has no receive request, after {} (rnr_retry is {}): its program posts one, by \
         ibv_post_recv, before this end sends",
        requester.dest_qpn,
        match requester.rnr_retry {
            0 => "1 try".into(),
            more => format!("{} tries", u32::from(more) + 1),
        },
        requester.rnr_retry
    )
}

/// To use a key until it is refused may be meant: windows are there for that.
fn kind_of(denial: Denial) -> ReportKind {
    if denial == Denial::Ended { ReportKind::WindowEnded } else { ReportKind::Failed }
}

/// Posts that are refused.
impl Qp {
    /// The send queue does not take a request.
    ///
    /// # Safety
    /// The request is valid.
    #[cold]
    pub(crate) unsafe fn check_refused_send(&self, wr: &ibv_send_wr, error: Errno) {
        let Some(check) = self.check() else { return };
        let Some(what) = self.why_refused(check, wr, error) else { return };
        let op = SqOp::from_opcode(wr.opcode).or_else(|| SqOp::from_rare_opcode(wr.opcode));
        let op = op.map_or_else(|| format!("opcode {}", wr.opcode.0), |(op, _)| op.name().into());
        check.checker.refused(
            "ibv_post_send",
            &format!("{op} wr_id {:#x}", wr.wr_id),
            &check.name,
            error,
            &what,
        );
    }

    fn why_refused(&self, check: &QpAccount, wr: &ibv_send_wr, error: Errno) -> Option<String> {
        let (cap, state) = (&self.cap, self.state());
        if state.refuses_sends() {
            let state = state_name(state);
            return Some(format!(
                "the queue pair is in {state}: it takes send requests from RTS on (ibv_modify_qp)"
            ));
        }
        if error == errno::ENOMEM {
            // A program may post until the queue is full, and poll then.
            return (!check.is_any_signaled()).then(|| {
                format!(
                    "the send queue is full, and none of its {} is signalled, so that no \
                     completion frees one: set IBV_SEND_SIGNALED on one in {} at least, and poll it",
                    number(cap.max_send_wr.into(), "request"),
                    cap.max_send_wr
                )
            });
        }
        let is_inline = wr.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0;
        Some(match () {
            () if wr.num_sge as u32 > cap.max_send_sge => {
                format!("num_sge is {}, and max_send_sge {}", wr.num_sge, cap.max_send_sge)
            }
            () if wr.num_sge > 0 && wr.sg_list.is_null() => "sg_list is NULL".into(),
            () if is_inline => format!(
                "it goes inline: a SEND or WRITE may, of {} at most (max_inline_data)",
                number(cap.max_inline_data.into(), "byte")
            ),
            () => "the queue pair has no such operation, or the request lacks its address handle"
                .into(),
        })
    }

    /// The receive queue does not take a request.
    #[cold]
    pub(crate) fn check_refused_receive(&self, wr: Option<&ibv_recv_wr>, error: Errno) {
        let (Some(check), Some(wr)) = (self.check(), wr) else { return };
        let what = match self.state() {
            _ if self.srq.is_some() => {
                "the queue pair takes from a shared receive queue: post there (ibv_post_srq_recv)"
                    .into()
            }
            state @ (QueuePairState::Reset | QueuePairState::Destroyed) => {
                let state = state_name(state);
                format!("the queue pair is in {state}: it takes receive requests from INIT on")
            }
            _ => match why_refused_receive(wr, self.rq.max_sge(), error) {
                Some(what) => what,
                None => return,
            },
        };
        let request = format!("RECV wr_id {:#x}", wr.wr_id);
        check.checker.refused("ibv_post_recv", &request, &check.name, error, &what);
    }
}

impl Srq {
    /// The queue does not take a request.
    #[cold]
    pub(crate) fn check_refused(&self, wr: Option<&ibv_recv_wr>, error: Errno) {
        let (Some(check), Some(wr)) = (&self.check, wr) else { return };
        let Some(what) = why_refused_receive(wr, self.ring.max_sge(), error) else { return };
        let request = format!("RECV wr_id {:#x}", wr.wr_id);
        check.checker.refused("ibv_post_srq_recv", &request, &check.name, error, &what);
    }
}

/// None of a queue that is full: a program may post until it is.
fn why_refused_receive(wr: &ibv_recv_wr, max_sge: u32, error: Errno) -> Option<String> {
    (error != errno::ENOMEM).then(|| match wr.num_sge {
        n if n as u32 > max_sge => format!("num_sge is {n}, and max_recv_sge {max_sge}"),
        _ => "sg_list is NULL".into(),
    })
}

/// Transitions.
impl Qp {
    /// `ibv_modify_qp` is refused.
    #[cold]
    pub(crate) fn check_transition(
        &self,
        from: QueuePairState,
        to: QueuePairState,
        why: &dyn core::fmt::Display,
    ) {
        let Some(check) = self.check() else { return };
        let what = format!("{} to {}", state_name(from), state_name(to));
        check.checker.refused("ibv_modify_qp", &what, &check.name, errno::EINVAL, &why.to_string());
    }
}

/// As the manual pages name it.
pub(crate) fn state_name(state: QueuePairState) -> &'static str {
    crate::trace::layout::STATES[state as usize]
}

impl Checker {
    /// A call was refused.
    fn refused(&self, call: &str, what: &str, object: &str, error: Errno, why: &str) {
        self.report.say(ReportKind::Refused, || {
            format!("{call}: {what} on {object} is refused ({}): {why}", errno::name(error))
        });
    }
}

/// Calls that are about no queue.
impl Context {
    /// A call is refused.
    #[cold]
    pub(crate) fn check_refused(&self, call: &str, error: Errno, why: &str) {
        if let Some(checker) = &self.checker {
            let text = || format!("{call} is refused ({}): {why}", errno::name(error));
            checker.report.say(ReportKind::Refused, text);
        }
    }

    /// `ibv_...` of an object fails, because others use it.
    #[cold]
    pub(crate) fn check_in_use(
        &self,
        error: Errno,
        call: &str,
        object: &str,
        users: impl FnOnce() -> Vec<String>,
    ) {
        let Some(checker) = self.checker.as_ref().filter(|_| error == errno::EBUSY) else { return };
        checker.report.say(ReportKind::Refused, || {
            let users = users();
            let shown = users[..users.len().min(SHOWN)].join(", ");
            let more = match users.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{call} of {object} is refused (EBUSY): it is in use by {shown}{more}: destroy these first")
        });
    }
}

impl Pd {
    /// Giving it back fails.
    pub(crate) fn check_in_use(&self, error: Errno) {
        let device = &self.context.device;
        self.context.check_in_use(error, "ibv_dealloc_pd", "a protection domain", || {
            let pairs = device.qps.all().into_iter().filter(|qp| qp.pd.id == self.id);
            let pairs = pairs.map(|qp| format!("QP {:#x}", qp.num));
            let regions = device.mrs.regions_of(self.id);
            let mut users: Vec<_> = pairs.chain(regions.iter().map(ToString::to_string)).collect();
            if users.is_empty() {
                users.push("a shared receive queue, a memory window or an address handle".into());
            }
            users
        });
    }
}

impl Srq {
    /// Destroying it fails.
    pub(crate) fn check_in_use(&self, error: Errno) {
        let object = format!("SRQ {}", self.num);
        self.context.check_in_use(error, "ibv_destroy_srq", &object, || {
            let all = self.context.device.qps.all();
            let is_this = |srq: &Srq| core::ptr::eq(srq, self);
            let users = all.iter().filter(|qp| qp.srq.as_deref().is_some_and(is_this));
            users.map(|qp| format!("QP {:#x}", qp.num)).collect()
        });
    }
}

impl Cq {
    /// Destroying it fails.
    pub(crate) fn check_in_use(&self, error: Errno) {
        let Some(check) = &self.check else { return };
        let object = format!("CQ {}", check.number);
        self.context.check_in_use(error, "ibv_destroy_cq", &object, || {
            let pairs = self.qps.lock();
            let mut users: Vec<_> = pairs
                .iter()
                .filter_map(|qp| Some(format!("QP {:#x}", qp.upgrade()?.num)))
                .collect();
            users.dedup();
            if users.is_empty() {
                users.push("an XRC receive queue".into());
            }
            users
        });
    }
}
