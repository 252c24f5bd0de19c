//! Messages of a reliable connection, over the devices themselves. The ends have nothing but UDP
//! port 4791: the leading one names its queue pairs in a probe, and the other one in a datagram to
//! one of these.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::signals;
use rdma_conn::device;
use rdma_conn::raw::{Link, RawEnd};
use rdma_conn::verbs_safe::{
    CompletionBatch, CompletionQueue, CqConfig, Endpoint, QueuePairConfig, RecvSide, SendOp,
    Transport,
};
use soft_rnic::probe::{Probe, ProbeKind, SHORTEST};
use soft_rnic::udp::{PacketOutbox, UdpPort};

use super::report::DoctorReport;

/// Messages; the last one takes several packets.
const MESSAGES: u32 = 16;
const SHORT: u32 = 16;
const LONG: u32 = 10_000;
const QKEY: u32 = 0x7d0c;
/// Time limit of the whole test, and interval at which an end repeats what the other one missed.
const LIMIT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);
/// Longer than all retries of the leading end.
const LINGER: Duration = Duration::from_millis(1_000);

/// Two queue pairs of a device.
struct TestPairs {
    cq: CompletionQueue,
    connection: RawEnd,
    datagrams: RawEnd,
    until: Instant,
}

impl TestPairs {
    fn new(name: &str) -> Result<TestPairs> {
        let device = device::open(Some(name))?;
        let cq = device.context().create_cq(CqConfig::new(128))?;
        let of = |transport, send_slot_bytes, slot_bytes| {
            let recv = RecvSide::Own { slots: MESSAGES, slot_bytes };
            let sends = QueuePairConfig {
                max_send_wr: MESSAGES,
                send_slots: MESSAGES,
                ..QueuePairConfig::new(&cq, &cq)
            };
            let config = QueuePairConfig { transport, send_slot_bytes, recv, ..sends };
            // A peer that has gone is missed after some 300 ms.
            let link = Link { timeout: 14, retry_count: 3, ..Link::default() };
            let mut end = RawEnd::new(&device, &config, link)?;
            let receives = end.queues.recv.as_mut().context("it was made with receives")?;
            receives.post(&(0..MESSAGES).collect::<Vec<_>>())?;
            anyhow::Ok(end)
        };
        let connection = of(Transport::Rc, LONG as usize, LONG as usize)?;
        let datagrams = of(Transport::Ud { qkey: QKEY }, 8, 8)?;
        Ok(TestPairs { cq, connection, datagrams, until: host::time::now() + LIMIT })
    }

    /// Polls for this time, or until `take` has what it waits for.
    fn poll(
        &mut self,
        time: Duration,
        mut take: impl FnMut(
            &mut RawEnd,
            &mut RawEnd,
            rdma_conn::verbs_safe::Completion<'_>,
        ) -> Result<bool>,
    ) -> Result<bool> {
        let mut batch = CompletionBatch::new(16);
        let end = self.until.min(host::time::now() + time);
        while host::time::now() < end {
            if let Some(interrupted) = signals::interrupted() {
                bail!(interrupted);
            }
            self.cq.poll(&mut batch)?;
            let mut is_done = false;
            for completion in batch.drain() {
                is_done |= take(&mut self.connection, &mut self.datagrams, completion)?;
            }
            if is_done {
                return Ok(true);
            }
            host::thread::yield_now();
        }
        Ok(false)
    }

    fn is_late(&self) -> bool {
        host::time::now() >= self.until
    }
}

fn endpoint(ip: IpAddr, qp_num: u32, psn: u32) -> Endpoint {
    let v6 = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    Endpoint { qp_num, psn, lid: 0, gid: v6.octets() }
}

