//! Connections between processes, in worlds: rings, progress threads, and a process that is killed.
//!
//! Only on soft0: worlds make devices of their own.

use host::world::Limits;
use worlds::case::{Case, Connection, Kill, Place, Settings, Stop, Strangers};
use worlds::play::play;

/// Enough for each connection to have met killed processes, and others.
const SEEDS: u64 = 3;

fn keeps_its_promises(case: &Case) -> u64 {
    let (report, ended) = play(case, Limits::default());
    if let Err(failure) = ended {
        panic!("{case}\n{failure}");
    }
    report.hash
}

#[test]
fn connections_between_processes_keep_their_promises() {
    for connection in Connection::ALL {
        for seed in 0..SEEDS {
            let case = Case::draw(seed, Some(connection), Some(Place::Process));
            assert_eq!(keeps_its_promises(&case), keeps_its_promises(&case), "{case}");
        }
    }
}

#[test]
fn the_end_of_a_killed_process_is_noticed() {
    for connection in Connection::ALL {
        for (process, at_us) in [(0, 30), (1, 30), (0, 400), (1, 400)] {
            let case = Case::draw(at_us, Some(connection), Some(Place::Process));
            let keepalive_ms = case.settings.keepalive_ms.min(1000);
            let settings = Settings { keepalive_ms, ..case.settings };
            keeps_its_promises(&Case { kill: Some(Kill { process, at_us }), settings, ..case });
        }
    }
}

#[test]
fn a_process_that_is_stopped_is_waited_for() {
    let for_us = 300_000;
    for connection in Connection::ALL.into_iter().filter(|it| *it != Connection::Multicast) {
        for (process, at_us) in [(0, 84), (1, 84), (0, 400), (1, 400)] {
            let case = Case::draw(at_us, Some(connection), Some(Place::Process));
            let strangers = Some(Strangers { count: 0, are_awaited: false });
            let stop = Some(Stop { process, at_us, for_us });
            keeps_its_promises(&Case { stop, strangers, kill: None, ..case });
        }
    }
}
