//! The plan that a command line asks for.

use rdma_conn::conn_core::datagram::MAX_WINDOW;

use super::{ACKS, MAX_MTU, QUEUES, RawPlan, RawTask, SLOT_ALIGN};
use crate::cli::{ConnectionArgs, RawArgs, RawOp, RawTransport};
use crate::limits::MOST_BUFFER_BYTES;
use crate::settings;

/// Without other wishes the buffers of one end stay below this.
const BUFFER_BUDGET_BYTES: u64 = 128 << 20;
/// Bytes that several messages may take together, so that a cache of the processor holds them.
const CACHED_BYTES: u32 = 64 << 10;
/// The longest message that is handed over inline unless more is asked for: beyond it
/// the copy into the work request costs more than the device's read.
const AUTO_INLINE: u32 = 256;
/// Perftest's depths: what a comparison is most often made with.
const BENCH_UNACKED: u32 = 128;
const BENCH_RECV_DEPTH: u32 = 512;
/// Bytes that the messages under way of one queue pair may take, if they are more than two;
/// receives may take twice as many. With more, memory is measured that no cache of the processor
/// holds.
const UNACKED_BYTES: u64 = 1 << 20;
/// Many queue pairs share these, in messages: more than a cache holds makes all of them slow.
const ALL_UNACKED: u32 = 4096;
const LEAST_UNACKED: u32 = 8;

impl RawPlan {
    /// The plan that the command line asks for, for messages of `size` bytes.
    pub(in crate::cmd::raw) fn new(
        task: RawTask,
        op: RawOp,
        raw: &RawArgs,
        connection: &ConnectionArgs,
        size: u32,
        srq: bool,
    ) -> RawPlan {
        let given = &connection.given;
        let srq = srq || raw.srq_classes;
        let qps = raw.qps.or(raw.peers).unwrap_or(if srq { 4 } else { 1 });
        // Those that share a receive queue share its window, whatever that is.
        let lanes = if srq || raw.transport == RawTransport::Ud { 1 } else { qps.max(1) };
        let (slot, fits) = if raw.reliable { (MAX_MTU, MAX_WINDOW) } else { (size, u32::MAX) };
        // Of a ping-pong, the datagrams of a message have the window of a stream.
        let load = if raw.reliable { RawTask::Bench } else { task };
        let unacked = || default_unacked(load, slot, lanes).min(fits);
        let unacked = given.unacked.unwrap_or_else(unacked);
        let batch = given.batch.unwrap_or(1);
        let slack = (CACHED_BYTES / size.max(1)).clamp(1, 16);
        let (signal_every, recv_depth) = match load {
            RawTask::Pingpong if op == RawOp::Read => (1, unacked.saturating_add(slack)),
            RawTask::Pingpong => (slack, unacked.saturating_add(slack)),
            RawTask::Bench => {
                let budget = (BUFFER_BUDGET_BYTES / u64::from(slot.max(1))).max(2);
                let cached = 2 * UNACKED_BYTES / u64::from(slot.max(1));
                let share = BENCH_RECV_DEPTH.min(2 * ALL_UNACKED / lanes).min(cached as u32);
                let all = if raw.reliable { qps } else { 2 };
                let window = share.max(unacked.saturating_mul(all));
                // Each end receives messages and acknowledgements.
                let acks = if task == RawTask::Pingpong { ACKS } else { 0 };
                let window = window.saturating_add(acks);
                let signal_every = (unacked / 4).min(64).max(batch).clamp(1, unacked.max(1));
                (signal_every, u64::from(window).min(budget) as u32)
            }
        };
        let recv_depth = given.recv_depth.unwrap_or(recv_depth);
        let repost = recv_depth.saturating_sub(unacked).clamp(1, 32).min(recv_depth.max(1));
        let mut plan = RawPlan {
            rounds: 1,
            task,
            op,
            transport: raw.transport,
            size,
            large: None,
            unacked,
            batch,
            signal_every,
            inline: AUTO_INLINE,
            recv_depth,
            poll_batch: 32,
            repost_batch: repost,
            qps,
            srq,
            verify: true,
            assumed_in_order: false,
            datagram: None,
            answer_timeout: raw.answer_timeout,
            at: 0,
            of: 1,
        };
        settings::set_given(QUEUES, &mut plan, given);
        plan
    }
}

fn default_unacked(task: RawTask, size: u32, lanes: u32) -> u32 {
    match task {
        RawTask::Pingpong => 1,
        RawTask::Bench => {
            // With two in flight and two receives, WRITEs with immediate have five places.
            let slot = u64::from(size).next_multiple_of(SLOT_ALIGN);
            let least = if slot * 5 <= MOST_BUFFER_BYTES { 2 } else { 1 };
            let fits = UNACKED_BYTES / u64::from(size.max(1));
            let share = (ALL_UNACKED / lanes).max(LEAST_UNACKED);
            u64::from(BENCH_UNACKED.min(share)).min(fits.max(least)) as u32
        }
    }
}
