//! The end that answers the tests of one session.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use base::{remark, signals};
use soft_rnic::probe::{Probe, ProbeKind};
use soft_rnic::udp::{PacketInbox, PacketOutbox, UdpPort};

use super::local::LocalPort;
use super::queue_pair;
use super::report::DoctorReport;

/// Time within which a signal is noticed.
const GLANCE: Duration = Duration::from_millis(100);

/// Counts of the probes that arrived.
#[derive(Default)]
struct ProbeCounts {
    echoes: u64,
    damaged: u64,
    /// Source address of a probe, and the one that it says it was sent from, if these differ.
    translated: Option<(SocketAddr, SocketAddr)>,
}

/// Serves one session.
pub(super) fn serve(report: &mut DoctorReport, name: &str, here: LocalPort) -> Result<()> {
    remark!(
        "listening on {}: run `rdma-conn doctor --device DEVICE --connect {}` at the other end",
        name,
        here.port.local().ip()
    );
    let (mut heard, mut inbox, mut outbox) =
        (ProbeCounts::default(), PacketInbox::default(), PacketOutbox::new(false));
    let end = loop {
        if let Some(interrupted) = signals::interrupted() {
            bail!(interrupted);
        }
        if let Some(end) = heard.take(&mut inbox, &mut outbox, &here)? {
            break end;
        }
        let _ = here.port.wait(None, GLANCE);
    };
    heard.report(report, end.1);
    let LocalPort { port, path_mtu, .. } = here;
    drop::<UdpPort>(port);
    match end {
        (Probe { kind: ProbeKind::Join, words, .. }, from) => {
            queue_pair::follow(report, name, from, words, path_mtu)
        }
        _ => Ok(()),
    }
}

impl ProbeCounts {
    /// Answers the received probes; returns the probe that ends the session, and its source.
    fn take(
        &mut self,
        inbox: &mut PacketInbox,
        outbox: &mut PacketOutbox,
        here: &LocalPort,
    ) -> Result<Option<(Probe, SocketAddr)>> {
        let local = here.port.local();
        // An error that an earlier packet has met.
        while inbox.receive(&here.port).unwrap_or(false) {
            for datagram in inbox.datagrams() {
                let Some((probe, fits)) = Probe::read(&datagram, local) else { continue };
                match probe.kind {
                    ProbeKind::Echo => self.note(&probe, datagram.from, fits),
                    ProbeKind::Reply => continue,
                    ProbeKind::Join | ProbeKind::Done => return Ok(Some((probe, datagram.from))),
                }
                let words = [here.path_mtu as u32, 0, 0, 0];
                let (kind, addr) = (ProbeKind::Reply, datagram.from);
                let reply = Probe { kind, addr, is_intact: fits, words, ..probe };
                reply.push(outbox, local, datagram.from, datagram.bytes.len());
            }
            // What is refused is lost, and seen as that.
            let _ = outbox.send(&here.port);
        }
        Ok(None)
    }

    fn note(&mut self, probe: &Probe, from: SocketAddr, fits: bool) {
        self.echoes += 1;
        self.damaged += u64::from(!fits);
        if probe.addr != from {
            self.translated = Some((from, probe.addr));
        }
    }

    fn report(&self, report: &mut DoctorReport, from: SocketAddr) {
        report.ok("reach", format!("{} packets arrived, the last from {}", self.echoes, from.ip()));
        let remedy = "put both ends on one network: RoCE v2's checksum covers the addresses";
        match (self.translated, self.damaged) {
            (Some((seen, own)), _) => {
                let found = format!("packets of {own} come from {seen}: an address is translated");
                report.fail("translation", found, remedy);
            }
            (None, 0) => {
                report.ok("translation", "addresses arrive as they are, and checksums fit")
            }
            (None, damaged) => {
                let found = format!("{damaged} packets had a checksum that does not fit");
                report.fail("translation", found, remedy);
            }
        }
    }
}
