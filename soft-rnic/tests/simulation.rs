//! Seeded mode: schedules that repeat, and faults that lose nothing.
//!
//! Only on soft0: it makes simulated devices.

mod common;

use common::*;
use soft_rnic::{Faults, NetworkFaults, Simulation};
use verbs_sys::*;

/// Pairs of queue pairs of a case, by transport.
const KINDS: [ibv_qp_type; PAIRS] = [
    ibv_qp_type::IBV_QPT_RC,
    ibv_qp_type::IBV_QPT_RC,
    ibv_qp_type::IBV_QPT_UC,
    ibv_qp_type::IBV_QPT_UD,
];
const PAIRS: usize = 4;

/// Random numbers for the traffic, apart from the simulation's own.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Everything that was seen, in order: the schedule, as a program can see it.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    completions: Vec<(u64, &'static str, u32)>,
    now_ns: u64,
    stats: soft_rnic::Counters,
}

/// Random traffic on a simulated device. Checks that every request completes
/// exactly once, and in order.
fn run(seed: u64, faults: Faults) -> Trace {
    let simulation = Simulation::new(seed, faults);
    let config = ConnectConfig {
        // About retries: the simulated faults use them up, in virtual time.
        rnr_retry: if seed.is_multiple_of(2) { 7 } else { 2 },
        retry_cnt: 3,
        timeout: 8,
        ..ConnectConfig::default()
    };
    let net = || Net::on(soft_rnic::table(), simulation.name());
    let pairs: Vec<QpPair> =
        KINDS.iter().map(|kind| QpPair::connect(*kind, net(), config, config)).collect();
    let handles: Vec<_> = pairs.iter().map(|p| p.net.ah()).collect();
    let mut dice = Dice(seed);
    let mut posted = [[0_u64; 2]; PAIRS];
    let mut completions = Vec::new();
    for _ in 0..60 {
        let n = dice.below(PAIRS as u64) as usize;
        act(&pairs[n], handles[n], &mut dice, &mut posted[n]);
        poll_all(&pairs, &mut completions);
    }
    // What waits for a receive that is never posted ends with the connection.
    while simulation.step() && simulation.now_ns() < 20_000_000 {
        poll_all(&pairs, &mut completions);
    }
    for p in &pairs {
        for qp in p.qp {
            assert_eq!(p.net.to_state(qp, ibv_qp_state::IBV_QPS_ERR), 0);
        }
    }
    poll_all(&pairs, &mut completions);
    check(&pairs, &posted, &completions, seed);
    let (now_ns, stats) = (simulation.now_ns(), simulation.stats());
    // Numbers of queue pairs repeat, too: each simulation counts from the start.
    let trace = Trace { completions, now_ns, stats };
    for (p, ah) in pairs.into_iter().zip(handles) {
        p.net.async_events();
        p.net.destroy_ah(ah);
        p.close();
    }
    trace
}

/// Posts a receive or a send at a random end.
fn act(p: &QpPair, ah: *mut ibv_ah, dice: &mut Dice, posted: &mut [u64; 2]) {
    let end = dice.below(2) as usize;
    if dice.below(2) == 0 {
        let id = RECEIVE | posted[1];
        // Both ends count together: ids are unique, which is what matters.
        assert_eq!(post_recv(p.qp[end], id, &mut [sge(p.mr[end], 0, 104)]), 0);
        posted[1] += 1;
        return;
    }
    use ibv_wr_opcode as W;
    // SAFETY: the queue pair is alive.
    let opcodes = match unsafe { (*p.qp[end]).qp_type } {
        ibv_qp_type::IBV_QPT_RC => [W::IBV_WR_SEND, W::IBV_WR_RDMA_WRITE, W::IBV_WR_RDMA_READ],
        ibv_qp_type::IBV_QPT_UC => {
            [W::IBV_WR_SEND, W::IBV_WR_RDMA_WRITE, W::IBV_WR_RDMA_WRITE_WITH_IMM]
        }
        _ => [W::IBV_WR_SEND, W::IBV_WR_SEND_WITH_IMM, W::IBV_WR_SEND],
    };
    let opcode = opcodes[dice.below(4) as usize % 3];
    let mut sges = [sge(p.mr[end], 128, 1 + dice.below(64) as u32)];
    let mut wr = datagram_wr(posted[0], &mut sges, SIGNALED, (ah, p.num(1 - end), QKEY));
    wr.opcode = opcode;
    if !matches!(opcode, W::IBV_WR_SEND | W::IBV_WR_SEND_WITH_IMM) {
        let (remote_addr, rkey) = (p.addr(1 - end) + 256, p.key(1 - end));
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    }
    assert_eq!(post_send(p.qp[end], &mut wr), 0);
    posted[0] += 1;
}

