//! Traces of processes that were killed: what each scene has posted, and never seen complete.
//!
//! A scene is played by this program, started again. It says when it has posted, waits, and is
//! killed; then its trace is read.
//!
//! Only on soft0: it reads traces of soft0.

mod common;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::path::PathBuf;

use common::other::*;
use common::*;
use host::sync::SetOnDrop;
use soft_rnic::trace::{Stage, Trace, TracedWaitReason, VARIABLE, load};
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const UNSIGNALLED: ibv_send_flags = ibv_send_flags(0);

/// Returns the prefix of the paths of a scene's traces.
fn prefix(scene: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{scene}"))
}

/// The trace of a process of a scene, if there is one.
fn read(scene: &str, process: i32) -> Option<Trace> {
    let file = prefix(scene).with_extension(process.to_string());
    Some(load(&mut std::fs::File::open(file).ok()?).unwrap())
}

fn remove(scene: &str, process: i32) {
    std::fs::remove_file(prefix(scene).with_extension(process.to_string())).unwrap();
}

const WIRED: &str = "roce:127.31.9.2,loopback=wire";
/// In one process on soft0, and over the network.
const DEVICES: [&str; 2] = ["soft0", WIRED];

/// Returns the stage of a request that the receiver has not taken: over the network it was sent.
fn untaken(device: &str) -> Stage {
    if device == WIRED { Stage::Sent } else { Stage::Queued }
}

/// [`killed_on`] soft0, of what it alone has.
fn killed(scene: &str) -> Trace {
    killed_on("soft0", scene)
}

/// [`killed_on`] each device.
fn each_killed(scene: &str) -> [(&'static str, Trace); 2] {
    DEVICES.map(|device| (device, killed_on(device, scene)))
}

/// Plays a scene until it has posted all, kills it, and reads its trace.
fn killed_on(device: &str, scene: &str) -> Trace {
    let mut other = Other::start_on("the_other_process", scene, Some(device));
    assert_eq!(other.hear(), "posted");
    other.signal(libc::SIGKILL);
    let _ = other.wait();
    let trace = read(scene, other.pid()).expect("a trace");
    remove(scene, other.pid());
    assert_eq!((trace.process, trace.left_out), (other.pid() as u32, 0));
    // The thread of a timer may be writing one.
    assert!(trace.torn <= 1, "{trace:?}");
    trace
}

#[test]
fn the_other_process() {
    let Some(scene) = role() else { return };
    // SAFETY: nothing else runs in this process, and nothing has opened the device.
    unsafe { std::env::set_var(VARIABLE, prefix(&scene)) };
    match &*scene {
        "receiver" => no_receive_request(),
        "response" => no_response(),
        "unpolled" => nothing_polled(),
        "refused" => refused(),
        "shared" => shared_queue(),
        "drained" => drained(),
        "batch" => batch(),
        "injected-rnr" => injected("rnr=1"),
        "injected-loss" => injected("retry=1"),
        "pollers" => two_pollers(),
        "fork" => return fork(),
        _ => panic!("{scene}"),
    }
    say("posted");
    hear();
}

fn net() -> Net {
    Net::new()
}

/// Waits until the device has counted that; on soft0 it has when the post returns.
fn has_counted(what: impl Fn(soft_rnic::Counters) -> bool) {
    while !what(soft_rnic::counters_of(&provider().1).unwrap()) {
        std::thread::yield_now();
    }
}

fn post(p: &QpPair, id: u64, opcode: ibv_wr_opcode, flags: ibv_send_flags) -> i32 {
    let mut sges = [sge(p.mr[0], 0, 64)];
    let mut wr = send_wr(id, opcode, &mut sges, flags);
    wr.wr.rdma.remote_addr = p.addr(1);
    wr.wr.rdma.rkey = p.key(1);
    post_send(p.qp[0], &mut wr)
}

fn receive(p: &QpPair, id: u64) {
    assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 0, 100)]), 0);
}

