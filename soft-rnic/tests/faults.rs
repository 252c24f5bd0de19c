//! Plans of faults: what a program meets, and that it meets the same again.
//!
//! A scene is played by this program, started again with a plan, because a process has one plan for
//! all its time. It says what it has met.
//!
//! Only on soft0: soft0 has its plans of faults.

mod common;

use std::os::fd::BorrowedFd;

use common::import::imported;
use common::other::*;
use common::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use soft_rnic::faults::VARIABLE;
use verbs_sys::ibv_qp_type as T;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

/// Starts a scene with a plan; `apart` sends its requests to itself the way to other processes.
fn start(scene: &str, plan: &str, apart: bool) -> Other {
    let way = if apart { "apart" } else { "here" };
    Other::start("the_other_process", &format!("{scene} {way} {plan}"))
}

/// Has another process play a scene, and returns what it has met.
fn met(scene: &str, plan: &str, apart: bool) -> String {
    let mut other = start(scene, plan, apart);
    let said = other.hear();
    assert_eq!(other.wait(), Some(0), "{scene} with {plan}");
    said
}

#[test]
fn the_other_process() {
    let Some(role) = role() else { return };
    let [scene, way, plan] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    // SAFETY: nothing else runs in this process, and nothing has opened the device.
    unsafe {
        std::env::set_var(VARIABLE, plan);
        std::env::remove_var("SOFT_RNIC_APART");
        if way == "apart" {
            std::env::set_var("SOFT_RNIC_APART", "1");
        }
    }
    match scene {
        "rounds" => say(&rounds()),
        "operations" => say(&operations()),
        "batch" => say(&batch()),
        "xrc" => say(&xrc_messages()),
        "uc" => say(&lossy(T::IBV_QPT_UC)),
        "ud" => say(&lossy(T::IBV_QPT_UD)),
        "flushed-rc" => say(&flushed(T::IBV_QPT_RC)),
        "flushed-uc" => say(&flushed(T::IBV_QPT_UC)),
        "delayed" => say(&delayed()),
        "events" => say(&events()),
        "imported" => say(&imported_events()),
        "requester" => requester(),
        _ => panic!("{scene}"),
    }
}

/// Returns the lines that a process writes at its exit.
fn tally(scene: &str, plan: &str) -> Vec<String> {
    let output = play("the_other_process", &format!("{scene} here {plan}"), &[]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let line = |line: &str| {
        let (_, line) = line.strip_prefix("rdma-conn faults ")?.split_once(": ")?;
        Some(line.to_owned())
    };
    said.lines().filter_map(line).collect()
}

#[test]
fn a_process_says_at_its_exit_what_has_struck() {
    assert_eq!(tally("flushed-rc", "flush=1"), ["1 of 1 request struck, 1 failed"]);
    let why = "loss strikes those of UC and UD only, and there were none";
    let said = tally("rounds", "loss=1");
    assert!(said[0].starts_with("none of ") && said[0].ends_with(why), "{said:?}");
    assert!(tally("uc", "loss=1")[0].ends_with(" struck, 0 failed"));
    assert!(tally("rounds", "event=port_err@3600s").is_empty());
}

fn net() -> Net {
    Net::on(soft_rnic::table(), "soft0")
}

/// About retries: the plan of faults has them all used up, and a timeout costs no time.
fn patient() -> ConnectConfig {
    ConnectConfig { rnr_retry: 2, retry_cnt: 2, timeout: 1, ..ConnectConfig::default() }
}

fn post(p: &QpPair, id: u64, opcode: ibv_wr_opcode, flags: ibv_send_flags) {
    let mut sges = [sge(p.mr[0], 0, 8)];
    let mut wr = send_wr(id, opcode, &mut sges, flags);
    wr.wr.rdma.remote_addr = p.addr(1);
    wr.wr.rdma.rkey = p.key(1);
    wr.__bindgen_anon_1.imm_data = (id as u32).to_be();
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
}

fn receive(p: &QpPair, id: u64) {
    assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 0, 100)]), 0);
}

fn listed(wcs: &[Wc]) -> String {
    let each: Vec<String> = wcs.iter().map(|wc| format!("{}:{}", wc.id, wc.status)).collect();
    each.join(" ")
}

