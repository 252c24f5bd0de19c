//! The listening end before a measurement: whoever is to take part comes, says what it
//! wants, and is let in or refused.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdma_conn::device::Device;
use rdma_conn::listener::{Incoming, Listener};
use rdma_conn::send_recv::Reposting;

use super::load::{End, Load, Receiving, Shape};
use super::run::{Inlet, Measured, Sides, Whole};
use crate::args::{Bench, Common, Rate};
use crate::note::{Note, Wire};
use crate::protocol::{Kind, Purpose, Work};
use crate::session::{self, Flag, Guest, Session, Traffic, contradiction};

/// What whoever comes during a measurement is told.
pub(super) const BUSY: &str =
    "busy with another session; for several connectors start it with --senders N";
/// Between two looks whether those who have come are still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long a process may take from one measurement to the next.
const PATIENCE: Duration = Duration::from_secs(30);

/// The listening end.
pub(super) struct Host<'a, K: Kind> {
    pub(super) common: &'a Common,
    pub(super) options: &'a Bench,
    pub(super) device: &'a Device,
    pub(super) listener: Listener<K>,
}

/// Who takes part in one measurement.
pub(super) struct Party<K: Kind> {
    /// The first one's.
    pub(super) session: Session<K::Wish>,
    pub(super) config: K::Config,
    pub(super) shape: Shape,
    /// Taken when it begins.
    pub(super) sides: Option<Sides<K>>,
    processes: Vec<Process>,
}

/// One connecting process.
struct Process {
    run: u64,
    /// Which of its senders have come.
    senders: Vec<bool>,
    /// The stream of the sender that speaks for it, which is its number 0; until that has
    /// come, of whichever came first: it shows whether the process is there.
    wire: Option<Wire>,
}

