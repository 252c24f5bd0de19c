//! All members in this process, driven by one thread.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use base::signals;
use hdrhistogram::Histogram;
use rdma_conn::device::Device;
use rdma_conn::multicast::{Config, Counts, Group, in_process_on};

use super::load::{Delivered, SenderLoad};
use super::traffic::GroupTraffic;
use crate::session::card;

/// Messages of one sender between two passes.
const BURST: u64 = 250;
/// Time without a delivery after which the remaining messages are taken to wait for turns that
/// other members never take.
const STILL: Duration = Duration::from_millis(50);
/// Time without a delivery after which a group does not end any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// Result of a measurement.
pub(super) struct GroupMeasurement {
    /// Messages delivered at every member, in the end.
    pub(super) messages: u64,
    /// Those that were in `elapsed`; and of these, those of the senders but the last.
    pub(super) in_time: u64,
    pub(super) of_others: u64,
    /// Messages a second of these senders when the last one does not send.
    pub(super) others_alone_per_s: Option<f64>,
    /// Until the last delivery, except for messages that wait for turns that are never taken.
    pub(super) elapsed: Duration,
    pub(super) latency: Histogram<u64>,
    /// Work requests, as the device has counted them; or as the members have, where it
    /// counts none. Not known of a group between processes that has ended early.
    pub(super) work_requests: Option<u64>,
    /// Pushes that went at their deadline.
    pub(super) forced: u64,
}

impl GroupMeasurement {
    pub(super) fn per_s(&self) -> f64 {
        self.in_time as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn others_per_s(&self) -> f64 {
        self.of_others as f64 / self.elapsed.as_secs_f64()
    }
}

/// Members that this process has.
pub(super) struct GroupRun {
    pub(super) members: Vec<Group>,
    pub(super) delivered: Vec<Delivered>,
    pub(super) loads: Vec<SenderLoad>,
    /// Others are processes of their own, which may want this processor.
    pub(super) yields: bool,
}

/// One group. Where the last sender is a slow one, it is compared with a group in which that
/// one does not send, measured before and after.
pub(super) fn measure(
    device: &Device,
    traffic: &GroupTraffic,
    config: &Config,
) -> Result<GroupMeasurement> {
    if traffic.slow.is_none() || config.senders < 2 {
        return run(device, traffic, config);
    }
    let others = Config { senders: config.senders - 1, ..*config };
    let alone = || {
        let measured = run(device, &GroupTraffic { slow: None, ..traffic.clone() }, &others)?;
        anyhow::Ok(measured.per_s())
    };
    let before = alone()?;
    let measured = run(device, traffic, config)?;
    Ok(GroupMeasurement { others_alone_per_s: Some((before + alone()?) / 2.0), ..measured })
}

fn run(device: &Device, traffic: &GroupTraffic, config: &Config) -> Result<GroupMeasurement> {
    let members = members(device, config)?;
    let before = device.counters().ok();
    let began = host::time::now();
    let mut run = GroupRun::new(members, traffic, config, began)?;
    run.send(traffic, began)?;
    let elapsed = run.settle()? - began;
    let in_time = run.in_time();
    let counted = before.zip(device.counters().ok());
    let counted = counted.and_then(|(before, after)| after.since(&before).work_requests);
    let work_requests = counted.unwrap_or_else(|| run.count(Counts::writes));
    let forced = run.count(|counts| counts.forced);
    run.finish()?;
    run.result(elapsed, in_time, work_requests, forced)
}

/// All members of a group. Where a device takes a card's time, each member has a card of its own.
fn members(device: &Device, config: &Config) -> Result<Vec<Group>> {
    let mut devices = vec![device.clone()];
    while devices.len() < usize::from(config.members) {
        devices.push(card::peer_device(device)?.unwrap_or_else(|| device.clone()));
    }
    Ok(in_process_on(&devices, config)?)
}

impl GroupRun {
    /// All `members` of a group, and what they send.
    fn new(
        members: Vec<Group>,
        traffic: &GroupTraffic,
        config: &Config,
        began: Instant,
    ) -> Result<GroupRun> {
        let load = |rank: u8| {
            let (sender, last) = (members[usize::from(rank)].sender(), rank + 1 == config.senders);
            SenderLoad::new(sender, traffic, config.policy, last, began)
        };
        let loads = (0..config.senders).map(load).collect::<Result<_>>()?;
        let delivered = members.iter().map(|_| Delivered::new(config.senders, traffic, began));
        let delivered = delivered.collect();
        Ok(GroupRun { members, delivered, loads, yields: false })
    }

