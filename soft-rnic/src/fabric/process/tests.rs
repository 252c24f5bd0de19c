//! A peer that does not keep the rules: whatever it writes, it harms itself at most.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::errno;
use crate::fabric::process::peer_processes::{ALL_DEPARTED, DEPARTED, depart};
use crate::memory::published::{InFile, PublishedMw, PublishedRegion};
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, ExecutionMode, PeerProcesses, ProgressEngine, Qp};
use crate::peers::process::directory::{INDEX_BITS, ProcessDirectory, SLOTS, slot_of};
use crate::peers::process::mapped::Mapped;
use crate::peers::process::pair::{self, PairParts, ProcessPair};
use crate::peers::process::ring::{PayloadLocation, Rings, WANTS_REPLY};
use crate::queues::outcome::{WaitCause, WqeOutcome};
use crate::queues::qp_state::QueuePairState;
use crate::reason::WcReason;
use host::random::Random;
use host::sync::SetOnDrop;
use rustix::event::epoll;
use rustix::io::Errno;
use verbs_sys::*;

mod backpressure;
mod blocking;
mod copied;
mod copies;
mod halves;
mod liveness;
mod long;
mod makes_way;
mod meeting;
mod multicast;
mod mws;
mod mws_between;
mod paging;
mod parts;
mod peer_not_found;
mod reading;
mod room;
mod windows;

/// Peers that are made up have numbers below this.
const MADE_UP: u32 = 256;

/// A device of its own. The slot that it claims begins anywhere, and is that of no made-up peer.
fn device_of_its_own(ordinal: u64) -> Arc<Device> {
    loop {
        let device = Device::new("test", ordinal, ExecutionMode::Synchronous);
        let own = slot_of(device.peers.as_ref().unwrap().base());
        if (0..MADE_UP).all(|n| slot(n) != own) {
            return device;
        }
    }
}

/// The slots of the peers that are made up: any but this process's.
fn slot(n: u32) -> u32 {
    assert!(n < MADE_UP, "the slot may be that of a device");
    let device = crate::objects::device::default_device();
    let own = slot_of(device.peers.as_ref().unwrap().base());
    (own + 1 + n) % SLOTS
}

/// The queue pair that a made-up peer has.
fn far(slot: u32) -> u32 {
    slot << INDEX_BITS | 0x50
}

/// A peer whose memory files are ours to write.
struct Wild {
    rings: Mapped<Rings>,
    directory: Mapped<ProcessDirectory>,
    /// Its ends of the connections.
    sockets: Option<[OwnedFd; 2]>,
    pair: Arc<ProcessPair>,
    progress: ProgressEngine,
    index: u32,
}

fn copy_of(file: std::os::fd::BorrowedFd<'_>) -> OwnedFd {
    file.try_clone_to_owned().unwrap()
}

/// Two connections: our ends, and the other's.
fn connections() -> ([OwnedFd; 2], [OwnedFd; 2]) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let connection = || {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    };
    let ((a, b), (c, d)) = (connection(), connection());
    ([a, c], [b, d])
}

