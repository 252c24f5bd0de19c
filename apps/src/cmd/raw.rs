//! `pingpong --op` and `bench --op`: verbs without a connection on top ("RDMA Tutorial").
//!
//! The leading end sends first and measures; the following end answers (pingpong), or
//! receives (bench). In one process they are two threads, joined as two processes are:
//! over a byte stream, with the handshake of raw queue pairs.

mod compat;
mod control;
mod detection;
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

use anyhow::anyhow;
use base::outcome::CommandResult;

use crate::cli::{BenchArgs, CommonArgs, Means, PingpongArgs, WaitFlag};
use crate::session::{self, Followed};
pub(crate) use compat::ibv_rc_pingpong;
use control::RawChannel;
use end::{FollowError, Local};
use measure::{follow, lead, within_process};
use plan::RawPlan;
use rendezvous::{ClientListener, Language};
use report::report;
use request::{MeasurementRequest, bench_request, pingpong_request};

/// `pingpong --op`.
pub(crate) fn pingpong(common: &CommonArgs, options: &PingpongArgs, means: Means) -> CommandResult {
    pingpong_request(common, options, means)?.run(means)
}

/// `bench --op`.
pub(crate) fn bench(common: &CommonArgs, options: &BenchArgs, means: Means) -> CommandResult {
    bench_request(common, options, means)?.run(means)
}

fn labels(plans: &[RawPlan]) -> Vec<String> {
    plans.iter().map(|plan| format!("{} B", plan.largest())).collect()
}

impl MeasurementRequest<'_> {
    fn run(&self, means: Means) -> CommandResult {
        match means {
            Means::Verb(_) => self.run_verb(),
            Means::Udp => self.run_udp(),
        }
    }

    fn run_verb(&self) -> CommandResult {
        let device = session::open_device(self.common, self.ends)?;
        self.let_the_network_fail(&device)?;
        let local = Local {
            device: &device,
            gid_index: self.common.gid_index,
            spin: self.connection.wait == WaitFlag::Spin,
            polling_threads: self.raw.polling_threads,
        };
        let plans = self.plans(&device)?;
        match (self.ends.listen, self.ends.connect) {
            (Some(address), _) => self.listen(local, address),
            (None, Some(address)) => self.lead(local, &plans, address),
            (None, None) => self.measure_in_turn(local, &plans),
        }
    }

    /// Both ends, in one process: all measurements in turn.
    fn measure_in_turn(&self, local: Local<'_>, plans: &[RawPlan]) -> CommandResult {
        let report = report(self.common.json, self.task, self.ends);
        session::in_turn(self.common.json, &labels(plans), self.rounds, report, |at, round| {
            within_process(local, &plans[at].of_round(round), self.until_round(round))
        })
    }

    /// The leading end: one measurement after the other, with the listener at `address`.
    fn lead(&self, local: Local<'_>, plans: &[RawPlan], address: SocketAddr) -> CommandResult {
        let report = report(self.common.json, self.task, self.ends);
        session::lead_each(self.common.json, &labels(plans), self.rounds, report, |at, round, _| {
            let (plan, until) = (plans[at].of_round(round), self.until_round(round));
            let stream = session::dial(address)?;
            let led = lead(local, &plan, &mut RawChannel::new(stream)?, until);
            led.map_err(|e| self.explain(e, address))
        })
    }

    /// The following end of another process: one measurement after the other, until the
    /// last.
    fn listen(&self, local: Local<'_>, address: SocketAddr) -> CommandResult {
        self.serve(local, ClientListener::listen(address, Language::Handshake)?)
    }

    fn serve(&self, local: Local<'_>, mut rendezvous: ClientListener) -> CommandResult {
        let report = report(self.common.json, self.task, self.ends);
        session::follow_all(report, || {
            loop {
                let (stream, from) = rendezvous.next()?;
                let joined = RawChannel::new(stream).map_err(|e| FollowError::Stranger(e.into()));
                let followed = joined
                    .and_then(|mut wire| follow(local, &mut wire, |plan| self.contradicts(plan)));
                match followed {
                    Ok((plan, lines, why)) => {
                        let ended = why.map(|why| anyhow!("the other end: {why}"));
                        let is_last = plan.at + 1 == plan.of;
                        return Ok(Followed { lines, ended, is_last, rounds: plan.rounds });
                    }
                    Err(FollowError::Stranger(e)) => {
                        session::refused(Some(from), &format!("{e:#}"))
                    }
                    Err(FollowError::Failed(e)) => return Err(e),
                }
            }
        })
    }
}
