//! Outages of the network between two ends: what programs learn of them, and connections that go on
//! afterwards.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cases::Case;
use super::end::{Built, End};
use super::network::Network;
use super::runner::Runner;

/// How long the network is away: less than the retries of a connection take.
const OUTAGE: Duration = Duration::from_millis(300);
/// Packets by which a connection is at work, and how long that, or an event, may take.
const AT_WORK: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// How the network goes away for the second end, and comes back.
struct Outage {
    name: &'static str,
    /// The end that runs the lines.
    end: usize,
    away: String,
    back: String,
    /// Events of the second end's device, in order.
    events: [Vec<&'static str>; 2],
}

fn outages(network: &Network) -> [Outage; 3] {
    let of_link = |name, end| {
        let link = format!("ip link set {}", network.interface(end));
        let (away, back) = (format!("{link} down"), format!("{link} up"));
        let events = [vec!["IBV_EVENT_PORT_ERR"], vec!["IBV_EVENT_PORT_ACTIVE"]];
        Outage { name, end, away, back, events }
    };
    let address = |verb| {
        let (address, interface) = (network.v4(1), network.interface(1));
        format!("ip address {verb} {address}/24 dev {interface}")
    };
    let of_address = Outage {
        name: "address",
        end: 1,
        away: address("del"),
        back: address("add"),
        events: [
            vec!["IBV_EVENT_GID_CHANGE", "IBV_EVENT_PORT_ERR"],
            vec!["IBV_EVENT_GID_CHANGE", "IBV_EVENT_PORT_ACTIVE"],
        ],
    };
    [of_link("carrier", 0), of_link("interface", 1), of_address]
}

/// Runs each outage, as rows of a column.
pub(super) fn run(
    runner: &mut Runner<'_>,
    network: &Network,
    ends: &[End<'_>; 2],
    built: &Built,
) -> Result<()> {
    runner.begin_column("outages");
    for outage in outages(network) {
        runner.step(&format!("ibv_asyncwatch, {}", outage.name), || {
            watch(&outage, network, &ends[1], built)
        });
        for arguments in ["bench --op write", "bench --protocol send-recv"] {
            let case = Case::long(arguments, &format!("{arguments}, {}", outage.name));
            if !runner.is_run(&case.name) {
                continue;
            }
            thread::scope(|scope| {
                let outage = scope.spawn(|| strike(&outage, network));
                let ended = || outage.join().map_err(|_| anyhow::anyhow!("a thread has failed"))?;
                runner.check(&case, ended, ends);
            });
        }
    }
    Ok(())
}

/// The second end's device tells of an outage, and of its end.
fn watch(outage: &Outage, network: &Network, end: &End<'_>, built: &Built) -> Result<()> {
    let mut watch = Watch::start(&end.alone("ibv_asyncwatch -d {name}", built, PATIENCE))?;
    // The device is open.
    watch.next("async event FD")?;
    for (line, events) in [&outage.away, &outage.back].into_iter().zip(&outage.events) {
        network.namespaces[outage.end].run(line)?;
        events.iter().try_for_each(|event| watch.next(event))?;
    }
    Ok(())
}

/// Has the network go away while a connection is at work, and then go on with it.
fn strike(outage: &Outage, network: &Network) -> Result<()> {
    network.wait_for_packets(AT_WORK)?;
    network.namespaces[outage.end].run(&outage.away)?;
    thread::sleep(OUTAGE);
    network.namespaces[outage.end].run(&outage.back)?;
    network.wait_for_packets(AT_WORK).context("after the outage")
}

impl Network {
    /// Waits until so many more packets have come at the second end.
    fn wait_for_packets(&self, more: u64) -> Result<()> {
        let (first, deadline) = (self.received()?, Instant::now() + PATIENCE);
        while self.received()? < first + more {
            ensure!(Instant::now() < deadline, "fewer than {more} packets within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(2)); // until the next look
        }
        Ok(())
    }

    /// Packets that have come at the second end.
    fn received(&self) -> Result<u64> {
        let table = fs::read_to_string(self.namespaces[1].tables().join("dev"))?;
        let name = format!("{}:", self.interface(1));
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&name));
        let packets = line.and_then(|line| line.split_whitespace().nth(1));
        packets.context("no line of the interface")?.parse().context("its packets")
    }
}

/// A program whose lines are waited for. It ends with this.
struct Watch {
    program: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(words: &[String]) -> Result<Watch> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut program = command.spawn().with_context(|| format!("starting {}", words[0]))?;
        let out = program.stdout.take().context("its output")?;
        Ok(Watch { program, lines: BufReader::new(out).lines() })
    }

    /// Its next line, which has to have this in it.
    fn next(&mut self, has: &str) -> Result<()> {
        let line = self.lines.next().context("it has ended")??;
        ensure!(line.contains(has), "{line:?} instead of {has}");
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // `timeout`, which is first of the words, ends what it runs.
        let pid = rustix::process::Pid::from_child(&self.program);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.program.wait();
    }
}