/// Returns what a queue pair of a trace has outstanding: the sends with their stages, and the
/// receives.
fn outstanding(trace: &Trace, end: usize) -> (Vec<(u64, Stage)>, Vec<u64>) {
    let pair = &trace.queue_pairs[end];
    let sends = pair.sends.iter().map(|request| (request.wr_id, request.stage)).collect();
    (sends, pair.receives.iter().map(|request| request.wr_id).collect())
}

/// The queue pairs do not go: destruction would take them out of the trace.
fn keep(p: QpPair) {
    core::mem::forget(p);
}

fn no_receive_request() {
    let config = ConnectConfig::PATIENT;
    let p = QpPair::with(net(), config, config);
    assert_eq!(post(&p, 1, W::IBV_WR_SEND, SIGNALED), 0);
    assert_eq!(post(&p, 2, W::IBV_WR_RDMA_WRITE, UNSIGNALLED), 0);
    has_counted(|counters| counters.rnr_naks > 0);
    keep(p);
}

#[test]
fn a_message_waits_for_a_receive_request() {
    for (device, trace) in each_killed("receiver") {
        let stage = untaken(device);
        assert_eq!(outstanding(&trace, 0).0, [(1, stage), (2, stage)]);
        let pair = &trace.queue_pairs[0];
        let waiting = pair.waiting.unwrap();
        assert_eq!(
            (waiting.reason, pair.rnr_retry, pair.state),
            (TracedWaitReason::Receiver, 7, "RTS")
        );
        assert!(waiting.tries > 0);
        assert_eq!(pair.peer, Some(trace.queue_pairs[1].number));
        let address = (device == WIRED).then(|| "127.31.9.2".parse().unwrap());
        assert_eq!(pair.peer_address, address);
        assert_eq!((pair.sends[0].operation, pair.sends[1].operation), ("SEND", "WRITE"));
        assert_eq!((pair.sends[0].is_signaled, pair.sends[1].is_signaled), (true, false));
        assert_eq!((pair.sends[0].len, pair.sends[0].index), (64, 0));
    }
}

/// A request that waits for a fault, for ever or for long.
fn injected(plan: &str) {
    // SAFETY: nothing else runs in this process, and nothing has opened the device.
    unsafe { std::env::set_var(soft_rnic::faults::VARIABLE, format!("{plan},seed=1")) };
    // About retries: the one that is waited for never arrives.
    let config = ConnectConfig { timeout: 31, ..ConnectConfig::PATIENT };
    let p = QpPair::with(net(), config, config);
    receive(&p, 1);
    assert_eq!(post(&p, 1, W::IBV_WR_SEND, SIGNALED), 0);
    keep(p);
}

#[test]
fn an_injected_fault_is_said_to_be_one() {
    for (scene, reason) in [
        ("injected-rnr", TracedWaitReason::InjectedRnr),
        ("injected-loss", TracedWaitReason::InjectedLoss),
    ] {
        let trace = killed(scene);
        let pair = &trace.queue_pairs[0];
        assert_eq!(outstanding(&trace, 0).0, [(1, Stage::Queued)]);
        assert_eq!(pair.waiting.unwrap().reason, reason);
    }
}

/// Each try is counted, of the one request that waits.
#[test]
fn a_trace_is_read_while_the_process_runs() {
    for device in DEVICES {
        let mut other = Other::start_on("the_other_process", "receiver", Some(device));
        assert_eq!(other.hear(), "posted");
        let tries = || {
            let trace = read("receiver", other.pid()).expect("a trace");
            trace.queue_pairs[0].waiting.map_or(0, |waiting| waiting.tries)
        };
        while tries() < 3 {
            std::thread::yield_now();
        }
        other.signal(libc::SIGKILL);
        let _ = other.wait();
        remove("receiver", other.pid());
    }
}

