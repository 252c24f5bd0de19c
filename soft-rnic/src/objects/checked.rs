//! Reports of the objects of a checked process to its checker.

use core::ops::Range;
use std::sync::Arc;

use host::sync::OnceLock;
use rustix::io::Errno;
use verbs_sys::*;

use crate::check::checker::{Checker, Leftovers, Object};
use crate::check::claims::AddressRange;
use crate::check::completions::CqAccount;
use crate::check::fingerprint::Fingerprint;
use crate::check::queue::{PostedWr, QpAccount, RecvAccount};
use crate::check::report::{ReportKind, number, write};
use crate::memory::lists::resolve;
use crate::memory::mr_table::{MW_BIND, REMOTE_ATOMIC, REMOTE_WRITE};
use crate::memory::null_memory::is_zeroes;
use crate::memory::on_demand;
use crate::memory::span::{MemSpan, SpanBuf};
use crate::objects::mr::MrAttr;
use crate::objects::qp::QpParts;
use crate::objects::quiescence;
use crate::objects::state::{CompChannel, Context, Cq, Device, Pd, Qp, XrcSrq};
use crate::queues::qp_state::QpTransport;
use crate::queues::wqe::{Wqe, WqeRef, len_of};

/// Objects.
impl Context {
    /// The program has created an object.
    pub(crate) fn made(&self, object: Object, id: u64) {
        if let Some(checker) = &self.checker {
            checker.made(object, id, None);
        }
    }

    /// The program has destroyed it.
    pub(crate) fn gone(&self, object: Object, id: u64) {
        if let Some(checker) = &self.checker {
            checker.gone(object, id);
        }
    }

    /// A region has this memory.
    pub(crate) fn region_at(&self, key: u32, addr: u64, length: usize) {
        if let Some(checker) = &self.checker {
            checker.region_at(key, addr, length);
        }
    }

    /// A region was deregistered: reports the requests under way that name it.
    pub(crate) fn check_deregistered(&self, key: u32) {
        let Some(checker) = &self.checker else { return };
        checker.deregistered(key);
        for qp in self.device.qps.all() {
            let Some(check) = qp.check() else { continue };
            let oldest = qp.sq.lock().pending.front().map(|request| request.wqe.position);
            // Those of a queue pair that has failed are flushed, and access nothing.
            if let Some(oldest) = oldest.filter(|_| !qp.state().flushes_sends()) {
                check.deregistered(key, oldest);
            }
        }
    }

    /// The program has opened the device.
    pub(crate) fn opened(self: &Arc<Context>) {
        let Some(checker) = &self.checker else { return };
        let unread = unread(self, "a context", "asynchronous event", |it| it.events.len());
        checker.made(Object::Context, self.id(), Some(unread));
    }

    /// The program has closed it.
    pub(crate) fn closed(self: &Arc<Context>) {
        self.gone(Object::Context, self.id());
    }

    /// The program has registered memory.
    pub(crate) fn registered(&self, region: &MrAttr) {
        if let Some((checker, bytes)) = self.exposed_by(region) {
            checker.expose(bytes);
        }
    }

    /// The program has deregistered it, or registers other memory in its place.
    pub(crate) fn deregistered(&self, region: &MrAttr) {
        if let Some((checker, bytes)) = self.exposed_by(region) {
            checker.conceal(bytes);
        }
    }

    /// The bytes that peers may write to by a region, and the checker, if the process is checked.
    fn exposed_by(&self, region: &MrAttr) -> Option<(&Checker, AddressRange)> {
        let checker = self.checker.as_deref()?;
        let start = region.addr as usize;
        let is_exposed = region.access & (REMOTE_WRITE | REMOTE_ATOMIC | MW_BIND) != 0;
        (is_exposed && region.length > 0)
            .then(|| (checker, (start, start.saturating_add(region.length as usize))))
    }

    fn id(self: &Arc<Context>) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }

    pub(crate) fn check_cq(&self, capacity: u32) -> Option<Arc<CqAccount>> {
        let checker = self.checker.as_ref()?;
        Some(Arc::new(CqAccount::new(checker, capacity)))
    }

    pub(crate) fn check_srq(&self, number: u32, xrc: Option<&XrcSrq>) -> Option<Arc<RecvAccount>> {
        let checker = self.checker.as_ref()?;
        let receives = RecvAccount::new(checker, format!("SRQ {number}"));
        if let Some(cq) = xrc.and_then(|xrc| xrc.cq.check.as_ref()) {
            receives.complete_at(cq);
        }
        Some(receives)
    }
}

