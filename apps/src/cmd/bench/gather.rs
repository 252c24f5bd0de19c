//! The listening end before a measurement: each sender connects and says what it wants; the
//! listener admits or refuses it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::remark;
use rdma_conn::device::Device;
use rdma_conn::listener::{Incoming, Listener};

use super::run::{Inlet, Sides};
use crate::cli::{BenchArgs, CommonArgs, SenderRate};
use crate::measure::{
    EndOfLoad, LoadShape, MessageLoad, ReceiverThreads, RoundResult, Whole, Work,
};
use crate::protocol::{self, MeasuredProtocol, Purpose};
use crate::session::{
    self, ControlMessage, PendingSession, SessionChannel, SessionParameters, TrafficParameters,
    contradiction, differs,
};
use crate::settings::{Flag, number};

/// Reason given to a connection that is refused during a measurement.
pub(super) const BUSY: &str =
    "busy with another session; for several connectors start it with --senders N";
/// Between two checks whether the processes that have connected are still there.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time that a process may take from one measurement to the next.
const PATIENCE: Duration = Duration::from_secs(30);

/// The listening end.
pub(super) struct ListeningEnd<'a, K: MeasuredProtocol> {
    pub(super) common: &'a CommonArgs,
    pub(super) options: &'a BenchArgs,
    pub(super) device: &'a Device,
    pub(super) listener: Listener<K>,
}

/// The processes that take part in one measurement.
pub(super) struct Party<K: MeasuredProtocol> {
    /// The first one's.
    pub(super) session: SessionParameters,
    pub(super) config: K::Settings,
    pub(super) shape: LoadShape,
    /// Taken when it begins.
    pub(super) sides: Option<Sides<K>>,
    processes: Vec<ConnectingProcess>,
}

/// One connecting process.
struct ConnectingProcess {
    run: u64,
    /// For each of its senders, true if it has connected.
    senders: Vec<bool>,
    /// Control stream of the process's sender 0 or, until that one has connected, of the first
    /// sender that did: it shows whether the process is alive.
    wire: Option<SessionChannel>,
}

