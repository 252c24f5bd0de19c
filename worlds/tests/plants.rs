//! Faults that are planted into the code: each is found within a given number of seeds, and its
//! case shrinks.
//!
//! Only on soft0: worlds make devices of their own.

use std::process::{Command, Output};

/// Seeds within which a fault is found.
const SEEDS: u64 = 1000;
/// Steps of a case that was made smaller.
const STEPS: usize = 40;

fn worlds(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_worlds")).args(args).output().expect("it runs")
}

/// Its process is its own, because threads of a world that has failed stay.
fn finds(plant: &str, only: &[&str]) {
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
    assert!(!worlds(&["--quiet", "--plant", plant, "--case", case]).status.success(), "it repeats");
    assert!(worlds(&["--quiet", "--case", case]).status.success(), "fails without it: {case}");
}

macro_rules! each_is_found {
    ($($name:ident: $plant:literal, $only:expr;)+) => {
        $(#[test]
        fn $name() {
            finds($plant, &$only);
        })+
    };
}

each_is_found! {
    a_credit_too_many: "extra-credit", ["--protocol", "send-recv"];
    a_free_twice: "double-free", ["--protocol", "send-recv"];
    a_wake_up_left_out: "lost-wakeup", [];
    a_tail_published_before_its_bytes: "early-tail", ["--protocol", "buffered-read"];
    an_acknowledgement_early: "early-ack", ["--protocol", "direct-read"];
    a_psn_window_off_by_one: "psn-window", ["--world", "wired"];
    a_probe_never_sent: "skipped-probe", ["--protocol", "send-recv"];
    a_goodbye_lost: "lost-goodbye", ["--protocol", "shared-write"];
    a_deadline_ignored: "ignored-deadline", [];
    an_order_of_two_locks: "lock-order", [];
    a_leaked_queue_pair: "leaked-queue-pair", [];
    a_read_beyond_the_ring: "read-beyond-ring", ["--protocol", "buffered-read"];
}