/// A process that does nothing until it is told to end.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn new() -> Sleeper {
        let stdin = std::process::Stdio::piped();
        Sleeper(std::process::Command::new("cat").stdin(stdin).spawn().unwrap())
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.0)
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Wild {
    fn new() -> Wild {
        Wild::at_slot(slot(0), rustix::process::getpid())
    }

    /// A peer that is said to be a process.
    fn at_slot(slot: u32, process: rustix::process::Pid) -> Wild {
        let rings: Mapped<Rings> = Mapped::create("test").unwrap();
        let directory: Mapped<ProcessDirectory> = Mapped::create("test").unwrap();
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let doorbell = rustix::event::eventfd(0, flags).unwrap();
        let ([socket, accepted], sockets) = connections();
        let pidfd = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty());
        let pair = Arc::new(ProcessPair::new(PairParts {
            slot,
            pid: process.as_raw_pid(),
            pidfd: pidfd.unwrap(),
            theirs: Mapped::open(&copy_of(directory.file().unwrap())).unwrap(),
            incoming: Mapped::open(&copy_of(rings.file().unwrap())).unwrap(),
            outgoing: Mapped::create("test").unwrap(),
            socket,
            accepted,
            doorbell,
            proof: crate::memory::attach::Proof::for_tests(),
        }));
        let mut progress = ProgressEngine::default();
        progress.add(Arc::clone(&pair));
        Wild { rings, directory, sockets: Some(sockets), pair, progress, index: 0 }
    }

    /// The device knows it.
    fn met(&self) {
        self.known();
        let device = crate::objects::device::default_device();
        let peers = device.peers.as_ref().unwrap();
        peers.progress.lock().add(Arc::clone(&self.pair));
    }

    /// The device knows it, but not what it sends: only its own progress engine takes that, and no
    /// thread that polls meanwhile.
    fn known(&self) {
        static OWNERS: std::sync::Mutex<BTreeMap<u32, String>> =
            std::sync::Mutex::new(BTreeMap::new());
        if let Some(test) = std::thread::current().name() {
            let mut owners = OWNERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let owner = owners.entry(self.pair.slot).or_insert_with(|| test.to_owned()).clone();
            drop(owners);
            assert_eq!(owner, test, "two tests have a peer in slot {}", self.pair.slot);
        }
        let device = crate::objects::device::default_device();
        let peers = device.peers.as_ref().unwrap();
        peers.pairs.write().insert(self.pair.slot, Arc::clone(&self.pair));
    }

    /// Has the queue pair that one of ours is connected to.
    fn receive_from(&self, qp: &Qp) {
        let entry = self.directory.qp(far(self.pair.slot));
        entry.transport.store(qp.transport as u32, Ordering::Relaxed);
        entry.dest_qpn.store(qp.num, Ordering::Relaxed);
        entry.generation.store(1, Ordering::Relaxed);
        entry.state.store(QueuePairState::Rts as u32, Ordering::Release);
    }

    /// Says that all messages of a queue pair up to this one are done.
    fn acknowledge(&mut self, qp: &Qp, number: u32) {
        let incarnation = qp.responder.lock().generation as u8;
        let kinds = u64::from(u32::from_le_bytes([0, 0, incarnation, 0])) << 32;
        let to = u64::from(qp.num) | u64::from(number) << 32;
        self.rings.scribble_reply(self.index, [kinds, to, 0, 0]);
        self.index += 1;
    }

    fn scribble(&mut self, random: &mut Random, to: &[u32]) {
        let number = |random: &mut Random| random.below(3) as u32;
        let pick = |random: &mut Random, of: &[u64]| of[random.below(of.len() as u64) as usize];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let target = pick(random, &[to[0].into(), to[1].into(), 0, 0xff_ffff]) as u32;
        let any = random.next_u64();
        let peer = u64::from(far(self.pair.slot));
        let from = pick(random, &[peer, peer, to[0].into(), any]) as u32;
        // Events that end it at once are rare.
        let more = u64::from(random.below(50) == 0);
        let what = random.below(7 + more) as u8;
        let kinds = [what, random.next_u64() as u8, random.below(3 + more) as u8, 0];
        let lens = [0, 1, 32, 33, 4_096, 8_193, 1 << 20, u64::from(u32::MAX), any];
        let edges = [0, 1, 33, 511 << 10, (512 << 10) - 8, 1 << 40, u64::MAX, random.next_u64()];
        let body = [(); 4].map(|()| pick(random, &edges));
        let mut kinds = u32::from_le_bytes(kinds);
        let mut message = pair(random.next_u64() as u32, pick(random, &lens) as u32);
        if random.below(4) == 0 {
            kinds = u32::from_le_bytes([0, WANTS_REPLY, PayloadLocation::Halves as u8, 0]);
            let len = |random: &mut Random| 1 + random.below(16 + more) as u32;
            message = pair(len(random), len(random));
        }
        let words = [
            pair(0, kinds),
            pair(target, from),
            pair(number(random), number(random)),
            message,
            body[0],
            body[1],
            body[2],
            body[3],
        ];
        self.rings.scribble_request(self.index, words);
        let sender = self.directory.qp(far(slot(0)));
        sender.state.store(QueuePairState::Rts as u32, Ordering::Relaxed);
        let refusals = [
            WcReason::LocalGone,
            WcReason::PeerInvalid,
            WcReason::PeerKey,
            WcReason::PeerOperation,
        ];
        let [a, b, c, d] = refusals.map(|reason| reason as u64);
        let reason = pick(random, &[a, b, c, d, a + 7 * more]) as u8;
        let verdict = [random.below(5 + more) as u8, reason, 0, 0];
        let kinds = pair(0, u32::from_le_bytes(verdict));
        let reply = [kinds, pair(target, number(random)), random.next_u64(), 0];
        self.rings.scribble_reply(self.index, reply);
        self.index = self.index.wrapping_add(1);
        let published = PublishedRegion {
            version: 0,
            pd: 1,
            access: random.next_u64() as u32,
            iova: pick(random, &edges),
            length: pick(random, &edges),
            addr: pick(random, &edges),
            file: (random.below(2) == 0).then(|| InFile {
                fd: random.below(20) as u32,
                inode: random.below(9),
                offset: pick(random, &edges),
                split: pick(random, &edges),
                second: pick(random, &edges),
            }),
            mw: (random.below(2) == 0).then(|| PublishedMw {
                pd: random.below(2) as u32,
                qpn: pick(random, &[0, to[0].into()]) as u32,
                region: pick(random, &edges) as u32,
            }),
        };
        self.directory.publish(pick(random, &edges) as u32, &published);
        if more > 0 {
            self.rings.replies_read.store(random.next_u64() as u32, Ordering::Relaxed);
        }
    }
}

