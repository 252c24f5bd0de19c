//! Two planted faults that few seeds find: worlds see a fault, and say which promise it breaks. `plants.rs` has all
//! of them, and makes their cases smaller.
//!
//! Only on soft0: worlds make devices of their own.

use std::process::Command;

use worlds::case::{CaseProtocol, WorldCase};

const SEEDS: u64 = 100;

/// Plays a case in a process of its own, because threads of a world that has failed stay: the reason of the failure.
fn failure(case: &WorldCase, plant: &[&str]) -> Option<String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_worlds"));
    let played = program.args(["--case", &case.to_string()]).args(plant).output().expect("it runs");
    let text = String::from_utf8_lossy(&played.stdout);
    let reason = text.split_once("\nfailed: ").map(|(_, reason)| reason.to_owned());
    assert_eq!(reason.is_none(), played.status.success(), "{text}");
    reason
}

fn is_found(plant: &str, connection: Option<CaseProtocol>, promises: &[&str]) {
    let found = (0..SEEDS).find_map(|seed| {
        let case = WorldCase::draw(seed, connection, None);
        failure(&case, &["--plant", plant]).map(|reason| (case, reason))
    });
    let (case, reason) = found.expect("a seed that finds it");
    assert!(promises.iter().any(|promise| reason.contains(promise)), "{promises:?}: {reason}");
    assert_eq!(failure(&case, &[]), None, "without it: {case}");
}

#[test]
fn a_leaked_queue_pair_is_found() {
    is_found("leaked-queue-pair", None, &["not given back: [(\"queue pairs\""]);
}

#[test]
fn a_credit_too_many_is_found() {
    let promises = ["a completion for no request", "receivers were not ready"];
    is_found("extra-credit", Some(CaseProtocol::SendRecv), &promises);
}
