//! The path to a peer, at which `doctor --listen` runs.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Result, bail};
use base::signals;
use soft_rnic::probe::{self, Probe, ProbeKind, SHORTEST};
use soft_rnic::udp::{PacketInbox, PacketOutbox};

use super::local::LocalPort;
use super::queue_pair;
use super::report::DoctorReport;

/// Longest time that an answer may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// Number of times that an echo is sent before its answer counts as lost.
const TRIES: u32 = 10;
/// Echoes of each length.
const OF_LENGTH: u32 = 3;
const ROUND_TRIPS: u32 = 100;
/// Packets that are counted, and how many are sent at a time.
const PACKETS: u32 = 1_000;
const BURST: u32 = 20;
const PATH_MTUS: [usize; 5] = [4_096, 2_048, 1_024, 512, 256];

/// An end that sends echoes.
struct Prober {
    here: LocalPort,
    peer: SocketAddr,
    inbox: PacketInbox,
    outbox: PacketOutbox,
    sequence: u32,
}

/// A reply, and whether its ICRC fitted.
type ProbeReply = (Probe, bool);

/// Tests the path.
pub(super) fn check(
    report: &mut DoctorReport,
    name: &str,
    here: LocalPort,
    peer: SocketAddr,
) -> Result<()> {
    // Each packet in a send of its own: what drops a run would drop many.
    let (inbox, outbox) = (PacketInbox::default(), PacketOutbox::new(false));
    let mut prober = Prober { here, peer, inbox, outbox, sequence: 0 };
    let Some((reply, fits)) = prober.reach(report)? else { return Ok(()) };
    let is_translated = prober.translation(report, &reply, fits);
    prober.round_trips(report)?;
    let far = reply.words[0] as usize;
    let passes = prober.path_mtu(report, far)?;
    prober.loss(report)?;
    if is_translated || passes.is_none() {
        prober.done()?;
        report.warn(
            "queue_pair",
            "a connection was not tried: its packets would be dropped",
            "do what is said above first",
        );
        return Ok(());
    }
    let Prober { here, peer, .. } = prober;
    drop(here.port);
    queue_pair::lead(report, name, peer, passes.unwrap_or(PATH_MTUS[4]))
}

impl Prober {
    fn send(&mut self, kind: ProbeKind, len: usize) -> Result<u32> {
        let from = self.here.port.local();
        self.sequence += 1;
        let (sequence, words) = (self.sequence, [0; 4]);
        let probe = Probe { kind, sequence, addr: from, is_intact: true, words };
        probe.push(&mut self.outbox, from, self.peer, len);
        // What is refused is lost, and seen as that.
        let _ = self.outbox.send(&self.here.port);
        Ok(sequence)
    }

    /// Takes replies for this time, or until `take` has enough.
    fn receive(&mut self, time: Duration, mut take: impl FnMut(ProbeReply) -> bool) -> Result<()> {
        let end = host::time::now() + time;
        let local = self.here.port.local();
        loop {
            // An error that an earlier packet has met.
            while self.inbox.receive(&self.here.port).unwrap_or(false) {
                let probes =
                    self.inbox.datagrams().filter_map(|datagram| Probe::read(&datagram, local));
                for came in probes.filter(|(probe, _)| probe.kind == ProbeKind::Reply) {
                    if take(came) {
                        return Ok(());
                    }
                }
            }
            if let Some(interrupted) = signals::interrupted() {
                bail!(interrupted);
            }
            let left = end.saturating_duration_since(host::time::now());
            if left.is_zero() {
                return Ok(());
            }
            let _ = self.here.port.wait(None, left);
        }
    }

    /// Sends one echo; returns its reply, and the time that it took.
    fn echo(&mut self, len: usize) -> Result<Option<(ProbeReply, Duration)>> {
        let start = host::time::now();
        let (sequence, mut found) = (self.send(ProbeKind::Echo, len)?, None);
        self.receive(PATIENCE, |came| {
            if came.0.sequence == sequence {
                found = Some((came, host::time::since(start)));
            }
            found.is_some()
        })?;
        Ok(found)
    }

    fn reach(&mut self, report: &mut DoctorReport) -> Result<Option<ProbeReply>> {
        let peer = self.peer.ip();
        for _ in 0..TRIES {
            if let Some((came, _)) = self.echo(SHORTEST)? {
                report.ok("reach", format!("{peer} answers"));
                return Ok(Some(came));
            }
        }
        let start = format!("run `rdma-conn doctor --device roce:{peer} --listen` there");
        let (found, remedy) = match refusal(self.here.port.local(), self.peer) {
            Some(ErrorKind::ConnectionRefused) => {
                (format!("nothing has UDP port 4791 at {peer}"), start)
            }
            Some(kind @ (ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)) => {
                (format!("{peer}: {kind}"), "check the address, and `ip route get` for it".into())
            }
            _ => (
                format!("{peer} does not answer"),
                format!(
                    "{start}; if it runs, a firewall here, there or between drops UDP port 4791 one way or \
                     the other (with nftables: `udp dport 4791 accept`), or the address is another machine's"
                ),
            ),
        };
        report.fail("reach", found, remedy);
        Ok(None)
    }

