//! A capture of all operations, which programs of others check: tshark, whose dissector knows RoCE
//! v2, and scapy, which computes the ICRC.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::cases;
use super::end::{self, BuiltPrograms};
use super::network::{JUMBO, Namespace, NamespacePair, ORDINARY};
use super::runner::CaseRunner;
use super::scratch::ScratchFolder;
use crate::process;

/// A program that is needed, and the Debian package that has it.
const NEEDED: &[(&str, &str)] = &[
    ("/usr/bin/dumpcap", "wireshark-common"),
    ("/usr/bin/tshark", "tshark"),
    ("/usr/share/doc/python3-scapy", "python3-scapy"),
    ("/usr/sbin/ethtool", "ethtool"),
];

const CHECK_ICRC: &str = include_str!("check_icrc.py");

/// Filter of tshark for packets that it cannot make sense of.
const MALFORMED: &str = "_ws.malformed || _ws.expert.severity == error";

/// Protocols that tshark guesses in the payload, where ours are numbers.
const GUESSES: &[&str] = &[
    "eth_over_ib",
    "fc_infiniband",
    "sdp_infiniband",
    "iser_infiniband",
    "lnet_ib",
    "rpcrdma_infiniband",
    "smb_direct_infiniband",
    "smcr_infiniband",
    "mellanox_eoib",
    "nvme_rdma",
];

/// Time that dumpcap may take until it captures.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(filter: Option<&str>, built: &BuiltPrograms) -> Result<()> {
    process::needs(NEEDED)?;
    let network = NamespacePair::join([Namespace::own(), Namespace::new()?], 0)?;
    // A run that the interface is to cut would be captured as a whole.
    network.at_both("ethtool -K {} tx-udp-segmentation off")?;
    let mut runner = CaseRunner::new(built, filter);
    let folder = ScratchFolder::new()?;
    let mut checks = Vec::new();
    for (name, mtu, is_v6, options) in [
        ("MTU 9000", JUMBO, false, ""),
        ("MTU 1500", ORDINARY, false, ""),
        ("faults", ORDINARY, false, ",loss=0.02,reordering=0.02,duplication=0.02,seed=7"),
        ("IPv6", JUMBO, true, ""),
    ] {
        network.set_mtu([mtu; 2])?;
        let address = |end| if is_v6 { network.v6(end) } else { network.v4(end) };
        let ends = end::both(&network, address, |_| options.to_owned());
        let file = folder.0.join(format!("{}.pcap", checks.len()));
        let capture = RunningCapture::start(network.interface(0), &file)?;
        runner.column(name, &ends, &cases::few(!options.is_empty()));
        capture.stop()?;
        checks.push(format!("{name}: {}", check(&file, is_v6)?));
    }
    checks.iter().for_each(|line| println!("{line}"));
    runner.finish()
}

/// Checks a capture with tshark and scapy, and returns what both say of it.
fn check(file: &Path, is_v6: bool) -> Result<String> {
    let shown = |filter: &str| {
        let mut tshark = Command::new("tshark");
        for guess in GUESSES {
            tshark.args(["--disable-heuristic", guess]);
        }
        process::printed(tshark.arg("-r").arg(file).args(["-Y", filter]))
    };
    let malformed = shown(MALFORMED)?;
    ensure!(malformed.is_empty(), "tshark finds malformed packets:\n{malformed}");
    let packets = shown("infiniband.bth")?.lines().count();
    ensure!(packets > 0, "tshark finds no packet of RoCE v2");
    let icrc = match is_v6 {
        true => "scapy computes no ICRC over IPv6".to_owned(),
        false => {
            process::printed(Command::new("/usr/bin/python3").args(["-c", CHECK_ICRC]).arg(file))?
        }
    };
    Ok(format!("tshark: {packets} packets, none malformed; scapy: {}", icrc.trim()))
}

/// A running capture, which ends with this.
struct RunningCapture(Child);

impl RunningCapture {
    fn start(interface: &str, file: &Path) -> Result<RunningCapture> {
        let mut dumpcap = Command::new("dumpcap");
        dumpcap.args(["-q", "-P", "-B", "256", "-f", "udp port 4791", "-i", interface, "-w"]);
        dumpcap.arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let mut capture = RunningCapture(dumpcap.spawn().context("starting dumpcap")?);
        let deadline = Instant::now() + PATIENCE;
        // It writes the header of the file when it captures.
        while !fs::metadata(file).is_ok_and(|file| file.len() > 0) {
            if let Some(status) = capture.0.try_wait()? {
                bail!("dumpcap has ended: {status}");
            }
            ensure!(Instant::now() < deadline, "dumpcap does not capture within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20)); // until the next look
        }
        Ok(capture)
    }

    /// Ends it, with all that it has captured in the file.
    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::INT)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "dumpcap: {status}");
        Ok(())
    }
}

impl Drop for RunningCapture {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}
