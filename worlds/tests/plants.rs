//! Faults that are planted into the code: each is found within a given number of seeds, by a promise that
//! it breaks, and its case shrinks. A fault of one connection, or of one device, is searched for in the
//! worlds of that one.
//!
//! Only on soft0: worlds make devices of their own.

use std::process::{Command, Output};

/// Seeds within which a fault is found.
const SEEDS: u64 = 1000;
/// Steps of a case that was made smaller.
const STEPS: usize = 40;
/// Points of a world, after which it does not end: some hand over to another thread, for ten
/// microseconds each.
const POINTS: &str = "1000000";

fn worlds(args: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_worlds"));
    program.args(["--max-steps", POINTS]).args(args).output().expect("it runs")
}

/// The reason, as a world that has failed prints it.
fn reason(text: &str) -> &str {
    text.split_once("\nfailed: ").map(|(_, reason)| reason).expect("a reason")
}

/// Its process is its own, because threads of a world that has failed stay. It fails by one of the `promises`.
fn finds(plant: &str, only: &[&str], promises: &[&str]) {
    let seeds = SEEDS.to_string();
    let found = worlds(&[&["--first", "--seeds", &seeds, "--plant", plant], only].concat());
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(!found.status.success(), "not found: {text}");
    let of = text.find(" steps fail as well").expect("a smaller case");
    let steps =
        text[..of].rsplit('\n').next().and_then(|line| line.split(' ').next()?.parse().ok());
    let steps: usize = steps.expect("its number of steps");
    let case =
        text.split("--case '").nth(1).and_then(|case| case.split('\'').next()).expect("the case");
    println!("{plant}: {}; {steps} steps: {case}", text.lines().next().unwrap_or_default());
    assert!(steps <= STEPS, "{text}");
    let again = worlds(&["--plant", plant, "--case", case]);
    assert!(!again.status.success(), "it repeats");
    let again = String::from_utf8_lossy(&again.stdout);
    let reason = reason(&again);
    assert!(promises.iter().any(|promise| reason.contains(promise)), "{promises:?}: {reason}");
    assert!(worlds(&["--quiet", "--case", case]).status.success(), "fails without it: {case}");
}

macro_rules! each_is_found {
    ($($name:ident: $plant:literal, $only:expr, $promises:expr;)+) => {
        $(#[test]
        fn $name() {
            finds($plant, &$only, &$promises);
        })+
    };
}

/// Nothing ends a wait, or only a keepalive of a day.
const HANGS: [&str; 3] = ["nothing ends a wait", "no end after", "its timeout was"];
/// The end of a connection that the case does not explain.
const ENDS: [&str; 2] = ["as the receiver sees it: ", " ended: "];
/// Messages that are not those that were sent.
const DIFFERS: [&str; 3] = ["content of message", "length of message", "messages of sender"];

each_is_found! {
    a_credit_too_many: "extra-credit", ["--protocol", "send-recv"],
        ["a completion for no request", "receivers were not ready"];
    a_free_twice: "double-free", ["--protocol", "send-recv"],
        ["a buffer came home twice", "a completion for no request", ENDS[0], ENDS[1], DIFFERS[0]];
    a_wake_up_left_out: "lost-wakeup", [], HANGS;
    a_tail_published_before_its_bytes: "early-tail", ["--protocol", "buffered-read"],
        ["malformed record", "impossible tail", DIFFERS[0], DIFFERS[1], DIFFERS[2]];
    an_acknowledgement_early: "early-ack", ["--protocol", "direct-read"], DIFFERS;
    a_psn_window_off_by_one: "psn-window", ["--world", "wired"],
        [DIFFERS[0], DIFFERS[1], DIFFERS[2], ENDS[0], ENDS[1], "close of sender", "its room back", HANGS[0], HANGS[1]];
    a_probe_never_sent: "skipped-probe", ["--protocol", "send-recv"], ["the bound is", "no end within"];
    a_goodbye_lost: "lost-goodbye", ["--protocol", "shared-write"],
        ["the bound is", ENDS[0], DIFFERS[2], "close of sender", HANGS[1]];
    a_deadline_ignored: "ignored-deadline", [], ["its timeout was", HANGS[0], HANGS[1]];
    an_order_of_two_locks: "lock-order", [], ["waits for a lock", HANGS[0], HANGS[1]];
    a_leaked_queue_pair: "leaked-queue-pair", [], ["not given back: [(\"queue pairs\""];
    a_read_beyond_the_ring: "read-beyond-ring", ["--protocol", "buffered-read"], ENDS;
}
