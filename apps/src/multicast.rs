//! `rdma-conn multicast`: small messages to all members of a group, in one order.

mod load;
mod report;
mod within;

use std::time::Duration;

use rdma_conn::multicast::{Config, Policy};
use rdma_conn::raw::Link;

use crate::args::{Common, Multicast};
use crate::outcome::{Outcome, as_usage};
use crate::progress;
use crate::session;
use report::Report;

pub(crate) fn run(common: &Common, options: &Multicast) -> Outcome {
    let configs: Vec<Config> = configs(common, options).collect();
    for config in &configs {
        config.validate().map_err(as_usage)?;
    }
    let device = session::open_device(common, &options.ends)?;
    let mut report = Report::new(common.json);
    let bar = progress::bar(configs.len() as u64, common.json);
    for config in &configs {
        bar.set_message(format!("{} members, {}", config.members, config.policy));
        let measured = within::measure(&device, options, config)?;
        report.add(&device, options, config, &measured)?;
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
