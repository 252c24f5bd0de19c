//! Connections between processes, in worlds: rings, progress threads, and a process that is killed.
//!
//! Only on soft0: worlds make devices of their own.

use clap::ValueEnum as _;
use host::world::Limits;
use worlds::case::{
    CaseProtocol, DeviceKind, Form, ProcessKill, ProcessStop, SendStep, SenderEnding, Settings,
    Strangers, WaitKind, WorldCase,
};
use worlds::play::play;

/// Enough for each connection to have met killed processes, and others.
const SEEDS: u64 = 3;

fn keeps_its_promises(case: &WorldCase) -> u64 {
    let (report, ended) = play(case, Limits::default());
    if let Err(failure) = ended {
        panic!("{case}\n{failure}");
    }
    report.hash
}

#[test]
fn connections_between_processes_keep_their_promises() {
    for &connection in CaseProtocol::value_variants() {
        for seed in 0..SEEDS {
            let case = WorldCase::draw(seed, Some(connection), Some(DeviceKind::Process));
            assert_eq!(keeps_its_promises(&case), keeps_its_promises(&case), "{case}");
        }
    }
}

/// Connections with ends in several processes. All members of a group are of one: where that is killed, no member
/// remains to notice it.
fn between_processes() -> impl Iterator<Item = CaseProtocol> {
    let all = CaseProtocol::value_variants().iter().copied();
    all.filter(|connection| *connection != CaseProtocol::Multicast)
}

#[test]
fn the_end_of_a_killed_process_is_noticed() {
    for connection in between_processes() {
        for (process, at_us) in [(0, 30), (1, 30), (0, 400), (1, 400)] {
            let case = WorldCase::draw(at_us, Some(connection), Some(DeviceKind::Process));
            let keepalive_ms = case.settings.keepalive_ms.min(1000);
            let settings = Settings { keepalive_ms, ..case.settings };
            keeps_its_promises(&WorldCase {
                kill: Some(ProcessKill { process, at_us }),
                settings,
                ..case
            });
        }
    }
}

/// Messages of another sender, sooner after each other than probes, hide no silence.
#[test]
fn a_dead_sender_is_missed_while_another_one_sends() {
    let pause = |us| [SendStep::Sleep(us), SendStep::Send(8)];
    for connection in between_processes() {
        // Threads that poll take many steps.
        for (wait, keepalive_ms) in
            [(WaitKind::Block, 200), (WaitKind::Adaptive, 200), (WaitKind::Spin, 20)]
        {
            for other_way in [false, true] {
                let drawn = WorldCase::draw(1, Some(connection), Some(DeviceKind::Process));
                let (message_bytes, batch, window) = (100, 1, 4);
                let settings = Settings {
                    message_bytes,
                    batch,
                    window,
                    wait,
                    other_way,
                    keepalive_ms,
                    ..drawn.settings
                };
                keeps_its_promises(&WorldCase {
                    form: Form::Messages,
                    settings,
                    senders: [900 * keepalive_ms, 1_000]
                        .map(|us| (0..4).flat_map(|_| pause(us)).collect())
                        .into(),
                    ends: vec![SenderEnding::Close; 2],
                    receiver: Vec::new(),
                    receiver_is_dropped: false,
                    sender_processes: 2,
                    kill: Some(ProcessKill { process: 2, at_us: 5_000 }),
                    stop: None,
                    strangers: None,
                    stall_one_in: 0,
                    jump_one_in: 0,
                    short_one_in: 0,
                    ..drawn
                });
            }
        }
    }
}

#[test]
fn a_process_that_is_stopped_is_waited_for() {
    let for_us = 300_000;
    for connection in between_processes() {
        for (process, at_us) in [(0, 84), (1, 84), (0, 400), (1, 400)] {
            let case = WorldCase::draw(at_us, Some(connection), Some(DeviceKind::Process));
            let strangers = Some(Strangers { count: 0, are_awaited: false });
            let stop = Some(ProcessStop { process, at_us, for_us });
            keeps_its_promises(&WorldCase { stop, strangers, kill: None, ..case });
        }
    }
}
