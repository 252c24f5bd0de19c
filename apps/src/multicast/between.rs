//! Members in several processes: one leads, the others join.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use rdma_conn::device::Device;
use rdma_conn::multicast::{Config, Counts, GATHERING, JoinError, Joined, Leader, Members, join};
use rdma_conn::raw::Link;
use rdma_conn::send_recv::ConnectError;

use super::Traffic;
use super::load::{Delivered, Load};
use super::report::Report;
use super::within::{Measured, Run};
use crate::args::{Common, Multicast};
use crate::outcome::usage;
use crate::session::{cannot_bind, explain};

/// How long the others may take to say what they have counted.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(
    common: &Common,
    options: &Multicast,
    configs: &[Config],
    device: &Device,
    report: &mut Report,
) -> Result<()> {
    let (joined, traffic) = match (options.ends.listen, configs) {
        (Some(address), [config]) => {
            let traffic = Traffic::of(options);
            let leader = Leader::bind(address);
            let leader = leader.map_err(|e| advised(e, |e| cannot_bind(address, e)))?;
            let (address, more) = (leader.local_addr(), config.members - 1);
            remark!("listening on {address} for {more} more, for {GATHERING:?} at most");
            let user = serde_json::to_vec(&traffic)?;
            (leader.gather(device, config, &user)?, traffic)
        }
        (Some(_), _) => return Err(usage("one group at a time: one --members, one --push")),
        (None, _) => {
            let address = options.ends.connect.expect("one end or the other");
            let link = Link { gid_index: common.gid_index, ..Link::default() };
            remark!("joining {address}; the others may take {GATHERING:?} to come");
            let joined = join(address, device, link);
            let joined = joined.map_err(|e| advised(e, |e| explain(e, address, "multicast")))?;
            let traffic = serde_json::from_slice(&joined.user);
            let traffic = traffic.context("the leader does not say what is sent")?;
            (joined, traffic)
        }
    };
    let config = told(&joined);
    remark!("{} of {} members", joined.group.rank(), config.members);
    let measured = measure(joined, &traffic, &config)?;
    report.add(device, &traffic, &config, &measured)
}

/// What to do where there was no connection.
fn advised(error: JoinError, advice: impl FnOnce(ConnectError) -> Error) -> Error {
    match error {
        JoinError::Connect(error) => advice(error),
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

fn measure(joined: Joined, traffic: &Traffic, config: &Config) -> Result<Measured> {
    if traffic.size > config.message_bytes {
        bail!(
            "the leader wants messages of {} bytes in slots of {}",
            traffic.size,
            config.message_bytes
        );
    }
    let Joined { group, streams, .. } = joined;
    let (rank, began) = (group.rank().0, Instant::now());
    let sends = rank < config.senders;
    let load = || Load::new(group.sender(), traffic, rank + 1 == config.senders, began);
    let loads: Vec<Load> = sends.then(load).into_iter().collect();
    let mut delivered = Delivered::new(config.senders, traffic, began);
    delivered.timed = Some(rank);
    let mut run = Run { members: vec![group], delivered: vec![delivered], loads, yields: true };
    run.send(traffic, began)?;
    run.finish()?;
    let elapsed = began.elapsed();
    let (writes, forced) = (run.count(Counts::writes), run.count(|counts| counts.forced));
    let Run { mut members, mut delivered, .. } = run;
    let group = members.pop().expect("one");
    group.finish(PATIENCE, |_| {})?;
    let work_requests = exchange(streams, rank, writes)?;
    let delivered = delivered.pop().expect("one");
    if let Some((from, number)) = delivered.wrong {
        bail!("message {number} of member {from} is not what was sent");
    }
    let messages = delivered.total();
    let of_others = messages - delivered.counts.last().copied().unwrap_or(0);
    let (latency, others_alone_per_s) = (delivered.latency, None);
    Ok(Measured {
        messages,
        in_time: messages,
        of_others,
        others_alone_per_s,
        elapsed,
        latency,
        work_requests,
        forced,
    })
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
