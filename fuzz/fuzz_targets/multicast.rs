//! A group of up to 8 members on a simulated fabric: all deliver the same, whatever fails.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::multicast::oracle::{CheckedGroup, GroupOp};
use conn_core::multicast::{Config, Members, Policy, Rank};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, u8, u8, Vec<GroupOp>)| {
    let (members, senders, window, policy, ops) = input;
    let (members, window) = (2 + members % 7, 1 + u32::from(window % 12));
    let config = Config {
        members,
        rank: Rank(0),
        senders: Members::from_bits(senders.into())
            .minus(Members::first(8).minus(Members::first(members)))
            .with(Rank(0)),
        window,
        max_message: 40,
        capacity: Config::capacity_for(window, 40),
        is_mirrored: policy & 4 != 0,
        policy: match policy % 4 {
            0 => Policy::Every(1),
            1 => Policy::Every(window),
            2 => Policy::Opportunistic,
            _ => Policy::OpportunisticWithNulls,
        },
        deadline_ns: 150_000,
        health_ns: 1 << 40,
        suspect_ns: 1 << 41,
    };
    let mut group = CheckedGroup::new(config);
    ops.into_iter().take(300).for_each(|op| group.apply(op));
    group.settle();
});
