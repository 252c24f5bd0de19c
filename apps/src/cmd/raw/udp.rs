//! `bench --op udp` and `pingpong --op udp`: plain UDP without RDMA, the baseline of a device that
//! speaks RoCE v2. Its datagrams are as long as that device's packets, its window is the same, and
//! so are the runs that the kernel cuts and merges; nothing is repeated, and nothing is checked.
//!
//! It sends with a library of its own (quinn-udp), so that what the device does slowly is not
//! slow here as well.

mod plan;
mod socket;
mod stream;
mod trips;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result, anyhow};
use base::outcome::{CommandResult, usage};
use base::{pinning, remark, signals};
use rustix::event::{PollFd, PollFlags};

use super::plan::RawTask;
use super::report::{report, udp_line, with_times};
use super::request::MeasurementRequest;
use crate::cli::{RawOp, WaitFlag};
use crate::measure::{EndOfLoad, ResultLine, pair, per_s};
use crate::session::{self, Followed, GLANCE, MeasurementIndex};
use plan::{Note, UdpChannel, UdpLed, UdpPlan};
use socket::GsoSocket;

impl MeasurementRequest<'_> {
    /// Plain UDP.
    pub(super) fn run_udp(&self) -> CommandResult {
        if self.common.device.is_some() {
            return Err(usage("--op udp uses no device: leave --device out"));
        }
        if self.connection.wait == WaitFlag::Block {
            return Err(usage("--op polls: it waits by --wait spin, or gives way with adaptive"));
        }
        match (self.ends.listen, self.ends.connect) {
            (Some(address), _) => self.listen_udp(address),
            (None, Some(address)) => self.lead_udp(|| session::dial(address).map(Some)),
            (None, None) => self.lead_udp(|| Ok(None)),
        }
    }

    /// All measurements, each by a stream of its own, or with an end in this process.
    fn lead_udp(&self, stream: impl Fn() -> Result<Option<TcpStream>>) -> CommandResult {
        let report = report(self.common.json, self.task, self.ends);
        let sizes = if self.sizes.is_empty() { self.usual_sizes } else { self.sizes };
        let labels: Vec<String> = sizes.iter().map(|size| format!("{size} B")).collect();
        session::lead_each(self.common.json, &labels, self.rounds, report, |nth, round, part| {
            let MeasurementIndex { at, of, .. } = part;
            let (task, size, rounds) = (self.task, sizes[nth], self.rounds);
            let plan = UdpPlan { task, size, mtu: 0, at, of, rounds };
            let until = self.until_round(round);
            Ok(vec![match stream()? {
                Some(stream) => self.lead_once_udp(plan, until, stream)?,
                None => self.within_udp(plan, until)?,
            }])
        })
    }

    fn lead_once_udp(
        &self,
        plan: UdpPlan,
        until: EndOfLoad,
        stream: TcpStream,
    ) -> Result<ResultLine> {
        let (ip, peer) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        pinning::pin_thread(0);
        self.lead_over(plan, until, UdpChannel::new(stream)?, (ip, peer))
    }

    /// Both ends, as threads of this process.
    fn within_udp(&self, plan: UdpPlan, until: EndOfLoad) -> Result<ResultLine> {
        let (near, mut far) = UdpChannel::within().context("cannot make a pair of sockets")?;
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let spins = self.spins();
        let lead = || self.lead_over(plan, until, near, (here, here));
        // Its end goes with it: the leader then waits for no more.
        let follow = move || follow(&mut far, (here, here), spins, |_| Ok(()));
        let (led, followed) = pair(lead, follow)?;
        // What the leader says is what the follower then saw.
        led.and_then(|line| followed.map(|_| line))
    }

    fn spins(&self) -> bool {
        self.connection.wait == WaitFlag::Spin
    }

    fn lead_over(
        &self,
        plan: UdpPlan,
        until: EndOfLoad,
        mut control: UdpChannel,
        (ip, peer): (IpAddr, IpAddr),
    ) -> Result<ResultLine> {
        let mut socket = GsoSocket::bind(ip)?;
        let plan = UdpPlan { mtu: socket.path_mtu(), ..plan };
        plan.check()?;
        control.tell(&Note::Plan(plan.clone(), socket.port()))?;
        let (port, buffer) = match control.hear()? {
            Note::Ready(port, buffer) => (port, buffer),
            other => session::unexpected(other)?,
        };
        let (to, spins) = (SocketAddr::new(peer, port), self.spins());
        let window = plan.window(buffer);
        let led = match plan.task {
            RawTask::Bench => {
                stream::send(&plan, &mut socket, (to, window), until, spins, &mut control)?
            }
            RawTask::Pingpong => {
                trips::lead(&plan, &socket, to, until.limits().0, spins, &mut control)?
            }
        };
        control.tell(&Note::Done(led.sent))?;
        let received = match control.hear()? {
            Note::Received(received) => received,
            other => session::unexpected(other)?,
        };
        let line = line(&plan, (&socket, window), &led, received);
        let interrupted = signals::interrupted().map(|why| why.to_string());
        control.tell(&Note::Results(Box::new(line.clone()), interrupted))?;
        Ok(line)
    }

    /// The following end: one measurement after the other, until the last.
    fn listen_udp(&self, address: SocketAddr) -> CommandResult {
        let tcp = TcpListener::bind(address);
        let tcp = tcp.map_err(|e| session::cannot_listen(address, e.kind(), e.into()))?;
        tcp.set_nonblocking(true)?;
        remark!("listening on {}", tcp.local_addr()?);
        let report = report(self.common.json, self.task, self.ends);
        // True before the first round of a size.
        let mut begins = true;
        session::follow_all(report, || {
            loop {
                let stream = accept(&tcp)?;
                let (ip, from) = (stream.local_addr()?.ip(), stream.peer_addr()?);
                let mut control = UdpChannel::new(stream)?;
                pinning::pin_thread(0);
                let judge = |plan: &UdpPlan| self.judge_udp(plan);
                match follow(&mut control, (ip, from.ip()), self.spins(), judge) {
                    Ok((plan, line, why)) => {
                        begins = (plan.at + 1).is_multiple_of(plan.rounds);
                        let ended = why.map(|why| anyhow!("the other end: {why}"));
                        let (lines, is_last) = (vec![line], plan.at + 1 == plan.of);
                        return Ok(Followed { lines, ended, is_last, rounds: plan.rounds });
                    }
                    // Before anything was measured it is refused, and does not count.
                    Err(e) if begins && !signals::is_interruption(&e) => {
                        control.give_up(&e);
                        session::refused(Some(from), &format!("{e:#}"));
                    }
                    Err(e) => return Err(e),
                }
            }
        })
    }

    /// Checks that the other end measures the same command, and that its plan is possible.
    fn judge_udp(&self, plan: &UdpPlan) -> Result<()> {
        if plan.task != self.task {
            let (here, there) = (self.task.name(), plan.task.name());
            let advice = "give both ends the same";
            return Err(usage(session::differs("the command", there, here, advice)));
        }
        plan.check()
    }
}

