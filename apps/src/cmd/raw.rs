//! `pingpong --op` and `bench --op`: verbs without a connection on top ("RDMA Tutorial").
//!
//! The leading end sends first and measures; the following end answers (pingpong), or
//! receives (bench). In one process they are two threads, joined as two processes are:
//! over a byte stream, with the handshake of raw queue pairs.

mod compat;
mod control;
mod end;
mod flight;
mod follow;
mod lead;
mod led;
mod measure;
mod memory;
mod plan;
mod queues;
mod rate;
mod reliable;
mod rendezvous;
mod report;
mod request;
#[cfg(test)]
mod tests;
mod udp;

use std::net::SocketAddr;

use anyhow::{Result, bail};
use base::outcome::Outcome;
use base::progress;

use crate::cli::{Bench, Common, Means, Pingpong, Wait};
use crate::measure::rounds;
use crate::session;
pub(crate) use compat::ibv_rc_pingpong;
use control::RawChannel;
use end::{Local, Refused};
use measure::{follow, lead, within_process};
use plan::Plan;
use rendezvous::{Language, Rendezvous};
use report::{Line, Report};
use request::{Request, bench_request, pingpong_request};

/// `pingpong --op`.
pub(crate) fn pingpong(common: &Common, options: &Pingpong, means: Means) -> Outcome {
    pingpong_request(common, options, means)?.run(means)
}

/// `bench --op`.
pub(crate) fn bench(common: &Common, options: &Bench, means: Means) -> Outcome {
    bench_request(common, options, means)?.run(means)
}

fn label(plan: &Plan) -> String {
    format!("{} B", plan.largest())
}

impl Request<'_> {
    fn run(&self, means: Means) -> Outcome {
        match means {
            Means::Verb(_) => self.run_verb(),
            Means::Udp => self.run_udp(),
        }
    }

    fn run_verb(&self) -> Outcome {
        let device = session::open_device(self.common, self.ends)?;
        self.let_the_network_fail(&device)?;
        let local = Local {
            device: &device,
            gid_index: self.common.gid_index,
            spin: self.connection.wait == Wait::Spin,
        };
        let plans = self.plans(&device)?;
        match (self.ends.listen, self.ends.connect) {
            (Some(address), _) => self.listen(local, address),
            (None, Some(address)) => self.lead(local, plans, address),
            (None, None) => self.measure_in_turn(local, &plans),
        }
    }

    /// Both ends, in one process: all measurements in turn.
    fn measure_in_turn(&self, local: Local<'_>, plans: &[Plan]) -> Outcome {
        let labels: Vec<String> = plans.iter().map(label).collect();
        let json = self.common.json;
        let (done, ended) = rounds::in_turn(json, &labels, self.rounds, |at, round, _| {
            let plan = self.of_round(&plans[at], round);
            within_process(local, &plan, self.until.of_round(round, self.rounds))
        });
        let mut report = Report::new(json, self.task, self.ends);
        for rounds in done.into_iter().filter(|rounds| !rounds.is_empty()) {
            report.add_rounds(rounds)?;
        }
        report.finish();
        ended.map_or(Ok(()), Err)
    }

    /// The leading end: one measurement after the other, with the listener at `address`.
    fn lead(&self, local: Local<'_>, plans: Vec<Plan>, address: SocketAddr) -> Outcome {
        let mut report = Report::new(self.common.json, self.task, self.ends);
        let ran = progress::each(self.common.json, plans, label, |plan, _| {
            let round = |round| self.lead_once(local, &self.of_round(&plan, round), round, address);
            let (rounds, ended) = rounds::each(self.rounds, round);
            if rounds::count(&rounds, ended.as_ref()) {
                report.add_rounds(rounds)?;
            }
            Ok(ended)
        });
        report.finish();
        ran
    }

    /// The plan of one round, which both ends count.
    fn of_round(&self, plan: &Plan, round: u32) -> Plan {
        let (at, of) = (plan.at * self.rounds + round, plan.of * self.rounds);
        Plan { at, of, ..plan.clone() }
    }

    /// Leads one round.
    fn lead_once(
        &self,
        local: Local<'_>,
        plan: &Plan,
        round: u32,
        address: SocketAddr,
    ) -> Result<Vec<Line>> {
        let until = self.until.of_round(round, self.rounds);
        let stream = session::dial(address)?;
        let led = lead(local, plan, &mut RawChannel::new(stream)?, until);
        led.map_err(|e| self.explain(e, address))
    }

    /// The following end of another process: one measurement after the other, until the
    /// last.
    fn listen(&self, local: Local<'_>, address: SocketAddr) -> Outcome {
        self.serve(local, Rendezvous::listen(address, Language::Handshake)?)
    }

    fn serve(&self, local: Local<'_>, mut rendezvous: Rendezvous) -> Outcome {
        let mut report = Report::new(self.common.json, self.task, self.ends);
        let mut rounds = Vec::new();
        let served = self.serve_all(local, &mut rendezvous, &mut report, &mut rounds);
        if rounds::count(&rounds, served.as_ref().err()) {
            report.add_rounds(rounds)?;
        }
        report.finish();
        served
    }

    /// Serves all measurements. Rounds that are left in `rounds` were measured before a failure.
    fn serve_all(
        &self,
        local: Local<'_>,
        rendezvous: &mut Rendezvous,
        report: &mut Report,
        rounds: &mut Vec<Vec<Line>>,
    ) -> Outcome {
        loop {
            let (stream, from) = rendezvous.next()?;
            let joined = RawChannel::new(stream).map_err(|e| Refused::Stranger(e.into()));
            let followed =
                joined.and_then(|mut wire| follow(local, &mut wire, |plan| self.contradicts(plan)));
            let (plan, lines, ended) = match followed {
                Ok(followed) => followed,
                Err(Refused::Stranger(e)) => {
                    session::refused(Some(from), &format!("{e:#}"));
                    continue;
                }
                Err(Refused::Failed(e)) => return Err(e),
            };
            if ended.is_none() || rounds.is_empty() {
                rounds.push(lines);
            }
            if ended.is_some() || rounds.len() == plan.rounds as usize {
                report.add_rounds(std::mem::take(rounds))?;
            }
            if let Some(why) = ended {
                bail!("the other end: {why}");
            }
            if plan.at + 1 == plan.of {
                return Ok(());
            }
        }
    }
}
