//! Several threads that receive from one ring.

mod transfers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use host::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use conn_core::ring::RecordError;
use verbs_safe::{Claim, ClaimedBytes, Claims, SharedLandingRing};

use super::{Receiver, recv_until};
use crate::buffered_read::link::{BufferedReadLink, ReceiverStats};
use crate::common::Common;
use crate::error::{CloseReason, ProtocolError, RecvError};
use crate::half::{RecvHalf, received_message};
use crate::peer::Peer;
use crate::wait::{Deadline, Idle, WaitStep, WaitStrategy};

pub use transfers::Transfers;

/// A receiving half that several threads use at once: by reference, or each by a clone.
///
/// Each thread claims the next message with one compare-and-swap, so each message goes to one of
/// them. A claimed message can be freed at any time and on any thread. The messages of one thread
/// come in the order of sending.
///
/// One of the threads that found nothing to claim drives the device for all of them: it posts READs
/// and writes heads. Alternatively, a dedicated thread does
/// ([`spawn_transfers`](SharedReceiver::spawn_transfers)). No thread waits for one that has claimed
/// a message: only the sender may, when the ring is full and that message is the oldest in it.
///
/// Every receiving thread gets the end, or the failure, of the connection, in each call, behind the
/// last message that had arrived.
///
/// ```
/// use rdma_conn::buffered_read::Config;
/// use rdma_conn::{BufferedRead, RecvHalf, SendHalf, pair};
/// use rdma_conn::send_recv::RecvError;
///
/// let device = rdma_conn::device::soft()?;
/// let (mut a, b) = pair::<BufferedRead>(&device, &device, &Config::default())?;
/// let receiver = b.receiver.into_shared().expect("nothing was received yet");
/// let workers = [(); 3].map(|()| {
///     let receiver = receiver.clone();
///     std::thread::spawn(move || {
///         let mut sum = 0;
///         while let Ok(message) = receiver.recv() {
///             sum += u32::from(message[0]);
///         }
///         sum
///     })
/// });
/// for number in 0..100_u8 {
///     a.sender.send(&[number])?;
/// }
/// a.sender.close()?;
/// let sums = workers.map(|worker| worker.join().unwrap_or(0));
/// assert_eq!(sums.iter().sum::<u32>(), 99 * 100 / 2);
/// assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedReceiver {
    inner: Arc<SharedReceiverInner>,
}

#[derive(Debug)]
struct SharedReceiverInner {
    claims: Claims,
    /// Drives the device: the thread that holds the lock does so for all.
    link: Mutex<BufferedReadLink<SharedLandingRing>>,
    /// Reason why nothing lands any more.
    ended: OnceLock<CloseReason>,
    /// True if a thread of its own drives the device.
    has_transfers: AtomicBool,
    /// The sender's answer to the end is not waited for.
    is_abandoned: AtomicBool,
    peer: Peer,
    common: Common,
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// A message that one of several threads has received: derefs to its bytes, which stay in the
/// receiver's ring.
///
/// Dropping it frees them, on any thread and in any order; the sender gets their room back when all
/// earlier messages are free, too. It may outlive its receiver.
#[derive(Debug)]
pub struct SharedMessage {
    bytes: ClaimedBytes,
    peer: Peer,
}

received_message!(SharedMessage, |message| &message.bytes);

impl Receiver {
    /// Gives the half to several threads.
    ///
    /// # Errors
    /// The receiver itself, where messages were received already, or there is not just one
    /// sender.
    // The error is the receiver itself, unchanged.
    #[allow(clippy::result_large_err)]
    pub fn into_shared(mut self) -> Result<SharedReceiver, Receiver> {
        if self.peers() != 1 || !self.leaving.is_empty() {
            return Err(self);
        }
        let Some(place) = self.links.iter_mut().find(|place| place.is_some()) else {
            return Err(self);
        };
        match place.take().map(|link| link.share()) {
            Some(Ok((link, claims))) => Ok(self.shared(link, claims)),
            Some(Err(link)) => {
                *place = Some(Box::new(link));
                Err(self)
            }
            None => Err(self),
        }
    }