const RECEIVE: u64 = 1 << 32;

fn poll_all(pairs: &[QpPair], completions: &mut Vec<(u64, &'static str, u32)>) {
    for (n, p) in pairs.iter().enumerate() {
        for cq in p.cq {
            let all = p.net.poll_now(cq);
            completions.extend(all.iter().map(|wc| ((n as u64) << 40 | wc.id, wc.status, wc.qp)));
        }
    }
}

/// Each request completed once; those of one queue in the order of their posts;
/// nothing succeeds after something failed.
fn check(pairs: &[QpPair], posted: &[[u64; 2]], seen: &[(u64, &'static str, u32)], seed: u64) {
    for (n, p) in pairs.iter().enumerate() {
        for (kind, count) in [(0, posted[n][0]), (RECEIVE, posted[n][1])] {
            let mine = |id: u64| id >> 40 == n as u64 && id & RECEIVE == kind;
            let mut all: Vec<u64> =
                seen.iter().filter(|c| mine(c.0)).map(|c| c.0 & 0xffff_ffff).collect();
            all.sort_unstable();
            let expected: Vec<u64> = (0..count).collect();
            assert_eq!(all, expected, "seed {seed}: completed once each");
            for end in 0..2 {
                let of: Vec<_> = seen.iter().filter(|c| mine(c.0) && c.2 == p.num(end)).collect();
                assert!(of.is_sorted_by_key(|c| c.0), "seed {seed}: in order: {of:?}");
                let failed = of.iter().position(|c| c.1 != "SUCCESS").unwrap_or(of.len());
                let flushed = of.iter().skip(failed + 1).all(|c| c.1 == "WR_FLUSH");
                assert!(flushed, "seed {seed}: after the first failure all is flushed: {of:?}");
            }
        }
    }
}

/// Faults of a case, from its number: each kind alone, and all together.
fn faults(seed: u64) -> Faults {
    let on = |bit: u64, p: f64| if seed & bit != 0 { p } else { 0.0 };
    Faults {
        delay: on(1, 0.2),
        rnr: on(2, 0.2),
        lost_response: on(4, 0.2),
        qp_death: on(8, 0.02),
        access_error: 0.0,
        late_read: on(2, 0.3),
        network: NetworkFaults {
            loss: on(1, 0.2),
            reordering: on(2, 0.2),
            duplication: on(4, 0.2),
            ..NetworkFaults::default()
        },
    }
}

#[test]
fn the_same_seed_gives_the_same_schedule() {
    for seed in 0..32 {
        assert_eq!(run(seed, faults(seed)), run(seed, faults(seed)), "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_schedule() {
    let all = faults(15);
    let (one, other) = (run(100, all), run(102, all));
    assert_ne!(one.now_ns, other.now_ns);
}

/// `RDMA_CONN_SCHEDULES` says how many (a soak runs many more), `RDMA_CONN_SEED` runs
/// one again.
#[test]
fn a_thousand_faulty_schedules_lose_nothing() {
    let number = |name: &str, or: u64| {
        std::env::var(name).map_or(or, |n| n.parse().expect("a number of schedules, or a seed"))
    };
    let first = number("RDMA_CONN_SEED", 1_000);
    let again = std::env::var_os("RDMA_CONN_SEED").is_some();
    let schedules = if again { 1 } else { number("RDMA_CONN_SCHEDULES", 1_000) };
    let injected: u64 =
        (first..first + schedules).map(|seed| run(seed, faults(seed)).stats.faults).sum();
    println!("device: {schedules} schedules, {injected} faults");
    assert!(again || injected > schedules, "faults struck {injected} times");
}

#[test]
fn posts_only_queue_and_a_step_executes_one() {
    let simulation = Simulation::new(7, Faults::default());
    let p = QpPair::with(
        Net::on(soft_rnic::table(), simulation.name()),
        ConnectConfig::default(),
        ConnectConfig::default(),
    );
    for id in 0..3 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    assert_eq!(simulation.stats().requests, 0);
    for n in 1..=3 {
        assert!(simulation.step());
        assert_eq!(simulation.stats().requests, n);
    }
    assert!(!simulation.step(), "nothing is left to happen");
    assert_eq!(p.net.poll(p.cq[0], 3).len(), 3);
    p.close();
}

/// Reads a word, then writes it, at once: what was read, and the statuses in order.
fn read_then_write(seed: u64, fence: bool) -> (u8, Vec<u64>) {
    let faults = Faults { late_read: 0.5, ..Faults::default() };
    let simulation = Simulation::new(seed, faults);
    let config = ConnectConfig::default;
    let mut p = QpPair::with(Net::on(soft_rnic::table(), simulation.name()), config(), config());
    (p.buf[1][0], p.buf[0][8]) = (1, 2);
    let there = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: p.addr(1), rkey: p.key(1) };
    let (mut here, mut value) = ([sge(p.mr[0], 0, 1)], [sge(p.mr[0], 8, 1)]);
    let mut read = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut here, SIGNALED);
    let mut write = send_wr(2, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut value, SIGNALED);
    write.send_flags |= if fence { ibv_send_flags::IBV_SEND_FENCE.0 } else { 0 };
    (read.wr.rdma, write.wr.rdma) = (there, there);
    assert_eq!((post_send(p.qp[0], &mut read), post_send(p.qp[0], &mut write)), (0, 0));
    let completed = p.net.poll(p.cq[0], 2);
    assert!(completed.iter().all(|wc| wc.status == "SUCCESS"));
    let (got, ids) = (p.buf[0][0], completed.iter().map(|wc| wc.id).collect());
    assert_eq!(p.buf[1][0], 2);
    p.close();
    (got, ids)
}

#[test]
fn a_write_may_overtake_a_read_unless_it_has_a_fence() {
    let early = |fence| {
        (0..100).filter(move |seed| {
            let (got, ids) = read_then_write(*seed, fence);
            assert_eq!(ids, [1, 2], "completions stay in order");
            got == 2
        })
    };
    let overtook = early(false).count();
    assert!((10..90).contains(&overtook), "{overtook} of 100 writes overtook");
    assert_eq!(early(true).count(), 0);
}

#[test]
fn waiting_for_an_event_advances_the_simulation_or_fails() {
    let simulation = Simulation::new(7, Faults::default());
    let net = Net::on(soft_rnic::table(), simulation.name());
    // SAFETY: the objects are alive.
    unsafe {
        let channel = (net.v.create_comp_channel)(net.ctx);
        let cq = net.cq_with(16, channel);
        let qp = net.qp(cq);
        net.connect(qp, (*qp).qp_num, ConnectConfig::default());
        let (mut got, mut user) = (core::ptr::null_mut(), core::ptr::null_mut());
        assert_eq!((net.v.get_cq_event)(channel, &mut got, &mut user), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(ibv_req_notify_cq(cq, 0), 0);
        assert_eq!(post_recv(qp, 1, &mut []), 0);
        let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(qp, &mut wr), 0);
        assert_eq!((net.v.get_cq_event)(channel, &mut got, &mut user), 0);
        assert_eq!(got, cq);
        (net.v.ack_cq_events)(cq, 1);
        net.destroy_qp(qp);
        net.destroy_cq(cq);
        assert_eq!((net.v.destroy_comp_channel)(channel), 0);
    }
    net.close();
}

#[test]
fn a_simulation_is_listed_while_it_lives() {
    let names = || {
        let v = soft_rnic::table();
        let mut all = Vec::new();
        // SAFETY: the list is walked to its end and freed once.
        unsafe {
            let mut n = 0;
            let list = (v.get_device_list)(&mut n);
            for i in 0..n as usize {
                let name = core::ffi::CStr::from_ptr((v.get_device_name)(*list.add(i)));
                all.push(name.to_str().unwrap().to_owned());
            }
            (v.free_device_list)(list);
        }
        all
    };
    let simulation = Simulation::new(1, Faults::default());
    let name = simulation.name().to_owned();
    assert!(names().contains(&name));
    drop(simulation);
    assert!(!names().contains(&name));
}
