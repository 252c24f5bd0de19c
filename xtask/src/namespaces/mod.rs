//! `cargo xtask namespaces`: two hosts on one machine, as network namespaces that a pair of virtual
//! Ethernet devices joins, and programs that meet over RoCE v2 between them. No privileges are
//! needed where a user may make user namespaces.
//!
//! `network` makes the namespaces, `end` says how a program runs at an end, `cases` which ones
//! do, and `runner` runs them; `outage` has the network go away meanwhile; `capture` and `speed`
//! are other runs. `cargo xtask vm interop` runs the same cases in the guest, with the kernel's
//! device at one end (`kernel`).

mod capture;
mod cases;
mod end;
mod kernel;
mod network;
mod outage;
mod runner;
mod scratch;
mod speed;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use cases::NetworkCase;
use end::{BuiltPrograms, NamespaceEnd};
use network::{JUMBO, Namespace, NamespacePair, ORDINARY};
use runner::CaseRunner;
use scratch::ScratchFolder;

use crate::pair::LIMIT;
use crate::{lanes, process, workspace};

/// Arguments of `cargo xtask namespaces`.
#[derive(Args)]
pub(crate) struct NamespacesArgs {
    /// Only cases with this in their names; several texts are separated by |
    filter: Option<String>,
    /// MiB of the file that is copied while packets get lost
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    copy: u64,
    /// Capture a few of each operation, and have tshark and scapy check every packet (Debian:
    /// tshark, python3-scapy, ethtool)
    #[arg(long)]
    capture: bool,
    /// Measure RoCE v2 beside plain UDP and TCP instead, each end on a processor of its own;
    /// figures of a machine that does other things as well mean nothing (Debian: iperf3)
    #[arg(long, conflicts_with = "capture")]
    speed: bool,
    /// Run here, in a namespace of this process's own, with what was built in this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    inside: Option<PathBuf>,
    /// In the virtual machine, as root: with the kernel's device at one end
    #[arg(long, requires = "inside", hide = true)]
    kernel: bool,
    /// Test programs that take a device for each end
    #[arg(long, requires = "kernel", hide = true)]
    test: Vec<PathBuf>,
}

/// Time that a program may take, beside [`LIMIT`], for each MiB of the file that is copied.
const LIMIT_PER_MIB: Duration = Duration::from_secs(1);

/// Options by which our device loses, reorders and duplicates received packets.
const FAULTS: &str = ",loss=0.01,reordering=0.01,duplication=0.01,seed=";

pub(crate) fn run(args: &NamespacesArgs) -> Result<()> {
    let Some(folder) = &args.inside else { return outside(args) };
    let (built, filter) = (BuiltPrograms(folder.clone()), args.filter.as_deref());
    match (args.kernel, args.speed) {
        (true, true) => kernel::speed(filter, &built),
        (true, false) => kernel::run(filter, &built, &args.test),
        (false, true) => speed::run(filter, &built),
        (false, false) if args.capture => capture::run(filter, &built),
        (false, false) => inside(args, &built),
    }
}

/// Builds, and runs this program again in namespaces of its own.
fn outside(args: &NamespacesArgs) -> Result<()> {
    permitted()?;
    // With every assertion, but where it is measured.
    let built = build(args.speed)?;
    let mut unshare = Command::new("unshare");
    unshare.args(ENTER).arg(std::env::current_exe()?).arg("namespaces");
    unshare.arg("--inside").arg(built).args(["--copy", &args.copy.to_string()]);
    unshare.args(args.capture.then_some("--capture")).args(args.speed.then_some("--speed"));
    process::run(unshare.args(&args.filter)).context("not all is well between the namespaces")
}

/// A user namespace with this user as its root, and a network namespace of that.
const ENTER: [&str; 3] = ["--user", "--map-root-user", "--net"];

/// Settings that forbid namespaces to users, and what they have to be.
const SETTINGS: &[(&str, &str, bool)] = &[
    ("/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone=1", false),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "kernel.apparmor_restrict_unprivileged_userns=0",
        true,
    ),
    ("/proc/sys/user/max_user_namespaces", "user.max_user_namespaces=10000", false),
    ("/proc/sys/user/max_net_namespaces", "user.max_net_namespaces=10000", false),
];

