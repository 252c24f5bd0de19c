//! The state of a device and of what a program makes on it.
//!
//! A device knows its queue pairs, a queue pair its completion queues and its domain, and these
//! the context, which knows the device: so all of them are declared together; their parts that
//! refer to no other object are in `device` and `guarded`. What each does is in the module of its
//! name.

mod device;
mod guarded;
mod layout;
mod threads;

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
use host::sync::OnceLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use host::sync::{Mutex, RwLock};
use verbs_sys::*;

use crate::check::checker::Checker;
use crate::check::completions::CqAccount;
use crate::check::queue::{QpAccount, RecvAccount};
use crate::counters::Counters;
use crate::event::{Acks, EventQueue};
use crate::faults::injector::Injector;
use crate::faults::queue::QueueFaults;
use crate::lock::{Lock, Padded};
use crate::memory::mr_table::MrTable;
use crate::memory::span::RequestScratch;
use crate::objects::cq::producer::{CqProducer, Moderation};
use crate::objects::handles::{CommandFd, Handles};
use crate::objects::users::Users;
use crate::peers::process::backoff::AnswerBackoff;
use crate::peers::process::multicast::Participation;
use crate::peers::process::names::SocketNames;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::peer_not_found::Looked;
use crate::peers::process::progress_thread::ProgressThread;
use crate::peers::process::region::Files;
use crate::peers::process::remote::RemotePeer;
use crate::peers::process::rendezvous::{LocalProcess, Missing, PairsBySlot, ProcessRendezvous};
use crate::peers::process::side::ReadSide;
use crate::peers::process::workers::Workers;
use crate::peers::wire::state::WireSq;
use crate::queues::address::GidBytes;
use crate::queues::batch::WrBatch;
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::QpTransport;
use crate::queues::queue_memory::{Allocators, QueueMemory};
use crate::queues::recv_ring::{RecvRing, SrqTaker};
use crate::queues::requester::RequesterState;
use crate::timing::card::{CardLink, SrqTimes};
use crate::timing::network::Network;
use crate::timing::timer::Timer;
use crate::timing::times::Times;
use crate::trace::completions::CqTrace;
use crate::trace::queue::QueueTrace;
use crate::trace::tracer::Tracer;

pub(crate) use device::{ExecutionMode, Population};
pub(crate) use guarded::{ResponderState, Settling};

/// A software device. The ABI's struct comes first: its address is the object's.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) abi: ibv_device,
    /// Zeroes behind `ibv_device`: mlx5's direct-verbs library looks there to
    /// see whether the device is one of its own.
    pub(crate) slack: [u64; 8],
    pub(crate) guid: u64,
    /// The GID of its port, once it was asked for; that of a device on the network is its address.
    pub(crate) gid: OnceLock<GidBytes>,
    /// The process that it is of. A child of fork finds it, and cannot use it.
    pub(crate) process: u32,
    /// The world in which it was made; 0 if in none.
    pub(crate) world: usize,
    pub(crate) qps: QpTable,
    pub(crate) mrs: MrTable,
    pub(crate) xrc: XrcTable,
    pub(crate) groups: RwLock<MulticastGroups>,
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
    pub(crate) kind: ExecutionMode,
    /// Other processes, for `soft0`, and for an address that processes share: other devices reach
    /// no other process so.
    pub(crate) peers: Option<PeerProcesses>,
    /// Events that are to be raised, by their deadlines' tokens.
    pub(crate) timed_events: Mutex<HashMap<u64, TimedEvent>>,
    /// Contexts, which get the port's events; some may be closed.
    pub(crate) contexts: Mutex<Vec<Weak<Context>>>,
}

