//! In the virtual machine: the kernel's soft-RoCE at one end, and our device at the other.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::end::{Built, Device, End};
use super::network::{JUMBO, Namespace, Network};
use super::runner::Runner;

/// The kernel's device, on the interface of the first end.
const DEVICE: &str = "rxe1";
/// Options of our device behind which packets are lost: netem takes a run for one packet.
const SINGLE_PACKETS: &str = ",gso=off";
/// How long it may take until it has the address.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an interface does to packets that come: `{}` is its name.
const BAD_NETWORK: &[&str] = &[
    "ip link add ifb-{} type ifb",
    "ip link set ifb-{} mtu 9000 up",
    "tc qdisc add dev {} ingress",
    "tc filter add dev {} parent ffff: matchall action mirred egress redirect dev ifb-{}",
    "tc qdisc add dev ifb-{} root netem delay 1ms loss 1% reorder 5% duplicate 1%",
];

pub(super) fn run(filter: Option<&str>, built: &Built) -> Result<()> {
    let network = Network::join([Namespace::own(), Namespace::new()?], 8)?;
    let interface = network.interface(0);
    network.namespaces[0].run(&format!("rdma link add {DEVICE} type rxe netdev {interface}"))?;
    wait_for_the_address(&network)?;
    let mut runner = Runner::new(built, filter);
    both_ways(&mut runner, &network, "", false);
    for line in BAD_NETWORK {
        network.at_both(line)?;
    }
    both_ways(&mut runner, &network, ", bad network", true);
    runner.finish()
}

/// Either end listens.
fn both_ways(runner: &mut Runner<'_>, network: &Network, how: &str, is_lossy: bool) {
    let theirs = || end(network, 0, Device::Kernel(DEVICE));
    let options = if is_lossy { SINGLE_PACKETS } else { "" };
    let ours = || end(network, 1, Device::Roce(options.to_owned()));
    for (who, ends) in [("rxe", [theirs(), ours()]), ("roce", [ours(), theirs()])] {
        runner.all(&format!("{who} listens{how}"), &ends, [JUMBO; 2], is_lossy);
    }
}

fn end(network: &Network, at: usize, device: Device) -> End<'_> {
    let address = network.v4(at);
    End { namespace: &network.namespaces[at], address, host: address, device, processor: None }
}

/// A device has the GID of its interface's address some time after it was made.
fn wait_for_the_address(network: &Network) -> Result<()> {
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
