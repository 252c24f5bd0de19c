//! The replicated example, in processes of its own, one of which is killed.
//!
//! Shows: examples.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rdma_conn::device::Provider;
use support::{Random, device, seed};

#[allow(dead_code, reason = "its main belongs to the example")]
#[path = "../examples/replicated.rs"]
mod replicated;

const ARGUMENTS: &str = "REPLICATED_ARGUMENTS";
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test, but the process that the other tests start.
#[test]
fn member() {
    if let Ok(arguments) = std::env::var(ARGUMENTS) {
        println!(); // the harness has begun a line
        replicated::run(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
    }
}

struct MemberProcess {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl MemberProcess {
    fn start(arguments: &str) -> MemberProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["member", "--exact", "--nocapture", "--test-threads=1"])
            .env(ARGUMENTS, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, output) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let input = child.stdin.take().unwrap();
        MemberProcess { child, input, output }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line that begins so.
    fn hear(&self, prefix: &str) -> String {
        loop {
            let line = self.output.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|e| panic!("{prefix:?} was not said: {e}"));
            if line.starts_with(prefix) {
                return line;
            }
        }
    }

    /// Returns the value that this member has set a key to; "-" for none.
    fn get(&mut self, key: &str) -> String {
        self.say(&format!("get {key}"));
        let line = self.hear(&format!("{key} "));
        line[key.len() + 1..].to_owned()
    }

    fn dump(&mut self) -> BTreeMap<String, String> {
        self.say("dump");
        let mut all = BTreeMap::new();
        loop {
            let line = self.output.recv_timeout(PATIENCE).expect("a dump");
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["have", key, value] => drop(all.insert(key.into(), value.into())),
                ["end"] => return all,
                _ => {}
            }
        }
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of this process alone, with ports of this group alone: each time that it meets anew
/// it takes the next one. A port of 127.0.0.1 that is free now may be another's before it is bound.
fn address() -> String {
    static GROUPS: AtomicU16 = AtomicU16::new(0);
    // Below the ports that the system gives out.
    let port = 8_000 + GROUPS.fetch_add(1, Ordering::Relaxed) * 4;
    let [_, a, b, c] = std::process::id().to_be_bytes();
    format!("{}:{port}", Ipv4Addr::new(127, a, b, c))
}

/// Keys that each member is asked to set in one round.
const SETS: u64 = 300;

/// Kills the member of rank `victim` in the middle of its own messages and the others', when
/// it has acknowledged `moment` of them.
fn nothing_acknowledged_is_lost(victim: usize, moment: u64) {
    let address = address();
    let mut members = vec![MemberProcess::start(&format!("lead {address} 3"))];
    // Which of them gets which rank does not matter.
    members.extend((0..2).map(|_| MemberProcess::start(&format!("join {address}"))));
    for (rank, member) in members.iter_mut().enumerate() {
        member.say(&format!("set first{rank} 1"));
    }
    for (rank, member) in members.iter().enumerate() {
        member.hear(&format!("ok first{rank}"));
    }
    for number in 0..SETS {
        for (rank, member) in members.iter_mut().enumerate() {
            member.say(&format!("set key{rank}x{number} {number}"));
        }
    }
    let mut dead = members.remove(victim);
    dead.hear(&format!("ok key{victim}x{moment}"));
    dead.child.kill().unwrap(); // SIGKILL
    dead.child.wait().unwrap();
    // It acknowledges in its order: these, and what it has said meanwhile.
    let said = std::iter::from_fn(|| dead.output.recv().ok());
    let later = said.filter(|line| line.starts_with("ok ")).count() as u64;
    for (n, member) in members.iter_mut().enumerate() {
        member.hear("met");
        member.say(&format!("set last{n} 1"));
    }
    // A value is acknowledged when it is set at the member that was asked; the other one may learn
    // later that it may set it, too.
    for member in &mut members {
        for last in 0..2 {
            while member.get(&format!("last{last}")) == "-" {}
        }
    }
    let stores: Vec<_> = members.iter_mut().map(MemberProcess::dump).collect();
    let has = |rank: usize, number: u64| {
        stores[0].get(&format!("key{rank}x{number}")) == Some(&number.to_string())
    };
    let lost: Vec<u64> = (0..=moment + later).filter(|number| !has(victim, *number)).collect();
    assert!(lost.is_empty(), "of {moment} and {later} acknowledged: {lost:?}");
    for rank in (0..3).filter(|rank| *rank != victim) {
        assert!((0..SETS).all(|number| has(rank, number)), "the survivors' own");
    }
    assert_eq!(stores[0], stores[1], "the survivors have the same");
}

/// Several times, at moments that are drawn.
fn kill_at_any_moment(victim: usize) {
    let device = device();
    if !device.crosses_processes() {
        return;
    }
    // A kernel's device detects a dead peer late.
    let rounds = if device.provider() == Provider::Soft { 12 } else { 3 };
    let seed = seed(std::process::id().into());
    let mut random = Random::new(seed + victim as u64);
    for _ in 0..rounds {
        let moment = random.below(SETS);
        println!("RDMA_CONN_SEED={seed}: killed after {moment}");
        nothing_acknowledged_is_lost(victim, moment);
    }
}

#[test]
fn a_member_is_killed_and_nothing_acknowledged_is_lost() {
    kill_at_any_moment(2);
}

#[test]
fn the_leader_is_killed_and_nothing_acknowledged_is_lost() {
    kill_at_any_moment(0);
}