/// Reports the events of an object that the program has not read.
fn unread<T: Send + Sync + 'static>(
    object: &Arc<T>,
    of: &'static str,
    what: &'static str,
    events: fn(&T) -> usize,
) -> Leftovers {
    let object = Arc::downgrade(object);
    Box::new(move || match object.upgrade().map_or(0, |object| events(&object)) {
        0 => Vec::new(),
        n => {
            let events = number(n as u64, what);
            vec![(ReportKind::Unread, format!("{of} is left with {events} not read"))]
        }
    })
}

impl CompChannel {
    /// The program has created it.
    pub(crate) fn made(self: &Arc<CompChannel>) {
        let Some(checker) = &self.context.checker else { return };
        let unread = unread(self, "a completion channel", "event", |it| it.events.len());
        checker.made(Object::Channel, Arc::as_ptr(self).addr() as u64, Some(unread));
    }

    /// The program has destroyed it.
    pub(crate) fn check_gone(&self) {
        self.context.gone(Object::Channel, core::ptr::from_ref(self).addr() as u64);
    }
}

impl Cq {
    /// The program has created it.
    pub(crate) fn made(self: &Arc<Cq>) {
        let (Some(checker), Some(check)) = (&self.context.checker, &self.check) else { return };
        let (cq, id) = (Arc::downgrade(self), check.number);
        let leftovers = move || cq.upgrade().map_or_else(Vec::new, |cq| cq.leftovers(id));
        let leftovers: Leftovers = Box::new(leftovers);
        checker.made(Object::CompletionQueue, id.into(), Some(leftovers));
    }

    /// The program has destroyed it.
    pub(crate) fn check_gone(&self) {
        if let Some(check) = &self.check {
            self.context.gone(Object::CompletionQueue, check.number.into());
        }
    }

    /// Reports of what the program has left undone.
    fn leftovers(&self, id: u32) -> Vec<(ReportKind, String)> {
        let mut all = Vec::new();
        if let n @ 1.. = self.unpolled() {
            all.push((
                ReportKind::Unpolled,
                format!("CQ {id} is left with {} not polled", number(n.into(), "completion")),
            ));
        }
        let unacknowledged = self.channel_acks.outstanding() + self.async_acks.outstanding();
        if unacknowledged > 0 {
            let events = number(unacknowledged.into(), "event");
            let text = format!("CQ {id} is left with {events} not acknowledged");
            let why = "its destruction would wait for ever";
            all.push((ReportKind::Unacknowledged, format!("{text}: {why}")));
        }
        all
    }

    /// The program destroys it, which waits for these.
    pub(crate) fn check_acknowledged(&self) {
        let (Some(checker), Some(check)) = (&self.context.checker, &self.check) else { return };
        if let n @ 1.. = self.channel_acks.outstanding() + self.async_acks.outstanding() {
            checker.report.say(ReportKind::Unacknowledged, || {
                let events = number(n.into(), "event");
                format!("ibv_destroy_cq of CQ {} waits: {events} not acknowledged", check.number)
            });
        }
    }
}

