//! Outages of the network between two ends: what programs learn of them, and connections that
//! continue afterwards.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cases::NetworkCase;
use super::end::{BuiltPrograms, NamespaceEnd};
use super::network::NamespacePair;
use super::runner::CaseRunner;
use crate::process::WatchedProgram;

/// Time for which the network is away: far less than the 1.9 s that the retries of a connection
/// take, which a busy machine may need to bring it back.
const OUTAGE: Duration = Duration::from_millis(50);
/// Packets by which a connection is at work.
const AT_WORK: u64 = 1_000;
/// The longest time that an event may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Seconds that a program is at work, at first, and where it was over before the outage was.
const SECONDS: [u32; 3] = [3, 12, 48];

/// A way in which the second end loses the network, and gets it back.
struct Outage {
    name: &'static str,
    /// The end that runs the lines.
    end: usize,
    away: String,
    /// Without a line, the interfaces of both ends are made anew.
    back: Option<String>,
    /// Events of the second end's device when it loses the network, and when it gets it back; the
    /// latter in order.
    events: [Vec<&'static str>; 2],
}

impl Outage {
    fn begin(&self, network: &NamespacePair) -> Result<()> {
        network.namespaces[self.end].run(&self.away)
    }

    fn end(&self, network: &NamespacePair) -> Result<()> {
        match &self.back {
            Some(line) => network.namespaces[self.end].run(line),
            None => network.make_interfaces(),
        }
    }
}

fn outages(network: &NamespacePair) -> [Outage; 4] {
    let of_link = |name, end| {
        let link = format!("ip link set {}", network.interface(end));
        let (away, back) = (format!("{link} down"), format!("{link} up"));
        let events = [vec!["IBV_EVENT_PORT_ERR"], vec!["IBV_EVENT_PORT_ACTIVE"]];
        Outage { name, end, away, back: Some(back), events }
    };
    let address = |verb| {
        let (address, interface) = (network.v4(1), network.interface(1));
        format!("ip address {verb} {address}/24 dev {interface}")
    };
    let of_address = |name, away, back| {
        let events = [
            vec!["IBV_EVENT_GID_CHANGE", "IBV_EVENT_PORT_ERR"],
            vec!["IBV_EVENT_GID_CHANGE", "IBV_EVENT_PORT_ACTIVE"],
        ];
        Outage { name, end: 1, away, back, events }
    };
    // It takes the interface at its other end with it.
    let deleted = format!("ip link del {}", network.interface(1));
    [
        of_link("carrier", 0),
        of_link("interface", 1),
        of_address("address", address("del"), Some(address("add"))),
        of_address("made anew", deleted, None),
    ]
}

/// Runs each outage, as rows of a column.
pub(super) fn run(
    runner: &mut CaseRunner<'_>,
    network: &NamespacePair,
    ends: &[NamespaceEnd<'_>; 2],
    built: &BuiltPrograms,
) -> Result<()> {
    runner.begin_column("outages");
    for outage in outages(network) {
        runner.step(&format!("ibv_asyncwatch, {}", outage.name), || {
            watch(&outage, network, &ends[1], built)
        });
        for arguments in ["bench --op write", "bench --protocol send-recv"] {
            let name = format!("{arguments}, {}", outage.name);
            runner.step_by(&name, |runner| outlast(arguments, &outage, network, runner, ends));
        }
    }
    Ok(())
}

/// A program that is at work before and after an outage. Where this process is slow, the program's
/// time is over before the outage is: then it gets more.
fn outlast(
    arguments: &str,
    outage: &Outage,
    network: &NamespacePair,
    runner: &mut CaseRunner<'_>,
    ends: &[NamespaceEnd<'_>; 2],
) -> Result<()> {
    for seconds in SECONDS {
        let has_ended = AtomicBool::new(false);
        let is_seen = thread::scope(|scope| {
            let strike = scope.spawn(|| strike(outage, network, &has_ended));
            let run = runner.run(&NetworkCase::long(arguments, seconds), ends);
            has_ended.store(true, Ordering::Relaxed);
            let is_seen = strike.join().map_err(|_| anyhow::anyhow!("a thread has failed"))?;
            run.and(is_seen)
        })?;
        if is_seen {
            return Ok(());
        }
    }
    bail!("its time was over before the outage was, also with {SECONDS:?} seconds")
}

/// The second end's device tells of an outage, and of its end.
fn watch(
    outage: &Outage,
    network: &NamespacePair,
    end: &NamespaceEnd<'_>,
    built: &BuiltPrograms,
) -> Result<()> {
    let mut watch = WatchedProgram::start(&end.alone("ibv_asyncwatch -d {name}", built, PATIENCE))?;
    // The device is open.
    watch.all(&["async event FD"])?;
    let [away, back] = &outage.events;
    outage.begin(network)?;
    watch.all(away)?;
    outage.end(network)?;
    back.iter().try_for_each(|event| watch.all(&[*event]))
}

/// Interrupts the network while a connection is at work, and waits until it is at work again; false
/// if the program has ended before that.
fn strike(outage: &Outage, network: &NamespacePair, has_ended: &AtomicBool) -> Result<bool> {
    if !network.is_at_work(has_ended)? {
        return Ok(false);
    }
    outage.begin(network)?;
    thread::sleep(OUTAGE);
    outage.end(network)?;
    network.is_at_work(has_ended).context("after the outage")
}

impl NamespacePair {
    /// Waits until [`AT_WORK`] more packets have arrived at the second end: true, or false if the
    /// program has ended before.
    fn is_at_work(&self, has_ended: &AtomicBool) -> Result<bool> {
        let first = self.received()?;
        while self.received()? < first + AT_WORK {
            // Relaxed: nothing else is read.
            if has_ended.load(Ordering::Relaxed) {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(2)); // until the next look
        }
        Ok(true)
    }

    /// Packets that have arrived at the second end.
    fn received(&self) -> Result<u64> {
        let table = fs::read_to_string(self.namespaces[1].tables().join("dev"))?;
        let name = format!("{}:", self.interface(1));
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&name));
        let packets = line.and_then(|line| line.split_whitespace().nth(1));
        packets.context("no line of the interface")?.parse().context("its packets")
    }
}

impl WatchedProgram {
    /// Its next lines, which have to have these in them, one each: an interface that is deleted is
    /// down before its address goes, and a look may happen in between.
    fn all(&mut self, events: &[&str]) -> Result<()> {
        let mut left = events.to_vec();
        while !left.is_empty() {
            let line = self.line()?;
            let at = left.iter().position(|event| line.contains(event));
            left.swap_remove(at.with_context(|| format!("{line:?} instead of {left:?}"))?);
        }
        Ok(())
    }
}
