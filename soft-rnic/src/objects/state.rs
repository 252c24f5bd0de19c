//! The state of a device and of what a program makes on it.
//!
//! A device knows its queue pairs, a queue pair its completion queues and its domain, and these
//! the context, which knows the device: so all of them are declared together. What each does is
//! in the module of its name.

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
use host::sync::OnceLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use host::sync::{Mutex, RwLock};
use rustix::io::Errno;
use verbs_sys::*;

use crate::check::checker::Checker;
use crate::check::completions::Completions as CheckedCompletions;
use crate::check::queue::{Queue as CheckedQueue, Receives};
use crate::counters::Counters;
use crate::event::{Acks, EventQueue};
use crate::fabric::process::backoff::Backoff;
use crate::fabric::process::multicast::state::Participation;
use crate::fabric::process::names::Names;
use crate::fabric::process::outside::Insiders;
use crate::fabric::process::pair::Pair;
use crate::fabric::process::peer_not_found::Looked;
use crate::fabric::process::progress_thread::state::ProgressThread;
use crate::fabric::process::region::Files;
use crate::fabric::process::remote::state::Remote;
use crate::fabric::process::rendezvous::{Here, Pairs, Rendezvous};
use crate::fabric::process::side::Side;
use crate::fabric::process::workers::Workers;
use crate::fabric::wire::state::{Wire, WireRq, WireSq};
use crate::faults::injector::Injector;
use crate::faults::queue::QueueFaults;
use crate::lock::{Lock, Padded};
use crate::objects::address::Gid;
use crate::objects::batch::Batch;
use crate::objects::handles::{Command, Handles};
use crate::objects::mr_table::MrTable;
use crate::objects::mws::Ending;
use crate::objects::pending::{Pending, Requester};
use crate::objects::qp_state::Transport;
use crate::objects::queue_memory::{Allocators, QueueMemory};
use crate::objects::recv_ring::{Consumer, RecvRing};
use crate::objects::span::SpanBuf;
use crate::objects::users::Users;
use crate::schedule::distance::card::{Link, Turn};
use crate::schedule::distance::times::{Distance, Times};
use crate::schedule::network::faults::Network;
use crate::schedule::timer::Timer;
use crate::trace::completions::Completions;
use crate::trace::queue::Queue;
use crate::trace::tracer::Tracer;

/// A software device. The ABI's struct comes first: its address is the object's.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) abi: ibv_device,
    /// Zeroes behind `ibv_device`: mlx5's direct-verbs library looks there to
    /// see whether the device is one of its own.
    pub(crate) slack: [u64; 8],
    pub(crate) guid: u64,
    /// The GID of its port, once it was asked for; that of a device on the network is its address.
    pub(crate) gid: OnceLock<Gid>,
    /// The process that it is of. A child of fork finds it, and cannot use it.
    pub(crate) process: u32,
    /// The world in which it was made; 0 if in none.
    pub(crate) world: usize,
    pub(crate) qps: QpTable,
    pub(crate) mrs: MrTable,
    pub(crate) xrc: XrcTable,
    pub(crate) groups: RwLock<Groups>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) population: Population,
    pub(crate) network: Network,
    /// Datagrams that carried a wrong key.
    pub(crate) qkey_violations: AtomicU32,
    /// Unreliable messages of other processes that no queue pair here received.
    pub(crate) missed: AtomicU64,
    /// Messages to multicast groups for which there was no room in the ring to another process.
    pub(crate) overflowed: AtomicU64,
    /// Statistics of queue pairs that are gone.
    pub(crate) retired: Mutex<Counters>,
    pub(crate) kind: Kind,
    /// Other processes, for `soft0`, and for an address that processes share: other devices reach
    /// no other process so.
    pub(crate) peers: Option<PeerProcesses>,
    /// Events that are to be raised, by their deadlines' tokens.
    pub(crate) timed_events: Mutex<HashMap<u64, TimedEvent>>,
    /// Contexts, which get the port's events; some may be closed.
    pub(crate) contexts: Mutex<Vec<Weak<Context>>>,
}

// SAFETY: the ABI's struct is written before the device is shared and then only read; everything
// else may be sent.
unsafe impl Send for Device {}

// SAFETY: the ABI's struct is only read once the device is shared; everything else is Sync.
unsafe impl Sync for Device {}

