//! A network with faults: what gets lost, overtaken or repeated, and that reliable
//! connections do not notice.
//!
//! Not on wired: it sets the faults of soft0's own network.
//! Not on rxe0: the faulty network is between soft0's queue pairs.

mod common;

use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::pages::*;
use common::*;
use soft_rnic::{Faults, NetworkFaults, Simulation, counters, counters_of, set_network_faults};
use verbs_sys::*;

const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;

/// The network of `soft0` is the process's: one test at a time has it. Afterwards
/// it is without faults again.
struct Faulty {
    _one: MutexGuard<'static, ()>,
}

impl Faulty {
    fn new(seed: u64, faults: NetworkFaults) -> Faulty {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        set_network_faults(seed, faults);
        Faulty { _one: one }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        set_network_faults(0, NetworkFaults::default());
    }
}

fn pair(kind: ibv_qp_type) -> QpPair {
    let net = Net::on(soft_rnic::table(), "soft0");
    QpPair::connect(kind, net, ConnectConfig::default(), ConnectConfig::default())
}

/// Messages that the network of a pair's device has lost.
fn lost(p: &QpPair) -> u64 {
    // SAFETY: the context is open.
    let name = unsafe { CStr::from_ptr((p.net.v.get_device_name)((*p.net.ctx).device)) };
    counters_of(name.to_str().unwrap()).unwrap().lost
}

/// Sends `n` messages with their numbers as immediates, and takes what arrives
/// until `expected` (if that is given) are there.
fn traffic(p: &QpPair, n: u32, expected: impl Fn() -> usize) -> Vec<u32> {
    let ah = p.net.ah();
    let mut got = Vec::new();
    let repost = |k: u64| {
        for _ in 0..k {
            assert_eq!(post_recv(p.qp[1], 0, &mut [sge(p.mr[1], 0, 64)]), 0);
        }
    };
    let mut distinct: HashSet<u32> = HashSet::new();
    let mut take = |got: &mut Vec<u32>, all: Vec<Wc>| {
        repost(all.len() as u64);
        got.extend(all.iter().map(|wc| wc.imm.expect("a number")));
        distinct.extend(&got[got.len() - all.len()..]);
        distinct.len() as u64
    };
    const RECEIVES: u64 = 48;
    repost(RECEIVES);
    let before = lost(p);
    for number in 0..n {
        // The sender does not wait for the receiver, whose requests have to be enough, even if
        // each message arrived twice.
        let arrived = |distinct: u64| distinct + lost(p) - before;
        let mut distinct = take(&mut got, Vec::new());
        while u64::from(number) - arrived(distinct) >= RECEIVES / 2 {
            distinct = take(&mut got, p.net.poll(p.cq[1], 1));
        }
        let mut wr = datagram_wr(1, &mut [], SIGNALED, (ah, p.num(1), QKEY));
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = number.to_be();
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        take(&mut got, p.net.poll_now(p.cq[1]));
    }
    let expected = expected();
    while got.len() < expected {
        take(&mut got, p.net.poll(p.cq[1], 1));
    }
    p.net.destroy_ah(ah);
    got
}

/// As from a fresh queue pair.
fn again(p: &QpPair) {
    for end in 0..2 {
        assert_eq!(p.net.to_state(p.qp[end], ibv_qp_state::IBV_QPS_RESET), 0);
        p.net.connect(p.qp[end], p.num(1 - end), ConnectConfig::default());
    }
}

#[test]
fn losses_are_gaps_in_the_order_and_repeat_with_the_seed() {
    const N: u32 = 2_000;
    for kind in [UC, UD] {
        let faults = NetworkFaults { loss: 0.1, ..NetworkFaults::default() };
        let _faulty = Faulty::new(1, faults);
        let p = pair(kind);
        let before = counters();
        let lost = || (counters().dropped - before.dropped) as usize;
        let first = traffic(&p, N, || N as usize - lost());
        assert!(first.is_sorted_by(|a, b| a < b), "in order, once each");
        assert_eq!(first.len(), N as usize - lost());
        assert_eq!(counters().faults - before.faults, lost() as u64);
        assert!((100..300).contains(&lost()), "a tenth of {N}: {}", lost());
        again(&p);
        assert_eq!(traffic(&p, N, || first.len()), first, "the same seed");
        set_network_faults(2, faults);
        again(&p);
        assert_ne!(traffic(&p, N, || 0), first, "another seed");
        p.close();
    }
}

#[test]
fn a_few_overtake_and_all_arrive() {
    const N: u32 = 1_000;
    for kind in [UC, UD] {
        let faults = NetworkFaults { reordering: 0.1, ..NetworkFaults::default() };
        let _faulty = Faulty::new(3, faults);
        let p = pair(kind);
        let before = counters();
        let got = traffic(&p, N, || N as usize);
        assert_eq!(counters().dropped, before.dropped);
        let mut sorted = got.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..N).collect::<Vec<_>>(), "each once");
        let held = counters().faults - before.faults;
        assert!((50..150).contains(&held), "a tenth of {N}: {held}");
        // Where this thread stood still in between, time let one go before it was overtaken.
        let late = got.windows(2).filter(|w| w[1] < w[0]).count();
        assert!((1..=held as usize).contains(&late), "{late} of {held}");
        for (at, number) in got.iter().enumerate() {
            let overtakers = got[..at].iter().filter(|other| *other > number).count();
            assert!(overtakers <= 4, "{number} was overtaken by {overtakers}");
        }
        p.close();
    }
}