fn no_response() {
    // About retries: over the network a response is missing when it has been waited for.
    let timeout = if is_wired() { 14 } else { 21 };
    let config = ConnectConfig { timeout, retry_cnt: 7, ..ConnectConfig::default() };
    let p = QpPair::unconnected(ibv_qp_type::IBV_QPT_RC, net());
    // Its own peer is not connected.
    p.net.connect(p.qp[0], p.num(1), config);
    assert_eq!(post(&p, 1, W::IBV_WR_RDMA_READ, SIGNALED), 0);
    assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_RESET), 0);
    has_counted(|counters| counters.retries > 0 || !is_wired());
    keep(p);
}

#[test]
fn a_request_waits_for_a_response() {
    for (device, trace) in each_killed("response") {
        assert_eq!(outstanding(&trace, 0).0, [(1, untaken(device))]);
        assert_eq!(trace.queue_pairs[0].waiting.unwrap().reason, TracedWaitReason::Response);
        assert_eq!(trace.queue_pairs[1].state, "RESET");
    }
}

/// The peer permits no such access; both ends poll all that there is.
fn refused() {
    let p = QpPair::with(
        net(),
        ConnectConfig::default(),
        ConnectConfig { access: 0, ..ConnectConfig::default() },
    );
    assert_eq!(post(&p, 7, W::IBV_WR_RDMA_WRITE, SIGNALED), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "REM_INV_REQ");
    assert!(p.net.reaches(p.qp[1], ibv_qp_state::IBV_QPS_ERR));
    keep(p);
}

#[test]
fn a_request_that_has_failed_is_there_with_its_reason() {
    const FLAGS: &str = "the peer's qp_access_flags do not permit the operation";
    for (device, trace) in each_killed("refused") {
        let failed = trace.events.iter().find(|event| event.what == "complete").unwrap();
        let what = (failed.wr_id, failed.operation, failed.status);
        assert_eq!(what, (7, Some("WRITE"), Some("REM_INV_REQ")));
        let own = match device {
            WIRED => "the peer takes the request for invalid, and does not say why",
            _ => FLAGS,
        };
        assert_eq!(failed.why.as_deref(), Some(own));
        let why = |nth: usize| trace.queue_pairs[nth].why.clone().unwrap();
        assert_eq!(why(0), format!("a request of its own has failed: {own}"));
        assert_eq!(why(1), format!("it has refused a request of its peer: {FLAGS}"));
    }
}

fn nothing_polled() {
    let p = QpPair::with(net(), ConnectConfig::default(), ConnectConfig::default());
    for id in 10..14 {
        receive(&p, id);
    }
    assert_eq!(post(&p, 1, W::IBV_WR_RDMA_WRITE, SIGNALED), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 1);
    for (id, flags) in [(2, UNSIGNALLED), (3, SIGNALED), (4, UNSIGNALLED)] {
        assert_eq!(post(&p, id, W::IBV_WR_RDMA_WRITE, flags), 0);
    }
    assert_eq!(post(&p, 5, W::IBV_WR_SEND, UNSIGNALLED), 0);
    // What is refused is not there.
    assert_ne!(post(&p, 6, W::IBV_WR_TSO, SIGNALED), 0);
    has_counted(|counters| counters.requests == 5);
    keep(p);
}

#[test]
fn what_was_done_waits_for_the_program() {
    for (_, trace) in each_killed("unpolled") {
        let done = [(3, Stage::Completed("SUCCESS")), (4, Stage::Executed), (5, Stage::Executed)];
        assert_eq!(outstanding(&trace, 0).0, done);
        assert_eq!(outstanding(&trace, 1).1, [11, 12, 13]);
        let unpolled: Vec<u32> = trace.completion_queues.iter().map(|cq| cq.unpolled).collect();
        assert_eq!(unpolled, [1, 1]);
        let polls = trace.events.iter().filter(|event| event.what == "poll");
        assert_eq!(
            polls.map(|event| (event.wr_id, event.status)).collect::<Vec<_>>(),
            [(1, Some("SUCCESS"))]
        );
    }
}

