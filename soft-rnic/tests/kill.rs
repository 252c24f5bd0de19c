//! Processes that are killed in the middle of anything: their peers end with an error,
//! in time, and nothing is left of them.
//!
//! Each round starts another process, and both ends do whatever they can to each other.
//! At a random moment one is killed. `RDMA_CONN_KILLS` says how many rounds there are,
//! `RDMA_CONN_SEED` is the seed of the moments.
//!
//! Not on apart, distant, wired: its ends are processes, as those of soft0.
//! Shows: death.

mod common;

use std::time::Instant;

use common::other::*;
use common::*;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const ROUNDS: u64 = 10;
/// Posted at a time.
const DEPTH: u64 = 16;

fn config() -> ConnectConfig {
    ConnectConfig { rnr_retry: 7, ..ConnectConfig::mortal() }
}

#[test]
fn the_other_process() {
    if let Some(role) = role() {
        let end = NearEnd::new(RC);
        post_receives(&end, DEPTH);
        let far = join_as_other(&end, config());
        if role == "passive" {
            hear();
            return;
        }
        let mut traffic = Traffic::new(end, far, std::process::id().into());
        while traffic.go_on() {}
    }
}

fn post_receives(end: &NearEnd, n: u64) {
    for id in 0..n {
        assert_eq!(post_recv(end.qp, 100 + id, &mut [end.local(0, 0, 1 << 17)]), 0);
    }
}

/// Numbers that follow from a seed (the xorshift of Marsaglia).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Requests of all kinds, as long as they succeed.
struct Traffic {
    end: NearEnd,
    far: Far,
    random: u64,
    under_way: u64,
    done: u64,
    failed: Option<&'static str>,
}

impl Traffic {
    fn new(end: NearEnd, far: Far, seed: u64) -> Traffic {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Traffic { end, far, random, under_way: 0, done: 0, failed: None }
    }

    /// Posts what there is room for, and polls. False once something has failed.
    fn go_on(&mut self) -> bool {
        while self.failed.is_none() && self.under_way < DEPTH {
            self.post();
            self.under_way += 1;
        }
        for wc in self.end.net.poll_now(self.end.cq) {
            match wc.status {
                "SUCCESS" if wc.id >= 100 => post_receives(&self.end, 1),
                "SUCCESS" => {
                    self.under_way -= 1;
                    self.done += 1;
                }
                status => {
                    self.under_way -= u64::from(wc.id < 100);
                    self.failed.get_or_insert(status);
                }
            }
        }
        self.failed.is_none()
    }

    fn post(&mut self) {
        let random = next(&mut self.random);
        let lens = [0, 8, 33, 4_000, 9_000, 100_000];
        let len = lens[(random >> 8) as usize % lens.len()];
        let (near, far) = ((random >> 16) as usize % 2, (random >> 17) as usize % 2);
        // Not where the atomics are.
        let ((addr, key), local) = (self.far.memory[far], self.end.local(near, 0, len));
        let remote = (addr + 64, key);
        match random % 5 {
            0 | 1 => self.end.send(local),
            2 => self.end.post_rdma(W::IBV_WR_RDMA_WRITE, local, remote),
            3 => self.end.post_rdma(W::IBV_WR_RDMA_READ, local, remote),
            _ => {
                let local = self.end.local(near, 0, 8);
                self.end.post_rdma(W::IBV_WR_ATOMIC_FETCH_AND_ADD, local, (addr, key));
            }
        }
    }
}

/// Mappings of this process that other processes made.
fn foreign_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let foreign = |line: &&str| line.contains("r--s") && line.contains("memfd:soft-rnic");
    maps.lines().filter(foreign).count()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Plays one round; returns how much was done, and the first failure.
fn round(random: &mut u64) -> (u64, &'static str) {
    let mut other = Other::start("the_other_process", "busy");
    let end = NearEnd::new(RC);
    post_receives(&end, DEPTH);
    let far = join(&end, &mut other, config());
    let mut traffic = Traffic::new(end, far, next(random));
    // Anything from nothing to a few hundred polls.
    let polls = next(random) % 2_000;
    for _ in 0..polls {
        assert!(traffic.go_on(), "{:?} before the process was killed", traffic.failed);
    }
    other.signal(libc::SIGKILL);
    let since = Instant::now();
    while traffic.go_on() || traffic.under_way > 0 {
        assert!(since.elapsed() < PATIENCE, "it was not noticed");
        std::thread::yield_now();
    }
    assert_eq!(qp_state_name(traffic.end.net.state(traffic.end.qp)), "ERR");
    traffic.end.close();
    (traffic.done, traffic.failed.unwrap())
}

#[test]
fn a_kill_at_any_moment_ends_the_peer_and_leaves_nothing() {
    let rounds = setting("RDMA_CONN_KILLS", ROUNDS);
    let mut random = setting("RDMA_CONN_SEED", 42) | 1;
    let mut left = None;
    for n in 0..rounds {
        let (done, failed) = round(&mut random);
        assert!(is_end_of_process(failed), "round {n}, after {done} requests: {failed}");
        // The device notices a death without a call; what it keeps until then goes.
        let since = Instant::now();
        while foreign_mappings() > 0 || open_files() > left.unwrap_or(usize::MAX) {
            let kept = (foreign_mappings(), open_files(), left);
            assert!(since.elapsed() < PATIENCE, "round {n}: mappings, files, and before: {kept:?}");
            std::thread::yield_now();
        }
        // What the first round opens for the process itself stays.
        left.get_or_insert_with(open_files);
    }
}

/// Nothing here need have noticed the death: the memory of the dead process is mapped, and can still
/// be written.
#[test]
fn what_is_posted_once_a_process_was_reaped_fails() {
    for (opcode, len) in [
        (W::IBV_WR_RDMA_WRITE, 8),
        (W::IBV_WR_RDMA_WRITE, 0),
        (W::IBV_WR_RDMA_READ, 8),
        (W::IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
        (W::IBV_WR_SEND, 8),
    ] {
        let mut other = Other::start("the_other_process", "passive");
        let end = NearEnd::new(RC);
        let far = join(&end, &mut other, config());
        let (local, (addr, key)) = (end.local(0, 0, 8), far.memory[0]);
        end.post_rdma(W::IBV_WR_RDMA_WRITE, local, (addr, key));
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        other.signal(libc::SIGKILL);
        other.wait();
        let local = end.local(0, 0, len);
        match opcode {
            W::IBV_WR_SEND => end.send(local),
            _ => end.post_rdma(opcode, local, (addr, key)),
        }
        let status = end.net.poll(end.cq, 1)[0].status;
        assert!(is_end_of_process(status), "{opcode:?} of {len} bytes: {status}");
        end.close();
    }
}
