//! Tests of what a device needs of this machine.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use soft_rnic::Roce;
use soft_rnic::udp::{LocalAddress, UdpPort, abilities, local_addresses, port_holders};

use super::report::DoctorReport;

/// Receive buffer, in bytes, that a device asks the kernel for.
const WANTED: u64 = 4 << 20;

/// The device's port, and what is known of its address.
pub(super) struct LocalPort {
    pub(super) port: UdpPort,
    pub(super) interface: String,
    /// Bytes of payload in a packet, at most.
    pub(super) path_mtu: usize,
}

/// Tests all that needs no peer; the port, if it could be bound.
///
/// The port that processes share is good enough for a device; tests with a peer need it alone.
pub(super) fn check(
    report: &mut DoctorReport,
    roce: &Roce,
    alone: bool,
) -> Result<Option<LocalPort>> {
    let all = local_addresses().context("cannot list this machine's addresses")?;
    let Some(address) = address(report, roce, &all) else { return Ok(None) };
    let port = port(report, roce, alone);
    let path_mtu = Roce::path_mtu(&address);
    mtu(report, &address, path_mtu);
    buffers(report);
    offloads(report, roce);
    Ok(port.map(|port| LocalPort { port, interface: address.interface, path_mtu }))
}

fn address(report: &mut DoctorReport, roce: &Roce, all: &[LocalAddress]) -> Option<LocalAddress> {
    let own = |address: &&LocalAddress| address.ip == roce.ip;
    // All of 127.0.0.0/8 are addresses of the loopback interface.
    let loopback = |address: &&LocalAddress| roce.ip.is_loopback() && address.ip.is_loopback();
    match all.iter().find(own).or_else(|| all.iter().find(loopback)) {
        Some(found) => {
            report.ok("address", format!("{} is an address of {}", roce.ip, found.interface));
            Some(LocalAddress { ip: roce.ip, ..found.clone() })
        }
        None => {
            let there: Vec<String> = all.iter().map(|address| address.ip.to_string()).collect();
            report.fail(
                "address",
                format!("no interface that is up has {}", roce.ip),
                format!("name one of this machine: {}", there.join(", ")),
            );
            None
        }
    }
}

fn port(report: &mut DoctorReport, roce: &Roce, alone: bool) -> Option<UdpPort> {
    let addr = SocketAddr::new(roce.ip, Roce::UDP_PORT);
    match UdpPort::bind(addr) {
        Ok(port) => {
            report.ok("port", format!("UDP port {} is free", Roce::UDP_PORT));
            Some(port)
        }
        Err(error) => {
            let found = port_holders(addr);
            let names: Vec<String> = found.iter().map(ToString::to_string).collect();
            let names = names.join(", ");
            match found.first() {
                Some(holder) if holder.is_shared && !alone => {
                    report.ok(
                        "port",
                        format!("{names} has it, and shares it with this user's processes"),
                    );
                }
                Some(_) => report.fail(
                    "port",
                    error.to_string(),
                    format!("{names} has it: end that, or use another address"),
                ),
                None => report.fail("port", error.to_string(), "see `ss -ulnp` and `rdma link`"),
            }
            None
        }
    }
}

fn mtu(report: &mut DoctorReport, address: &LocalAddress, path_mtu: usize) {
    let LocalAddress { interface, mtu, ip } = address;
    let found = format!("{interface} has an MTU of {mtu} bytes, so packets carry up to {path_mtu}");
    let full = if ip.is_ipv4() { 4_168 } else { 4_188 };
    match path_mtu {
        4_096 => report.ok("mtu", found),
        _ => report.warn(
            "mtu",
            found,
            format!(
                "longer packets are faster, if all that is between the ends takes them: `ip link set \
                 {interface} mtu {full}` or more gives 4096"
            ),
        ),
    }
}

fn buffers(report: &mut DoctorReport) {
    for (check, name) in [("receive_room", "rmem_max"), ("send_room", "wmem_max")] {
        let read = std::fs::read_to_string(format!("/proc/sys/net/core/{name}"));
        let granted = read.ok().and_then(|text| text.trim().parse::<u64>().ok());
        match granted {
            Some(bytes) if bytes < WANTED => report.warn(
                check,
                format!(
                    "net.core.{name} grants {} KiB of {} KiB without CAP_NET_ADMIN",
                    bytes >> 10,
                    WANTED >> 10
                ),
                format!("bursts are lost, and windows small: `sysctl -w net.core.{name}={WANTED}`"),
            ),
            Some(_) => report.ok(check, format!("net.core.{name} grants the {} KiB", WANTED >> 10)),
            None => report.warn(
                check,
                format!("net.core.{name} cannot be read"),
                "nothing to be done in a container: its value is the host's",
            ),
        }
    }
}

fn offloads(report: &mut DoctorReport, roce: &Roce) {
    let found = abilities(roce.ip);
    let all = [
        (found.cuts, "runs of packets are cut (GSO)"),
        (found.merges, "packets are merged (GRO)"),
        (found.shares, "processes can share the address (SO_REUSEPORT)"),
    ];
    let of = |wanted: bool| {
        let chosen = all.iter().filter(|(is, _)| *is == wanted).map(|(_, what)| *what);
        chosen.collect::<Vec<_>>().join(", ")
    };
    match of(false) {
        missing if missing.is_empty() => report.ok("offloads", of(true)),
        missing => {
            report.warn("offloads", format!("not so here: {missing}"), "a newer kernel is faster")
        }
    }
}