#[test]
fn a_message_can_arrive_twice() {
    for kind in [UC, UD] {
        let faults = NetworkFaults { duplication: 1.0, ..NetworkFaults::default() };
        let _faulty = Faulty::new(4, faults);
        let p = pair(kind);
        assert_eq!(traffic(&p, 3, || 6), [0, 0, 1, 1, 2, 2]);
        p.close();
    }
}

#[test]
fn a_message_held_for_reordering_arrives_with_its_posted_bytes() {
    for kind in [UC, UD] {
        let faults = NetworkFaults { reordering: 1.0, ..NetworkFaults::default() };
        let _faulty = Faulty::new(5, faults);
        let mut p = pair(kind);
        let ah = p.net.ah();
        p.buf[0][..4].copy_from_slice(b"then");
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
        let mut sges = [sge(p.mr[0], 0, 4)];
        let mut wr = datagram_wr(1, &mut sges, SIGNALED, (ah, p.num(1), QKEY));
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        p.buf[0][..4].copy_from_slice(b"late");
        assert_eq!(p.net.poll(p.cq[1], 1)[0].status, "SUCCESS");
        let at = if kind == UD { 40 } else { 0 };
        assert_eq!(&p.buf[1][at..at + 4], b"then");
        p.net.destroy_ah(ah);
        p.close();
    }
}

#[test]
fn what_has_been_sent_from_on_demand_memory_needs_it_no_more() {
    for (kind, len) in [(UC, 4), (UC, 5_000), (UD, 4)] {
        let faults = NetworkFaults { reordering: 1.0, ..NetworkFaults::default() };
        let _faulty = Faulty::new(8, faults);
        let p = pair(kind);
        let (ah, pages) = (p.net.ah(), MappedPages::new(2));
        let mr = explicit(&p.net, &pages, RW);
        pages.fill(0, len as usize, 7);
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, len + 40)]), 0);
        let mut sges = [piece(&pages, mr, 0, len)];
        let mut wr = datagram_wr(1, &mut sges, SIGNALED, (ah, p.num(1), QKEY));
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
        pages.unmap(0);
        assert_eq!(p.net.poll(p.cq[1], 1)[0].status, "SUCCESS");
        let at = if kind == UD { 40 } else { 0 };
        assert_eq!(p.buf[1][at..][..len as usize], vec![7; len as usize]);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "LOC_PROT");
        p.net.destroy_ah(ah);
        p.net.dereg(mr);
        p.close();
    }
}

#[test]
fn what_is_under_way_ends_with_its_queue_pair() {
    let faults = NetworkFaults { reordering: 1.0, ..NetworkFaults::default() };
    let _faulty = Faulty::new(6, faults);
    // It arrives without a call after a while, which may have gone by already.
    loop {
        let p = pair(UD);
        let arrived = traffic(&p, 1, || 0);
        p.close();
        if arrived.is_empty() {
            break;
        }
    }
}

#[test]
fn a_request_that_fails_here_fails_on_any_network() {
    for faults in [
        NetworkFaults { loss: 1.0, ..NetworkFaults::default() },
        NetworkFaults { reordering: 1.0, ..NetworkFaults::default() },
        NetworkFaults { duplication: 1.0, ..NetworkFaults::default() },
    ] {
        let _faulty = Faulty::new(7, faults);
        for kind in [UC, UD] {
            let p = pair(kind);
            let ah = p.net.ah();
            let mut sges = [sge(p.mr[0], 0, 4)];
            sges[0].lkey ^= 1;
            let mut wr = datagram_wr(1, &mut sges, SIGNALED, (ah, p.num(1), QKEY));
            assert_eq!(post_send(p.qp[0], &mut wr), 0);
            assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "LOC_PROT");
            assert!(p.net.poll_now(p.cq[0]).is_empty());
            p.net.destroy_ah(ah);
            p.close();
        }
    }
}

#[test]
fn a_reliable_connection_does_not_notice() {
    let _faulty = Faulty::new(8, NetworkFaults { loss: 1.0, ..NetworkFaults::default() });
    let p = pair(ibv_qp_type::IBV_QPT_RC);
    assert_eq!(traffic(&p, 100, || 100), (0..100).collect::<Vec<_>>());
    p.close();
}

#[test]
fn a_simulation_has_a_network_of_its_own() {
    for kind in [UC, UD] {
        let network = NetworkFaults { loss: 1.0, ..NetworkFaults::default() };
        let simulation = Simulation::new(9, Faults { network, ..Faults::default() });
        let net = Net::on(soft_rnic::table(), simulation.name());
        let p = QpPair::connect(kind, net, ConnectConfig::default(), ConnectConfig::default());
        assert!(traffic(&p, 10, || 0).is_empty());
        assert_eq!((simulation.stats().dropped, simulation.stats().faults), (10, 10));
        p.close();
    }
}

#[test]
fn a_simulated_post_to_a_failed_queue_pair_is_flushed_at_once() {
    for kind in [UC, UD] {
        let simulation = Simulation::new(10, Faults::default());
        let net = Net::on(soft_rnic::table(), simulation.name());
        let p = QpPair::connect(kind, net, ConnectConfig::default(), ConnectConfig::default());
        let ah = p.net.ah();
        assert_eq!(p.net.to_state(p.qp[0], ibv_qp_state::IBV_QPS_ERR), 0);
        let mut wr = datagram_wr(1, &mut [], SIGNALED, (ah, p.num(1), QKEY));
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll_now(p.cq[0])[0].status, "WR_FLUSH");
        p.net.destroy_ah(ah);
        p.close();
    }
}