/// A queue pair that is connected to the peer, with receive requests.
fn connected(kind: ibv_qp_type) -> Arc<Qp> {
    connected_to(kind, far(slot(0)))
}

fn connected_to(kind: ibv_qp_type, far: u32) -> Arc<Qp> {
    connected_with(kind, far, 0xf)
}

/// As [`connected_to`]; its buffers are registered with these flags.
fn connected_with(kind: ibv_qp_type, far: u32, access: i32) -> Arc<Qp> {
    connected_on(&crate::objects::device::default_device(), kind, far, access)
}

/// As [`connected_with`], on this device.
fn connected_on(device: &Arc<Device>, kind: ibv_qp_type, far: u32, access: i32) -> Arc<Qp> {
    let verbs = crate::table();
    // SAFETY: the calls of a program that sets a queue pair up, in their order; nothing
    // is taken down again, and the device stays as long as its context.
    unsafe {
        let context = (verbs.open_device)(device.as_abi());
        let pd = (verbs.alloc_pd)(context);
        let cq = (verbs.create_cq)(context, 4_096, null_mut(), null_mut(), 0);
        let mut attr: ibv_qp_init_attr = core::mem::zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, kind);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (64, 4_096, 2);
        let qp = (verbs.create_qp)(pd, &mut attr);
        let object = Qp::from_abi(qp).unwrap().keep();
        {
            let (mut sq, mut responder) = (object.sq.lock(), object.responder.lock());
            sq.requester.dest_qpn = far;
            sq.requester.reaches_us = true;
            (responder.dest_qpn, responder.peer_is_here) = (far, true);
            (responder.access, responder.max_dest_rd_atomic) = (0xf, 1);
            object.connect(&mut sq, &mut responder);
            object.set_state(QueuePairState::Rts);
        }
        let (len, buffer) = (1 << 16, vec![0_u8; 1 << 16].leak().as_mut_ptr());
        let mr = (verbs.reg_mr)(pd, buffer.cast(), len, access);
        let mut sge = ibv_sge { addr: buffer as u64, length: len as u32, lkey: (*mr).lkey };
        for wr_id in 0..4_096 {
            let (next, mut bad) = (null_mut(), null_mut());
            let mut wr = ibv_recv_wr { wr_id, next, sg_list: &mut sge, num_sge: 1 };
            assert_eq!(ibv_post_recv(qp, &mut wr, &mut bad), 0);
        }
        object
    }
}