/// An event that a deadline raises.
pub(crate) enum TimedEvent {
    /// One of the port, for the contexts that share these.
    Port(Weak<Handles>, ibv_event_type),
    /// One that a completion queue holds back.
    Completions(Weak<Cq>),
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
pub(crate) struct MulticastGroups {
    /// Queue pairs by the group's GID. A group exists as long as it has one.
    pub(crate) members: HashMap<GidBytes, Arc<[Arc<Qp>]>>,
    /// Attachments of a queue pair, by its number: the GID and the LID of the call.
    pub(crate) attached: HashMap<u32, Vec<(GidBytes, u16)>>,
}

/// An XRC domain, which one handle or several stand for.
pub(crate) struct XrcDomain {
    /// Never 0, never reused soon.
    pub(crate) id: u32,
    /// The file that names it: its inode is no other file's meanwhile.
    pub(crate) _file: Option<OwnedFd>,
    /// Handles that the program has not closed. With the last one, the file names it no more, even
    /// where another thread still holds one of its objects for a moment.
    pub(crate) handles: AtomicUsize,
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
    pub(crate) users: Users,
}

/// Other processes, as `soft0` or a device on the network knows them.
#[derive(Debug, Default)]
pub(crate) struct PeerProcesses {
    /// Names by which they find each other.
    pub(crate) names: SocketNames,
    pub(crate) here: OnceLock<Result<LocalProcess, Missing>>,
    pub(crate) rendezvous: Mutex<ProcessRendezvous>,
    pub(crate) pairs: RwLock<PairsBySlot>,
    /// There has been one.
    pub(crate) has_pairs: AtomicBool,
    /// Those that were declared dead and live: they may be inside our memory.
    pub(crate) departed: Mutex<Vec<Arc<ProcessPair>>>,
    pub(crate) progress: Padded<Lock<ProgressEngine>>,
    /// A thread asks the holder of `progress` to look once more.
    pub(crate) look_again: AtomicBool,
    pub(crate) files: Files,
    pub(crate) backoff: Mutex<AnswerBackoff>,
    pub(crate) progress_thread: ProgressThread,
    pub(crate) participation: Participation,
    pub(crate) workers: Arc<Workers>,
    pub(crate) looked: Looked,
    #[cfg(feature = "simulation")]
    pub(crate) is_killed: AtomicBool,
}

/// The state of taking what other processes send; under a lock.
#[derive(Default)]
pub(crate) struct ProgressEngine {
    pub(crate) sides: Vec<ReadSide>,
    pub(crate) qps: Vec<Option<Arc<Qp>>>,
    pub(crate) scratch: Option<Box<crate::peers::process::side::MessageScratch>>,
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
    pub(crate) events: EventQueue<QueuedEvent>,
    /// Shared with contexts that are imported from it, or it from them.
    pub(crate) handles: Arc<Handles>,
    /// Its card's, where operations cost something.
    pub(crate) link: CardLink,
    /// The trace of the process, if it has one.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The checker of the process, if one was asked for.
    pub(crate) checker: Option<Arc<Checker>>,
    /// The faults of the process, if it is to meet some here.
    pub(crate) injector: Option<Arc<Injector>>,
    /// The descriptor `cmd_fd`: open as long as the context.
    pub(crate) _command: CommandFd,
}

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
    pub(crate) users: Users,
}

/// A completion channel: events of the queues that were created with it.
#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) abi: ibv_comp_channel,
    pub(crate) context: Arc<Context>,
    pub(crate) events: EventQueue<Arc<Cq>>,
    /// Completion queues that use it.
    pub(crate) users: Users,
}

/// Zeroes behind the ABI's structs that later versions of the library extend: a program may know
/// fields that this device does not. The device's own fields begin behind them, at a cache line:
/// no hot field shares one with what the program reads and writes in the struct.
pub(crate) type Slack = [u64; 12];

/// A slot of the ring: the six words of an `ibv_wc`, then what the poll needs.
#[repr(C, align(64))]
pub(crate) struct CqSlot {
    pub(crate) wc: UnsafeCell<[u64; 6]>,
    /// For a send completion: the queue pair of the send-queue slots that it frees.
    pub(crate) owner: UnsafeCell<*const Qp>,
    /// For a send completion: the position up to which they are free.
    pub(crate) position: UnsafeCell<u32>,
    /// Index of the entry plus one, once it is there.
    pub(crate) sequence: AtomicU32,
}

/// The slots, a power of two.
pub(crate) struct CqRing {
    pub(crate) slots: QueueMemory<CqSlot>,
}

/// A completion queue. Its struct is the extended one, of which `ibv_cq` is the beginning, whether
/// a program asked for that or not: queues of both kinds are polled by the same functions.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) abi: UnsafeCell<ibv_cq_ex>,
    pub(crate) slack: Slack,
    /// From here on a cache line of what polls read.
    pub(crate) context: Arc<Context>,
    pub(crate) channel: Option<Arc<CompChannel>>,
    /// The ring that it was created with. It stays, because polls look into it without a lock.
    pub(crate) first_ring: CqRing,
    /// The ring that a resize has put in its place, or NULL: looked at under a lock, and freed by
    /// the next resize.
    pub(crate) resized_ring: AtomicPtr<CqRing>,
    /// Nothing is to be done with what a poll takes, nor, but for other processes, before it: the
    /// device is synchronous, and completions have no times, and are neither traced nor checked.
    pub(crate) is_plain: bool,
    pub(crate) dead: AtomicBool,
    pub(crate) producer: Padded<Lock<CqProducer>>,
    pub(crate) consumer: Padded<Lock<()>>,
    pub(crate) head: Padded<AtomicU32>,
    /// Queue pairs that use it, once for each of their two queues.
    pub(crate) users: Users,
    pub(crate) qps: Mutex<Vec<Weak<Qp>>>,
    pub(crate) channel_acks: Acks,
    pub(crate) async_acks: Acks,
    /// Present in a queue that was created as an extended one.
    pub(crate) extended: Option<ExtendedCqState>,
    /// Its completions in the trace, if the process has one.
    pub(crate) trace: Option<CqTrace>,
    /// Completions that could come to it, if the process is checked.
    pub(crate) check: Option<Arc<CqAccount>>,
    /// The producers' lock comes first.
    pub(crate) moderation: Mutex<Moderation>,
}