/// Time at which a device does what is posted.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Inside the post.
    Synchronous,
    /// In steps, in an order drawn from a seed.
    Simulated(crate::schedule::sim::state::State),
    /// At the time when a round trip would be over.
    Distant(Distance),
    /// As packets come: the peers are reached over UDP.
    Wired(Box<Wire>),
}

/// An event that a deadline raises.
pub(crate) enum TimedEvent {
    /// One of the port, for the contexts that share these.
    Port(Weak<Handles>, ibv_event_type),
    /// One that a completion queue holds back.
    Completions(Weak<Cq>),
}

/// Numbers of existing objects, of the kinds that have a limit.
#[derive(Debug, Default)]
pub(crate) struct Population {
    pub(crate) pds: AtomicUsize,
    pub(crate) cqs: AtomicUsize,
    pub(crate) srqs: AtomicUsize,
    pub(crate) ahs: AtomicUsize,
    pub(crate) xrcds: AtomicUsize,
    /// Bytes of device memory.
    pub(crate) dm_bytes: Arc<AtomicUsize>,
    pub(crate) mws: AtomicUsize,
    pub(crate) mrs: AtomicUsize,
}

/// Queue pairs by number.
#[derive(Default)]
pub(crate) struct QpTable {
    pub(crate) by_number: RwLock<BTreeMap<u32, Arc<Qp>>>,
    /// Numbers of queue pairs that are being made; locked before the table.
    pub(crate) reserved: Mutex<BTreeSet<u32>>,
    pub(crate) next: AtomicU32,
}

/// State that XRC shares between the contexts of a device.
#[derive(Default)]
pub(crate) struct XrcTable {
    /// Domains that a file names, by its filesystem and inode.
    pub(crate) by_file: Mutex<HashMap<(u64, u64), Weak<XrcDomain>>>,
    /// Receive queues, by their numbers' slots.
    pub(crate) srqs: RwLock<HashMap<u32, Arc<Srq>>>,
}

/// Multicast groups.
#[derive(Default)]
pub(crate) struct Groups {
    /// Queue pairs by the group's GID. A group exists as long as it has one.
    pub(crate) members: HashMap<Gid, Arc<[Arc<Qp>]>>,
    /// Attachments of a queue pair, by its number: the GID and the LID of the call.
    pub(crate) attached: HashMap<u32, Vec<(Gid, u16)>>,
}

/// An XRC domain, which one handle or several stand for.
pub(crate) struct XrcDomain {
    /// Never 0, never reused soon.
    pub(crate) id: u32,
    /// The file that names it: its inode is no other file's meanwhile.
    pub(crate) _file: Option<OwnedFd>,
}

/// Struct by which a program knows an XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    pub(crate) abi: ibv_xrcd,
    pub(crate) domain: Arc<XrcDomain>,
    /// Receiving queue pairs have neither a protection domain nor a completion queue of the
    /// program's: these stand for them.
    pub(crate) pd: Arc<Pd>,
    pub(crate) cq: Arc<Cq>,
    /// Receive queues, and handles of queue pairs, made with it.
    pub(crate) users: AtomicUsize,
}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Xrcd {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Xrcd {}

/// Other processes, as `soft0` or a device on the network knows them.
#[derive(Debug, Default)]
pub(crate) struct PeerProcesses {
    /// Names by which they find each other.
    pub(crate) names: Names,
    pub(crate) here: OnceLock<Result<Here, Missing>>,
    pub(crate) rendezvous: Mutex<Rendezvous>,
    pub(crate) pairs: RwLock<Pairs>,
    /// There has been one.
    pub(crate) has_pairs: AtomicBool,
    /// Those that were declared dead and live: they may be inside our memory.
    pub(crate) departed: Mutex<Vec<Arc<Pair>>>,
    pub(crate) progress: Padded<Lock<ProgressEngine>>,
    /// A thread asks the holder of `progress` to look once more.
    pub(crate) look_again: AtomicBool,
    pub(crate) files: Files,
    pub(crate) backoff: Mutex<Backoff>,
    pub(crate) progress_thread: ProgressThread,
    pub(crate) participation: Participation,
    pub(crate) workers: Arc<Workers>,
    pub(crate) looked: Looked,
    #[cfg(feature = "simulation")]
    pub(crate) is_killed: AtomicBool,
}

/// A facility that this system does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Missing {
    pub(crate) what: &'static str,
    pub(crate) errno: Errno,
}