impl<K: MeasuredProtocol> ListeningEnd<'_, K> {
    /// Admits all senders of one measurement. Refused connections do not count.
    pub(super) fn gather(&self, part: u32) -> Result<Party<K>> {
        let (mut party, since): (Option<Party<K>>, _) = (None, host::time::now());
        loop {
            if let Some(party) = party.take_if(|party| party.is_complete()) {
                // Once a session, and not for each of its measurements.
                if part == 0 {
                    remark!("all senders are there ({}): it begins", party.shape.senders);
                }
                return Ok(party);
            }
            if let Some(pending) = session::next_peer::<K>(&self.listener, "bench", LOOK)? {
                let before = party.as_ref().map_or(0, Party::came);
                self.welcome(pending, part, &mut party);
                if let Some(party) =
                    party.as_ref().filter(|party| part == 0 && party.came() > before)
                {
                    party.say_how_many_are_missing();
                }
            }
            if part > 0 && host::time::since(since) > PATIENCE {
                bail!("a connecting end has ended after {part} measurements: start all ends again");
            }
            if party.as_ref().is_some_and(Party::is_deserted) {
                remark!("a sender went away before the session began: waiting for a new one");
                party = None;
            }
        }
    }

    /// Admits a sender, or refuses it.
    fn welcome(&self, pending: PendingSession<K>, part: u32, party: &mut Option<Party<K>>) {
        let judged = match party {
            Some(party) => party.admits(&pending.session),
            None => self.judge(&pending.session, part),
        };
        let founded = judged.and_then(|()| match party {
            Some(party) => Ok(party),
            None => Ok(party.insert(self.found(&pending.session).map_err(|e| format!("{e:#}"))?)),
        });
        match founded {
            Ok(party) => party.admit(pending, self.device),
            Err(why) => pending.refuse(&why),
        }
        if party.as_ref().is_some_and(|party| party.processes.is_empty()) {
            *party = None;
        }
    }

    /// Checks that a session can begin with this one.
    fn judge(&self, session: &SessionParameters, part: u32) -> Result<(), String> {
        let SessionParameters { parts, traffic, .. } = session;
        if session.part != part {
            let (has, wants) = (session.part + 1, part + 1);
            return Err(format!(
                "the connecting end is at measurement {has} of {parts}, and number {wants} is \
                 next: start it again"
            ));
        }
        let (at, of) = session.size_of_sizes();
        if let Some(why) = session::other_sizes(&self.options.size, of) {
            return Err(why);
        }
        let wanted = traffic.flags::<K>(Purpose::Throughput);
        if let Some(why) = contradiction(&asked::<K>(self.options, at), &wanted) {
            return Err(why);
        }
        match (self.receiving_asked(), traffic.receiving) {
            (Some(here), Some(there)) if here != there => {
                let remedy = "leave it out at one of them";
                Err(differs("", there.flag(), here.flag(), remedy))
            }
            _ if session.senders > self.total(session) => {
                let (there, here) = (session.senders, self.total(session));
                let remedy = format!("start that one with --senders {there}");
                Err(differs("--senders", &there.to_string(), &here.to_string(), &remedy))
            }
            _ => Ok(()),
        }
    }

    /// The senders of all processes.
    fn total(&self, session: &SessionParameters) -> u32 {
        match self.options.senders.max(self.options.threads) {
            1 => session.senders,
            asked => asked,
        }
    }

    /// Returns the organisation of the receiving side that was asked for at this end. (`--senders`
    /// alone leaves it open.)
    fn receiving_asked(&self) -> Option<ReceiverThreads> {
        let is_told = self.options.single_receiver || self.options.threads > 1;
        ReceiverThreads::asked(self.options).filter(|_| is_told)
    }

    /// A party for the session that this one is the first of.
    fn found(&self, session: &SessionParameters) -> Result<Party<K>> {
        let traffic = &session.traffic;
        let shape = traffic.shape::<K>(self.total(session), self.receiving_asked());
        traffic.check_room::<K>(shape, false)?;
        let (common, args) = (self.common, &self.options.connection);
        let config =
            protocol::hosted::<K>(common, args, Purpose::Throughput, traffic.size, &traffic.terms)?;
        K::check_peers(&config, shape.peers())?;
        let sides = Some(Sides::receiving(self.device, &config, shape)?);
        Ok(Party { session: session.clone(), config, shape, sides, processes: Vec::new() })
    }
}

/// Flags given at this end that are the connecting end's to choose.
fn asked<K: MeasuredProtocol>(options: &BenchArgs, at: u32) -> Vec<Flag> {
    let size = options.size.get(at as usize).copied();
    let mut flags = session::asked::<K>(&options.connection, size, options.no_verify);
    flags.extend(options.srq.map(|srq| ("--srq", srq.reposting().name().to_owned())));
    flags.extend(options.srq_buffers.map(|buffers| ("--srq-buffers", buffers.to_string())));
    flags.extend(EndOfLoad::asked(options).map(EndOfLoad::flag));
    flags.extend(number("--rounds", options.rounds.rounds));
    if let Some(SenderRate::PerSecond(rate)) = options.rate {
        flags.push(("--rate", rate.to_string()));
    }
    flags
}

impl<K: MeasuredProtocol> Party<K> {
    /// Messages and payloads as the connecting ends send them.
    pub(super) fn load(&self) -> MessageLoad {
        let TrafficParameters { size, verify, rate, .. } = self.session.traffic;
        MessageLoad { size, end: EndOfLoad::Messages(0), verify, rate, in_turn: false }
    }

    /// Returns the number of senders that have connected.
    fn came(&self) -> u32 {
        let came = |process: &ConnectingProcess| {
            process.senders.iter().filter(|came| **came).count() as u32
        };
        self.processes.iter().map(came).sum()
    }

    fn is_complete(&self) -> bool {
        self.came() == self.shape.senders
    }

    /// Says how many senders both ends still wait for.
    fn say_how_many_are_missing(&self) {
        let (came, all) = (self.came(), self.shape.senders);
        if came < all {
            let verb = if came == 1 { "is" } else { "are" };
            remark!("{came} of {all} senders {verb} there; waiting for {} more", all - came);
        }
    }

    /// Reports whether a process that connected has gone again.
    fn is_deserted(&self) -> bool {
        !self.processes.iter().filter_map(|p| p.wire.as_ref()).all(SessionChannel::is_there)
    }

