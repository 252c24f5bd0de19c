//! An RDMA device in software, behind the verbs ABI: every program of this project uses it if
//! no card is present.
//!
//! [`table`] gives a table of verbs functions, as `verbs_sys::load` does; the
//! objects that it creates are the ABI's own structs, and the data path goes through
//! `context->ops`. One device, `soft0`, is always listed: one port, active, Ethernet, MTU 4096, GID
//! 0 = RoCE v2 for a loopback address, which the devices of all processes have that it reaches, and
//! no others. Its queue pairs are reliable connections, extended ones (XRC), unreliable ones, and
//! datagrams, within the process and between those of the same user.
//!
//! A program uses it in this order:
//!
//! 1. take [`table`], list the devices, open `soft0` (or a [`Simulation`]'s name, or a [`distant`] one);
//! 2. register memory, create completion queues and queue pairs;
//! 3. connect: INIT, RTR, RTS, with the peer's number and GID 0 (`is_global` is
//!    needed, as on every RoCE device);
//! 4. post, poll, destroy in the opposite order.
//!
//! **Contract: within a process, what is posted is executed inside the post.** There is
//! no background thread: one-sided operations reach a peer that does nothing, and a
//! completion is there when the post has returned. Only a request that has to wait (for
//! a receive request, or for a response that does not arrive) is left to a timer's thread,
//! which is started when there is first something to wait for. On a [`Simulation`]
//! posts only queue, and a seed decides what happens when; on a [`distant`] device each
//! request arrives, and is answered, as much later as a round trip takes.
//!
//! # Newer interfaces
//!
//! They are found as rdma-core's headers find them, in the `verbs_context` around a context
//! (`abi_compat` is all ones), so that the headers' inline functions work:
//!
//! | interface | here |
//! |---|---|
//! | `ibv_create_cq_ex` | all fields of an `ibv_wc`, and both times; VLANs, flow tags and tag matching are `EOPNOTSUPP` |
//! | times of completions | taken when completions become visible, on queues that ask for them: nanoseconds of the monotonic clock (`hca_core_clock` is 10^6 kHz), which `ibv_query_rt_values_ex` gives in `tv_nsec` |
//! | `IGNORE_OVERRUN`, `SINGLE_THREADED` | completions without room are dropped, and the queue lives; changes nothing |
//! | `ibv_modify_cq` | `IBV_CQ_ATTR_MODERATE`: an event is raised when as many completions have arrived as `cq_count` says, or `cq_period` after the first of them; 0 is no limit, both 0 is no moderation |
//! | `ibv_create_qp_ex` with `SEND_OPS_FLAGS` | every function of an `ibv_qp_ex` is there; those of operations that the queue pair was not created for make the batch fail, with `EOPNOTSUPP` |
//! | `ibv_wr_atomic_write`, `IBV_WR_ATOMIC_WRITE` | of reliable connections, XRC included: eight bytes that are stored at once, at a multiple of 8 (else, or of another length: `REM_INV_REQ`), with `IBV_ACCESS_REMOTE_WRITE`; over the network with `max_rd_atomic` and `max_dest_rd_atomic`, too. `device_cap_flags_ex` has bit 40, as the kernel's has; rdma-core 44 has no name for it |
//! | `ibv_wr_complete` | posts all requests of the batch, or none and gives the first error |
//! | `ibv_create_srq_ex`, `ibv_get_srq_num` | basic queues and those of XRC, each with a number; tag matching is `EOPNOTSUPP` |
//! | `ibv_open_xrcd`, `ibv_close_xrcd`, `ibv_open_qp` | see [XRC](#xrc) |
//! | `ibv_alloc_td`, `ibv_alloc_parent_domain` | a parent domain is its protection domain to every check, and has the context and the handle of that; a thread domain changes nothing; a program's allocators lend the memory of receive queues, shared ones, and completion queues, which is given back when these are destroyed |
//! | `create_flags` | `IBV_QP_CREATE_BLOCK_SELF_MCAST_LB` of datagram queue pairs; others are `EOPNOTSUPP` |
//! | `ibv_qp_to_qp_ex` | [`qp_to_qp_ex`] |
//! | `ibv_import_device`, `ibv_import_pd`, … | [`import_device`], [`import_pd`], … |
//!
//! A context can be closed before what was made of it: each object holds what it needs. `cmd_fd` is
//! a sealed file of memory that says `device process number`; nothing goes through it. By a
//! duplicate of it, [`import_device`] makes another context in the same process, which shares the
//! objects of the first (`EOPNOTSUPP` in another process). It has events of its own: all of the
//! port, and those of objects that were made through it (by `ibv_create_qp_ex`, … which name a
//! context, or else by their domain's struct). [`import_pd`], [`import_mr`] and [`import_dm`] make
//! further structs of an object, by its handle (`ENOENT` without one). An object is destroyed once,
//! through any of its structs, and the others are given back by `unimport_pd`, …; where all are
//! given back so, it stays until the process ends. As in the kernel, `ibv_rereg_mr` and
//! `ibv_dereg_mr` are `EBUSY` while one of them is under way through another struct of the region,
//! and `ENOENT` when it was deregistered. Nothing is made in a domain, or of device memory, that
//! was given back through another struct (`ENOENT`). The vendor is `0x02005a`, a locally
//! administered number.
//!
//! # Between processes
//!
//! The number of a queue pair says which process it is in; `ibv_modify_qp` to RTR finds
//! the process. One-sided operations are executed inside the post there, too, and the
//! other process may be stopped. A message is executed by the process that receives it:
//! by whichever of its threads polls, or by its one progress thread, which starts when the
//! process first meets another one or brings a datagram queue pair to RTR.
//! (`fabric::process` has the details.) Memory is reached fastest if it lies in a memory file
//! that is sealed against shrinking; any other by cross-memory attach, if the system
//! permits it. Where it does not, operations on such memory end with `REM_OP`, and
//! messages of over 4 KiB from it with `LOC_PROT`; [`refused_memory`] says why.
//!
//! Requests under way to a process that dies, runs another program (`exec`), or breaks the
//! protocol fail with `RETRY_EXC`. What it acknowledged and sent before it ended has arrived.
//! **A process that is stopped** (SIGSTOP, a debugger) is not dead: its
//! memory is written and read as ever, and messages wait until it continues, for as long as
//! that takes. A card would still acknowledge them into the receive requests that are
//! posted; this device is part of the process, stops with it, and cannot. It does not
//! give up instead, whatever `timeout` and `retry_cnt` say: they are for networks that lose
//! packets and for peers that do not answer, and a queue pair should not fail because a
//! debugger stops its peer. An application that must not wait limits the wait itself, and
//! takes the queue pair to ERR. (Memory that a process
//! was reading or writing when it was stopped is not given back: deregistration fails
//! with `EBUSY` after five seconds.)
//!
//! Only processes of the same user find each other ([`peer_not_found()`] says if that is the
//! reason why a peer was not found). A program that goes through the device reaches what
//! was registered with the right flags, by a key that cannot be guessed; one that bypasses
//! the device can do what a debugger of the same user can. Where `ptrace_scope` is 1, a
//! process that meets another one permits it to attach; from the second one on, all of
//! the same user.
//!
//! Three things differ between processes. An unreliable message is complete when it was
//! copied, so that a receive request which is posted afterwards may still take it. Datagrams
//! for which there is no room are dropped. In memory that is reached by cross-memory attach,
//! only the last eight bytes of a message are guaranteed to become visible last.
//!
//! # Processors
//!
//! x86-64 only. All memory of the program is copied by inline assembly (`copy`): what other processes,
//! or other threads of the program, access meanwhile is no data race in Rust's terms, by whatever
//! regions they do. Where they may look at what is half done, its stores become visible in order. Elsewhere the crate does not compile: atomic
//! accesses of several sizes would be neither.
//!
//! # How a request goes
//!
//! `verbs::post` checks and admits it, and `engine::requester` runs what waits. Both try a
//! request over the link (`engine::link`) to its peer, which they take once for a list: it is
//! sent and waits for its reply, or has to wait before it is sent, or has ended. Over the
//! loopback (`fabric::loopback`) every request ends at once, in the peer's
//! `engine::responder`; another process's (`fabric::process`) executes what takes a receive
//! request in that same responder, and replies. The responder begins a request (every check is
//! there), places its data, and finishes it; `objects::cq` takes the completions. What cannot
//! proceed stays at the head of its send queue (`queues::pending`), with all that is behind it;
//! a deadline (`schedule::deadlines`) or a reply brings it back. What an error entails at other
//! queue pairs is put off until no lock is held (`objects::deferred_work`). Runs of plain messages
//! take fast paths to the same end (`fabric::loopback::fast_path`, and two between processes), each
//! with what it gains measured beside it.
//!
//! # Modules
//!
//! What several of them share lies in a module below them, so that there are no dependency
//! cycles of modules, nor of folders (`cargo xtask circles`). From the top:
//!
//! | modules | |
//! |---|---|
//! | `verbs` | the table of verbs, posts, and those verbs that may let a device do something: polls, events, transitions |
//! | `schedule` | when requests run: in steps drawn from a seed, after a round trip, at a deadline |
//! | `fabric` | where the peer is: in this process (`fabric::loopback`), another one (`fabric::process`), or on the network (`fabric::wire`) |
//! | `engine` | how requests are executed: requester and responder |
//! | `objects` | what a program makes: domains, regions, completion queues, queue pairs |
//! | `objects::state` | the state of all of these, which refer to each other, and of the device |
//! | `peers` | what is known of peers, and shared with them |
//! | `timing` | what the times of requests are, and what is drawn for them |
//! | `queues` | work requests, and what they wait in |
//! | `memory` | keys, what they permit to access, and the copies |
//! | [`udp`] | sockets for many packets at a time |
//! | [`faults`] | what strikes the requests of a process that is to meet faults |
//! | [`trace`] | what a process keeps of this in a file, if it is asked to, and reading it |
//! | [`check`] | what a program does wrong with its buffers, queues and objects, if that is asked for |
//! | `reason` | why requests fail: a number each, for `vendor_err` |
//! | `cancellation` | threads of the program that are cancelled (`pthread_cancel`) |
//!
//! # Unreliable transports
//!
//! An unreliable connection goes the same way, and takes silence for success. A
//! datagram queue pair has no peer; its requests wait in the queue, each with its
//! address, and `engine::datagram` finds out for each where it leads, now to a queue pair
//! of this device or nowhere. What cannot be taken at the other end is dropped, and
//! [`Counters::dropped`], or at another process [`Counters::missed`], is all that tells of
//! it; what fails here stops the send queue alone (SQE), until `ibv_modify_qp` sets it going
//! again. On its way to another process nothing gets lost: a message waits for room, a
//! datagram for as long as that process takes messages.
//!
//! Within a process no message is lost or reordered, unless [`set_network_faults`] or
//! [`Faults::network`] asks for it, with a seed (`schedule::network`).
//!
//! # Multicast groups
//!
//! `ibv_attach_mcast` makes a datagram queue pair a member of the group of a GID: an IPv6 address
//! for multicast, or an IPv4 one that is mapped. A datagram to that GID and to queue pair 0xffffff
//! is copied to each member, which judges it as any other datagram: members without a receive
//! request, or with another Q_Key, drop it, and the sender does not learn it. The sender's own
//! queue pair gets a copy, too, if it is a member, and was not created with
//! `IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`. The header in front of the data names the group; it is one
//! of IPv6 if the group's address is.
//!
//! On a device on the network a group is one of IP, of the family of the device's address (another
//! is `EINVAL`), and each copy is sent from there, also to the same process; an attachment may be
//! refused as the system refuses to join (`fabric::wire::groups`).
//!
//! A queue pair that is attached is `EBUSY`, in any state. Groups, members of a group, and
//! attachments of a queue pair are limited (`ENOMEM`). A faulty network loses, delays and repeats a
//! message for all members alike.
//!
//! On `soft0`, members may be in any process of the user. A process takes part from its first
//! attachment, or its first message to a group, on: it then meets all others that take part, and
//! waits up to a second for their answers. Processes that are met so, and not for a queue pair that
//! the program connects or sends to, take at most half of the descriptors that the program may have.
//! Where that is not enough for those that are there, the attachment is `EMFILE`, and a message goes
//! to those that were met; one that joins later is not met, and its members are not reached, nor
//! its messages received. A message goes into the ring to each process that may
//! have members. It waits for room there while that process drains its ring, an eighth of it in
//! 200 ms at least; where one does not, messages that find its ring full are dropped at once until it
//! has, and [`Counters::overflowed`] counts them: so a process that is slow, or stopped, does not hold
//! up the messages to the others.
//!
//! # XRC
//!
//! Devices on the network have none: they do not say `IBV_DEVICE_XRC`, and each call is `EOPNOTSUPP`.
//!
//! Each request of an extended reliable connection names a shared receive queue at the other end,
//! by its number: a message takes its receive request there and completes at that queue's
//! completion queue, with the receiving queue pair's number; and the memory that any request names
//! is in that queue's protection domain, because the queue pair has none. All operations of a
//! reliable connection are there. A number that is no queue's, or one of another XRC domain, is
//! refused with `REM_INV_REQ`, for each operation, and takes the receiving queue pair to ERR
//! (`QP_REQ_ERR`).
//!
//! A domain is the device's: the contexts of a process that open the same file get the same one.
//! **Processes do not share domains.** The memory of a queue is registered with the device of its
//! process, which receives for that process only; so another process that opens the same file gets
//! a domain of its own, and `ibv_open_qp` of a queue pair that is in another process is
//! `EOPNOTSUPP`. Connections go between processes as any other. On a file without a domain,
//! `ibv_open_xrcd` is `EAGAIN` without `O_CREAT`, and on one with a domain `EINVAL` with `O_EXCL`,
//! as in the kernel.
//!
//! A receiving queue pair is known by handles, of `ibv_create_qp_ex` and of `ibv_open_qp`. Each has
//! its state and gets its events, and it goes with the last of them. A domain that a handle or a
//! queue was made with is `EBUSY`. A receive queue can be destroyed at any time; messages that were
//! received stay in its completion queue, also when the queue pair that took them is gone. If that
//! completion queue overruns, the queue pairs that receive there go to ERR (`QP_FATAL`).
//! `LAST_WQE_REACHED` is not raised: a queue pair takes from all queues of its domain. Attributes
//! of a transition that only the other end has are ignored, as in the kernel.
//!
//! # Memory windows
//!
//! Type 1 is bound by `ibv_bind_mw`, and type 2 by a request (`IBV_WR_BIND_MW`, `ibv_wr_bind_mw`) to
//! the queue pair that it is posted to: only what its peer sends to that one may use the window, or
//! invalidate it (type 2B). Windows are bound by queue pairs of reliable and of unreliable
//! connections, and invalidated by messages of reliable ones only (`IBV_WR_SEND_WITH_INV`, with
//! `IBV_WC_WITH_INV` and `invalidated_rkey` at the receiver). Over XRC, windows of type 1 can be
//! used. `max_mw` windows exist at a time.
//!
//! The rules are those of rxe. The region has `IBV_ACCESS_MW_BIND`, `IBV_ACCESS_LOCAL_WRITE` if the
//! window is to be written, and is not zero-based; windows of type 2 may be. Queue pair, window and
//! region are of one domain. A bound window of type 2 has to be invalidated first; one of type 1 is
//! bound to something else at once, and has a key then that tells nothing of the one before. What is
//! refused completes with `MW_BIND`, an invalidation, too. While windows are bound to a
//! region, `ibv_dereg_mr` and `ibv_rereg_mr` are `EBUSY`; `ibv_dealloc_mw` ends a binding, and so
//! does the reset, or the end, of the queue pair. The low 8 bits of the `rkey` of a request become
//! those of a key of type 2, and the rest of it is not looked at; the post writes that key to `ibv_mw.rkey`, as
//! with irdma.
//!
//! Requests take effect in their order. One that ends a binding completes when no access is under
//! way under the old key any more. It waits for those that can use the window, and for no others:
//! of type 2 that is the peer, or over an unreliable connection all that are connected to its queue
//! pair; of type 1 all that are connected to a queue pair of its domain. If one is in a process
//! that is stopped inside the memory, the request waits until it continues, as any request to that
//! process does. `ibv_dealloc_mw` waits for the same, and is `EBUSY` after five seconds.
//!
//! # On-demand paging
//!
//! A region with `IBV_ACCESS_ON_DEMAND` need not be mapped: the mapping at the time of an access
//! counts. One at NULL of length `SIZE_MAX` has all addresses (an implicit region). All operations
//! of all transports take memory of either kind, also in one list, and memory windows may be bound
//! to such regions. `ibv_advise_mr` brings pages beforehand.
//!
//! A page that is unmapped, protected, or cut off from under the mapping of a file is an error, and
//! never a signal: the kernel copies, by cross-memory attach to the own process, and is asked for
//! the pages before anything changes. The requester's own is `LOC_PROT`, that of a receive request
//! `LOC_PROT` there and `REM_OP`, and what a request names `REM_ACCESS`, as with keys that are not
//! valid. A WRITE to another process, and a thread that takes a page away in the midst of a copy,
//! leave what was copied before. What a requester has lost is no matter of its peer's: also over an
//! unreliable connection the request fails, and the peer's receive request stays where it is. Such copies
//! take some system calls each; nothing else is slower for them. Other processes never map such memory.
//!
//! A page may be slow to be paged in: from a disk, a network, or a thread of the program. Requests
//! of other processes that need it wait, with those behind them in the same process's ring, and no
//! others do: a thread that others rely on leaves pages to another one, of which there is a bounded
//! number. A polling thread has them brought itself, and a post waits for its own. (Waited for by
//! all are pages for a message to a multicast group, for what an atomic operation brings back, for
//! requests that the timer repeats within one process, and one that is gone again between being
//! brought and being copied.)
//!
//! Where the system does not let a process attach to itself, or before Linux 5.14, the device does
//! not report on-demand paging, and registers no such memory that peers may reach.
//!
//! # Locks
//!
//! A batch of the newer send interface, then the send queue, then the receiving side of the
//! peer, then its receive ring, then completion queues, then a shared receive ring's taking side, then
//! the handles of an XRC queue pair, then events, then the table of keys; never two of a kind. The table
//! of multicast groups may be looked at under any of them. The send queue's is held during the copy, and is what makes
//! destruction safe: a thread that invalidates a key, or a queue pair, then waits
//! once for every send queue that could still be using it. (For the key of a memory window it is every
//! receiving side: requests that name one hold it. `objects::quiescence` has what each end of an
//! object waits for.) A list takes each lock once. What is known of
//! a process that is traced or checked has locks of its own, which are taken after all of these.
//!
//! # Statuses
//!
//! They are those that the InfiniBand specification asks for, and ConnectX and the
//! kernel's Soft-RoCE (rxe) give. Where those differ (`tests/status.rs` names each case) the
//! specification decides:
//!
//! | case | here | elsewhere |
//! |---|---|---|
//! | queue pair does not permit a remote operation | `REM_INV_REQ` | some cards: `REM_ACCESS` |
//! | atomic at an address that is not a multiple of 8 | `REM_INV_REQ` | rxe: the post fails |
//! | read or atomic with `max_rd_atomic` 0 | `LOC_QP_OP` | rxe: waits for ever |
//! | key of the sender not valid | `LOC_PROT` | rxe: `LOC_QP_OP` (malformed) |
//! | RC: receive list too short | `REM_INV_REQ`, `LOC_LEN` there | rxe: `REM_OP`, `LOC_QP_OP` there (malformed) |
//! | key of a receive list not valid | `LOC_PROT` there | rxe: `LOC_QP_OP` there |
//! | write with immediate, remote key not valid | `WR_FLUSH` there | rxe: `REM_ACCESS` there (it has taken the receive request) |
//! | RC: message of a queue pair that is not the peer | dropped | taken: packets do not name their sender |
//! | message over 1 GiB | `LOC_LEN` | some: `LOC_PROT`, or the post fails; rxe continues to the end of the memory: `LOC_QP_OP`, `REM_ACCESS` |
//! | first PSN not the expected one | no response, `RETRY_EXC` | an older one is taken for a repetition, and acknowledged |
//! | RESET to ERR | `EINVAL` (as the kernel) | the specification's text permits it |
//! | UC, UD: message longer than the receive request | dropped, the request stays | rxe: `LOC_QP_OP` there, and ERR; mlx5: `LOC_LEN` there, and ERR |
//! | UC: key of a write not valid | dropped | rxe: the responder goes to ERR |
//! | UC, UD: request failed here | SQE | rxe: ERR |
//! | datagram longer than the MTU | `LOC_LEN` (as cards) | rxe, and the specification: completes, and nothing is sent |
//! | Q_Key with the top bit set | the sending queue pair's own | rxe: sent unchanged |
//! | message to a process that is stopped | waits until it continues | acknowledged, or RNR: the card is not stopped |
//! | LID of a multicast group | names one of the attachments of a queue pair, which is a member as long as it has one | rxe: a member until the first one is ended |
//! | more attachments than a queue pair may have | `ENOMEM` | rxe has no such limit |
//! | atomics on on-demand memory | atomic with each other, in the process that has it registered, and with nothing else | cards: as all others |
//! | key to be invalidated here that is none of a window bound to the queue pair | `MW_BIND` (a memory management operation error) | rxe: `LOC_QP_OP`; a window of type 2 that is not bound is invalidated again |
//! | the same, in a message | `REM_ACCESS`, `REM_INV_REQ` there | rxe: acknowledged, `REM_INV_REQ` there |
//! | resizing a shared queue | not offered | cards have it |
//!
//! Beside the statuses rxe differs in these (its provider in rdma-core 44, Linux 6.1);
//! the tests assert what it does:
//!
//! | case | here | rxe |
//! |---|---|---|
//! | post that fails | a positive errno, `errno`, and the request | sends: negative where the library refuses; no request is named where the kernel does |
//! | slot of an unsignalled request | free when a later completion was polled | free when it is acknowledged |
//! | request with `IBV_SEND_IP_CSUM` | refused: no capability says so | taken |
//! | receives of a shared queue | their buffers are in the queue's domain | in that of the queue pair |
//! | receive posted in ERR | flushed at once | flushed when ERR is entered again: the post does not reach the kernel |
//! | region of no bytes | registered | only if it does not begin at the start of a page |
//! | region with an address of its own | any | at the same place in its page, as the kernel asks |
//! | `QP_ACCESS_ERR`, `QP_REQ_ERR` at a responder | raised | not raised |
//! | completions of a destroyed queue pair | go with it | stay |
//! | `LAST_WQE_REACHED` | raised | not raised |
//! | SQD while a request waits for its receiver | finishes it, then `SQ_DRAINED` | may be drained at once, and retries it no more |
//! | `cur_qp_state` of a query | the state | what was last set there |
//! | `pkey_index`, `path_mtu` 0, `max_dest_rd_atomic` out of range | refused | taken |
//!
//! The memory of a region that is not on demand has to stay mapped while it is registered: a card
//! keeps its pages, and this device accesses it where it lies. What is read-only is `EFAULT` at a
//! registration with `LOCAL_WRITE` (before Linux 6.11, if its first or its last page is).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "soft-rnic is for x86-64 only: what other processes access meanwhile is copied by inline \
     assembly, of which there is none for this processor yet (see `copy.rs`)"
);