/// The state of taking what other processes send; under a lock.
#[derive(Default)]
pub(crate) struct ProgressEngine {
    pub(crate) sides: Vec<Side>,
    pub(crate) qps: Vec<Option<Arc<Qp>>>,
    pub(crate) scratch: Option<Box<crate::fabric::process::side::Scratch>>,
    /// A process does not keep the rules: it has to be buried.
    pub(crate) broken: bool,
    /// There are deferred fetches that no thread runs yet.
    pub(crate) wants: bool,
    /// Room for the next message that has to be fetched.
    pub(crate) spare: Vec<u8>,
    /// Looks of polls that found nothing.
    pub(crate) in_vain: u32,
}

/// An open device. The ABI's struct comes first; callers hold the address of the
/// `ibv_context` at its end.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) abi: UnsafeCell<verbs_context>,
    pub(crate) device: Arc<Device>,
    pub(crate) events: EventQueue<AsyncEvent>,
    /// Shared with contexts that are imported from it, or it from them.
    pub(crate) handles: Arc<Handles>,
    /// Its card's, where operations cost something.
    pub(crate) link: Link,
    /// The trace of the process, if it has one.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The checker of the process, if one was asked for.
    pub(crate) checker: Option<Arc<Checker>>,
    /// The faults of the process, if it is to meet some here.
    pub(crate) injector: Option<Arc<Injector>>,
    /// The descriptor `cmd_fd`: open as long as the context.
    pub(crate) _command: Command,
}

// SAFETY: the ABI's struct is written before it is shared; later only callers
// read it. Everything else is Sync by itself.
unsafe impl Send for Context {}

// SAFETY: the ABI's struct is only read once it is shared; everything else is Sync.
unsafe impl Sync for Context {}

/// Struct by which a program knows a protection domain.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) abi: ibv_pd,
    pub(crate) context: Arc<Context>,
    /// Names it in the tables of the data path; never 0, never reused soon.
    pub(crate) id: u32,
    /// The objects in it, through whichever struct.
    pub(crate) users: Arc<Users>,
    /// Present in a parent domain.
    pub(crate) parent: Option<Parent>,
}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Pd {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Pd {}

/// Objects that a parent domain stands for. It has one struct, and users of its own.
pub(crate) struct Parent {
    pub(crate) pd: Arc<Pd>,
    pub(crate) td: Option<Arc<Td>>,
    pub(crate) allocators: Option<Allocators>,
}

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    pub(crate) abi: ibv_td,
    pub(crate) context: Arc<Context>,
    /// Parent domains that name it.
    pub(crate) users: AtomicUsize,
}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Td {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Td {}

/// A completion channel: events of the queues that were created with it.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) abi: ibv_comp_channel,
    pub(crate) context: Arc<Context>,
    pub(crate) events: EventQueue<Arc<Cq>>,
    /// Completion queues that use it.
    pub(crate) users: AtomicUsize,
}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Channel {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Channel {}

/// Zeroes behind the ABI's structs that later versions of the library extend: a program may know
/// fields that this device does not. The device's own fields begin behind them, at a cache line:
/// no hot field shares one with what the program reads and writes in the struct.
pub(crate) type Slack = [u64; 12];

const _: () = {
    assert!(size_of::<ibv_cq_ex>() == 288 && size_of::<ibv_qp_ex>() == 352);
    assert!(size_of::<Slack>() >= 64);
    assert!(offset_of!(Cq, abi) == 0 && offset_of!(Cq, slack) == size_of::<ibv_cq_ex>());
    assert!(offset_of!(Qp, abi) == 0 && offset_of!(Qp, slack) == size_of::<ibv_qp_ex>());
    assert!(offset_of!(Cq, context) == 384 && offset_of!(Qp, num) == 448);
    // One line has all that a post reads first.
    assert!(offset_of!(Qp, srq) + size_of::<Option<Arc<Srq>>>() <= 448 + 64);
    // `ibv_cq` and `ibv_qp` are the beginnings of the extended structs.
    assert!(offset_of!(ibv_cq_ex, comp_mask) == size_of::<ibv_cq>());
    assert!(offset_of!(ibv_qp_ex, qp_base) == 0);
};

/// A slot of the ring: the six words of an `ibv_wc`, then what the poll needs.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) wc: UnsafeCell<[u64; 6]>,
    /// For a send completion: the queue pair of the send-queue slots that it frees.
    pub(crate) owner: UnsafeCell<*const Qp>,
    /// For a send completion: the position up to which they are free.
    pub(crate) position: UnsafeCell<u32>,
    /// Index of the entry plus one, once it is there.
    pub(crate) sequence: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 64 && size_of::<ibv_wc>() == 48);