#[test]
fn nothing_that_a_peer_writes_harms_this_process() {
    let device = crate::objects::device::default_device();
    let mut random = Random::new(7);
    let mut survived = 0;
    for _ in 0..60 {
        let qps = [connected(ibv_qp_type::IBV_QPT_RC), connected(ibv_qp_type::IBV_QPT_UC)];
        let mut wild = Wild::new();
        for _ in 0..500 {
            wild.scribble(&mut random, &[qps[0].num, qps[1].num]);
            let mut deferred = DeferredWork::default();
            wild.progress.run(&device, &mut deferred);
            deferred.run();
            if wild.pair.is_dead() {
                break;
            }
            survived += 1;
        }
    }
    assert!(survived > 1_000, "{survived}: most of it has to get as far as the queue pairs");
}

/// Posts messages of no bytes, each signalled.
fn post_sends(qp: &Arc<Qp>, n: u64) {
    for wr_id in 0..n {
        // SAFETY: a request without a list, on a queue pair that is alive.
        unsafe {
            let mut wr: ibv_send_wr = core::mem::zeroed();
            (wr.wr_id, wr.opcode) = (wr_id, ibv_wr_opcode::IBV_WR_SEND);
            wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let mut bad = null_mut();
            assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut bad), 0);
        }
    }
}

/// The statuses of the completions that are there.
fn statuses(qp: &Arc<Qp>) -> Vec<ibv_wc_status> {
    // SAFETY: the queue is alive; zeroes are completions.
    unsafe {
        let mut wcs: [ibv_wc; 16] = core::mem::zeroed();
        let n = ibv_poll_cq((*qp.as_abi()).send_cq, 16, wcs.as_mut_ptr());
        wcs[..n as usize].iter().map(|wc| wc.status).collect()
    }
}

/// The first `n` completions: what is lost with a process fails a timeout later.
fn first(n: usize, qp: &Arc<Qp>) -> Vec<ibv_wc_status> {
    let start = host::time::now();
    let mut all = Vec::new();
    while all.len() < n {
        assert!(host::time::since(start) < Duration::from_secs(60), "{n} wanted, {all:?} polled");
        all.extend(statuses(qp));
        host::thread::yield_now();
    }
    all.truncate(n);
    all
}

const SUCCESS: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;
const RETRY_EXC: ibv_wc_status = ibv_wc_status::IBV_WC_RETRY_EXC_ERR;

#[test]
fn what_a_process_has_acknowledged_before_it_ended_has_arrived() {
    let device = crate::objects::device::default_device();
    let (mut process, mut peer, qp) = met(slot(1));
    peer.acknowledge(&qp, 0);
    process.end();
    device.bury(&peer.pair);
    // After them, the receive requests are flushed.
    assert_eq!(first(2, &qp), [SUCCESS, RETRY_EXC]);
}

/// A refused request has failed: a success, or a number that is no reason to refuse, is not
/// believed.
#[test]
fn a_refusal_has_the_reason_of_one() {
    let device = crate::objects::device::default_device();
    let key = WcReason::PeerKey as u8;
    for (number, reason) in [(40, 0), (41, WcReason::Rnr as u8), (42, 12), (43, 200), (44, key)] {
        let (_process, mut peer, qp) = known(slot(number));
        let incarnation = qp.responder.lock().generation as u8;
        let kinds = u64::from(u32::from_le_bytes([4, reason, incarnation, 0])) << 32;
        peer.rings.scribble_reply(0, [kinds, qp.num.into(), 0, 0]);
        let mut deferred = DeferredWork::default();
        peer.progress.run(&device, &mut deferred);
        deferred.run();
        let is_one = reason == key;
        assert_eq!(peer.pair.is_dead(), !is_one, "{reason}");
        device.bury(&peer.pair);
        let failed = if is_one { ibv_wc_status::IBV_WC_REM_ACCESS_ERR } else { RETRY_EXC };
        assert_eq!(first(1, &qp), [failed], "{reason}");
    }
}

/// A peer that is another process and has been met, and a queue pair to it with two
/// messages under way.
fn met(slot: u32) -> (Sleeper, Wild, Arc<Qp>) {
    let (process, peer, qp) = known(slot);
    peer.met();
    (process, peer, qp)
}