/// Checks that this user may make what is needed.
fn permitted() -> Result<()> {
    let probe = ["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"];
    let out = Command::new("unshare").args(ENTER).args(probe).output();
    let out = out.context("starting unshare (Debian: util-linux)")?;
    if out.status.success() {
        return Ok(());
    }
    let forbids = |file: &str, other_than_zero: bool| {
        let value = fs::read_to_string(file).ok();
        value.is_some_and(|value| (value.trim() != "0") == other_than_zero)
    };
    let forbidding = SETTINGS.iter().filter(|(file, _, value)| forbids(file, *value));
    let mut advice: Vec<String> =
        forbidding.map(|(_, setting, _)| format!("`sysctl -w {setting}` permits it")).collect();
    if advice.is_empty() {
        advice.push("no sysctl forbids it: perhaps a container's seccomp profile does, or the kernel has no veth".into());
    }
    bail!(
        "this machine does not let a user make network namespaces: `unshare {} {}` says: {}: {}",
        ENTER.join(" "),
        probe.join(" "),
        String::from_utf8_lossy(&out.stderr).trim(),
        advice.join("; ")
    )
}

/// Builds the command and the library, optimised or as tests have them; the folder that has both.
pub(crate) fn build(optimised: bool) -> Result<PathBuf> {
    if optimised {
        return workspace::build_optimised(&["rdma-conn-apps", "soft-rnic-abi"]);
    }
    lanes::build(&["symbols".to_owned()])?;
    Ok(workspace::target_folder()?.join("debug"))
}

/// In a network namespace of its own.
fn inside(args: &NamespacesArgs, built: &BuiltPrograms) -> Result<()> {
    let network = NamespacePair::join([Namespace::own(), Namespace::new()?], 0)?;
    let mut runner = CaseRunner::new(built, args.filter.as_deref());
    let v4 = |end| network.v4(end);
    let v6 = |end| network.v6(end);
    let faults = |end| format!("{FAULTS}{end}");
    let (wide, narrow) = ([JUMBO; 2], [ORDINARY; 2]);
    for (name, mtu) in [
        ("MTU 9000", wide),
        ("MTU 1500", narrow),
        ("9000 and 1500", [JUMBO, ORDINARY]),
        ("1500 and 9000", [ORDINARY, JUMBO]),
    ] {
        network.set_mtu(mtu)?;
        runner.all(name, &end::both(&network, v4, |_| String::new()), mtu, false);
    }
    network.set_mtu(wide)?;
    runner.all("IPv6", &end::both(&network, v6, |_| String::new()), wide, false);
    let ends = end::both(&network, v4, faults);
    runner.all("faults", &ends, wide, true);
    copy(&mut runner, &ends, args.copy)?;
    network.set_mtu(narrow)?;
    runner.all("IPv6, 1500, faults", &end::both(&network, v6, faults), narrow, true);
    outage::run(&mut runner, &network, &end::both(&network, v4, |_| String::new()), built)?;
    runner.finish()
}

/// Copies a file, and compares.
fn copy(runner: &mut CaseRunner<'_>, ends: &[NamespaceEnd<'_>; 2], mib: u64) -> Result<()> {
    let folder = ScratchFolder::new()?;
    let (from, into) = (folder.0.join("sent"), folder.0.join("received"));
    let mut random = fs::File::open("/dev/urandom")?;
    let bytes = mib << 20;
    std::io::copy(&mut std::io::Read::take(&mut random, bytes), &mut fs::File::create(&from)?)?;
    let check =
        || process::printed(Command::new("cmp").arg(&from).arg(into.join("sent"))).map(drop);
    runner.limit_is(LIMIT + LIMIT_PER_MIB * mib as u32);
    runner.check(&NetworkCase::copy(&from, &into), check, ends);
    runner.limit_is(LIMIT);
    Ok(())
}