/// Messages in lists of 16, each over a connection of its own.
fn rounds() -> String {
    let p = QpPair::with(net(), patient(), patient());
    let mut said = String::new();
    for round in 0..24 {
        for id in 0..16 {
            receive(&p, id);
        }
        for id in 0..16 {
            post(&p, round * 16 + id, W::IBV_WR_SEND, SIGNALED);
        }
        said += &format!("{} ", listed(&p.net.poll(p.cq[0], 16)));
        for end in 0..2 {
            assert_eq!(p.net.to_state(p.qp[end], ibv_qp_state::IBV_QPS_RESET), 0);
        }
        for end in 0..2 {
            p.net.connect(p.qp[end], p.num(1 - end), patient());
        }
        p.net.async_events();
    }
    said += &format!("faults {}", soft_rnic::counters().faults);
    p.close();
    said
}

const ROUNDS: &str = "rnr=0.3,retry=0.2,delay=0.2:10us,flush=0.01";

#[test]
fn one_seed_repeats_its_failures_also_between_processes() {
    let plan = format!("{ROUNDS},seed=7");
    let first = met("rounds", &plan, false);
    assert_eq!(met("rounds", &plan, false), first);
    assert_eq!(met("rounds", &plan, true), first);
    assert_ne!(met("rounds", &format!("{ROUNDS},seed=8"), false), first);
    for status in ["SUCCESS", "RNR_RETRY_EXC", "RETRY_EXC", "WR_FLUSH"] {
        assert!(first.contains(&format!(":{status} ")), "{status}: {first}");
    }
}

#[test]
fn without_faults_of_requests_nothing_fails() {
    let said = met("rounds", "rnr=0,seed=7", false);
    assert!(
        said.ends_with("faults 0") && !said.contains("EXC") && !said.contains("FLUSH"),
        "{said}"
    );
}

/// Operations that no receive request is for, and one that takes one.
fn operations() -> String {
    let config = ConnectConfig { access: RW, rnr_retry: 0, ..patient() };
    let p = QpPair::with(net(), config, config);
    receive(&p, 0);
    post(&p, 1, W::IBV_WR_RDMA_WRITE, SIGNALED);
    post(&p, 2, W::IBV_WR_RDMA_READ, SIGNALED);
    post(&p, 3, W::IBV_WR_RDMA_READ, UNSIGNALED);
    post(&p, 4, W::IBV_WR_RDMA_WRITE_WITH_IMM, SIGNALED);
    // The third is unsignalled: it completes if it is flushed.
    let fails = std::env::var(VARIABLE).unwrap().contains("retry=1");
    let ended = p.net.poll(p.cq[0], if fails { 4 } else { 3 });
    let state = p.net.state(p.qp[0]);
    let said = format!("{} {}", listed(&ended), state == ibv_qp_state::IBV_QPS_ERR);
    p.close();
    said
}

#[test]
fn a_receiver_not_ready_fault_strikes_only_receiving_operations() {
    for apart in [false, true] {
        let said = met("operations", "rnr=1,seed=1", apart);
        assert_eq!(said, "1:SUCCESS 2:SUCCESS 4:RNR_RETRY_EXC true");
        let said = met("operations", "retry=1,seed=1", apart);
        assert_eq!(said, "1:RETRY_EXC 2:WR_FLUSH 3:WR_FLUSH 4:WR_FLUSH true");
        // Not theirs: an unreliable transport's.
        let said = met("operations", "loss=1,seed=1", apart);
        assert_eq!(said, "1:SUCCESS 2:SUCCESS 4:SUCCESS false");
    }
}

