//! Task of one end, and how it went.

use base::outcome::CommandResult;
use base::{remark, say};
use rdma_conn::device::Device;

use super::ending::PipeEnding;
use crate::cli::{CommonArgs, PipeArgs};
use crate::cmd::stream::Passed;
use crate::measure::Work;
use crate::measure::figures::bytes;
use crate::protocol::MeasuredProtocol;

/// Transfer to make over any kind of connection.
#[derive(Clone, Copy)]
pub(super) struct PipeTask<'a> {
    pub(super) common: &'a CommonArgs,
    pub(super) options: &'a PipeArgs,
    pub(super) device: &'a Device,
    pub(super) ending: &'a PipeEnding,
}

impl PipeTask<'_> {
    /// Tells how it went: well. Standard output of the listening end is the stream.
    pub(super) fn report<K: MeasuredProtocol>(
        &self,
        config: &K::Settings,
        size: u32,
        passed: &Passed,
        work: Work,
    ) -> CommandResult {
        let line = passed
            .line::<K>(self.device, config, size)
            .with("rdma_ops_per_message", work.operations_per_message(passed.messages))
            .with("mean_transfer_bytes", work.mean_transfer_bytes())
            .with("equal", true);
        let text = match self.common.json {
            true => serde_json::to_string(&line)?,
            false => format!(
                "{} over {} on {}: {}/s, checksum (CRC-32) {:08x}, equal at both ends",
                bytes(passed.bytes),
                K::WORD,
                self.device.name(),
                bytes(line.figure("bytes_per_s") as u64),
                passed.checksum()
            ),
        };
        match self.common.json && self.options.ends.connect.is_some() {
            true => say!("{text}"),
            false => remark!("{text}"),
        }
        Ok(())
    }
}
