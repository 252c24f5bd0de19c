//! Plans that cannot be, of this command line or of a peer.

use anyhow::{Result, bail, ensure};
use rdma_conn::conn_core::datagram::MAX_WINDOW;
use rdma_conn::send_recv::Config;

use super::{MAX_MTU, MIN_MTU, NUMBER_BITS, RawPlan, RawTask};
use crate::cli::{RawOp, RawTransport};
use crate::limits::MOST_BUFFER_BYTES;

/// Entries that take no more than this are not worth a longest message its place.
const FEW_ENTRIES_BYTES: u64 = 16 << 20;
/// Queue pairs, where their messages say in an immediate which one they are of, and elsewhere.
const MAX_NUMBERED_QPS: u32 = 1 << (32 - NUMBER_BITS);
const MAX_QPS: u32 = 1024;

impl RawPlan {
    /// Refuses combinations of options that are impossible, whatever the numbers are.
    fn check_transport(&self) -> Result<()> {
        let (transport, op) = (self.transport.name(), self.op_name());
        if let Some(bytes) = self.datagram {
            ensure!(self.transport == RawTransport::Ud, "--reliable is for --transport ud");
            ensure!((MIN_MTU..=MAX_MTU).contains(&bytes), "datagrams of {bytes} bytes");
        }
        match (self.transport, self.op) {
            (RawTransport::Rc, _) => return Ok(()),
            (RawTransport::Uc, RawOp::Read)
            | (RawTransport::Ud, RawOp::Read | RawOp::Write | RawOp::WriteImm) => {
                bail!("--transport {transport} has no --op {op}: use --transport rc")
            }
            _ => {}
        }
        ensure!(!self.srq, "--srq is for --transport rc");
        // Its messages have no number: the next one is known by the last one's end.
        let unnumbered = self.op != RawOp::Send && self.task == RawTask::Pingpong;
        ensure!(
            !unnumbered || self.unacked == 1,
            "--unacked {} is too many for --op {op} over {transport}, whose messages have no \
             number: 1 may be in flight",
            self.unacked
        );
        Ok(())
    }

    /// Whatever cannot be: of this command line, or of a peer that asks for room.
    pub(in crate::cmd::raw) fn check(&self) -> Result<()> {
        self.check_transport()?;
        let window = Config::MAX_WINDOW;
        let unacked = if self.datagram.is_some() { MAX_WINDOW } else { window };
        for (name, value, least, most) in [
            ("--unacked", self.unacked, 1, unacked),
            ("--batch", self.batch, 1, self.unacked),
            ("--signal-every", self.signal_every, 1, self.longest_interval()),
            ("--recv-depth", self.recv_depth, 1, window),
            ("--poll-batch", self.poll_batch, 1, Config::MAX_POLL_BATCH),
            ("--repost-batch", self.repost_batch, 1, self.recv_depth),
            ("--size", self.largest(), self.smallest_possible(), Config::MAX_MESSAGE_BYTES),
            ("--qps", self.qps, if self.large.is_some() { 2 } else { 1 }, self.most_qps()),
        ] {
            ensure!(
                (least..=most).contains(&value),
                "{name} {value}: it may be {least} to {most} with --op {}",
                self.op_name()
            );
        }
        ensure!(
            !self.srq || self.receives(),
            "--srq is about receives, and --op {} posts none",
            self.op_name()
        );
        let late = self.unacked.saturating_add(self.repost_batch) > self.recv_depth + 1;
        ensure!(
            !(self.receives() && self.task == RawTask::Pingpong && late),
            "--recv-depth {} is too small for {} messages in flight and {} reposted at a time",
            self.recv_depth,
            self.unacked,
            self.repost_batch
        );
        let of = |leads| {
            self.buffer_bytes(leads) + self.entry_bytes(leads).saturating_sub(FEW_ENTRIES_BYTES)
        };
        let bytes = of(true).max(of(false));
        ensure!(
            bytes <= MOST_BUFFER_BYTES,
            "an end would register {} MiB of buffers, and {} MiB is the most: --size, --qps, \
             --unacked or --recv-depth has to be smaller",
            bytes.div_ceil(1 << 20),
            MOST_BUFFER_BYTES >> 20
        );
        Ok(())
    }

    fn op_name(&self) -> &'static str {
        self.op.protocol().trim_start_matches("raw-")
    }

    /// Requests of which one at least has to be signalled.
    fn longest_interval(&self) -> u32 {
        match (self.task, self.op) {
            // Each is waited for by its completion.
            (RawTask::Pingpong, RawOp::Read) => 1,
            (RawTask::Pingpong, _) => Config::MAX_WINDOW,
            (RawTask::Bench, _) => self.unacked,
        }
    }

    /// Polling memory takes a byte that changes.
    fn smallest_possible(&self) -> u32 {
        match (self.task, self.op) {
            (RawTask::Pingpong, RawOp::Write) | (_, RawOp::Read) => 1,
            _ => 0,
        }
    }

    /// Queue pairs at most: a message may have to say in its immediate which one it is of.
    fn most_qps(&self) -> u32 {
        if self.is_reliable() && !self.srq { MAX_QPS } else { MAX_NUMBERED_QPS }
    }
}
