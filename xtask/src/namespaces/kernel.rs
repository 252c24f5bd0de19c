//! In the virtual machine: the kernel's soft-RoCE at one end, and our device at the other.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::end::{BuiltPrograms, EndDevice, NamespaceEnd, group_of};
use super::network::{JUMBO, Namespace, NamespacePair};
use super::runner::CaseRunner;
use super::speed::Meter;

/// The kernel's device, on the interface of the first end.
const DEVICE: &str = "rxe1";
/// Options of our device behind which packets are lost: netem takes a run for one packet.
const SINGLE_PACKETS: &str = ",gso=off";
/// Time that a test program may take.
const TESTS: Duration = Duration::from_secs(1_200);
/// Time that it may take until it has the address.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands that delay, lose, reorder and duplicate packets that arrive at an interface: `{}` is
/// its name.
const BAD_NETWORK: &[&str] = &[
    "ip link add ifb-{} type ifb",
    "ip link set ifb-{} mtu 9000 up",
    "tc qdisc add dev {} ingress",
    "tc filter add dev {} parent ffff: matchall action mirred egress redirect dev ifb-{}",
    "tc qdisc add dev ifb-{} root netem delay 1ms loss 1% reorder 5% duplicate 1%",
];

/// A network with the kernel's device at the first end.
fn network_with_rxe() -> Result<NamespacePair> {
    let network = NamespacePair::join([Namespace::own(), Namespace::new()?], 8)?;
    let interface = network.interface(0);
    network.namespaces[0].run(&format!("rdma link add {DEVICE} type rxe netdev {interface}"))?;
    wait_for_the_address(&network)?;
    Ok(network)
}

/// The kernel's device does not join the group of IP itself: programs use `rdma_cm` for that. A
/// member as long as the socket is there.
fn join_group(address: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    if let (IpAddr::V4(group), IpAddr::V4(address)) = (group_of(address), address) {
        socket.join_multicast_v4(&group, &address)?;
    }
    Ok(socket)
}

/// Measures the kernel's device beside ours, and each with the other.
pub(super) fn speed(filter: Option<&str>, built: &BuiltPrograms) -> Result<()> {
    let network = network_with_rxe()?;
    // Where the kernel's device is, it has the port of all addresses.
    let apart = NamespacePair::join([Namespace::new()?, Namespace::new()?], 9)?;
    let roce = || EndDevice::Roce(String::new());
    let ours = || [0, 1].map(|at| end(&apart, at, roce()));
    let theirs = || end(&network, 0, EndDevice::Kernel(DEVICE));
    let far = || end(&network, 1, roce());
    let meter = Meter::new(filter, built);
    meter.measure("roce to roce", ours(), false)?;
    meter.measure("rxe to roce", [far(), theirs()], true)?;
    meter.measure("roce to rxe", [theirs(), far()], true)?;
    // Of one device, past UDP.
    meter.measure("rxe to itself", [theirs(), theirs()], true)
}

pub(super) fn run(filter: Option<&str>, built: &BuiltPrograms, tests: &[PathBuf]) -> Result<()> {
    let network = network_with_rxe()?;
    let _member = join_group(network.v4(0))?;
    let mut runner = CaseRunner::new(built, filter);
    conformance(&mut runner, &network, tests);
    both_ways(&mut runner, &network, "", false);
    for line in BAD_NETWORK {
        network.at_both(line)?;
    }
    both_ways(&mut runner, &network, ", bad network", true);
    runner.finish()
}

/// Tests what every protocol promises, with a device of each kind. A program is in the second
/// namespace with both of its ends: the kernel's device can be used from all of them.
fn conformance(runner: &mut CaseRunner<'_>, network: &NamespacePair, tests: &[PathBuf]) {
    let devices = [DEVICE.to_owned(), format!("roce:{}", network.v4(1))];
    for [one, other] in [[0, 1], [1, 0]].map(|pair| pair.map(|at| &*devices[at])) {
        let kind = |name: &str| name.trim_end_matches(|c| c != 'e').to_owned();
        let names = format!("{} and {}", kind(one), kind(other));
        runner.begin_column(&names);
        for test in tests {
            let file = test.file_name().unwrap_or_default().to_string_lossy();
            let target = file.rsplit_once('-').map_or(&*file, |(target, _hash)| target);
            let run = || run_test(network, test, [one, other], &format!("{names}: {target}"));
            runner.step(&format!("conformance: {target}"), run);
        }
    }
}

/// Runs a test program, one test at a time, and prints the result of each.
fn run_test(network: &NamespacePair, test: &Path, devices: [&str; 2], label: &str) -> Result<()> {
    let mut words = network.namespaces[1].enter();
    words.extend(["timeout", &TESTS.as_secs().to_string()].map(str::to_owned));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(test).args(["--test-threads=1", "--format=pretty"]);
    command.env("RDMA_CONN_DEVICE", devices[0]).env("RDMA_CONN_OTHER_DEVICE", devices[1]);
    let out = command.output().with_context(|| format!("starting {}", words[0]))?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines()
        .filter(|line| line.starts_with("test "))
        .for_each(|line| println!("{label}: {line}"));
    ensure!(out.status.success(), "{text}");
    Ok(())
}

/// Either end listens.
fn both_ways(runner: &mut CaseRunner<'_>, network: &NamespacePair, how: &str, is_lossy: bool) {
    let theirs = || end(network, 0, EndDevice::Kernel(DEVICE));
    let options = if is_lossy { SINGLE_PACKETS } else { "" };
    let ours = || end(network, 1, EndDevice::Roce(options.to_owned()));
    for (who, ends) in [("rxe", [theirs(), ours()]), ("roce", [ours(), theirs()])] {
        runner.all(&format!("{who} listens{how}"), &ends, [JUMBO; 2], is_lossy);
    }
}

fn end(network: &NamespacePair, at: usize, device: EndDevice) -> NamespaceEnd<'_> {
    NamespaceEnd::at(network, at, network.v4(at), device)
}

/// A device has the GID of its interface's address some time after it was made.
fn wait_for_the_address(network: &NamespacePair) -> Result<()> {
    let std::net::IpAddr::V4(address) = network.v4(0) else { return Ok(()) };
    let [a, b, c, d] = address.octets();
    let gid = format!("ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
    let file = format!("/sys/class/infiniband/{DEVICE}/ports/1/gids/1");
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&file).is_ok_and(|found| found.contains(&gid)) {
        ensure!(Instant::now() < deadline, "{file} is not {gid}");
        std::thread::sleep(Duration::from_millis(50)); // until the next look
    }
    Ok(())
}
