//! Members in several processes: one leads, the others join.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use base::outcome::usage;
use base::remark;
use base::signals::{Interrupted, wait_for_others};
use rdma_conn::device::Device;
use rdma_conn::multicast::{
    Config, Counts, GATHERING, Gathering, JoinError, Joined, Leader, Members, join,
};
use rdma_conn::raw::Link;
use rdma_conn::send_recv::ConnectError;

use super::load::{Delivered, SenderLoad};
use super::report;
use super::traffic::GroupTraffic;
use super::within::{GroupMeasurement, GroupRun};
use crate::cli::{CommonArgs, MulticastArgs};
use crate::measure::figures::counted_as;
use crate::session::{cannot_bind, explain, refused};

/// Longest time in which the others say what they have counted.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time in which an interrupted member tells the others so.
const LEAVING: Duration = Duration::from_secs(1);

pub(super) fn run(
    common: &CommonArgs,
    options: &MulticastArgs,
    configs: &[Config],
    device: &Device,
) -> Result<()> {
    let (joined, traffic) = match (options.ends.listen, configs) {
        (Some(address), [config]) => {
            let traffic = GroupTraffic::from_args(options);
            let leader = Leader::bind(address);
            let leader = leader.map_err(|e| advised(e, |e| cannot_bind(address, e)))?;
            let (address, more) = (leader.local_addr(), config.members - 1);
            remark!("listening on {address} for {more} more, for {GATHERING:?} at most");
            let user = serde_json::to_vec(&traffic)?;
            let gathered =
                wait_for_others(|| leader.gather_observed(GATHERING, device, config, &user, said))?;
            (gathered?, traffic)
        }
        (Some(_), _) => return Err(usage("one group at a time: one --members, one --push")),
        (None, _) => {
            let address = options.ends.connect.expect("one end or the other");
            let link = Link { gid_index: common.gid_index, ..Link::default() };
            let base = Config { link, ..Config::default() };
            let most = options.max_ring.map_or(base.max_ring_bytes, u64::from);
            let config = Config { max_ring_bytes: most, ..base };
            remark!("joining {address}; the others may take {GATHERING:?} to join");
            let joined = wait_for_others(|| join(address, device, &config))?;
            let joined = joined.map_err(|e| advised(e, |e| explain(e, address, "multicast")))?;
            let traffic = serde_json::from_slice(&joined.user);
            let traffic = traffic.context("the leader does not say what is sent")?;
            (joined, traffic)
        }
    };
    let config = told(&joined);
    remark!("{} of {} members", joined.group.rank(), config.members);
    let (measured, ended) = measure(joined, &traffic, &config)?;
    let mut report = report::report(common.json, &traffic);
    report.add(&report::line(device, &traffic, &config, &measured))?;
    report.finish();
    ended.map_or(Ok(()), Err)
}

/// Says what happens while a leader waits for the members.
fn said(event: Gathering<'_>) {
    match event {
        Gathering::There { came, wanted } => {
            let (members, are) = (counted_as(wanted as u64, "member", "members"), is_or_are(came));
            remark!("{came} of {members} {are} there");
        }
        Gathering::Refused { error } => refused(None, &error.to_string()),
        _ => {}
    }
}

fn is_or_are(n: usize) -> &'static str {
    if n == 1 { "is" } else { "are" }
}

/// Adds advice to the error of a group that could not be joined.
fn advised(error: JoinError, advice: impl FnOnce(ConnectError) -> Error) -> Error {
    match error {
        JoinError::Connect(error) => advice(error),
        JoinError::OverLimit { field: "max_ring_bytes", value, limit } => anyhow!(
            "the leader wants slot rings of {value} bytes, this end allows {limit}: give it \
             --max-ring {value}, or the leader a smaller --window, --size or --ring"
        ),
        error => error.into(),
    }
}

/// The group, as the leader has told it.
fn told(joined: &Joined) -> Config {
    let core = joined.group.config();
    debug_assert_eq!(core.senders, Members::first(core.senders.len() as u8));
    Config {
        members: core.members,
        senders: core.senders.len() as u8,
        window: core.window,
        message_bytes: core.max_message,
        ring_bytes: Some(core.capacity),
        policy: core.policy,
        deadline: Duration::from_nanos(core.deadline_ns),
        ..Config::default()
    }
}

/// Returns the measurement, and the reason for which it is only a part, if it is: a signal ended
/// this member, or the group ended early.
fn measure(
    joined: Joined,
    traffic: &GroupTraffic,
    config: &Config,
) -> Result<(GroupMeasurement, Option<Error>)> {
    traffic.check(config)?;
    let Joined { group, streams, .. } = joined;
    let (rank, began) = (group.rank().0, host::time::now());
    let sends = rank < config.senders;
    let load = || {
        SenderLoad::new(group.sender(), traffic, config.policy, rank + 1 == config.senders, began)
    };
    let loads: Vec<SenderLoad> = sends.then(load).transpose()?.into_iter().collect();
    let mut delivered = Delivered::new(config.senders, traffic, began);
    delivered.timed = Some(rank);
    let mut run =
        GroupRun { members: vec![group], delivered: vec![delivered], loads, yields: true };
    let ended = run.send(traffic, began).and_then(|()| run.finish()).err();
    let elapsed = host::time::since(began);
    let (writes, forced) = (run.count(Counts::writes), run.count(|counts| counts.forced));
    let GroupRun { mut members, mut delivered, .. } = run;
    let group = members.pop().expect("one");
    let work_requests = match &ended {
        None => {
            group.finish(PATIENCE, |_| {})?;
            Some(exchange(streams, rank, writes)?)
        }
        Some(why) => {
            // For the others the group ends with it.
            if why.is::<Interrupted>()
                && let Err(e) = group.leave(LEAVING, |_| {})
            {
                tracing::info!(error = %e, "the others were not told");
            }
            None
        }
    };
    let delivered = delivered.pop().expect("one");
    if let Some((from, number)) = delivered.wrong {
        bail!("message {number} of member {from} is not what was sent");
    }
    let messages = delivered.total();
    let of_others = messages - delivered.counts.last().copied().unwrap_or(0);
    let (latency, others_alone_per_s) = (delivered.latency, None);
    let measured = GroupMeasurement {
        messages,
        in_time: messages,
        of_others,
        others_alone_per_s,
        elapsed,
        latency,
        work_requests,
        forced,
    };
    Ok((measured, ended))
}

/// The work requests of all members: the leader adds them up.
fn exchange(mut streams: Vec<TcpStream>, rank: u8, own: u64) -> Result<u64> {
    let mut total = own;
    let gone = || "a member is gone before it has said what it counted";
    for stream in &streams {
        stream.set_read_timeout(Some(PATIENCE))?;
    }
    if rank > 0 {
        let leader = streams.first_mut().context("no stream to the leader")?;
        leader.write_all(&own.to_le_bytes()).with_context(gone)?;
        return read(leader).with_context(gone);
    }
    for stream in &mut streams {
        total = total.saturating_add(read(stream).with_context(gone)?);
    }
    for stream in &mut streams {
        stream.write_all(&total.to_le_bytes()).with_context(gone)?;
    }
    Ok(total)
}

fn read(stream: &mut TcpStream) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