    /// Checks that the sender belongs to this session.
    fn admits(&self, session: &SessionParameters) -> Result<(), String> {
        let different = (session.parts, session.part) != (self.session.parts, self.session.part);
        let traffic = &self.session.traffic;
        let difference = traffic.difference::<K>(&session.traffic, Purpose::Throughput);
        if let Some(difference) = difference.or(different.then(|| "other sizes".into())) {
            return Err(format!(
                "the session that has begun has {difference}: start all connecting ends with the \
                 same flags"
            ));
        }
        let known = self.processes.iter().find(|process| process.run == session.run);
        let total = self.shape.senders as usize;
        let expected: usize = self.processes.iter().map(|process| process.senders.len()).sum();
        match known.map(|process| process.senders.get(session.sender as usize)) {
            Some(Some(false)) => Ok(()),
            Some(_) => {
                Err(format!("sender {} of the connecting end is already connected", session.sender))
            }
            None if expected + session.senders as usize <= total => Ok(()),
            None => Err(format!(
                "the {total} senders of the session that has begun are there: wait for its end, or \
                 give the listening end more --senders"
            )),
        }
    }

    /// Lets it in; if that fails, it does not count.
    fn admit(&mut self, pending: PendingSession<K>, device: &Device) {
        let (from, session) = (pending.from(), pending.session);
        match self.accept(pending.incoming, &session, device) {
            Ok(()) => self.seat(&session, pending.wire),
            Err(e) => session::refused(from, &format!("{e:#}")),
        }
    }

    fn accept(
        &mut self,
        incoming: Incoming<K>,
        session: &SessionParameters,
        device: &Device,
    ) -> Result<()> {
        let sides = self.sides.as_mut().context("the session has begun")?;
        let pool = sides.pool.clone();
        let Inlet { receiver, streams } = sides.next_inlet()?;
        K::accept_into(incoming, receiver, pool.as_ref(), device, &self.config)?;
        streams.push(session.stream());
        Ok(())
    }

    fn seat(&mut self, session: &SessionParameters, wire: SessionChannel) {
        let at = self.processes.iter().position(|process| process.run == session.run);
        let at = at.unwrap_or_else(|| {
            let senders = vec![false; session.senders as usize];
            self.processes.push(ConnectingProcess { run: session.run, senders, wire: None });
            self.processes.len() - 1
        });
        let process = &mut self.processes[at];
        process.senders[session.sender as usize] = true;
        if session.sender == 0 || process.wire.is_none() {
            process.wire = Some(wire);
        }
    }

    /// The streams to all processes.
    pub(super) fn wires(&mut self) -> impl Iterator<Item = &mut SessionChannel> {
        self.processes.iter_mut().filter_map(|process| process.wire.as_mut())
    }

    /// Lets all senders begin.
    pub(super) fn begin(&mut self) {
        for wire in self.wires() {
            // One that has gone shows as a sender that is lost.
            if let Err(e) = wire.tell(&ControlMessage::Begin) {
                tracing::info!(error = %e, "a process was not told to begin");
            }
        }
    }

    /// Compares what has arrived with what was sent, and tells all of it.
    /// Also returns the signal that has ended one of the connecting ends, if any.
    pub(super) fn settle(
        &mut self,
        measured: RoundResult,
    ) -> Result<(RoundResult, Option<String>)> {
        let (mut sent, mut work, mut ended) = (0, measured.work, None);
        for wire in self.wires() {
            let (messages, theirs, interrupted) = sent_by(wire)?;
            ended = ended.or(interrupted);
            sent += messages;
            work = work + theirs;
        }
        let messages = measured.messages;
        if sent != messages {
            bail!("messages sent: {sent}, arrived: {messages}");
        }
        for wire in self.wires() {
            wire.tell(&ControlMessage::Arrived { messages, work, equal: None })?;
        }
        Ok((RoundResult { whole: Some(Whole { messages, work }), ..measured }, ended))
    }
}

/// Receives the number of messages that a process sent, and the work that they took; also the
/// signal that ended the process early, if one did.
pub(super) fn sent_by(wire: &mut SessionChannel) -> Result<(u64, Work, Option<String>)> {
    match wire.hear()? {
        ControlMessage::Sent { messages, work, interrupted } => Ok((messages, work, interrupted)),
        other => session::unexpected(other),
    }
}