/// The newer send interface.
fn batch() -> String {
    let mut p = QpPair::unconnected(T::IBV_QPT_RC, net());
    p.net.destroy_qp(p.qp[0]);
    let ops = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND;
    let plain = p.net.init_attr(p.cq[0]);
    let masks = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
        | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    let attr = ibv_qp_init_attr_ex {
        send_cq: p.cq[0],
        recv_cq: p.cq[0],
        cap: plain.cap,
        qp_type: plain.qp_type,
        comp_mask: masks,
        pd: p.net.pd,
        send_ops_flags: ops.0.into(),
        ..ibv_qp_init_attr_ex::default()
    };
    p.qp[0] = xrc::create_qp_ex(p.net.ctx, attr).unwrap();
    p.net.connect(p.qp[0], p.num(1), patient());
    p.net.connect(p.qp[1], p.num(0), patient());
    receive(&p, 0);
    let (lkey, from) = (sge(p.mr[0], 0, 8).lkey, p.addr(0));
    // SAFETY: the queue pair is alive, and was created with the interface.
    let code = unsafe {
        let ex: *mut ibv_qp_ex = soft_rnic::qp_to_qp_ex(p.qp[0]);
        (*ex).wr_start.unwrap()(ex);
        ((*ex).wr_id, (*ex).wr_flags) = (5, SIGNALED.0);
        (*ex).wr_send.unwrap()(ex);
        (*ex).wr_set_sge.unwrap()(ex, lkey, from, 8);
        (*ex).wr_complete.unwrap()(ex)
    };
    let said = format!("{code} {}", listed(&p.net.poll(p.cq[0], 1)));
    p.close();
    said
}

fn xrc_messages() -> String {
    let [a, b] = xrc::two(ConnectConfig { access: RW, ..patient() });
    let far = b.near();
    b.post_recv(0, 0, 64);
    a.send(far.srq, 0, 8);
    let said = a.status().to_owned();
    a.close();
    b.close();
    said
}

#[test]
fn the_newer_send_interface_and_xrc_meet_faults() {
    for apart in [false, true] {
        assert_eq!(met("batch", "rnr=1,seed=1", apart), "0 5:RNR_RETRY_EXC");
        assert_eq!(met("batch", "delay=1us,seed=1", apart), "0 5:SUCCESS");
        assert_eq!(met("xrc", "rnr=1,seed=1", apart), "RNR_RETRY_EXC");
        assert_eq!(met("xrc", "retry=1,seed=1", apart), "RETRY_EXC");
    }
}