mod alloc;
mod cancellation;
pub mod check;
mod clock;
mod copy;
mod counters;
mod engine;
mod enums;
mod errno;
mod event;
mod fabric;
pub mod faults;
mod forked;
mod limits;
mod lock;
mod memory;
mod objects;
mod peers;
mod per_process;
pub mod probe;
mod queues;
mod reason;

mod schedule;
#[cfg(test)]
mod testing;
mod timing;
pub mod trace;
pub mod udp;
mod verbs;

pub use cancellation::{Uncancelled, WAITS};
pub use counters::{Counters, PacketCounters};
pub use fabric::process::crosses_processes;
pub use fabric::wire::{ListError, Roce, RoceError};
pub use fabric::wire::{Unreached, peer_unreached, report_peer_unreached};
pub use memory::attach::refused_memory;
pub use objects::device::{counters, counters_of, is_on_the_network, packet_counters_of};
pub use peers::process::peer_not_found::peer_not_found;
pub use reason::vendor_err;
pub use schedule::distance::{card, distant};
pub use schedule::network::set_network_faults;
pub use schedule::sim::Simulation;
#[cfg(feature = "simulation")]
pub use schedule::world::{WorldDevice, WorldKind, WorldMachine};
pub use timing::card::{CallCosts, call_costs};
pub use timing::network::NetworkFaults;
pub use timing::simulation::Faults;
#[cfg(feature = "simulation")]
pub use udp::{NetworkNature, WorldNetwork};
pub use verbs::asynchronous::try_get_async_event;
pub use verbs::channel::try_get_cq_event;
pub use verbs::import::{
    import_device, import_dm, import_mr, import_pd, unimport_dm, unimport_mr, unimport_pd,
};
pub use verbs::qp_ex::qp_to_qp_ex;
pub use verbs::table;