/// The slots, a power of two.
pub(crate) struct Ring {
    pub(crate) slots: QueueMemory<Slot>,
}

/// State that producers share.
#[derive(Debug, Default)]
pub(crate) struct Producer {
    pub(crate) tail: u32,
    /// `published <= tail`; equal whenever the lock is free.
    pub(crate) published: u32,
    pub(crate) head_seen: u32,
    pub(crate) armed: Armed,
    pub(crate) overrun: bool,
    /// A solicited completion, or a failed one, is among the unpublished.
    pub(crate) notable: bool,
    /// Events may be held back ([`Cq::moderation`]).
    pub(crate) is_moderated: bool,
}

/// Moderation of the events of a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    /// Completions for which an event comes; 0 if none does for their number.
    pub(crate) count: u16,
    /// The longest time that it is held back; 0 if that has no end.
    pub(crate) period_us: u16,
    /// The event that is held back: the index of the first completion that it is for, and the name
    /// of its deadline, if it has one.
    pub(crate) held: Option<(u32, Option<u64>)>,
}

/// Completions that the next event waits for.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Armed {
    #[default]
    No,
    /// For nothing, but completions get a time, or are traced, when they become visible.
    Watched,
    Solicited,
    Any,
}

impl Armed {
    /// The state of a queue on which nothing is waited for.
    pub(crate) fn none(is_watched: bool) -> Armed {
        if is_watched { Armed::Watched } else { Armed::No }
    }
}

/// A completion queue. Its struct is the extended one, of which `ibv_cq` is the beginning, whether
/// a program asked for that or not: queues of both kinds are polled by the same functions.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) abi: UnsafeCell<ibv_cq_ex>,
    pub(crate) slack: Slack,
    /// From here on a cache line of what polls read.
    pub(crate) context: Arc<Context>,
    pub(crate) channel: Option<Arc<Channel>>,
    /// The ring that it was created with. It stays, because polls look into it without a lock.
    pub(crate) first_ring: Ring,
    /// The ring that a resize has put in its place, or NULL: looked at under a lock, and freed by
    /// the next resize.
    pub(crate) resized_ring: AtomicPtr<Ring>,
    /// Nothing is to be done with what a poll takes, nor, but for other processes, before it: the
    /// device is synchronous, and completions have no times, and are neither traced nor checked.
    pub(crate) is_plain: bool,
    pub(crate) dead: AtomicBool,
    pub(crate) producer: Padded<Lock<Producer>>,
    pub(crate) consumer: Padded<Lock<()>>,
    pub(crate) head: Padded<AtomicU32>,
    /// Queue pairs that use it, once for each of their two queues.
    pub(crate) users: AtomicUsize,
    pub(crate) qps: Mutex<Vec<Weak<Qp>>>,
    pub(crate) channel_acks: Acks,
    pub(crate) async_acks: Acks,
    /// Present in a queue that was created as an extended one.
    pub(crate) extended: Option<Extended>,
    /// Its completions in the trace, if the process has one.
    pub(crate) trace: Option<Completions>,
    /// Completions that could come to it, if the process is checked.
    pub(crate) check: Option<Arc<CheckedCompletions>>,
    /// The producers' lock comes first.
    pub(crate) moderation: Mutex<Moderation>,
}

/// State that an extended completion queue has in addition.
pub(crate) struct Extended {
    /// The words of the completion that is looked at. A thread keeps the lock while it polls.
    pub(crate) entry: Lock<[u64; 6]>,
    /// The last word of a completion is its time, in place of what RoCE has no use for.
    pub(crate) has_times: bool,
    /// Completions for which there is no room are dropped.
    pub(crate) ignores_overrun: bool,
    /// The parent domain that it was created in.
    pub(crate) domain: Option<Arc<Pd>>,
}

