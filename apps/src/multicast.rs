//! `rdma-conn multicast`: small messages to all members of a group, in one order.

mod between;
mod load;
mod report;
mod within;

use std::time::Duration;

use rdma_conn::multicast::{Config, Policy};
use rdma_conn::raw::Link;

use crate::args::{Common, Multicast};
use crate::outcome::{Outcome, as_usage, usage};
use crate::progress;
use crate::session;
use report::Report;
use serde::{Deserialize, Serialize};

/// What is sent: of all members' concern.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Traffic {
    size: u32,
    seconds: f64,
    messages: Option<u64>,
    rate: Option<f64>,
    slow: Option<f64>,
    /// One message at a time, with such a pause behind it, in microseconds.
    lone_us: Option<u64>,
    flush_every: Option<u64>,
    verify: bool,
}

impl Traffic {
    fn of(options: &Multicast) -> Traffic {
        Traffic {
            size: options.size,
            seconds: options.seconds,
            messages: options.messages,
            rate: options.rate,
            slow: options.slow,
            // What is inhibited when it is delivered has gone after a deadline.
            lone_us: options.lone.then_some(2 * options.deadline_us + 100),
            flush_every: options.flush_every,
            verify: !options.no_verify,
        }
    }
}

pub(crate) fn run(common: &Common, options: &Multicast) -> Outcome {
    let configs: Vec<Config> = configs(common, options).collect();
    for config in &configs {
        config.validate().map_err(as_usage)?;
    }
    if options.slow.is_some() && options.senders < 2 {
        return Err(usage("--slow compares the other senders: it needs --senders 2 or more"));
    }
    let device = session::open_device(common, &options.ends)?;
    let mut report = Report::new(common.json);
    if options.ends.listen.is_some() || options.ends.connect.is_some() {
        between::run(common, options, &configs, &device, &mut report)?;
        report.finish();
        return Ok(());
    }
    let traffic = Traffic::of(options);
    let bar = progress::bar(configs.len() as u64, common.json);
    for config in &configs {
        bar.set_message(format!("{} members, {}", config.members, config.policy));
        let measured = within::measure(&device, &traffic, config)?;
        report.add(&device, &traffic, config, &measured)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.finish();
    Ok(())
}

/// A group for each number of members, and each policy.
fn configs<'a>(common: &'a Common, options: &'a Multicast) -> impl Iterator<Item = Config> {
    let of = |(members, policy): (u8, Policy)| Config {
        members,
        senders: options.senders,
        window: options.window,
        message_bytes: options.size,
        ring_bytes: options.ring.map(u64::from),
        policy,
        deadline: Duration::from_micros(options.deadline_us),
        link: Link { gid_index: common.gid_index, ..Link::default() },
        ..Config::default()
    };
    let push = || options.push.iter().copied();
    options.members.iter().flat_map(move |n| push().map(|p| (*n, p))).map(of)
}
