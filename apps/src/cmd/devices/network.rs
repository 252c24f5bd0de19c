//! Devices on the network that could be named.

use base::say;
use rdma_conn::device::Nameable;

/// Says what could be named, and whether it could be opened.
pub(super) fn show(all: &[Nameable]) {
    if all.is_empty() {
        return;
    }
    say!(
        "RoCE v2 over UDP from an address of this machine: none of these is open, each can be named"
    );
    let width = all.iter().map(|device| device.name.len()).max().unwrap_or(0);
    for device in all {
        say!(
            "  --device {:width$}  {}, MTU {} B: path MTU {} B; UDP port 4791 {}",
            device.name,
            device.interface,
            device.mtu_bytes,
            device.path_mtu_bytes,
            port(device)
        );
    }
    say!("  roce:INTERFACE is its first address; roce alone that of --listen or --connect.");
    say!("");
}

fn port(device: &Nameable) -> String {
    match &device.holders[..] {
        [] => "is free".into(),
        holders if device.is_shared => format!("is shared by {}", holders.join(", ")),
        holders => format!("is taken by {}", holders.join(", ")),
    }
}