/// As [`met`], and what it sends is taken by its own progress engine only.
fn known(slot: u32) -> (Sleeper, Wild, Arc<Qp>) {
    let process = Sleeper::new();
    let peer = Wild::at_slot(slot, process.pid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot));
    peer.known();
    peer.receive_from(&qp);
    post_sends(&qp, 2);
    assert_eq!(statuses(&qp), []);
    (process, peer, qp)
}

#[test]
fn a_process_that_ended_is_reported_once() {
    let (mut process, peer, _qp) = met(slot(2));
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    progress_thread::watch_with(&set, &peer.pair);
    process.end();
    let mut seen = 0;
    let mut events = Vec::with_capacity(8);
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    for _ in 0..3 {
        events.clear();
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap();
        seen += events.len();
    }
    assert_eq!(seen, 1);
}

/// A peer that has all that it wants may exit, and what it has sent is for the program to see
/// first.
#[test]
fn what_goes_to_a_process_that_has_died_fails_one_timeout_later() {
    let (_process, peer, qp) = known(slot(21));
    peer.pair.declare_dead();
    for (timeout, ns) in [(1, 8_192), (14, 67_108_864), (31, 67_108_864), (0, 67_108_864)] {
        let mut sq = qp.sq.lock();
        (sq.requester.timeout, sq.requester.retries_left) = (timeout, 7);
        let outcome = qp.lost(&mut sq.requester, 8);
        assert_eq!(outcome, WqeOutcome::Blocked(WaitCause::Response, Some(ns)), "{timeout}");
        assert_eq!(sq.requester.retries_left, 0, "it is not tried again");
    }
    let unreliable = connected_to(ibv_qp_type::IBV_QPT_UC, far(slot(21)));
    let outcome = unreliable.lost(&mut unreliable.sq.lock().requester, 8);
    assert_eq!(outcome, WqeOutcome::Dropped);
}

#[test]
fn a_process_that_runs_another_program_has_gone() {
    let device = crate::objects::device::default_device();
    let (_process, mut peer, qp) = met(slot(3));
    peer.acknowledge(&qp, 0);
    assert!(!peer.pair.has_left());
    // As exec does: it lives, under its number.
    for socket in peer.sockets.take().unwrap() {
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
    }
    assert!(peer.pair.has_gone());
    device.bury(&peer.pair);
    assert_eq!(first(2, &qp), [SUCCESS, RETRY_EXC]);
}

#[test]
fn a_process_that_takes_us_for_dead_has_left() {
    let device = crate::objects::device::default_device();
    let (_process, peer, qp) = met(slot(4));
    let [_, theirs] = peer.sockets.as_ref().unwrap();
    rustix::net::shutdown(theirs, rustix::net::Shutdown::Write).unwrap();
    assert!(peer.pair.has_left() && !peer.pair.has_gone());
    device.bury(&peer.pair);
    assert_eq!(first(1, &qp), [RETRY_EXC]);
}

#[test]
fn a_process_that_is_declared_dead_hears_of_it() {
    let peer = Wild::new();
    let [theirs, _] = peer.sockets.as_ref().unwrap();
    // SAFETY: the child makes a few system calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        peer.pair.declare_dead();
        // SAFETY: it ends the child, and runs nothing of the parent's.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut 0, 0) }, child);
    let heard = rustix::net::recv(theirs, &mut [0; 8], rustix::net::RecvFlags::DONTWAIT);
    assert_eq!(heard.err(), Some(Errno::AGAIN), "a child does not speak for its parent");
    peer.pair.declare_dead();
    assert_eq!(
        rustix::net::recv(theirs, &mut [0; 8], rustix::net::RecvFlags::DONTWAIT).unwrap().1,
        0
    );
    // And so does the progress thread.
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    progress_thread::watch_with(&set, &peer.pair);
    let mut events = Vec::with_capacity(8);
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap();
    assert_eq!(events.len(), 1);
}

