//! A hand-written verbs loop, as in C: the baseline of all layers above.
//!
//! Two queue pairs of one device are connected to each other; one end sends messages of a fixed
//! size from a ring, the other polls, touches and reposts. The loop has raw pointers, prepared work
//! requests and counters, and no other bookkeeping. In two threads, the sender reads the receiver's
//! progress from a shared counter, which costs less than a credit on the wire.
//!
//! [`SharedMessages`] is the same for two processes that need no device at all.

mod config;
mod shared_memory;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use verbs_sys::{
    ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wc, ibv_wc_status, ibv_wr_opcode,
};

use crate::errno::Errno;
use crate::object::context::Context;
use crate::object::cq::{CompletionQueue, CqConfig};
use crate::queue::connect::{ConnectAttr, random_psn};
use crate::queue::qp::{QueuePair, QueuePairConfig, RecvSide};
use crate::raw_array::RawArray;
use crate::status::WcStatus;
use config::check;

pub use config::{RawLoopConfig, RawLoopError};
pub use shared_memory::{SharedMessages, SharedMessagesError};

/// A connected pair with its prepared work requests.
///
/// ```
/// use verbs_safe::baseline::{RawLoop, RawLoopConfig};
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let context = devices[0].open()?;
/// let mut raw = RawLoop::new(&context, RawLoopConfig::default())?;
/// let elapsed = raw.run(10_000)?;
/// println!("{:.1} ns a message", elapsed.as_nanos() as f64 / 10_000.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawLoop {
    sender: RawLoopSender,
    receiver: RawLoopReceiver,
    broken: bool,
}

impl RawLoop {
    /// Makes two queue pairs on `context` and connects them.
    ///
    /// # Errors
    /// [`RawLoopError`] names the step that failed.
    pub fn new(context: &Context, config: RawLoopConfig) -> Result<RawLoop, RawLoopError> {
        check(&config)?;
        let pd = context.alloc_pd()?;
        let gid = context.choose_gid(1, None)?;
        let cq = |entries| context.create_cq(CqConfig::new(entries));
        let (send_cq, recv_cq) = (cq(config.unacked)?, cq(config.slots)?);
        let (idle_send, idle_recv) = (cq(1)?, cq(1)?);
        let max_inline = if config.inline { config.size } else { 0 };
        let bytes = config.size as usize;
        let a = pd.create_qp(
            &QueuePairConfig {
                max_send_wr: config.unacked,
                send_slots: config.unacked,
                send_slot_bytes: bytes,
                max_inline,
                ..QueuePairConfig::new(&send_cq, &idle_recv)
            },
            (),
        )?;
        let b = pd.create_qp(
            &QueuePairConfig {
                max_send_wr: 1,
                send_slots: 0,
                recv: RecvSide::Own { slots: config.slots, slot_bytes: bytes },
                ..QueuePairConfig::new(&idle_send, &recv_cq)
            },
            (),
        )?;
        let (psn_a, psn_b) = (random_psn(), random_psn());
        let (end_a, end_b) =
            (a.control.endpoint(1, gid, psn_a)?, b.control.endpoint(1, gid, psn_b)?);
        let attr = |psn| ConnectAttr::new(u8::try_from(gid.index).unwrap_or(u8::MAX), psn);
        b.control.connect(&end_a, &attr(psn_b))?;
        a.control.connect(&end_b, &attr(psn_a))?;
        let mut receiver = RawLoopReceiver::new(b, recv_cq, config);
        receiver.repost_all()?;
        Ok(RawLoop { sender: RawLoopSender::new(a, send_cq, config), receiver, broken: false })
    }

    /// Returns the count of all messages that have arrived.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.receiver.received
    }

    /// Moves `messages` messages in this thread; returns how long that took.
    ///
    /// # Errors
    /// [`RawLoopError`]; the loop cannot run again after one.
    pub fn run(&mut self, messages: u64) -> Result<Duration, RawLoopError> {
        self.guarded(|sender, receiver| {
            let (sent, received) = (sender.sent + messages, receiver.received + messages);
            while receiver.received < received || sender.acked < sent {
                sender.progress(sent, receiver.received)?;
                receiver.progress()?;
            }
            Ok(())
        })
    }

    /// As [`run`](Self::run), with the receiver in a thread of its own.
    ///
    /// # Errors
    /// [`RawLoopError`]; the loop cannot run again after one.
    pub fn run_two_threads(&mut self, messages: u64) -> Result<Duration, RawLoopError> {
        self.guarded(|sender, receiver| {
            let (sent, received) = (sender.sent + messages, receiver.received + messages);
            let (reached, stop) = (&AtomicU64::new(receiver.received), &AtomicBool::new(false));
            host::thread::scope(|scope| {
                let receiving =
                    scope.spawn(move || receiver.receive_until(received, reached, stop));
                let receiving = receiving.map_err(RawLoopError::Thread)?;
                let outcome = sender.send_until(sent, reached);
                // Relaxed: nothing but the flag is handed over.
                stop.store(outcome.is_err(), Ordering::Relaxed);
                let received = receiving.join();
                outcome?;
                received.unwrap_or(Err(RawLoopError::Config("the receiving thread panicked")))
            })
        })
    }

    fn guarded(
        &mut self,
        body: impl FnOnce(&mut RawLoopSender, &mut RawLoopReceiver) -> Result<(), RawLoopError>,
    ) -> Result<Duration, RawLoopError> {
        if std::mem::replace(&mut self.broken, true) {
            return Err(RawLoopError::Config("the loop failed before"));
        }
        let start = host::time::now();
        body(&mut self.sender, &mut self.receiver)?;
        self.broken = false;
        Ok(host::time::since(start))
    }
}