/// Accepts the next stream, unless a signal arrives.
#[expect(clippy::disallowed_methods, reason = "the listener does not block")]
fn accept(tcp: &TcpListener) -> Result<TcpStream> {
    loop {
        signals::go_on()?;
        match tcp.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                let end = host::time::now() + GLANCE;
                let _ = host::fd::poll(&mut [PollFd::new(tcp, PollFlags::IN)], Some(end));
            }
            Err(e) => return Err(e).context("cannot accept a connection"),
        }
    }
}

/// Follows one measurement.
fn follow(
    control: &mut UdpChannel,
    (ip, peer): (IpAddr, IpAddr),
    spins: bool,
    judge: impl FnOnce(&UdpPlan) -> Result<()>,
) -> Result<(UdpPlan, ResultLine, Option<String>)> {
    let (plan, port) = match control.hear()? {
        Note::Plan(plan, port) => (plan, port),
        other => session::unexpected(other)?,
    };
    judge(&plan)?;
    let mut socket = GsoSocket::bind(ip)?;
    let to = SocketAddr::new(peer, port);
    control.tell(&Note::Ready(socket.port(), socket.buffer()))?;
    let window = plan.window(socket.buffer());
    let received = match plan.task {
        RawTask::Bench => stream::receive(&plan, &mut socket, (to, window), spins, control)?,
        RawTask::Pingpong => trips::follow(&plan, &socket, to, spins, control)?,
    };
    control.tell(&Note::Received(received))?;
    match control.hear()? {
        Note::Results(line, ended) => Ok((plan, line.validated()?, ended)),
        other => session::unexpected(other),
    }
}

/// Returns the results of the measurement.
fn line(
    plan: &UdpPlan,
    (socket, window): (&GsoSocket, u32),
    led: &UdpLed,
    received: u64,
) -> ResultLine {
    let unacked = if plan.task == RawTask::Pingpong { 1 } else { window };
    let run = if plan.task == RawTask::Pingpong { 1 } else { socket.run(plan.datagram()) as u32 };
    let line = udp_line(&socket.ip().to_string(), plan.size, unacked, run);
    let datagrams = match &led.latencies {
        Some(latencies) => 2 * latencies.len(),
        None => received,
    };
    let bytes = datagrams.saturating_mul(plan.payload().into());
    let messages = bytes / u64::from(plan.size.max(1));
    let lost = match plan.task {
        RawTask::Bench => led.sent.saturating_sub(received),
        RawTask::Pingpong => led.sent.saturating_sub(datagrams / 2),
    } / plan.datagrams();
    let line = line
        .with_rates(messages, per_s(messages, led.elapsed))
        .with("lost", Some(lost).filter(|lost| *lost > 0));
    with_times(line, RawOp::Send, led.latencies.as_ref())
}

#[cfg(test)]
mod tests;