/// State that an extended completion queue has in addition.
pub(crate) struct ExtendedCqState {
    /// The words of the completion that is looked at. A thread keeps the lock while it polls.
    pub(crate) entry: Lock<[u64; 6]>,
    /// The last word of a completion is its time, in place of what RoCE has no use for.
    pub(crate) has_times: bool,
    /// Completions for which there is no room are dropped.
    pub(crate) ignores_overrun: bool,
    /// The parent domain that it was created in.
    pub(crate) domain: Option<Arc<Pd>>,
}

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    pub(crate) abi: UnsafeCell<ibv_srq>,
    pub(crate) pd: Arc<Pd>,
    /// Names it, as `ibv_get_srq_num` gives it; never 0, never reused soon.
    pub(crate) num: u32,
    pub(crate) ring: RecvRing,
    pub(crate) taker: Padded<Lock<SrqTaker>>,
    /// Queue pairs that use it.
    pub(crate) users: Users,
    /// The time from which it is free, on a card.
    pub(crate) turn: SrqTimes,
    pub(crate) acks: Acks,
    /// Present in an XRC receive queue.
    pub(crate) xrc: Option<XrcSrq>,
    /// Its table in the trace, if the process has one.
    pub(crate) trace: Option<Arc<QueueTrace>>,
    /// Requests that are posted to it, if the process is checked.
    pub(crate) check: Option<Arc<RecvAccount>>,
    /// The context that it was made through, which gets its events.
    pub(crate) context: Arc<Context>,
}

/// State that an XRC receive queue has in addition.
pub(crate) struct XrcSrq {
    pub(crate) xrcd: Arc<Xrcd>,
    /// Completion queue of its requests, whichever queue pair they were taken by.
    pub(crate) cq: Arc<Cq>,
}

/// A queue pair. It lives as long as anything holds a reference, its peer for instance;
/// its state says whether it was destroyed.
/// As in [`Cq`], the struct is the extended one.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) abi: UnsafeCell<ibv_qp_ex>,
    pub(crate) slack: Slack,
    /// From here on a cache line of what posts read.
    pub(crate) num: u32,
    pub(crate) transport: QpTransport,
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
    pub(crate) blocking: crate::peers::process::serving::BlockingFlags,
    pub(crate) sq: Padded<Lock<Sq>>,
    pub(crate) responder: Padded<Lock<ResponderState>>,
    /// Batch of a queue pair with the newer send interface. A thread keeps the lock while it puts a
    /// batch together; it comes before the send queue's.
    pub(crate) batch: Option<Box<Lock<WrBatch>>>,
    /// Present in an XRC receive queue pair.
    pub(crate) target: Option<Box<XrcTarget>>,
    /// It does not get what it sends to a multicast group that it is attached to.
    pub(crate) blocks_own_multicast: bool,
    /// Its table in the trace, if the process has one.
    pub(crate) trace: Option<Arc<QueueTrace>>,
    /// Requests that are outstanding on it, if the process is checked.
    pub(crate) check: Option<Box<QpAccount>>,
    /// Faults that strike its requests, if the process is to meet some. The send queue's lock comes
    /// first.
    pub(crate) faults: Option<Box<Mutex<QueueFaults>>>,
    /// The context that it was made through, which gets its events.
    pub(crate) context: Arc<Context>,
}

/// State that an XRC receive queue pair has in addition. Programs know it by handles, each an
/// object that no message reaches.
pub(crate) struct XrcTarget {
    /// The XRC domain that it was made with, or opened with.
    pub(crate) xrcd: Arc<Xrcd>,
    /// In a handle: the queue pair.
    pub(crate) opened: Option<Arc<Qp>>,
    /// In the queue pair: its handles. It goes with the last of them.
    pub(crate) handles: Mutex<Vec<Arc<Qp>>>,
}

/// The send queue of a queue pair, under its lock.
pub(crate) struct Sq {
    pub(crate) requester: RequesterState,
    pub(crate) pending: PendingWqes,
    /// The queue pair at the other end, once it was looked up.
    pub(crate) peer: Option<Arc<Qp>>,
    /// Present if the other end is in another process.
    pub(crate) remote: Option<Box<RemotePeer>>,
    /// Present if the other end is reached over UDP, once the queue pair may send.
    pub(crate) wire: Option<Box<WireSq>>,
    pub(crate) counters: Counters,
    pub(crate) scratch: RequestScratch,
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

/// The object that an event is about. It lives while the event waits.
pub(crate) enum Element {
    /// The port, or the device.
    Port,
    Cq(Arc<Cq>),
    Qp(Arc<Qp>),
    Srq(Arc<Srq>),
}

/// An event and its object.
pub(crate) struct QueuedEvent {
    pub(crate) element: Element,
    pub(crate) event_type: ibv_event_type,
}
