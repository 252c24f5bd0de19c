//! Making queue pairs.

mod inner;

use std::ptr::null_mut;
use std::sync::Arc;

use verbs_sys::{ibv_qp_cap, ibv_qp_init_attr};

use crate::errno::Errno;
use crate::error::{CqRole, CreateQpError};
use crate::object::context::{Context, ContextInner, ProtectionDomain};
use crate::object::cq::{CompletionQueue, Reservation};
use crate::object::pointer::ObjectPtr;
use crate::queue::control::QpControl;
use crate::queue::pinned::PinnedRefs;
use crate::queue::pool::{Excess, Front, PoolMemory, RecvPool, Recycle, within};
use crate::queue::recv::{RecvQueue, RecvTarget};
use crate::queue::send::{MAX_REQUESTS, SendLimits, SendQueue, SendRing};
use crate::queue::srq::SharedReceiveQueue;
use crate::region::shared::RemoteAccess;
use crate::transport::Transport;
use inner::Uses;

pub(crate) use inner::QpInner;

/// Place that a queue pair's messages land in.
#[derive(Debug, Clone, Copy)]
pub enum RecvSide<'a> {
    /// In a pool of its own.
    Own {
        /// Buffers, and receives that can be posted.
        slots: u32,
        /// Bytes of a buffer. Where messages are datagrams, each buffer has room for a
        /// route header besides.
        slot_bytes: usize,
    },
    /// In the pool of a shared receive queue ([`RecvQueue::shared`]): one made for
    /// datagrams for a datagram queue pair, one that was not for all others.
    Shared(&'a SharedReceiveQueue),
    /// Nowhere: the queue pair receives nothing, unless it has a shared queue.
    None,
}

/// Parameters of a queue pair. Begin with [`new`](Self::new), and change single fields.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairConfig<'a> {
    /// Completion queue of its sends. Room for `max_send_wr` completions is reserved in it.
    pub send_cq: &'a CompletionQueue,
    /// Completion queue of its receives. Room for all receives is reserved in it.
    pub recv_cq: &'a CompletionQueue,
    /// Its service.
    pub transport: Transport,
    /// The port that it uses, from 1.
    pub port: u8,
    /// Access that the peer has through it.
    pub access: RemoteAccess,
    /// Requests that can be staged and in flight.
    pub max_send_wr: u32,
    /// Buffers of the send ring, for requests that carry bytes.
    pub send_slots: u32,
    /// Bytes of a buffer of the send ring.
    pub send_slot_bytes: usize,
    /// Longest message to send inline; the device may grant less ([`SendQueue::max_inline`]).
    pub max_inline: u32,
    /// Pieces that a request can be put together from
    /// ([`SendQueue::post_inline_parts`](crate::SendQueue::post_inline_parts)): 1 or 2.
    pub max_parts: u32,
    /// Buffers that messages land in.
    pub recv: RecvSide<'a>,
    /// True if every send is signalled, regardless of its flags.
    pub sq_sig_all: bool,
}