/// Buffers.
impl Device {
    /// Does something with the memory of the first `len` bytes of a list, if it is registered in
    /// the domain.
    fn look<R>(
        &self,
        pd: u32,
        sges: &[ibv_sge],
        len: u64,
        act: impl FnOnce(&[MemSpan<'_>]) -> R,
    ) -> Option<R> {
        let _look = quiescence::look();
        // SAFETY: it is borrowed here only, where what ends a key waits until the look is over.
        let mut room = unsafe { SpanBuf::new() };
        let mut spans = room.start();
        resolve(&self.mrs, pd, sges.iter().copied(), len, 0, &mut spans)?;
        Some(act(spans.as_slice()))
    }

    /// Takes the fingerprint of the first `len` bytes of a request's buffer; none if that is not
    /// registered.
    fn print(&self, posted: &PostedWr, len: usize) -> Option<Print> {
        self.look(posted.pd, &posted.sges, len as u64, |spans| print(spans, len))
    }

    /// Completes what is known of a request that is posted to this queue.
    fn posted(
        &self,
        checker: &Checker,
        queue: &str,
        mut posted: PostedWr,
        has_print: bool,
    ) -> PostedWr {
        let len = len_of(&posted.sges);
        let of = |spans: &[MemSpan<'_>]| {
            let claims = spans.iter().filter(|span| !is_zeroes(span)).map(|span| {
                let start = span.ptr().addr();
                (start, start + span.len())
            });
            let claims: Vec<AddressRange> = claims.collect();
            let is_shared = spans.iter().any(|span| span.is_shared());
            let is_private = !is_shared && !checker.is_exposed(&claims);
            let is_looked_at = has_print && (is_private || !posted.writes) && len > 0;
            (is_private, claims, is_looked_at.then(|| print(spans, len as usize)))
        };
        if let Some((is_private, claims, print)) = self.look(posted.pd, &posted.sges, len, of) {
            (posted.is_private, posted.claims) = (is_private, claims);
            posted.print = print.and_then(|print| readable(checker, queue, &posted, print));
        }
        posted
    }
}

/// Fingerprint of a buffer, if the system lets the checker look; or bytes of it that cannot be
/// read.
type Print = Result<Option<Fingerprint>, Range<usize>>;

/// A program may unmap or protect a buffer that is posted, and may do so during the look: the
/// kernel reads it, and says so.
fn print(spans: &[MemSpan<'_>], len: usize) -> Print {
    let read = |at: usize, to: &mut [u8]| {
        let mut skip = at;
        let from = spans.iter().map(|span| {
            let before = skip.min(span.len());
            skip -= before;
            span.behind(before)
        });
        // SAFETY: `to` is the checker's own; the kernel checks that the pieces are mapped.
        unsafe { on_demand::copy(&[MemSpan::from_slice(to)], from) }
    };
    match Fingerprint::compute(len, read) {
        Ok(print) => Ok(Some(print)),
        Err((bytes, Errno::FAULT)) => Err(bytes),
        Err((_, refused)) => {
            static SAID: OnceLock<()> = OnceLock::new();
            SAID.get_or_init(|| {
                write(&format!(
                    "buffers are not compared: process_vm_writev is refused: {refused}"
                ));
            });
            Ok(None)
        }
    }
}

/// The fingerprint of the buffer of a request; reports one that cannot be read.
fn readable(
    checker: &Checker,
    queue: &str,
    posted: &PostedWr,
    print: Print,
) -> Option<Fingerprint> {
    print.unwrap_or_else(|bytes| {
        checker.report.say(ReportKind::Unreadable, || {
            let PostedWr { operation, wr_id, .. } = posted;
            let at = posted.location(&bytes);
            format!(
                "the buffer of {operation} wr_id {wr_id:#x} on {queue} is not mapped, or protected, while \
                 it is posted: {at}: keep it mapped and readable until its completion was polled"
            )
        });
        None
    })
}

/// A receive request is posted.
///
/// # Safety
/// Its scatter list can be read.
pub(crate) unsafe fn check_receive(pd: &Pd, receives: &RecvAccount, wr: &ibv_recv_wr) {
    let sges = match wr.num_sge {
        // SAFETY: the caller's list.
        1.. => unsafe { core::slice::from_raw_parts(wr.sg_list, wr.num_sge as usize) },
        _ => &[],
    };
    let posted = PostedWr {
        wr_id: wr.wr_id,
        operation: "RECV",
        sges: sges.to_vec(),
        pd: pd.id,
        writes: true,
        ..PostedWr::default()
    };
    let device = &pd.context.device;
    receives.post(device.posted(&receives.checker, &receives.name, posted, true));
}

impl QpParts {
    /// Record of the queue pair that is made from this, if the process is checked; none of a
    /// handle.
    pub(crate) fn check(&self, number: u32) -> Option<Box<QpAccount>> {
        let is_handle = self.target.as_ref().is_some_and(|target| target.opened.is_some());
        let checker = self.pd.context.checker.as_ref().filter(|_| !is_handle)?;
        let is_xrc = matches!(self.transport, QpTransport::XrcSend | QpTransport::XrcRecv);
        let send_cq = self.send_cq.check.clone().filter(|_| self.transport != QpTransport::XrcRecv);
        let recv_cq = self.recv_cq.check.clone().filter(|_| !is_xrc);
        let shared = self.srq.as_ref().and_then(|srq| srq.check.clone());
        Some(Box::new(QpAccount::new(checker, number, [send_cq, recv_cq], shared)))
    }
}

/// Requests.
impl Qp {
    /// Record of the requests that are outstanding, if the process is checked.
    #[inline]
    pub(crate) fn check(&self) -> Option<&QpAccount> {
        if self.is_watched { self.check.as_deref() } else { None }
    }

    /// A request is posted to the send queue, whose lock is held.
    pub(crate) fn check_post(&self, request: &WqeRef<'_>) {
        let Some(check) = self.check() else { return };
        let wqe = request.wqe;
        let has_buffer = !wqe.inline && !wqe.op.is_local();
        let posted = PostedWr {
            wr_id: wqe.wr_id,
            operation: wqe.op.name(),
            position: wqe.position,
            sges: if has_buffer { request.sges.to_vec() } else { Vec::new() },
            len: request.len(),
            pd: self.pd.id,
            writes: wqe.op.is_response(),
            completes: wqe.signaled,
            ..PostedWr::default()
        };
        let has_print = !wqe.op.is_response();
        let device = &self.pd.context.device;
        check.post_send(device.posted(&check.checker, &check.name, posted, has_print));
    }

    /// A request is going to be executed, or was; it has no completion yet.
    #[inline]
    pub(crate) fn check_execution(&self, wqe: &Wqe) {
        if let Some(check) = self.check() {
            self.compare_before(check, wqe.position);
        }
    }

    #[cold]
    fn compare_before(&self, check: &QpAccount, position: u32) {
        check.with_send(position, |posted| {
            self.compare(check, posted, ReportKind::ChangedBeforeExecution);
        });
    }

    /// A packet with these bytes of the request of this position is sent again, and they were
    /// others before.
    #[cold]
    pub(crate) fn check_resent(&self, position: u32, bytes: Range<usize>) {
        let Some(check) = self.check() else { return };
        check.with_send(position, |posted| {
            if posted.print.is_none() {
                return;
            }
            let kind = ReportKind::ChangedBeforeResend;
            self.compare(check, posted, kind);
            // Otherwise they are again what they were when the request was posted.
            if posted.print.take().is_some() && !check.checker.is_contested(&posted.claims) {
                let (of, at) = (check.name_of(posted), posted.location(&bytes));
                let text = || format!("the buffer of {of} {}: {at}", what(kind));
                check.checker.report.say(kind, text);
            }
        });
    }

    /// Reports if the bytes that a request names have changed. (Where other requests write to them,
    /// that is known before they do.)
    pub(crate) fn compare(&self, check: &QpAccount, posted: &mut PostedWr, kind: ReportKind) {
        let Some(print) = &posted.print else { return };
        let checker = &check.checker;
        let Some(now) = self.pd.context.device.print(posted, print.len()) else {
            // A request that is still to be executed has a status that says so.
            if kind == ReportKind::ChangedBeforePoll || kind == ReportKind::ChangedAfterArrival {
                checker.report.say(ReportKind::Deregistered, || {
                    let of = check.name_of(posted);
                    format!("the buffer of {of} was deregistered before its completion was polled")
                });
            }
            return;
        };
        let Some(now) = readable(checker, &check.name, posted, now) else {
            posted.print = None;
            return;
        };
        let Some(bytes) = print.changed(&now) else { return };
        // Another thread may have registered them anew since they were posted.
        let is_exposed = || posted.writes && checker.is_exposed(&posted.claims);
        if !checker.is_contested(&posted.claims) && !is_exposed() {
            checker.report.say(kind, || {
                let of = check.name_of(posted);
                format!("the buffer of {of} {}: {}", what(kind), posted.location(&bytes))
            });
        }
        posted.print = None;
    }

    /// A message of `len` bytes has been put into a receive request's buffer.
    pub(crate) fn print_message(&self, posted: &mut PostedWr, len: u64) {
        if let Some(check) = self.check().filter(|_| posted.is_private && len > 0) {
            let print = self.pd.context.device.print(posted, len as usize);
            posted.print =
                print.and_then(|print| readable(&check.checker, &check.name, posted, print));
        }
    }

    /// A receive request is flushed; both of its queue's locks are held.
    pub(crate) fn check_flushed(&self) {
        if let Some(check) = self.check() {
            check.arrive(&check.receives, |posted| PostedWr { print: None, ..posted });
        }
    }

    /// The program has polled a completion, with the words of an `ibv_wc`; requests are done up to
    /// `freed` of the send queue.
    pub(crate) fn check_poll(&self, words: &[u64; 6], freed: u32) {
        let Some(check) = self.check() else { return };
        let (status, opcode) = (words[1] as u32, (words[1] >> 32) as u32);
        let is_success = status == ibv_wc_status::IBV_WC_SUCCESS.0;
        if opcode & ibv_wc_opcode::IBV_WC_RECV.0 != 0 {
            return check.retire_receive(words[0], |posted| {
                self.compare(check, posted, ReportKind::ChangedAfterArrival);
            });
        }
        check.retire_sends(freed, |posted| {
            if is_success {
                self.compare(check, posted, ReportKind::ChangedBeforePoll);
            }
        });
    }

    /// The queues are emptied; their locks are held.
    pub(crate) fn check_cleared(&self) {
        let Some(check) = self.check() else { return };
        if let n @ 1.. = check.clear() {
            check.checker.report.say(ReportKind::Unpolled, || {
                let messages = number(n as u64, "completion");
                format!("QP {:#x} goes with {messages} of receive requests not polled", self.num)
            });
        }
    }
}

/// Says in words what has happened to a buffer.
fn what(kind: ReportKind) -> &'static str {
    match kind {
        ReportKind::ChangedBeforeExecution => "was changed between its post and its execution",
        ReportKind::ChangedBeforeResend => "was changed before a packet of it was sent again",
        ReportKind::WrittenWhilePosted => "was written to while it was posted",
        ReportKind::ChangedAfterArrival => {
            "was changed between the arrival of its message and the poll of its completion"
        }
        _ => "was changed before its completion was polled",
    }
}