#[test]
fn memory_stays_while_a_process_declared_dead_still_runs() {
    let device = crate::objects::device::default_device();
    let peers = device.peers.as_ref().unwrap();
    let (mut process, peer, _qp) = met(slot(5));
    let number = far(slot(5));
    peer.directory.use_qp(number);
    let inside = peer.directory.qp(number).enter(false);
    device.bury(&peer.pair);
    assert!(peers.pair(slot(5)).is_none());
    assert_eq!(peers.wait_outside(), Err(errno::EBUSY));
    // A process that has ended is not waited for.
    process.end();
    assert_eq!(peers.wait_outside(), Ok(()));
    let is_it = |pair: &Arc<ProcessPair>| Arc::ptr_eq(pair, &peer.pair);
    assert!(!peers.departed.lock().iter().any(is_it));
    device.bury(&peer.pair);
    assert!(!peers.departed.lock().iter().any(is_it));
    drop(inside);
}

#[test]
fn a_process_met_repeatedly_keeps_its_last_pairs_only() {
    let (process, mut departed) = (Sleeper::new(), Vec::new());
    let other = Wild::at_slot(slot(46), rustix::process::getpid());
    depart(&mut departed, &other.pair);
    let peers: Vec<_> = (0..20).map(|_| Wild::at_slot(slot(45), process.pid())).collect();
    for peer in &peers {
        depart(&mut departed, &peer.pair);
        depart(&mut departed, &peer.pair);
    }
    let kept: Vec<_> = departed.iter().map(Arc::as_ptr).collect();
    let last = peers[20 - DEPARTED..].iter().map(|peer| Arc::as_ptr(&peer.pair));
    assert_eq!(kept, core::iter::once(Arc::as_ptr(&other.pair)).chain(last).collect::<Vec<_>>());
}

#[test]
fn of_all_departed_pairs_only_the_last_are_kept() {
    let processes: Vec<_> = (0..=ALL_DEPARTED / DEPARTED).map(|_| Sleeper::new()).collect();
    let mut departed = Vec::new();
    for process in &processes {
        for _ in 0..DEPARTED {
            depart(&mut departed, &Wild::at_slot(slot(47), process.pid()).pair);
        }
    }
    assert_eq!(departed.len(), ALL_DEPARTED);
    assert!(departed.iter().all(|pair| pair.pid != processes[0].pid().as_raw_pid()));
}

/// The state of a process that has claimed a slot, and whose program waits.
fn waiting() -> PeerProcesses {
    let peers = PeerProcesses::default();
    peers.here().unwrap();
    peers.progress_thread.says_that_it_waits();
    peers.arm();
    peers
}

#[test]
fn the_progress_thread_lets_a_program_sleep_that_was_quicker() {
    let peers = waiting();
    let here = peers.here().unwrap();
    let is_armed = || here.directory.armed.load(Ordering::Relaxed) != 0;
    // No thread has answered the doorbell.
    pair::ring(&here.doorbell);
    assert!(peers.answer(here) && !is_armed());
    // The program has answered it, has taken what arrived, and sleeps again.
    peers.progress_thread.says_that_it_waits();
    peers.arm();
    pair::ring(&here.doorbell);
    assert!(pair::answer(&here.doorbell));
    peers.arm();
    assert!(!peers.answer(here) && is_armed());
}

#[test]
fn a_queue_pair_cannot_be_cleared_while_its_peer_is_inside() {
    let slot = slot(6);
    let process = Sleeper::new();
    let peer = Wild::at_slot(slot, process.pid());
    for is_declared_dead in [false, true] {
        let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot));
        if is_declared_dead {
            crate::objects::device::default_device().bury(&peer.pair);
        } else {
            peer.met();
        }
        let clear = || qp.clear(&mut qp.sq.lock(), &mut qp.responder.lock());
        let inside = peer.directory.qp(far(slot)).enter(false);
        assert_eq!(clear(), Err(errno::EBUSY));
        drop(inside);
        // It is connected no more: nothing is waited for.
        let _inside = peer.directory.qp(far(slot)).enter(false);
        assert_eq!(clear(), Ok(()));
    }
}

#[test]
fn a_thread_that_polls_wakes_no_thread_that_waits() {
    let peers = waiting();
    let here = peers.here().unwrap();
    let is_armed = || here.directory.armed.load(Ordering::Relaxed) != 0;
    peers.saw_poll();
    assert!(is_armed(), "it looks around before it sleeps");
    for _ in 0..1_000 {
        peers.saw_poll();
    }
    assert!(!is_armed() && !pair::answer(&here.doorbell));
}