impl<'a> QueuePairConfig<'a> {
    /// Reliable connection, port 1, no remote access, 128 sends with as many slots of 4 KiB, no
    /// inline, no receives.
    #[must_use]
    pub fn new(send_cq: &'a CompletionQueue, recv_cq: &'a CompletionQueue) -> QueuePairConfig<'a> {
        QueuePairConfig {
            send_cq,
            recv_cq,
            transport: Transport::Rc,
            port: 1,
            access: RemoteAccess::NONE,
            max_send_wr: 128,
            send_slots: 128,
            send_slot_bytes: 4096,
            max_inline: 0,
            max_parts: 1,
            recv: RecvSide::None,
            sq_sig_all: false,
        }
    }

    fn check(&self) -> Result<(), Excess> {
        within("the number of sends", self.max_send_wr.into(), MAX_REQUESTS)?;
        // The send ring obeys the limits of a pool.
        PoolMemory::check(self.send_slots, self.send_slot_bytes)?;
        match self.recv {
            RecvSide::Own { slots, slot_bytes } => PoolMemory::check(slots, slot_bytes),
            _ => Ok(()),
        }
    }

    fn check_contexts(&self, context: &Arc<ContextInner>) -> Result<(), CreateQpError> {
        let mut parts = vec![
            ("send completion queue", &self.send_cq.inner.context),
            ("receive completion queue", &self.recv_cq.inner.context),
        ];
        if let RecvSide::Shared(srq) = self.recv {
            parts.push(("shared receive queue", &srq.inner.pd.context));
        }
        match parts.iter().find(|(_, other)| !Arc::ptr_eq(other, context)) {
            Some((what, _)) => Err(CreateQpError::OtherContext { what }),
            None => Ok(()),
        }
    }

    /// The message's place in a buffer depends on the transport of the queue pair that
    /// takes the buffer.
    fn check_pool(&self) -> Result<(), CreateQpError> {
        let transport = self.transport;
        match self.recv {
            RecvSide::Shared(srq) if srq.is_datagram() != transport.is_datagram() => {
                Err(CreateQpError::OtherPool { transport })
            }
            _ => Ok(()),
        }
    }

    /// Returns the limits of the send queue.
    fn send_limits(&self, context: &Context, max_inline: u32) -> Result<SendLimits, CreateQpError> {
        let to_its_peer = self.transport.to_its_peer();
        let max_datagram = match self.transport {
            Transport::Ud { .. } => context.port(self.port)?.active_mtu.bytes(),
            Transport::Rc | Transport::Uc => 0,
        };
        let (depth, max_parts) = (self.max_send_wr, self.max_parts);
        Ok(SendLimits { depth, max_inline, max_parts, to_its_peer, max_datagram })
    }
}

/// The parts of a queue pair. Each can go its own way, to its own thread; the queue
/// pair is destroyed when all of them are gone.
///
/// ```
/// # let devices = verbs_safe::devices(soft_rnic::table())?;
/// # let context = devices[0].open()?;
/// # let pd = context.alloc_pd()?;
/// use verbs_safe::{CqConfig, QueuePairConfig, RecvSide};
/// let cq = context.create_cq(CqConfig::new(256))?;
/// let config = QueuePairConfig {
///     max_inline: 64,
///     recv: RecvSide::Own { slots: 64, slot_bytes: 4096 },
///     ..QueuePairConfig::new(&cq, &cq)
/// };
/// let mut qp = pd.create_qp(&config, ())?;
/// qp.recv.as_mut().expect("asked for").post(&[0, 1, 2])?;
/// let slot = qp.send.next_slot().expect("all are free");
/// slot[..5].copy_from_slice(b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct QueuePair<R: Recycle = ()> {
    /// State and attributes.
    pub control: QpControl,
    /// The send queue with its ring of buffers.
    pub send: SendQueue,
    /// The receive queue with its pool, where [`RecvSide::Own`] was asked for.
    pub recv: Option<RecvQueue<R>>,
}

impl ProtectionDomain {
    /// A queue pair, in INIT: receives can be posted. `recycler` is notified of the slots
    /// that return to the pool ([`RecvSide::Own`] only; `()` ignores them).
    /// [`QpControl::connect`] makes it ready, or, for datagrams, [`QpControl::activate`].
    ///
    /// # Errors
    /// [`CreateQpError`], as where the device does not offer the transport; nothing is
    /// left behind.
    pub fn create_qp<R: Recycle>(
        &self,
        config: &QueuePairConfig<'_>,
        recycler: R,
    ) -> Result<QueuePair<R>, CreateQpError> {
        let too_large = |(what, value, max)| CreateQpError::TooLarge { what, value, max };
        config.check().map_err(too_large)?;
        config.check_contexts(&self.inner.context)?;
        config.check_pool()?;
        let (slots, slot_bytes) = (config.send_slots, config.send_slot_bytes);
        let ring = Arc::new(SendRing::new(self, slots, slot_bytes, Front::Nothing)?);
        let pool = self.own_pool(config, recycler)?;
        let uses = self.uses(config, ring.clone(), pool.as_ref().map(|p| p.memory().clone()))?;
        let (inner, inline) = create(uses, config)?;
        let inner = Arc::new(inner);
        let control = QpControl::new(inner.clone());
        control.to_init(config.port, config.access)?;
        let limits = config.send_limits(&self.context(), inline)?;
        let send = SendQueue::new(inner.clone(), ring, limits)?;
        let recv = pool.map(|pool| RecvQueue::new(RecvTarget::Qp(inner), pool)).transpose()?;
        Ok(QueuePair { control, send, recv })
    }

