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

use anyhow::{Context, Result, bail};
use base::outcome::{Outcome, usage};
use base::{pinning, progress, remark, signals};
use rustix::event::{PollFd, PollFlags};

use super::plan::Task;
use super::report::{Latency, Line, Report};
use super::request::{Request, Until};
use crate::cli::Wait;
use crate::measure::{NO_THREAD, Rates, rounds};
use crate::session::{self, GLANCE};
use plan::{Control, Led, Note, Plan};
use socket::Socket;

impl Request<'_> {
    /// Plain UDP.
    pub(super) fn run_udp(&self) -> Outcome {
        if self.common.device.is_some() {
            return Err(usage("--op udp uses no device: leave --device out"));
        }
        if self.connection.wait == Wait::Block {
            return Err(usage("--op polls: it waits by --wait spin, or gives way with adaptive"));
        }
        match (self.ends.listen, self.ends.connect) {
            (Some(address), _) => self.listen_udp(address),
            (None, Some(address)) => self.lead_udp(|| session::dial(address).map(Some)),
            (None, None) => self.lead_udp(|| Ok(None)),
        }
    }

    /// All measurements, each by a stream of its own, or with an end in this process.
    fn lead_udp(&self, stream: impl Fn() -> Result<Option<TcpStream>>) -> Outcome {
        let mut report = Report::new(self.common.json, self.task, self.ends);
        let sizes = if self.sizes.is_empty() { self.usual_sizes } else { self.sizes };
        let of = sizes.len() as u32 * self.rounds;
        let cases = (0..).zip(sizes.iter().copied()).collect();
        let label = |(_, size): &(u32, u32)| format!("{size} B");
        let ran = progress::each(self.common.json, cases, label, |(nth, size), _| {
            let (lines, ended) = rounds::each(self.rounds, |round| {
                let (task, rounds) = (self.task, self.rounds);
                let plan = Plan { task, size, mtu: 0, at: nth * rounds + round, of, rounds };
                let until = self.until.of_round(round, rounds);
                match stream()? {
                    Some(stream) => self.lead_once_udp(plan, until, stream),
                    None => self.within_udp(plan, until),
                }
            });
            if rounds::count(&lines, ended.as_ref()) {
                report.add_rounds(lines.into_iter().map(|line| vec![line]).collect())?;
            }
            Ok(ended)
        });
        report.finish();
        ran
    }

    fn lead_once_udp(&self, plan: Plan, until: Until, stream: TcpStream) -> Result<Line> {
        let (ip, peer) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        pinning::pin_thread(0);
        self.lead_over(plan, until, Control::new(stream)?, (ip, peer))
    }

    /// Both ends, as threads of this process.
    fn within_udp(&self, plan: Plan, until: Until) -> Result<Line> {
        let (near, mut far) = Control::within().context("cannot make a pair of sockets")?;
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let spins = self.spins();
        host::thread::scope(|scope| {
            let follower = scope.spawn(move || {
                pinning::pin_thread(1);
                follow(&mut far, (here, here), spins, |_| Ok(()))
            });
            let follower = follower.context(NO_THREAD)?;
            pinning::pin_thread(0);
            let led = self.lead_over(plan, until, near, (here, here));
            let followed = follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // What the leader says is what the follower then saw.
            led.and_then(|line| followed.map(|_| line))
        })
    }

    fn spins(&self) -> bool {
        self.connection.wait == Wait::Spin
    }

    fn lead_over(
        &self,
        plan: Plan,
        until: Until,
        mut control: Control,
        (ip, peer): (IpAddr, IpAddr),
    ) -> Result<Line> {
        let mut socket = Socket::bind(ip)?;
        let plan = Plan { mtu: socket.path_mtu(), ..plan };
        plan.check()?;
        control.tell(&Note::Plan(plan.clone(), socket.port()))?;
        let (port, buffer) = match control.hear()? {
            Note::Ready(port, buffer) => (port, buffer),
            other => session::unexpected(other)?,
        };
        let (to, spins) = (SocketAddr::new(peer, port), self.spins());
        let window = plan.window(buffer);
        let led = match until {
            Until::Load(end) => {
                stream::send(&plan, &mut socket, (to, window), end, spins, &mut control)?
            }
            Until::Trips(trips) => trips::lead(&plan, &socket, to, trips, spins, &mut control)?,
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
    fn listen_udp(&self, address: SocketAddr) -> Outcome {
        let tcp = TcpListener::bind(address);
        let tcp = tcp.map_err(|e| session::cannot_listen(address, e.kind(), e.into()))?;
        tcp.set_nonblocking(true)?;
        remark!("listening on {}", tcp.local_addr()?);
        let mut report = Report::new(self.common.json, self.task, self.ends);
        let mut lines = Vec::new();
        let served = self.serve_udp(&tcp, &mut report, &mut lines);
        if rounds::count(&lines, served.as_ref().err()) {
            report.add_rounds(lines)?;
        }
        report.finish();
        served
    }

    fn serve_udp(
        &self,
        tcp: &TcpListener,
        report: &mut Report,
        lines: &mut Vec<Vec<Line>>,
    ) -> Outcome {
        loop {
            let stream = accept(tcp)?;
            let (ip, from) = (stream.local_addr()?.ip(), stream.peer_addr()?);
            let mut control = Control::new(stream)?;
            pinning::pin_thread(0);
            let judge = |plan: &Plan| self.judge_udp(plan);
            let followed = follow(&mut control, (ip, from.ip()), self.spins(), judge);
            let (plan, line, ended) = match followed {
                Ok(followed) => followed,
                // Before anything was measured it is refused, and does not count.
                Err(e) if lines.is_empty() && !signals::is_interruption(&e) => {
                    control.give_up(&e);
                    session::refused(Some(from), &format!("{e:#}"));
                    continue;
                }
                Err(e) => return Err(e),
            };
            lines.push(vec![line]);
            if ended.is_some() || lines.len() == plan.rounds as usize {
                report.add_rounds(std::mem::take(lines))?;
            }
            if let Some(why) = ended {
                bail!("the other end: {why}");
            }
            if plan.at + 1 == plan.of {
                return Ok(());
            }
        }
    }

    /// Checks that the other end measures the same command, and that its plan is possible.
    fn judge_udp(&self, plan: &Plan) -> Result<()> {
        if plan.task != self.task {
            let (here, there) = (self.task.name(), plan.task.name());
            let advice = "give both ends the same";
            return Err(usage(session::differs("the command", there, here, advice)));
        }
        plan.check()
    }
}

/// Accepts the next stream, unless a signal arrives.
fn accept(tcp: &TcpListener) -> Result<TcpStream> {
    loop {
        if let Some(interrupted) = signals::interrupted() {
            return Err(interrupted.into());
        }
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
    control: &mut Control,
    (ip, peer): (IpAddr, IpAddr),
    spins: bool,
    judge: impl FnOnce(&Plan) -> Result<()>,
) -> Result<(Plan, Line, Option<String>)> {
    let (plan, port) = match control.hear()? {
        Note::Plan(plan, port) => (plan, port),
        other => session::unexpected(other)?,
    };
    judge(&plan)?;
    let mut socket = Socket::bind(ip)?;
    let to = SocketAddr::new(peer, port);
    control.tell(&Note::Ready(socket.port(), socket.buffer()))?;
    let window = plan.window(socket.buffer());
    let received = match plan.task {
        Task::Bench => stream::receive(&plan, &mut socket, (to, window), spins, control)?,
        Task::Pingpong => trips::follow(&plan, &socket, to, spins, control)?,
    };
    control.tell(&Note::Received(received))?;
    match control.hear()? {
        Note::Results(line, ended) => Ok((plan, *line, ended)),
        other => session::unexpected(other),
    }
}

/// Returns the results of the measurement.
fn line(plan: &Plan, (socket, window): (&Socket, u32), led: &Led, received: u64) -> Line {
    let unacked = if plan.task == Task::Pingpong { 1 } else { window };
    let run = if plan.task == Task::Pingpong { 1 } else { socket.run(plan.datagram()) as u32 };
    let mut line = Line::of_udp(&socket.ip().to_string(), plan.size, unacked, run);
    let datagrams = match &led.latencies {
        Some(latencies) => 2 * latencies.len(),
        None => received,
    };
    let bytes = datagrams.saturating_mul(plan.payload().into());
    line.rates = Rates::of_round(bytes / u64::from(plan.size.max(1)), led.elapsed, plan.size);
    line.latency = led.latencies.as_ref().map(Latency::of_half);
    line.faults.lost = match plan.task {
        Task::Bench => Some(led.sent.saturating_sub(received)),
        Task::Pingpong => Some(led.sent.saturating_sub(datagrams / 2)),
    }
    .map(|lost| lost / plan.datagrams())
    .filter(|lost| *lost > 0);
    line
}