// SAFETY: the slots are guarded as `objects::cq` says; the ABI's struct is written before it is
// shared, `cqe` later under both locks, and `wr_id` and `status` under the lock of `entry`; the
// pointers in slots are of queue pairs that stay while their entries are in the ring (`purge`).
unsafe impl Send for Cq {}

// SAFETY: the slots are guarded as `objects::cq` says; the ABI's struct is written before it is
// shared, `cqe` later under both locks, and `wr_id` and `status` by polls under the lock of
// `entry`.
unsafe impl Sync for Cq {}

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    pub(crate) abi: UnsafeCell<ibv_srq>,
    pub(crate) pd: Arc<Pd>,
    /// Names it, as `ibv_get_srq_num` gives it; never 0, never reused soon.
    pub(crate) num: u32,
    pub(crate) ring: RecvRing,
    pub(crate) taker: Padded<Lock<Taker>>,
    /// Queue pairs that use it.
    pub(crate) users: AtomicUsize,
    /// The time from which it is free, on a card.
    pub(crate) turn: Turn,
    pub(crate) acks: Acks,
    /// Present in an XRC receive queue.
    pub(crate) xrc: Option<XrcSrq>,
    /// Its table in the trace, if the process has one.
    pub(crate) trace: Option<Arc<Queue>>,
    /// Requests that are posted to it, if the process is checked.
    pub(crate) check: Option<Arc<Receives>>,
    /// The context that it was made through, which gets its events.
    pub(crate) context: Arc<Context>,
}

/// State that an XRC receive queue has in addition.
pub(crate) struct XrcSrq {
    pub(crate) xrcd: Arc<Xrcd>,
    /// Completion queue of its requests, whichever queue pair they were taken by.
    pub(crate) cq: Arc<Cq>,
}

/// State that the queue pairs that take requests share.
#[derive(Debug, Default)]
pub(crate) struct Taker {
    pub(crate) consumer: Consumer,
    /// An event fires when fewer requests than this are left; 0 is disarmed.
    pub(crate) limit: u32,
}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Srq {}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Sync for Srq {}

/// A queue pair. It lives as long as anything holds a reference, its peer for instance;
/// its state says whether it was destroyed.
/// As in [`Cq`], the struct is the extended one.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) abi: UnsafeCell<ibv_qp_ex>,
    pub(crate) slack: Slack,
    /// From here on a cache line of what posts read.
    pub(crate) num: u32,
    pub(crate) transport: Transport,
    pub(crate) sig_all: bool,
    /// There is a `trace` or a `check`.
    pub(crate) is_watched: bool,
    /// There are `faults`.
    pub(crate) has_faults: bool,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) pd: Arc<Pd>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) rq: RecvRing,
    /// Written under the locks of both sides, except for the error state, which any
    /// thread may set at any time.
    pub(crate) state: AtomicU8,
    /// The cause of its error state ([`Cause`](crate::reason::Cause)), or 0.
    pub(crate) cause: AtomicU16,
    /// The event that nothing more comes from the shared receive queue is out.
    pub(crate) last_wqe_said: AtomicBool,
    /// On the network: the peer has not been answered yet, so what is sent to it has to wait. Set
    /// under the responder's lock, before the completion of what is to be answered can be seen.
    pub(crate) owes_response: AtomicBool,
    pub(crate) async_acks: Acks,
    /// Position up to which send-queue slots are free: set by polls.
    pub(crate) freed: Padded<AtomicU32>,
    /// The blocking section of the send queue's holder.
    pub(crate) blocking: crate::fabric::process::serving::Blocking,
    pub(crate) sq: Padded<Lock<Sq>>,
    pub(crate) responder: Padded<Lock<Responder>>,
    /// Batch of a queue pair with the newer send interface. A thread keeps the lock while it puts a
    /// batch together; it comes before the send queue's.
    pub(crate) batch: Option<Box<Lock<Batch>>>,
    /// Present in an XRC receive queue pair.
    pub(crate) target: Option<Box<Target>>,
    /// It does not get what it sends to a multicast group that it is attached to.
    pub(crate) blocks_own_multicast: bool,
    /// Its table in the trace, if the process has one.
    pub(crate) trace: Option<Arc<Queue>>,
    /// Requests that are outstanding on it, if the process is checked.
    pub(crate) check: Option<Box<CheckedQueue>>,
    /// Faults that strike its requests, if the process is to meet some. The send queue's lock comes
    /// first.
    pub(crate) faults: Option<Box<Mutex<QueueFaults>>>,
    /// The context that it was made through, which gets its events.
    pub(crate) context: Arc<Context>,
}