    /// Makes one pass of all members; returns how many messages they delivered.
    fn pass(&mut self) -> usize {
        let mut count = 0;
        for (member, delivered) in self.members.iter_mut().zip(&mut self.delivered) {
            let now = host::time::now();
            count += member.poll(now, |message| delivered.take(message, now));
        }
        if self.yields && count == 0 {
            host::thread::yield_now();
        }
        count
    }

    pub(super) fn send(&mut self, traffic: &GroupTraffic, began: Instant) -> Result<()> {
        let time = Duration::from_secs_f64(traffic.seconds);
        tracing::info!("the group sends");
        loop {
            let now = host::time::now();
            let is_over =
                signals::is_interrupted() || (traffic.messages.is_none() && now - began >= time);
            if is_over || self.loads.iter_mut().all(SenderLoad::is_done) {
                return Ok(());
            }
            for load in &mut self.loads {
                load.send(now, BURST)?;
            }
            self.pass();
            self.check()?;
        }
    }

    /// Until all is delivered that can be, and acknowledged. Returns when that was, to the last
    /// delivery.
    fn settle(&mut self) -> Result<Instant> {
        let sent: u64 = self.loads.iter().map(|load| load.sent).sum();
        let mut last = host::time::now();
        while self.delivered.iter().any(|delivered| delivered.total() < sent) {
            if self.pass() > 0 {
                last = host::time::now();
            }
            self.check()?;
            if host::time::since(last) > STILL {
                break;
            }
        }
        for _ in 0..3 {
            self.pass();
        }
        self.check()?;
        Ok(last)
    }

    /// Messages of each sender that all members here have delivered.
    pub(super) fn in_time(&self) -> Vec<u64> {
        let senders = self.delivered[0].counts.len();
        let least = |of: usize| self.delivered.iter().map(|at| at.counts[of]).min().unwrap_or(0);
        (0..senders).map(least).collect()
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.members.iter().for_each(|member| member.sender().end());
        let mut end = host::time::now() + PATIENCE;
        while self.members.iter().any(|member| !member.is_finished()) {
            if self.pass() > 0 {
                end = host::time::now() + PATIENCE;
            }
            self.check()?;
            if host::time::now() > end {
                bail!("the group does not end");
            }
        }
        Ok(())
    }

    /// # Errors
    /// The group has failed; or a signal asks for an end, and other processes' members continue.
    fn check(&self) -> Result<()> {
        if self.yields {
            signals::go_on()?;
        }
        match self.members.iter().find_map(Group::error) {
            Some(error) => bail!("the group has failed: {error}"),
            None => Ok(()),
        }
    }

    pub(super) fn count(&self, what: impl Fn(&Counts) -> u64) -> u64 {
        self.members.iter().map(|member| what(member.counts())).sum()
    }

    fn result(
        self,
        elapsed: Duration,
        in_time: Vec<u64>,
        work_requests: u64,
        forced: u64,
    ) -> Result<GroupMeasurement> {
        let sent: Vec<u64> = self.loads.iter().map(|load| load.sent).collect();
        let mut latency = self.delivered[0].latency.clone();
        latency.reset();
        for (rank, delivered) in self.delivered.iter().enumerate() {
            if let Some((from, number)) = delivered.wrong {
                bail!("message {number} of member {from} is not what was sent, at member {rank}");
            }
            if delivered.counts != sent {
                let counts = &delivered.counts;
                bail!("member {rank} has delivered {counts:?} messages, {sent:?} were sent");
            }
            latency.add(&delivered.latency)?;
        }
        let (in_time, last) = (in_time.iter().sum(), in_time.last().copied());
        let of_others = in_time - last.unwrap_or(0);
        let others_alone_per_s = None;
        Ok(GroupMeasurement {
            messages: sent.iter().sum(),
            in_time,
            of_others,
            others_alone_per_s,
            elapsed,
            latency,
            work_requests: Some(work_requests),
            forced,
        })
    }
}

#[cfg(test)]
mod tests;