struct RawLoopSender {
    qp: QueuePair,
    cq: CompletionQueue,
    config: RawLoopConfig,
    work: RawArray<ibv_send_wr>,
    /// Scatter/gather entries that `work` points into.
    _entries: RawArray<ibv_sge>,
    wcs: Box<[ibv_wc]>,
    sent: u64,
    acked: u64,
    /// The request that is posted next: `sent` modulo `unacked`.
    place: usize,
}

impl RawLoopSender {
    fn new(qp: QueuePair, cq: CompletionQueue, config: RawLoopConfig) -> RawLoopSender {
        let memory = qp.send.ring();
        let entries =
            RawArray::new((0..config.unacked).map(|i| memory.sge(i, config.size)).collect());
        let inline = config.size <= qp.send.max_inline() && config.size > 0;
        let send_flags = if inline { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 };
        let request = |i: u32| ibv_send_wr {
            sg_list: entries.at(i as usize),
            num_sge: i32::from(config.size > 0),
            opcode: ibv_wr_opcode::IBV_WR_SEND,
            send_flags,
            ..ibv_send_wr::default()
        };
        let work = RawArray::new((0..config.unacked).map(request).collect());
        let wcs = vec![ibv_wc::default(); config.poll_batch as usize].into();
        RawLoopSender { qp, cq, config, work, _entries: entries, wcs, sent: 0, acked: 0, place: 0 }
    }

    fn send_until(&mut self, sent: u64, reached: &AtomicU64) -> Result<(), RawLoopError> {
        let mut received = self.received(reached)?;
        while self.acked < sent {
            if !self.progress(sent, received)? {
                received = self.received(reached)?;
            }
        }
        Ok(())
    }

    fn received(&self, reached: &AtomicU64) -> Result<u64, RawLoopError> {
        // Acquire: the receives that are counted are posted again.
        match reached.load(Ordering::Acquire) {
            BROKEN => Err(RawLoopError::Config("the receiving thread gave up")),
            received => Ok(received),
        }
    }

    /// Sends one list if there is room, and takes completions. Whether a list was
    /// sent.
    #[inline]
    fn progress(&mut self, end: u64, received: u64) -> Result<bool, RawLoopError> {
        let left = end - self.sent;
        let count = left.min(self.config.batch.into());
        let unacked = self.sent + count - self.acked <= self.config.unacked.into();
        // Receives are reposted in batches: up to a batch of them may be missing.
        let free = u64::from(self.config.slots - self.config.repost_batch + 1);
        let goes = count > 0 && unacked && self.sent + count - received <= free;
        if goes {
            self.post(count, end)?;
        }
        self.poll()?;
        Ok(goes)
    }

    #[inline]
    fn post(&mut self, count: u64, end: u64) -> Result<(), RawLoopError> {
        let first = self.work.at(self.place);
        let mut last = first;
        for i in 0..count {
            let work = self.work.at(self.place);
            self.sent += 1;
            self.place =
                if self.place + 1 == self.config.unacked as usize { 0 } else { self.place + 1 };
            let signalled =
                self.sent.is_multiple_of(self.config.signal_every.into()) || self.sent == end;
            let bit = ibv_send_flags::IBV_SEND_SIGNALED.0;
            // SAFETY: the device is done with the request (at most `unacked` are in flight) and
            // with its slot of `size` bytes.
            unsafe {
                (*work).wr_id = self.sent;
                (*work).send_flags = (*work).send_flags & !bit | if signalled { bit } else { 0 };
                (*work).next = self.work.at(self.place);
                if self.config.size >= 8 {
                    ((*(*work).sg_list).addr as *mut u64).write(self.sent);
                }
            }
            last = if i + 1 == count { work } else { last };
        }
        let mut bad = null_mut();
        // SAFETY: the requests of the list are valid; the queue pair holds their memory.
        let result = unsafe {
            (*last).next = null_mut();
            ibv_post_send(self.qp.send.raw(), first, &mut bad)
        };
        check_verb("posting sends", result)
    }

    #[inline]
    fn poll(&mut self) -> Result<(), RawLoopError> {
        let n = poll(&self.cq, &mut self.wcs)?;
        for wc in &self.wcs[..n] {
            succeeded(wc)?;
            self.acked = wc.wr_id;
        }
        Ok(())
    }
}

