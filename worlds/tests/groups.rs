//! Groups in worlds: members on devices of their own, of which one is killed, stopped or separated.
//!
//! Only on soft0: worlds make devices of their own.

use clap::ValueEnum as _;
use host::world::Limits;
use worlds::case::{
    CaseFaults, CaseNetwork, CaseProtocol, DeviceKind, ProcessKill, ProcessStop, SendStep,
    SenderEnding, Settings, Strangers, WaitKind, WorldCase,
};
use worlds::play::play;

/// Enough for each place to have met a group that fails.
const SEEDS: u64 = 1;
/// All members send by then, and for long after.
const LATER_US: u64 = 100_000;
/// Members that send: one more only receives.
const SENDERS: usize = 3;

/// Plays a case, which keeps all promises, and returns its events.
fn keeps_its_promises(case: &WorldCase) -> Vec<String> {
    let (report, ended) = play(case, Limits { events: 100_000, ..Limits::default() });
    if let Err(failure) = ended {
        panic!("{case}\n{failure}");
    }
    report.events
}

/// True if a member reports that it has cut another one off.
fn cuts_off(events: &[String]) -> bool {
    events.iter().any(|event| event.contains("Err(CutOff"))
}

/// A group that sends for 300 ms, without faults.
fn calm(place: DeviceKind, wait: WaitKind) -> WorldCase {
    let drawn = WorldCase::draw(1, Some(CaseProtocol::Multicast), Some(place));
    let (message_bytes, batch, window, other_way) = (100, 1, 4, false);
    let settings = Settings { message_bytes, batch, window, other_way, wait, ..drawn.settings };
    let steps = [SendStep::Sleep(30_000), SendStep::Send(8)].repeat(10);
    WorldCase {
        settings,
        senders: vec![steps; SENDERS],
        ends: vec![SenderEnding::Close; SENDERS],
        sender_processes: SENDERS,
        faults: CaseFaults::default(),
        network: CaseNetwork::default(),
        kill: None,
        stop: None,
        strangers: None,
        switch_one_in: 4,
        stall_one_in: 0,
        jump_one_in: 0,
        short_one_in: 0,
        short_posts_one_in: 0,
        ..drawn
    }
}

/// A member that the library drives, and one that the program drives.
const WAITS: [WaitKind; 2] = [WaitKind::Block, WaitKind::Adaptive];

#[test]
fn groups_keep_their_promises_at_every_place() {
    for &place in DeviceKind::value_variants() {
        for seed in 0..SEEDS {
            let case = WorldCase::draw(seed, Some(CaseProtocol::Multicast), Some(place));
            keeps_its_promises(&case);
        }
    }
}

#[test]
fn a_group_without_failures_ends_without_errors() {
    for &place in DeviceKind::value_variants() {
        for wait in WAITS {
            assert!(!cuts_off(&keeps_its_promises(&calm(place, wait))), "{place:?}, {wait:?}");
        }
    }
}

#[test]
fn a_member_that_is_killed_is_cut_off() {
    for process in 0..=SENDERS {
        for wait in WAITS {
            let kill = Some(ProcessKill { process, at_us: LATER_US });
            let case = WorldCase { kill, ..calm(DeviceKind::Process, wait) };
            assert!(cuts_off(&keeps_its_promises(&case)), "{case}");
        }
    }
}

#[test]
fn a_member_that_is_killed_at_set_up_leaves_nothing() {
    for at_us in [1, 30, 200, 1_000] {
        for process in [0, SENDERS] {
            let kill = Some(ProcessKill { process, at_us });
            keeps_its_promises(&WorldCase { kill, ..calm(DeviceKind::Process, WaitKind::Block) });
        }
    }
}

#[test]
fn only_a_member_that_stops_for_long_is_cut_off() {
    for process in [0, SENDERS] {
        for (for_us, is_long) in [(10_000, false), (1_000_000, true)] {
            for wait in WAITS {
                let stop = Some(ProcessStop { process, at_us: LATER_US, for_us });
                let case = WorldCase { stop, ..calm(DeviceKind::Process, wait) };
                assert_eq!(cuts_off(&keeps_its_promises(&case)), is_long, "{case}");
            }
        }
    }
}

#[test]
fn only_a_member_that_is_separated_for_long_is_cut_off() {
    // From one other member, or from all.
    for seed in [1, 2] {
        for (partition_us, is_long) in [(100_000, false), (2_000_000, true)] {
            for wait in WAITS {
                let network = CaseNetwork {
                    partition_at_us: LATER_US,
                    partition_us,
                    ..CaseNetwork::default()
                };
                let case = WorldCase { seed, network, ..calm(DeviceKind::Wired, wait) };
                assert_eq!(cuts_off(&keeps_its_promises(&case)), is_long, "{case}");
            }
        }
    }
}

#[test]
fn a_group_without_memory_leaves_nothing() {
    for &place in DeviceKind::value_variants() {
        for short_one_in in [1, 20, 100, 500] {
            keeps_its_promises(&WorldCase { short_one_in, ..calm(place, WaitKind::Block) });
        }
    }
}

#[test]
fn a_group_forms_after_strangers_were_refused() {
    for &place in DeviceKind::value_variants() {
        for are_awaited in [false, true] {
            let strangers = Some(Strangers { count: 2, are_awaited });
            let case = WorldCase { strangers, ..calm(place, WaitKind::Adaptive) };
            assert!(!cuts_off(&keeps_its_promises(&case)), "{case}");
        }
    }
}