/// Numbered messages of an unreliable transport: those that have arrived.
fn lossy(kind: ibv_qp_type) -> String {
    let p = QpPair::connect(kind, net(), ConnectConfig::default(), ConnectConfig::default());
    let ah = p.net.ah();
    for id in 0..64 {
        receive(&p, id);
    }
    for id in 0..64 {
        let mut sges = [sge(p.mr[0], 0, 8)];
        let to = (ah, p.num(1), QKEY);
        let mut wr = match kind {
            T::IBV_QPT_UD => datagram_wr(id, &mut sges, SIGNALED, to),
            _ => send_wr(id, W::IBV_WR_SEND, &mut sges, SIGNALED),
        };
        wr.opcode = W::IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = (id as u32).to_be();
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    // The sender does not learn of it.
    let sent = p.net.poll(p.cq[0], 64);
    assert!(sent.iter().all(|wc| wc.status == "SUCCESS"), "{sent:?}");
    let lost = soft_rnic::counters().lost;
    let arrived = p.net.poll(p.cq[1], 64 - lost as usize);
    let numbers: Vec<u32> = arrived.iter().map(|wc| wc.imm.unwrap()).collect();
    p.net.destroy_ah(ah);
    p.close();
    format!("{lost} lost, arrived: {numbers:?}")
}

#[test]
fn the_same_messages_of_unreliable_transports_are_lost_again() {
    for scene in ["uc", "ud"] {
        let first = met(scene, "loss=0.3,seed=7", false);
        assert!(!first.starts_with("0 lost") && !first.starts_with("64 lost"), "{first}");
        assert_eq!(met(scene, "loss=0.3,seed=7", false), first);
        assert_eq!(met(scene, "loss=0.3,seed=7", true), first);
        assert_ne!(met(scene, "loss=0.3,seed=9", false), first);
        assert_eq!(met(scene, "loss=1,seed=9", false), "64 lost, arrived: []");
        assert!(met(scene, "retry=1,rnr=1,seed=9", false).starts_with("0 lost"));
    }
}

/// A request at which the queue pair goes to the error state, and one behind it.
fn flushed(kind: ibv_qp_type) -> String {
    let p = QpPair::connect(kind, net(), patient(), patient());
    receive(&p, 0);
    assert_eq!(post_recv(p.qp[0], 9, &mut [sge(p.mr[0], 0, 100)]), 0);
    post(&p, 1, W::IBV_WR_SEND, UNSIGNALED);
    post(&p, 2, W::IBV_WR_SEND, SIGNALED);
    let mut ended = p.net.poll(p.cq[0], 3);
    ended.sort_by_key(|wc| wc.id);
    let events = p.net.async_events();
    let is_error = p.net.state(p.qp[0]) == ibv_qp_state::IBV_QPS_ERR;
    let said = format!("{} {events:?} {is_error}", listed(&ended));
    assert_eq!(p.net.poll_now(p.cq[1]), []);
    p.close();
    said
}

#[test]
fn a_flush_ends_all_requests_and_raises_an_event() {
    let event = [ibv_event_type::IBV_EVENT_QP_FATAL];
    for scene in ["flushed-rc", "flushed-uc"] {
        for apart in [false, true] {
            let said = met(scene, "flush=1,seed=1", apart);
            assert_eq!(said, format!("1:WR_FLUSH 2:WR_FLUSH 9:WR_FLUSH {event:?} true"));
        }
    }
}

/// The first request is held back; nothing overtakes it.
fn delayed() -> String {
    let p = QpPair::with(net(), patient(), patient());
    for id in 0..8 {
        receive(&p, id);
        post(&p, id, W::IBV_WR_SEND, SIGNALED);
    }
    let is_short = !std::env::var(VARIABLE).unwrap().contains("3600s");
    let said = if is_short {
        listed(&p.net.poll(p.cq[0], 8))
    } else {
        assert_eq!((p.net.poll_now(p.cq[0]), p.net.poll_now(p.cq[1])), (vec![], vec![]));
        assert_eq!(p.net.to_state(p.qp[0], ibv_qp_state::IBV_QPS_ERR), 0);
        listed(&p.net.poll(p.cq[0], 8))
    };
    p.close();
    said
}

#[test]
fn a_delay_keeps_the_order_and_ends_with_an_error() {
    for apart in [false, true] {
        let all = |status| {
            let each: Vec<String> = (0..8).map(|id| format!("{id}:{status}")).collect();
            each.join(" ")
        };
        assert_eq!(met("delayed", "delay=0.5:10us,seed=3", apart), all("SUCCESS"));
        assert_eq!(met("delayed", "delay=3600s,seed=3", apart), all("WR_FLUSH"));
    }
}

/// Takes an event of a context.
fn take_of(v: &Table, context: *mut ibv_context) -> (ibv_event_type, i32) {
    let soon = Timespec { tv_sec: 10, tv_nsec: 0 };
    // SAFETY: the context is open; the event is acknowledged once.
    unsafe {
        let fd = BorrowedFd::borrow_raw((*context).async_fd);
        let came = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&soon));
        assert_eq!(came, Ok(1), "no event arrived");
        let mut event: ibv_async_event = core::mem::zeroed();
        assert_eq!((v.get_async_event)(context, &mut event), 0);
        (v.ack_async_event)(&mut event);
        (event.event_type, event.element.port_num)
    }
}

/// Takes two events of each of two contexts, and then looks at the port.
fn events() -> String {
    let take = |net: &Net| take_of(&net.v, net.ctx);
    let (first, second) = (net(), net());
    let mut said = String::new();
    for net in [first, second] {
        let events = [take(&net), take(&net)];
        let port = net.port();
        said += &format!("{events:?} {:?} {}, ", port.state, port.phys_state);
        net.close();
    }
    // A context that is opened later has its own.
    let net = net();
    said += &format!("{:?}", take(&net));
    net.close();
    said
}