struct RawLoopReceiver {
    qp: QueuePair,
    cq: CompletionQueue,
    config: RawLoopConfig,
    work: RawArray<ibv_recv_wr>,
    /// Scatter/gather entries that `work` points into.
    _entries: RawArray<ibv_sge>,
    wcs: Box<[ibv_wc]>,
    first: *mut ibv_recv_wr,
    last: *mut ibv_recv_wr,
    /// Requests between `first` and `last`, to be posted again.
    gathered: u32,
    received: u64,
    sum: u64,
}

// SAFETY: the pointers point into arrays and memory that the value owns.
unsafe impl Send for RawLoopReceiver {}

/// Count that the receiver publishes when it has given up.
const BROKEN: u64 = u64::MAX;

impl RawLoopReceiver {
    fn new(qp: QueuePair, cq: CompletionQueue, config: RawLoopConfig) -> RawLoopReceiver {
        let recv = qp.recv.as_ref().map(|r| r.pool().memory().clone());
        let slots = 0..recv.as_ref().map_or(0, |_| config.slots);
        let entry = |i| recv.as_ref().map_or(ibv_sge::default(), |m| m.sge(i, config.size));
        let entries = RawArray::new(slots.clone().map(entry).collect());
        let request = |i: u32| ibv_recv_wr {
            wr_id: i.into(),
            next: null_mut(),
            sg_list: entries.at(i as usize),
            num_sge: i32::from(config.size > 0),
        };
        let work = RawArray::new(slots.map(request).collect());
        let wcs = vec![ibv_wc::default(); config.poll_batch as usize].into();
        let (first, last) = (null_mut(), null_mut());
        let _entries = entries;
        RawLoopReceiver {
            qp,
            cq,
            config,
            work,
            _entries,
            wcs,
            first,
            last,
            gathered: 0,
            received: 0,
            sum: 0,
        }
    }

    fn receive_until(
        &mut self,
        end: u64,
        reached: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<(), RawLoopError> {
        while self.received < end && !stop.load(Ordering::Relaxed) {
            let before = self.received;
            if let Err(error) = self.progress() {
                reached.store(BROKEN, Ordering::Release);
                return Err(error);
            }
            if self.received != before {
                // Release: the receives that are counted are posted again.
                reached.store(self.received, Ordering::Release);
                host::point();
            }
        }
        Ok(())
    }

    /// Takes completions, touches the messages, and reposts gathered receives.
    #[inline]
    fn progress(&mut self) -> Result<(), RawLoopError> {
        let n = poll(&self.cq, &mut self.wcs)?;
        for i in 0..n {
            let slot = self.wcs[i].wr_id as usize;
            succeeded(&self.wcs[i])?;
            let work = self.work.at(slot);
            if self.config.size >= 8 {
                // SAFETY: the device is done with the slot, which is `size` bytes long.
                let word = unsafe { ((*(*work).sg_list).addr as *const u64).read() };
                self.sum = self.sum.wrapping_add(word);
            }
            self.received += 1;
            self.gather(work);
            if self.gathered == self.config.repost_batch {
                self.repost()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn gather(&mut self, work: *mut ibv_recv_wr) {
        if self.gathered == 0 {
            self.first = work;
        } else {
            // SAFETY: `self.last` is a request of `self.work`, and not posted yet.
            unsafe { (*self.last).next = work };
        }
        self.last = work;
        self.gathered += 1;
    }

    #[inline]
    fn repost(&mut self) -> Result<(), RawLoopError> {
        let mut bad = null_mut();
        self.gathered = 0;
        // SAFETY: the requests of the list are valid; the queue pair holds their memory.
        let result = unsafe {
            (*self.last).next = null_mut();
            ibv_post_recv(self.qp.send.raw(), self.first, &mut bad)
        };
        check_verb("posting receives", result)
    }

    fn repost_all(&mut self) -> Result<(), RawLoopError> {
        (0..self.config.slots as usize).for_each(|slot| self.gather(self.work.at(slot)));
        self.repost()
    }
}

#[inline]
fn poll(cq: &CompletionQueue, wcs: &mut [ibv_wc]) -> Result<usize, RawLoopError> {
    // SAFETY: `cq` keeps the queue alive; `wcs` has room for `wcs.len()` completions.
    let n = unsafe { ibv_poll_cq(cq.inner.raw.as_ptr(), wcs.len() as i32, wcs.as_mut_ptr()) };
    if n < 0 {
        return Err(RawLoopError::Verb { verb: "polling", errno: Errno::from_result(n) });
    }
    Ok(n as usize)
}

#[inline]
fn check_verb(verb: &'static str, result: i32) -> Result<(), RawLoopError> {
    Errno::check(result).map_err(|errno| RawLoopError::Verb { verb, errno })
}

#[inline]
fn succeeded(wc: &ibv_wc) -> Result<(), RawLoopError> {
    match wc.status {
        ibv_wc_status::IBV_WC_SUCCESS => Ok(()),
        status => Err(RawLoopError::Completion(WcStatus::from_raw(status))),
    }
}