/// Has the other end make a connection, and sends messages over it.
pub(super) fn lead(
    report: &mut DoctorReport,
    name: &str,
    peer: SocketAddr,
    mtu: usize,
) -> Result<()> {
    let result = TestPairs::new(name).and_then(|mut pairs| {
        let their = join(&mut pairs, peer)?;
        pairs.connection.join(&their, mtu as u32)?;
        let mut times = Vec::new();
        for message in 0..MESSAGES {
            times.push(send(&mut pairs, if message + 1 == MESSAGES { LONG } else { SHORT })?);
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    });
    match result {
        Ok(time) => report.ok(
            "queue_pair",
            format!(
                "{MESSAGES} messages of up to {LONG} bytes arrived over a reliable connection, {:.1} µs each (median)",
                time.as_secs_f64() * 1e6
            ),
        ),
        Err(error) if signals::is_interruption(&error) => return Err(error),
        Err(error) => fail(report, &error),
    }
    Ok(())
}

fn fail(report: &mut DoctorReport, error: &anyhow::Error) {
    let known = device::peer_unreached().unwrap_or_else(|| {
        "the tests above have passed: try again, and with `pcap=FILE` behind the device's name for a capture".into()
    });
    report.fail("queue_pair", format!("{error:#}"), known);
}

/// Says which queue pairs there are until the other end names its own.
fn join(pairs: &mut TestPairs, peer: SocketAddr) -> Result<Endpoint> {
    let (ours, told) = (pairs.connection.endpoint(), pairs.datagrams.endpoint());
    // The queue pair for datagrams is ready to receive when it has someone to send to: itself will
    // do.
    pairs.datagrams.reach(&told, QKEY)?;
    let own = IpAddr::from(ours.gid).to_canonical();
    let port = UdpPort::bind(SocketAddr::new(own, 0)).context("a socket to name queue pairs")?;
    let words = [ours.qp_num, ours.psn, told.qp_num, told.psn];
    let probe =
        Probe { kind: ProbeKind::Join, sequence: 0, addr: port.local(), is_intact: true, words };
    let mut outbox = PacketOutbox::new(false);
    let mut found = None;
    while found.is_none() && !pairs.is_late() {
        probe.push(&mut outbox, port.local(), peer, SHORTEST);
        let _ = outbox.send(&port);
        pairs.poll(AGAIN, |_, datagrams, completion| {
            let receives = datagrams.queues.recv.as_mut().context("it was made with receives")?;
            if completion.queue_id() != receives.queue_id() {
                return Ok(false);
            }
            let said = receives.take(completion)?;
            let word = |at: usize| said.get(at..at + 4).and_then(|word| word.try_into().ok());
            let words = word(0)
                .zip(word(4))
                .map(|(num, psn)| (u32::from_be_bytes(num), u32::from_be_bytes(psn)));
            found = words.map(|(num, psn)| endpoint(peer.ip(), num, psn));
            Ok(found.is_some())
        })?;
    }
    found.with_context(|| {
        format!("the device of {} has not named a queue pair in {LIMIT:?}", peer.ip())
    })
}

/// Sends one message; returns the time until it was acknowledged.
fn send(pairs: &mut TestPairs, len: u32) -> Result<Duration> {
    let start = host::time::now();
    let queue = &mut pairs.connection.queues.send;
    let slot = queue.next_slot().context("as many slots as requests")?;
    slot[..len as usize].fill(0x5a);
    queue.stage(SendOp::Send { len }, true)?;
    queue.post()?;
    let sent = pairs.poll(LIMIT, |connection, _, completion| {
        if completion.queue_id() != connection.queues.send.queue_id() {
            return Ok(false);
        }
        if let Some(error) = completion.error() {
            bail!("a message was not acknowledged: {error}");
        }
        connection.queues.send.retire(&completion)?;
        Ok(true)
    })?;
    if !sent {
        bail!("a message was not acknowledged in {LIMIT:?}");
    }
    Ok(host::time::since(start))
}

/// Makes a connection to the queue pair that the words name, and receives the messages.
pub(super) fn follow(
    report: &mut DoctorReport,
    name: &str,
    from: SocketAddr,
    words: [u32; 4],
    mtu: usize,
) -> Result<()> {
    match receive(name, from, words, mtu) {
        Ok(MESSAGES) => {
            let note = format!("{MESSAGES} messages arrived over a reliable connection");
            report.ok("queue_pair", note);
        }
        Ok(came) => {
            let error =
                anyhow::anyhow!("{came} of {MESSAGES} messages arrived over a reliable connection");
            fail(report, &error);
        }
        Err(error) if signals::is_interruption(&error) => return Err(error),
        Err(error) => fail(report, &error),
    }
    Ok(())
}

fn receive(name: &str, from: SocketAddr, words: [u32; 4], mtu: usize) -> Result<u32> {
    let [num, psn, datagrams, datagrams_psn] = words;
    let mut pairs = TestPairs::new(name)?;
    pairs.connection.join(&endpoint(from.ip(), num, psn), mtu as u32)?;
    let to = pairs.datagrams.reach(&endpoint(from.ip(), datagrams, datagrams_psn), QKEY)?;
    let ours = pairs.connection.endpoint();
    let mut came = 0;
    while came < MESSAGES && !pairs.is_late() {
        if came == 0 {
            let queue = &mut pairs.datagrams.queues.send;
            if let Some(slot) = queue.next_slot() {
                slot[..4].copy_from_slice(&ours.qp_num.to_be_bytes());
                slot[4..8].copy_from_slice(&ours.psn.to_be_bytes());
                queue.stage_to(to, SendOp::Send { len: 8 }, true)?;
                queue.post()?;
            }
        }
        pairs.poll(AGAIN, |connection, datagrams, completion| {
            if completion.queue_id() == datagrams.queues.send.queue_id() {
                datagrams.queues.send.retire(&completion)?;
                return Ok(false);
            }
            let receives = connection.queues.recv.as_mut().context("it was made with receives")?;
            if completion.queue_id() == receives.queue_id() {
                receives.take(completion)?;
                came += 1;
            }
            Ok(came == MESSAGES)
        })?;
    }
    // The last acknowledgement may be lost: a peer that sends the message again gets another one.
    pairs.until = host::time::now() + LINGER;
    pairs.poll(LINGER, |_, _, _| Ok(false))?;
    Ok(came)
}