    fn own_pool<R: Recycle>(
        &self,
        config: &QueuePairConfig<'_>,
        recycler: R,
    ) -> Result<Option<RecvPool<R>>, CreateQpError> {
        let RecvSide::Own { slots, slot_bytes } = config.recv else { return Ok(None) };
        let front = Front::for_transport(config.transport);
        let memory = Arc::new(PoolMemory::new(self, slots, slot_bytes, front)?);
        RecvPool::new(memory, recycler).map(Some)
    }

    /// Reserves room for its completions, and collects the objects that it uses.
    fn uses(
        &self,
        config: &QueuePairConfig<'_>,
        ring: Arc<SendRing>,
        pool: Option<Arc<PoolMemory>>,
    ) -> Result<Uses, CreateQpError> {
        let too_small = |role| move |source| CreateQpError::CqTooSmall { role, source };
        let (receives, srq) = match config.recv {
            RecvSide::Own { slots, .. } => (slots, None),
            RecvSide::Shared(srq) => (srq.slots(), Some(srq)),
            RecvSide::None => (0, None),
        };
        let send_cq = Reservation::new(&config.send_cq.inner, config.max_send_wr, None)
            .map_err(too_small(CqRole::Send))?;
        let recv_cq = Reservation::new(&config.recv_cq.inner, receives, srq.map(|s| s.id()))
            .map_err(too_small(CqRole::Recv))?;
        let srq = srq.map(|s| s.inner.clone());
        let (pinned, pd, tag) = (PinnedRefs::default(), self.inner.clone(), Arc::default());
        Ok(Uses {
            tag,
            _ring: ring,
            _pool: pool,
            _srq: srq,
            send_cq,
            _recv_cq: recv_cq,
            pinned,
            pd,
        })
    }
}

/// Creates the queue pair; returns it with the granted inline length. No verb reports the device's
/// limit, so each refusal halves the request.
fn create(uses: Uses, config: &QueuePairConfig<'_>) -> Result<(QpInner, u32), CreateQpError> {
    let mut inline = config.max_inline;
    loop {
        let mut init = init_attr(config, inline);
        init.qp_context = Arc::as_ptr(&uses.tag).cast_mut().cast();
        let pd = &uses.pd;
        // SAFETY: the domain, the completion queues and the shared receive queue are
        // alive, belong to one context, and are held by `uses`.
        let raw = unsafe { (pd.context.table.create_qp)(pd.raw.as_ptr(), &mut init) };
        let errno = match ObjectPtr::new(raw) {
            Ok(raw) => {
                let granted = init.cap.max_inline_data.min(config.max_inline);
                // SAFETY: the queue pair was just made of the objects that `uses` holds.
                return Ok((unsafe { QpInner::new(raw, config.transport, uses) }, granted));
            }
            Err(errno) => errno,
        };
        if inline == 0 || !matches!(errno, Errno::EINVAL | Errno::ENOMEM) {
            let (max_send_wr, max_recv_wr) = (init.cap.max_send_wr, init.cap.max_recv_wr);
            let transport = config.transport;
            return Err(CreateQpError::Refused { transport, max_send_wr, max_recv_wr, errno });
        }
        inline /= 2;
    }
}

fn init_attr(config: &QueuePairConfig<'_>, max_inline_data: u32) -> ibv_qp_init_attr {
    let (receives, srq) = match config.recv {
        RecvSide::Own { slots, .. } => (slots, null_mut()),
        RecvSide::Shared(srq) => (0, srq.inner.raw.as_ptr()),
        RecvSide::None => (0, null_mut()),
    };
    ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: config.send_cq.inner.raw.as_ptr(),
        recv_cq: config.recv_cq.inner.raw.as_ptr(),
        srq,
        cap: ibv_qp_cap {
            max_send_wr: config.max_send_wr,
            max_recv_wr: receives,
            max_send_sge: config.max_parts.max(1),
            max_recv_sge: u32::from(receives > 0),
            max_inline_data,
        },
        qp_type: config.transport.to_raw(),
        sq_sig_all: config.sq_sig_all.into(),
    }
}
