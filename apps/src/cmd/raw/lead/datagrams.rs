//! The leading end of a ping-pong of messages that are cut into datagrams, and repaired.

use anyhow::{Context, Result};

use super::super::control::RawChannel;
use super::super::end::JoinedEnd;
use super::super::led::{LedResult, TripCounts};
use super::super::plan::RawPlan;
use super::super::queues::IdleWatch;
use super::super::reliable::ReliableLink;
use super::leader::RawLeader;

/// Sends one message after the other, to each peer in turn, and waits for its answer.
pub(in crate::cmd::raw) fn lead(
    plan: &RawPlan,
    end: &mut JoinedEnd,
    wire: &mut RawChannel,
    trips: TripCounts,
    spin: bool,
) -> Result<LedResult> {
    // The window is of datagrams.
    let one = RawPlan { unacked: 1, ..plan.clone() };
    let mut leader = RawLeader::new(&one, trips)?;
    let mut links = ReliableLink::all(plan)?;
    let JoinedEnd { outbox, inbox, sources, .. } = end;
    let inbox = inbox.as_mut().context("no receives")?;
    let (start, mut watch) = (host::time::now(), IdleWatch::new(spin));
    while !leader.is_done() || !links.iter().all(ReliableLink::is_idle) {
        leader.send(outbox, |_, rank, _| {
            links[rank].begin(plan);
            Ok(())
        })?;
        let now_ns = host::time::since(start).as_nanos() as u64;
        let posted = ReliableLink::drive(&mut links, plan, now_ns, outbox)?;
        let arrived = inbox.poll(|arrival| {
            // Any queue pair that knows the Q_Key may send here: datagrams of others are ignored.
            let rank = arrival.queue;
            if sources.get(rank) != Some(&arrival.qp_num) {
                return Ok(());
            }
            let now = host::time::now();
            let now_ns = now.saturating_duration_since(start).as_nanos() as u64;
            if links[rank].take(plan, arrival.bytes, now_ns)? {
                leader.now = now;
                let left = leader.lanes[rank].flight.arrive().context("an answer to nothing")?;
                leader.answered(rank, left);
            }
            Ok(())
        })?;
        inbox.repost()?;
        if arrived as u64 + posted > 0 {
            watch.progress();
        } else {
            ReliableLink::check_peers(&links, now_ns)?;
            leader.idle(&mut watch, outbox, wire)?;
        }
    }
    let resent = links.iter().map(ReliableLink::repeated).sum();
    Ok(LedResult { resent: Some(resent), ..leader.finish() })
}