    fn shared(&self, link: BufferedReadLink<SharedLandingRing>, claims: Claims) -> SharedReceiver {
        let inner = SharedReceiverInner {
            claims,
            peer: link.peer,
            ended: OnceLock::new(),
            link: Mutex::new(link),
            has_transfers: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            common: self.common,
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        SharedReceiver { inner: Arc::new(inner) }
    }
}

/// Receiving.
impl SharedReceiver {
    /// The next message if there is one; never waits.
    ///
    /// # Errors
    /// [`RecvError::Empty`] when there is none now, or as many are held as
    /// [`max_held`](crate::buffered_read::Config::max_held) permits; [`RecvError::Closed`]
    /// when there never will be; [`RecvError::Peer`] when the connection has failed.
    pub fn try_recv(&self) -> Result<SharedMessage, RecvError> {
        let bytes = self.inner.obtain(Claims::take)?;
        self.inner.count(1, bytes.len());
        Ok(SharedMessage { bytes, peer: self.inner.peer })
    }

    /// Receives the messages that have arrived, up to 256, and returns their number: `each` is
    /// shown the peer that sent a message, and its bytes, and the message is free when `each`
    /// returns or panics. It costs less than [`try_recv`](SharedReceiver::try_recv).
    ///
    /// # Errors
    /// As [`try_recv`](SharedReceiver::try_recv).
    pub fn try_recv_each(&self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        const MOST: usize = 256;
        let (peer, mut bytes) = (self.inner.peer, 0);
        let mut show = |message: &[u8]| {
            bytes += message.len();
            each(peer, message);
        };
        self.inner.obtain(|claims| claims.show(&mut show))?;
        let mut count = 1;
        // The next call reports a malformed record.
        while count < MOST && matches!(self.inner.claims.show(&mut show), Ok(Claim::Bytes(()))) {
            count += 1;
        }
        self.inner.count(count, bytes);
        Ok(count)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// As [`try_recv`](SharedReceiver::try_recv), without `Empty`.
    pub fn recv(&self) -> Result<SharedMessage, RecvError> {
        self.recv_until(Deadline::NEVER)
    }

    /// Waits for the next message, for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<SharedMessage, RecvError> {
        self.recv_until(Deadline::after(timeout))
    }

    fn recv_until(&self, deadline: Deadline) -> Result<SharedMessage, RecvError> {
        let first = self.try_recv();
        if !matches!(first, Err(RecvError::Empty)) {
            return first;
        }
        let Common { wait, keepalive, .. } = self.inner.common;
        let idle = Idle::new(wait, deadline, keepalive);
        let sleep = |me: &mut &Self, time, idle: &mut Idle| {
            me.inner.with_link_if_free(BufferedReadLink::tell_all);
            host::time::sleep(idle.short_sleep(time));
            Ok(())
        };
        recv_until(&mut &*self, idle, |me| me.try_recv(), sleep)
    }

    /// Tells the sender that this end stops receiving, for all threads: their calls return
    /// [`RecvError::Closed`] behind the messages that have arrived. Messages that have not
    /// arrived are lost: receive until [`RecvError::Closed`] first.
    pub fn close(self) {
        self.inner.end();
    }

    /// As [`close`](SharedReceiver::close), at once: the last thread to drop its receiver does not
    /// wait for the sender. If STOP does not arrive, the sender reports this end as lost.
    pub fn abort(self) {
        // Relaxed: dropping the last reference synchronises with the drops of all others.
        self.inner.is_abandoned.store(true, Ordering::Relaxed);
        self.inner.end();
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats {
            // Relaxed: they count, and guard nothing.
            messages: self.inner.messages.load(Ordering::Relaxed),
            bytes: self.inner.bytes.load(Ordering::Relaxed),
            ..self.inner.lock().work()
        }
    }

