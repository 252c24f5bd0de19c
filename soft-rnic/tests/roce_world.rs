//! The network's thread of a device, in worlds: a process of its own, so that no world waits for a lock
//! that a thread outside of it holds.
//!
//! Only on soft0: it makes devices over UDP itself.
#![cfg(feature = "simulation")]

mod common;

use std::time::Duration;

use common::multicast::*;
use common::*;
use host::world::{self, Limits, Nature};
use soft_rnic::{NetworkNature, WorldNetwork};

/// The thread waits for groups as well: also for the first one, which is joined while it waits. One
/// that did not would find a packet once in a second of the world's time.
#[test]
fn packets_of_groups_wake_the_devices_thread() {
    const SOON: Duration = Duration::from_millis(10);
    for seed in 0..10 {
        let (_, ended) = world::run(seed, Nature::default(), Limits::default(), || {
            let network = WorldNetwork::new(NetworkNature::default()).unwrap();
            let devices = [1_u8, 2].map(|last| network.device([10, 0, 0, last].into()).unwrap());
            let [a, b] =
                devices.each_ref().map(|device| Net::on(soft_rnic::table(), device.name()));
            // Until the thread waits.
            host::time::sleep(SOON);
            let to = ah(&a, group(5));
            let (sender, listens) = (GroupMember::new(&a), member(&b, group(5)));
            for n in 1..=20 {
                sender.send(&a, to, 4, None);
                host::time::sleep(SOON);
                let counters = soft_rnic::packet_counters_of(devices[1].name()).unwrap();
                assert_eq!(counters.received, n);
            }
            end(&b, group(5), listens);
            sender.close(&a);
            a.destroy_ah(to);
            [a, b].into_iter().for_each(Net::close);
        });
        ended.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}