fn shared_queue() {
    let net = net();
    let mut attr: ibv_srq_init_attr = zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (4, 1);
    // SAFETY: objects of this test, which stay.
    let srq = unsafe { (net.v.create_srq)(net.pd, &mut attr) };
    let cq = net.cq(16);
    let mut init = net.init_attr(cq);
    init.srq = srq;
    let (a, b) = (net.qp(cq), net.qp_with(init));
    // SAFETY: both are alive.
    let numbers = unsafe { ((*a).qp_num, (*b).qp_num) };
    net.connect(a, numbers.1, ConnectConfig::default());
    net.connect(b, numbers.0, ConnectConfig::default());
    for id in 0..3 {
        assert_eq!(post_srq_recv(srq, id, &mut []), 0);
    }
    let mut wr = send_wr(9, W::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(a, &mut wr), 0);
    assert_eq!(net.poll(cq, 2).len(), 2);
}

#[test]
fn a_shared_queue_has_requests_of_its_own() {
    for (_, trace) in each_killed("shared") {
        let ids: Vec<u64> = trace.shared_queues[0].receives.iter().map(|r| r.wr_id).collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(trace.queue_pairs[1].srq, Some(trace.shared_queues[0].number));
        assert_eq!(outstanding(&trace, 0), (vec![], vec![]));
    }
}

fn drained() {
    let p = QpPair::with(net(), ConnectConfig::default(), ConnectConfig::default());
    assert_eq!(p.net.to_state(p.qp[0], ibv_qp_state::IBV_QPS_SQD), 0);
    assert_eq!(post(&p, 1, W::IBV_WR_RDMA_WRITE, SIGNALED), 0);
    // An error, and all that follows from it.
    receive(&p, 7);
    assert_eq!(p.net.to_state(p.qp[1], ibv_qp_state::IBV_QPS_ERR), 0);
    keep(p);
}

#[test]
fn states_are_kept_and_what_is_flushed_is_over() {
    for (_, trace) in each_killed("drained") {
        assert_eq!(outstanding(&trace, 0).0, [(1, Stage::Queued)]);
        assert_eq!((trace.queue_pairs[0].state, trace.queue_pairs[1].state), ("SQD", "ERR"));
        assert_eq!(outstanding(&trace, 1).1, []);
        let states = trace.events.iter().filter(|event| event.what == "state");
        let states: Vec<_> = states.filter_map(|event| event.status).collect();
        let steps = ["INIT", "RTR", "RTS", "INIT", "RTR", "RTS", "SQD", "ERR"];
        assert_eq!(states, steps);
    }
}

/// Posts by the newer interface, with a list that is refused as a whole.
fn batch() {
    let net = net();
    let cq = net.cq(16);
    let mut attr: ibv_qp_init_attr_ex = zeroed();
    attr.send_cq = cq;
    attr.recv_cq = cq;
    attr.cap.max_send_wr = 2;
    attr.cap.max_recv_wr = 1;
    attr.cap.max_send_sge = 1;
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    attr.pd = net.pd;
    attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
        | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    attr.send_ops_flags = u64::from(ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0);
    // SAFETY: objects of this test, which stay.
    let qp = unsafe { (later(net.ctx).create_qp_ex.unwrap())(net.ctx, &mut attr) };
    // SAFETY: the queue pair is alive.
    let number = unsafe { (*qp).qp_num };
    net.connect(qp, number, ConnectConfig::PATIENT);
    let ex = soft_rnic::qp_to_qp_ex;
    let too_many: Vec<u64> = (10..11 + u64::from(attr.cap.max_send_wr)).collect();
    for ids in [&too_many[..], &[4, 5]] {
        // SAFETY: `qp` is alive; the functions are those of the newer interface.
        unsafe {
            let ex = ex(qp);
            ((*ex).wr_start.unwrap())(ex);
            for id in ids {
                (*ex).wr_id = *id;
                (*ex).wr_flags = SIGNALED.0;
                ((*ex).wr_send.unwrap())(ex);
            }
            let posted = ((*ex).wr_complete.unwrap())(ex);
            assert_eq!(posted == 0, ids.len() == 2);
        }
    }
}