impl<K: Kind> Host<'_, K> {
    /// Lets in all senders of one measurement. Whoever is refused does not count.
    pub(super) fn gather(&self, part: u32) -> Result<Party<K>> {
        let (mut party, since): (Option<Party<K>>, _) = (None, Instant::now());
        loop {
            if let Some(party) = party.take_if(|party| party.is_complete()) {
                // Once a session, and not for each of its measurements.
                if part == 0 {
                    remark!("all senders are there ({}): it begins", party.shape.senders);
                }
                return Ok(party);
            }
            if let Some(guest) = session::next_peer::<K>(&self.listener, "bench", LOOK)? {
                let before = party.as_ref().map_or(0, Party::came);
                self.welcome(guest, part, &mut party);
                if let Some(party) =
                    party.as_ref().filter(|party| part == 0 && party.came() > before)
                {
                    party.say_who_is_missing();
                }
            }
            if part > 0 && since.elapsed() > PATIENCE {
                bail!("a connecting end has ended after {part} measurements: start all ends again");
            }
            if party.as_ref().is_some_and(Party::is_deserted) {
                remark!("a sender went away before the session began: waiting for a new one");
                party = None;
            }
        }
    }

    /// Lets somebody in, or refuses it.
    fn welcome(&self, guest: Guest<K>, part: u32, party: &mut Option<Party<K>>) {
        let judged = match party {
            Some(party) => party.admits(&guest.session),
            None => self.judge(&guest.session, part),
        };
        let founded = judged.and_then(|()| match party {
            Some(party) => Ok(party),
            None => Ok(party.insert(self.found(&guest.session).map_err(|e| format!("{e:#}"))?)),
        });
        match founded {
            Ok(party) => party.admit(guest, self.device),
            Err(why) => guest.refuse(&why),
        }
        if party.as_ref().is_some_and(|party| party.processes.is_empty()) {
            *party = None;
        }
    }

    /// Whether a session can begin with this one.
    fn judge(&self, session: &Session<K::Wish>, part: u32) -> Result<(), String> {
        let Session { parts, traffic, .. } = session;
        if session.part != part {
            let (has, wants) = (session.part + 1, part + 1);
            return Err(format!(
                "it is at measurement {has} of {parts}, and number {wants} is next: start it again"
            ));
        }
        if let Some(why) = session::other_sizes(&self.options.size, *parts) {
            return Err(why);
        }
        let wanted = traffic.flags(Purpose::Throughput);
        if let Some(why) = contradiction(&asked::<K>(self.options, part), &wanted) {
            return Err(why);
        }
        match (self.receiving_asked(), traffic.receiving) {
            (Some(here), Some(there)) if here != there => Err(format!(
                "the connecting end has {}, the listening end {}: leave it out at one of them",
                there.flag(),
                here.flag()
            )),
            _ if session.senders > self.total(session) => Err(format!(
                "the connecting end has --senders {}, the listening end {}: start that one with \
                 --senders {0}",
                session.senders,
                self.total(session)
            )),
            _ => Ok(()),
        }
    }

    /// The senders of all processes.
    fn total(&self, session: &Session<K::Wish>) -> u32 {
        match self.options.senders.max(self.options.threads) {
            1 => session.senders,
            asked => asked,
        }
    }

    /// How this end was told to receive. (`--senders` alone leaves it open.)
    fn receiving_asked(&self) -> Option<Receiving> {
        Receiving::asked(self.options).filter(|asked| *asked != Receiving::RoundRobin)
    }

    /// A party for the session that this one is the first of.
    fn found(&self, session: &Session<K::Wish>) -> Result<Party<K>> {
        let traffic = &session.traffic;
        let senders = self.total(session);
        traffic.check_room(senders, false)?;
        let reposting = |name: &String| Reposting::ALL.into_iter().find(|r| r.name() == name);
        let receiving = traffic.receiving.or(self.receiving_asked());
        let shape = Shape {
            senders,
            receiving: receiving.unwrap_or(Receiving::chosen(senders)),
            srq: traffic.srq.as_ref().and_then(reposting),
            srq_buffers: traffic.srq_buffers,
        };
        let (common, args) = (self.common, &self.options.connection);
        let config = K::hosted(common, args, Purpose::Throughput, traffic.size, &traffic.wish);
        let sides = Some(Sides::receiving(self.device, &config, shape)?);
        Ok(Party { session: session.clone(), config, shape, sides, processes: Vec::new() })
    }
}

/// What was asked for at this end, and is the connecting end's to choose.
fn asked<K: Kind>(options: &Bench, part: u32) -> Vec<Flag> {
    let size = options.size.get(part as usize).copied();
    let mut flags = session::asked(K::asked(&options.connection), size, options.no_verify);
    flags.extend(options.srq.map(|srq| ("--srq", srq.reposting().name().to_owned())));
    flags.extend(options.srq_buffers.map(|buffers| ("--srq-buffers", buffers.to_string())));
    flags.extend(End::asked(options).map(End::flag));
    if let Some(Rate::PerSecond(rate)) = options.rate {
        flags.push(("--rate", rate.to_string()));
    }
    flags
}

impl<K: Kind> Party<K> {
    /// Messages and payloads as the connecting ends send them.
    pub(super) fn load(&self) -> Load {
        let Traffic { size, verify, rate, .. } = self.session.traffic;
        Load { size, end: End::Messages(0), verify, rate }
    }

    /// How many senders are there.
    fn came(&self) -> u32 {
        let came = |process: &Process| process.senders.iter().filter(|came| **came).count() as u32;
        self.processes.iter().map(came).sum()
    }

    fn is_complete(&self) -> bool {
        self.came() == self.shape.senders
    }

    /// So that nobody wonders what both ends wait for.
    fn say_who_is_missing(&self) {
        let (came, all) = (self.came(), self.shape.senders);
        if came < all {
            let verb = if came == 1 { "is" } else { "are" };
            remark!("{came} of {all} senders {verb} there; waiting for {} more", all - came);
        }
    }

