//! Devices over UDP on addresses of this machine, and what they count.

use std::time::Instant;

use soft_rnic::PacketCounters;

use super::{Net, PATIENCE};

/// Makes a device of an address, with options behind commas: its name.
pub fn list(text: &str) -> String {
    let roce: soft_rnic::Roce = text.parse().expect("an address, with options");
    roce.list().expect("an address of this machine, and its port")
}

/// Opens a device of an address.
pub fn open(text: &str) -> Net {
    Net::on(soft_rnic::table(), &list(text))
}

/// Returns the counters of the device of an address, without its options.
pub fn counted(ip: &str) -> PacketCounters {
    soft_rnic::packet_counters_of(&format!("roce:{ip}")).expect("a device of this process")
}

/// Waits for what the device of an address counts.
pub fn until_counted(ip: &str, is_so: impl Fn(&PacketCounters) -> bool) -> PacketCounters {
    let end = Instant::now() + PATIENCE;
    loop {
        let all = counted(ip);
        if is_so(&all) {
            return all;
        }
        assert!(Instant::now() < end, "{all:?}");
        std::thread::yield_now();
    }
}