/// State that an XRC receive queue pair has in addition. Programs know it by handles, each an
/// object that no message reaches.
pub(crate) struct Target {
    /// The XRC domain that it was made with, or opened with.
    pub(crate) xrcd: Arc<Xrcd>,
    /// In a handle: the queue pair.
    pub(crate) opened: Option<Arc<Qp>>,
    /// In the queue pair: its handles. It goes with the last of them.
    pub(crate) handles: Mutex<Vec<Arc<Qp>>>,
}

// SAFETY: the ABI's struct is written before the program has it, then of it `state` under the send
// queue's lock (`set_state`, `query`, `show_state`), and `wr_id` and `wr_flags` by the program
// between calls of one batch, in which they are read; everything else may be sent.
unsafe impl Send for Qp {}

// SAFETY: the ABI's struct is written as said above, each field by one holder at a time; everything
// else is guarded or Sync.
unsafe impl Sync for Qp {}

/// The send queue of a queue pair, under its lock.
pub(crate) struct Sq {
    pub(crate) requester: Requester,
    pub(crate) pending: Pending,
    /// The queue pair at the other end, once it was looked up.
    pub(crate) peer: Option<Arc<Qp>>,
    /// Present if the other end is in another process.
    pub(crate) remote: Option<Box<Remote>>,
    /// Present if the other end is reached over UDP, once the queue pair may send.
    pub(crate) wire: Option<Box<WireSq>>,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    /// The queue was told to drain, and has not said yet that it has.
    pub(crate) draining: bool,
    /// Present on a distant device, once something was posted.
    pub(crate) transit_times: Option<Box<Times>>,
    /// The accesses that the requester's `ending` waits for, as far as they are known, if it has to
    /// wait.
    pub(crate) settling: Option<Box<Settling>>,
    /// The attributes as they were set, for `ibv_query_qp`.
    pub(crate) attr: ibv_qp_attr,
}

/// Accesses under the key of a window whose binding has ended.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) ending: Ending,
    pub(crate) insiders: Option<Insiders>,
    /// Number of times that they were looked at.
    pub(crate) looks: u32,
}

/// Room where the pieces of a request's buffers are put together. It stays in one place: half a
/// kilobyte is too much to move for a message of 16 bytes.
pub(crate) struct Scratch {
    /// The requester's.
    pub(crate) local: SpanBuf,
    /// Those of the receive request that takes it.
    pub(crate) remote: SpanBuf,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        // SAFETY: a send queue owns it, and hands it out under its lock.
        let [local, remote] = [(); 2].map(|()| unsafe { SpanBuf::new() });
        Scratch { local, remote }
    }
}

/// The responder's side of a queue pair, under its lock.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) dest_qpn: u32,
    /// The peer's GID is this device's.
    pub(crate) peer_is_here: bool,
    /// The PSN expected next.
    pub(crate) psn: u32,
    pub(crate) access: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// The Q_Key that datagrams have to carry.
    pub(crate) qkey: u32,
    /// Changes whenever the queue pair is connected anew.
    pub(crate) generation: u32,
    /// The number of the next message from another process.
    pub(crate) number: u32,
    /// The receive queue's consuming side (unused with a shared one).
    pub(crate) consumer: Consumer,
    /// Present if the other end is reached over UDP.
    pub(crate) wire: Option<Box<WireRq>>,
}

/// The object that an event is about. It lives while the event waits.
pub(crate) enum Element {
    /// The port, or the device.
    Port,
    Cq(Arc<Cq>),
    Qp(Arc<Qp>),
    Srq(Arc<Srq>),
}

/// An event and its object.
pub(crate) struct AsyncEvent {
    pub(crate) element: Element,
    pub(crate) event_type: ibv_event_type,
}