    /// Whether a process has gone again.
    fn is_deserted(&self) -> bool {
        !self.processes.iter().filter_map(|p| p.wire.as_ref()).all(Wire::is_there)
    }

    /// Whether it belongs to this session.
    fn admits(&self, session: &Session<K::Wish>) -> Result<(), String> {
        let different = (session.parts, session.part) != (self.session.parts, self.session.part);
        let traffic = &self.session.traffic;
        let difference = traffic.difference(&session.traffic, Purpose::Throughput);
        if let Some(difference) = difference.or(different.then(|| "other sizes".into())) {
            return Err(format!("the session that has begun has {difference}"));
        }
        let known = self.processes.iter().find(|process| process.run == session.run);
        let total = self.shape.senders as usize;
        let expected: usize = self.processes.iter().map(|process| process.senders.len()).sum();
        match known.map(|process| process.senders.get(session.sender as usize)) {
            Some(Some(false)) => Ok(()),
            Some(_) => Err(format!("sender {} has come already", session.sender)),
            None if expected + session.senders as usize <= total => Ok(()),
            None => Err(format!(
                "the {total} senders of the session that has begun are there: wait for its end, or \
                 give the listening end more --senders"
            )),
        }
    }

    /// Lets it in; if that fails, it does not count.
    fn admit(&mut self, guest: Guest<K>, device: &Device) {
        let (from, session) = (guest.from(), guest.session);
        match self.accept(guest.incoming, &session, device) {
            Ok(()) => self.seat(&session, guest.wire),
            Err(e) => session::refused(from, &format!("{e:#}")),
        }
    }

    fn accept(
        &mut self,
        incoming: Incoming<K>,
        session: &Session<K::Wish>,
        device: &Device,
    ) -> Result<()> {
        let sides = self.sides.as_mut().context("the session has begun")?;
        let pool = sides.pool.clone();
        let Inlet { receiver, streams } = sides.next_inlet()?;
        K::accept_into(incoming, receiver, pool.as_ref(), device, &self.config)?;
        streams.push(session.stream());
        Ok(())
    }

    fn seat(&mut self, session: &Session<K::Wish>, wire: Wire) {
        let at = self.processes.iter().position(|process| process.run == session.run);
        let at = at.unwrap_or_else(|| {
            let senders = vec![false; session.senders as usize];
            self.processes.push(Process { run: session.run, senders, wire: None });
            self.processes.len() - 1
        });
        let process = &mut self.processes[at];
        process.senders[session.sender as usize] = true;
        if session.sender == 0 || process.wire.is_none() {
            process.wire = Some(wire);
        }
    }

    /// The streams to all processes.
    pub(super) fn wires(&mut self) -> impl Iterator<Item = &mut Wire> {
        self.processes.iter_mut().filter_map(|process| process.wire.as_mut())
    }

    /// Lets all senders begin.
    pub(super) fn begin(&mut self) {
        for wire in self.wires() {
            // One that has gone shows as a sender that is lost.
            if let Err(e) = wire.tell(&Note::Begin) {
                tracing::info!(error = %e, "a process was not told to begin");
            }
        }
    }

    /// Compares what has arrived with what was sent, and tells all of it.
    pub(super) fn settle(&mut self, measured: Measured) -> Result<Measured> {
        let (mut sent, mut work) = (0, measured.work);
        for wire in self.wires() {
            let (messages, theirs) = sent_by(wire)?;
            sent += messages;
            work = work + theirs;
        }
        let messages = measured.messages;
        if sent != messages {
            bail!("{sent} messages were sent and {messages} arrived");
        }
        for wire in self.wires() {
            wire.tell(&Note::Arrived { messages, work, equal: None })?;
        }
        Ok(Measured { whole: Some(Whole { messages, work }), ..measured })
    }
}

/// What a process has sent, and the work that it took.
pub(super) fn sent_by(wire: &mut Wire) -> Result<(u64, Work)> {
    match wire.hear()? {
        Note::Sent { messages, work } => Ok((messages, work)),
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    }
}