#[test]
fn a_batch_is_there_as_a_whole() {
    for (device, trace) in each_killed("batch") {
        let stage = untaken(device);
        assert_eq!(outstanding(&trace, 0).0, [(4, stage), (5, stage)]);
    }
}

/// Completions of a round, and rounds.
const ROUND: u64 = 16;
const ROUNDS: u64 = 100;

/// Two threads poll one completion queue; after each round the trace is asked what is left.
fn two_pollers() {
    let p = QpPair::with(net(), ConnectConfig::default(), ConnectConfig::default());
    let (polled, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (net, cq) = (&p.net, p.cq[0] as usize);
    std::thread::scope(|scope| {
        let poll = || {
            while !is_over.load(Ordering::Relaxed) {
                let n = net.poll_now(cq as *mut ibv_cq).len() as u64;
                polled.fetch_add(n, Ordering::Release);
            }
        };
        scope.spawn(poll);
        scope.spawn(poll);
        let _over = SetOnDrop(&is_over);
        for round in 0..ROUNDS {
            for id in 0..ROUND {
                let id = round * ROUND + id;
                assert_eq!(post(&p, id, W::IBV_WR_RDMA_WRITE, SIGNALED), 0);
            }
            while polled.load(Ordering::Acquire) < (round + 1) * ROUND {
                std::thread::yield_now();
            }
            let trace = read("pollers", std::process::id() as i32).unwrap();
            assert_eq!(outstanding(&trace, 0).0, [], "round {round}");
            assert_eq!(trace.completion_queues[0].unpolled, 0, "round {round}");
        }
    });
    keep(p);
}

#[test]
fn what_two_threads_poll_from_one_queue_is_over() {
    for (_, trace) in each_killed("pollers") {
        let polls = trace.events.iter().filter(|event| event.what == "poll");
        let mut ids: Vec<u64> = polls.map(|event| event.wr_id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..ROUNDS * ROUND).collect::<Vec<_>>(), "each once");
    }
}

/// A child cannot use its parent's queue pair, and opens the device itself.
fn fork() {
    let p = QpPair::with(net(), ConnectConfig::default(), ConnectConfig::default());
    receive(&p, 1);
    // SAFETY: the child does nothing that another thread might have a lock of: the harness waits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        assert_eq!(post_recv(p.qp[1], 2, &mut []), libc::EINVAL);
        p.net.destroy_qp(p.qp[0]);
        let own = net();
        let qp = own.qp(own.cq(4));
        let (init, ..) = own.steps(0, ConnectConfig::default());
        assert_eq!(own.modify(qp, init.0, init.1), 0);
        assert_eq!(post_recv(qp, 3, &mut []), 0);
        // SAFETY: it ends without destructors.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    say(&format!("{child} {status}"));
    hear();
    keep(p);
}

#[test]
fn a_child_writes_a_trace_of_its_own() {
    let mut other = Other::start("the_other_process", "fork");
    let said = other.hear();
    let (child, status) = said.split_once(' ').unwrap();
    let child = child.parse().unwrap();
    assert_eq!(status, "0");
    let traces = [other.pid(), child].map(|process| read("fork", process).expect("a trace"));
    assert_eq!(outstanding(&traces[0], 1).1, [1]);
    let of_parent = &traces[0];
    let objects = (of_parent.queue_pairs.len(), of_parent.completion_queues.len());
    assert_eq!((objects, of_parent.left_out), ((2, 2), 0), "the child's objects are not there");
    assert_eq!((traces[1].queue_pairs.len(), outstanding(&traces[1], 0).1), (1, vec![3]));
    other.say("end");
    let _ = other.wait();
    [other.pid(), child].into_iter().for_each(|process| remove("fork", process));
}

fn zeroed<T>() -> T {
    // SAFETY: structs of the ABI, of which zero is a value.
    unsafe { core::mem::zeroed() }
}