    /// Reports whether addresses are translated, or packets rewritten.
    fn translation(&self, report: &mut DoctorReport, reply: &Probe, fits: bool) -> bool {
        let (own, seen) = (self.here.port.local(), reply.addr);
        let remedy = "RoCE v2's checksum covers the addresses, and all packets are dropped: put both ends on \
                      one network (containers: on one bridge, or on the host's network), or into one VPN";
        if seen != own {
            let found = format!(
                "{} sees packets of {own} come from {seen}: an address is translated",
                self.peer
            );
            report.fail("translation", found, remedy);
            return true;
        }
        if !(reply.is_intact && fits) {
            let way = if fits { "there" } else { "back" };
            let found = format!(
                "packets are changed on the way {way}: their checksum (ICRC) does not fit their addresses"
            );
            report.fail("translation", found, remedy);
            return true;
        }
        report.ok("translation", "addresses arrive as they are, and checksums fit, both ways");
        false
    }

    fn round_trips(&mut self, report: &mut DoctorReport) -> Result<()> {
        let mut times = Vec::new();
        for _ in 0..ROUND_TRIPS {
            times.extend(self.echo(SHORTEST)?.map(|(_, time)| time));
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let found = format!(
            "{:.1} µs, the median of {} short packets",
            median.as_secs_f64() * 1e6,
            times.len()
        );
        report.ok("round_trip", found);
        Ok(())
    }

    /// The largest path MTU whose packets pass both ways; `far` is what the peer's interface
    /// permits.
    fn path_mtu(&mut self, report: &mut DoctorReport, far: usize) -> Result<Option<usize>> {
        let most = self.here.path_mtu.min(far.max(PATH_MTUS[4]));
        let mut passes = None;
        for mtu in PATH_MTUS.into_iter().filter(|mtu| *mtu <= most) {
            for _ in 0..OF_LENGTH {
                if passes.is_none() && self.echo(probe::longest(mtu))?.is_some() {
                    passes = Some(mtu);
                }
            }
        }
        let interface = &self.here.interface;
        match passes {
            Some(mtu) if mtu == most => {
                report.ok("path_mtu", format!("packets with {mtu} bytes pass, which both interfaces permit"));
                return Ok(passes);
            }
            Some(mtu) => report.fail(
                "path_mtu",
                format!("both interfaces permit packets with {most} bytes, and only {mtu} pass"),
                format!(
                    "what is between takes shorter packets (a tunnel, a switch without jumbo frames): \
                     `ip link set {interface} mtu {}` at both ends, or raise it in between",
                    mtu + if self.peer.is_ipv4() { 72 } else { 92 }
                ),
            ),
            None => report.fail(
                "path_mtu",
                "packets with 256 bytes do not pass, and shorter ones do",
                "something between drops long UDP packets: look for a limit of a firewall",
            ),
        }
        Ok(None)
    }

    fn loss(&mut self, report: &mut DoctorReport) -> Result<()> {
        let first = self.sequence;
        let mut came = vec![false; PACKETS as usize];
        let mut note = |(probe, _): ProbeReply| {
            let number = probe.sequence.wrapping_sub(first + 1) as usize;
            if let Some(came) = came.get_mut(number) {
                *came = true;
            }
            false
        };
        for burst in 0..PACKETS / BURST {
            for _ in 0..BURST {
                self.send(ProbeKind::Echo, probe::longest(256))?;
            }
            // As many answers as echoes, mostly.
            let (mut left, is_last) = (BURST, (burst + 1) * BURST == PACKETS);
            let time = if is_last { PATIENCE } else { PATIENCE / 30 };
            self.receive(time, |reply| {
                left = left.saturating_sub(1);
                note(reply) || (left == 0 && !is_last)
            })?;
        }
        let lost = came.iter().filter(|came| !**came).count();
        let found = format!("{lost} of {PACKETS} packets were lost on the way there or back");
        match lost {
            0 => report.ok("loss", found),
            _ => report.warn(
                "loss",
                found,
                "lost packets are sent again, which costs speed: look at `ethtool -S`, `nstat -az \
                 UdpRcvbufErrors`, and the buffers of both ends",
            ),
        }
        Ok(())
    }

    /// Ends the session at the other end.
    fn done(&mut self) -> Result<()> {
        for _ in 0..OF_LENGTH {
            self.send(ProbeKind::Done, SHORTEST)?;
        }
        Ok(())
    }
}

/// Returns the network's error for packets to the peer, if any: only a connected socket gets it.
#[expect(clippy::disallowed_methods, reason = "it asks the network of the host")]
fn refusal(own: SocketAddr, peer: SocketAddr) -> Option<ErrorKind> {
    let socket = UdpSocket::bind((own.ip(), 0)).ok()?;
    let said = |result: std::io::Result<usize>| result.err().map(|error| error.kind());
    socket.connect(peer).err().map(|error| error.kind()).or_else(|| {
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        said(socket.send(&[0])).or_else(|| said(socket.recv(&mut [0])))
    })
}