/// Imports the device before the first event of its port; both contexts take this one, and the
/// imported one the last, when the other is closed.
fn imported_events() -> String {
    loop {
        let net = net();
        let has_event = |context: *mut ibv_context| {
            // SAFETY: the context is open.
            let fd = unsafe { BorrowedFd::borrow_raw((*context).async_fd) };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
        };
        // SAFETY: the contexts are open, and each is closed once.
        unsafe {
            let (other, v) = (imported(&net), net.v);
            // On a machine that is busy it may have been raised before: then the next time.
            if has_event(net.ctx) {
                assert_eq!((v.close_device)(other), 0);
                net.close();
                continue;
            }
            let first = [net.ctx, other].map(|context| take_of(&v, context));
            let states = [net.ctx, other].map(|context| {
                let mut port = ibv_port_attr::default();
                let query = later(context).query_port.unwrap();
                assert_eq!(query(context, 1, &mut port, size_of::<ibv_port_attr>()), 0);
                port.state
            });
            net.close();
            let last = take_of(&v, other);
            assert_eq!((v.close_device)(other), 0);
            return format!("{first:?} {states:?} {last:?}");
        }
    }
}

#[test]
fn an_imported_context_shares_the_port_of_its_source() {
    use ibv_event_type as E;
    let met = met("imported", "event=port_err@50ms,event=sm_change@300ms,seed=1", false);
    let [err, last] = [E::IBV_EVENT_PORT_ERR, E::IBV_EVENT_SM_CHANGE].map(|event| (event, 1));
    let down = ibv_port_state::IBV_PORT_DOWN;
    assert_eq!(met, format!("{:?} {:?} {last:?}", [err; 2], [down; 2]));
}

#[test]
fn port_events_reach_each_context_and_change_the_port_state() {
    use ibv_event_type as E;
    use ibv_port_state as S;
    // The last is not raised: its contexts are closed long before.
    let met = |first, second| {
        let plan = format!("event={first}@1ms,event={second}@2ms,event=device_fatal@3600s,seed=1");
        met("events", &plan, false)
    };
    let expected = |events: [E; 2], state: S, phys_state: u8| {
        let events = events.map(|event| (event, 1));
        let each = format!("{events:?} {state:?} {phys_state}, ");
        format!("{each}{each}{:?}", events[0])
    };
    let (err, active) = (E::IBV_EVENT_PORT_ERR, E::IBV_EVENT_PORT_ACTIVE);
    let said = met("port_active", "port_err");
    assert_eq!(said, expected([active, err], S::IBV_PORT_DOWN, 3));
    let said = met("port_err", "port_active");
    assert_eq!(said, expected([err, active], S::IBV_PORT_ACTIVE, 5));
    let said = met("lid_change", "gid_change");
    let changes = [E::IBV_EVENT_LID_CHANGE, E::IBV_EVENT_GID_CHANGE];
    assert_eq!(said, expected(changes, S::IBV_PORT_ACTIVE, 5));
}

fn end() -> NearEnd {
    let net = net();
    let cq = net.cq(1024);
    NearEnd::on(T::IBV_QPT_RC, net, cq)
}

/// The process with the plan: it sends until a request fails.
fn requester() {
    let end = end();
    join_as_other(&end, ConnectConfig { ..patient() });
    assert_eq!(hear().as_deref(), Some("receives are posted"));
    let mut sges = [end.local(0, 0, 64)];
    for id in 0..64 {
        let mut wr = send_wr(id, W::IBV_WR_SEND, &mut sges, SIGNALED);
        assert_eq!(post_send(end.qp, &mut wr), 0);
    }
    say(&listed(&end.net.poll(end.cq, 64)));
    end.close();
}

#[test]
fn a_seed_repeats_its_failures_with_a_peer_process() {
    let run = |plan: &str| {
        let mut other = start("requester", plan, false);
        let end = end();
        let config = ConnectConfig { rnr_retry: 7, ..patient() };
        join(&end, &mut other, config);
        for id in 0..64 {
            assert_eq!(post_recv(end.qp, id, &mut [end.local(0, 0, 64)]), 0);
        }
        other.say("receives are posted");
        let said = other.hear();
        assert_eq!(other.wait(), Some(0));
        end.close();
        said
    };
    let first = run("rnr=0.2,retry=0.1,delay=0.1:5us,seed=5");
    assert_eq!(run("rnr=0.2,retry=0.1,delay=0.1:5us,seed=5"), first);
    assert_ne!(run("rnr=0.2,retry=0.1,delay=0.1:5us,seed=6"), first);
    assert!(
        first.contains("SUCCESS") && first.contains("EXC") && first.contains("FLUSH"),
        "{first}"
    );
}