    /// Bytes of the ring that is registered to receive into.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.inner.lock().registered_bytes()
    }
}

impl SharedReceiverInner {
    fn end(&self) {
        self.lock().stop();
        // A receiver that has already ended keeps its reason.
        let _ = self.ended.set(CloseReason::Closed);
    }

    fn lock(&self) -> MutexGuard<'_, BufferedReadLink<SharedLandingRing>> {
        self.link.lock()
    }

    fn with_link_if_free(&self, act: impl FnOnce(&mut BufferedReadLink<SharedLandingRing>)) {
        // A thread that holds the lock drives for all.
        if let Some(mut link) = self.link.try_lock() {
            act(&mut link);
        }
    }

    /// A claim; if there is nothing, after a look at the device.
    #[inline]
    fn obtain<T>(
        &self,
        mut claim: impl FnMut(&Claims) -> Result<Claim<T>, RecordError>,
    ) -> Result<T, RecvError> {
        match claim(&self.claims) {
            Ok(Claim::Bytes(message)) => Ok(message),
            _ => self.obtain_after_look(claim),
        }
    }

    #[cold]
    fn obtain_after_look<T>(
        &self,
        mut claim: impl FnMut(&Claims) -> Result<Claim<T>, RecordError>,
    ) -> Result<T, RecvError> {
        // Relaxed: where that thread has just ended, the next call looks.
        if !self.has_transfers.load(Ordering::Relaxed) {
            self.with_link_if_free(|link| self.drive(link));
        }
        // Loaded before the claim: nothing lands after the end.
        let ended = self.ended.get();
        match claim(&self.claims) {
            Ok(Claim::Bytes(message)) => Ok(message),
            Ok(Claim::TooMany) => Err(RecvError::Empty),
            Ok(Claim::Nothing) => Err(ended.map_or(RecvError::Empty, |why| self.over(why))),
            Err(e) => Err(self.broken(e)),
        }
    }

    /// Posts the next READs, and tells the sender the head that is due.
    fn drive(&self, link: &mut BufferedReadLink<SharedLandingRing>) {
        link.drive();
        // Also after the end: frees make room for further claims when the maximum of messages is
        // held.
        link.take_in_frees();
        if let Some(ended) = link.end_of_landing() {
            let _ = self.ended.set(ended); // the first reason is kept
        }
    }

    fn over(&self, reason: &CloseReason) -> RecvError {
        match reason {
            CloseReason::Closed => RecvError::Closed,
            reason => RecvError::Peer { peer: self.peer, reason: reason.clone() },
        }
    }

    /// Ends the receiver: the next bytes are no record. All threads get the same reason.
    #[cold]
    fn broken(&self, e: RecordError) -> RecvError {
        let (mut link, broken) = (self.lock(), CloseReason::Protocol(ProtocolError::Record(e)));
        link.fail(broken.clone());
        // The sender may have said goodbye and left before a thread claimed the record.
        let ended = match link.failure() {
            Some(CloseReason::Closed) | None => broken,
            Some(first) => first.clone(),
        };
        let _ = self.ended.set(ended.clone()); // the first reason is kept
        self.over(&ended)
    }

    #[inline]
    fn count(&self, messages: usize, bytes: usize) {
        // Relaxed: they count, and guard nothing.
        self.messages.fetch_add(messages as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for SharedReceiverInner {
    fn drop(&mut self) {
        let link = self.link.get_mut();
        link.stop();
        let is_abandoned = *self.is_abandoned.get_mut();
        let linger = if is_abandoned { Duration::ZERO } else { self.common.linger };
        let deadline = Deadline::after(linger);
        let mut idle = Idle::new(WaitStrategy::Spin, deadline, linger);
        while !link.is_quiet() && idle.step() != WaitStep::TimedOut {}
    }
}
