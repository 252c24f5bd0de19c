//! Result of a stream, on standard error where standard output is the stream.

use anyhow::Result;
use base::{remark, say};
use serde::Serialize;

use super::stream::{Passed, Task, Whole};
use crate::measure::figures::bytes;
use crate::measure::{Described, Machine};
use crate::protocol::Kind;
use crate::settings;

/// The JSON.
#[derive(Serialize)]
struct Line<'a> {
    protocol: &'a str,
    device: &'a str,
    transport: &'a str,
    /// Bytes of a piece, at most.
    size_bytes: u32,
    #[serde(flatten)]
    settings: Described,
    bytes: u64,
    bytes_per_s: f64,
    messages: u64,
    messages_per_s: f64,
    rdma_ops_per_message: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_transfer_bytes: Option<f64>,
    checksum_crc32: String,
    equal: bool,
    #[serde(flatten)]
    machine: Machine,
}

/// Tells how it went: well.
pub(super) fn report<K: Kind>(
    task: Task<'_>,
    config: &K::Settings,
    size_bytes: u32,
    passed: &Passed,
    whole: Whole,
) -> Result<()> {
    let Task { common, options, device, .. } = task;
    let seconds = host::time::since(passed.start).as_secs_f64();
    let checksum_crc32 = format!("{:08x}", whole.checksum);
    let Passed { bytes: all, messages, .. } = *passed;
    let bytes_per_s = all as f64 / seconds;
    let text = match common.json {
        true => serde_json::to_string(&Line {
            protocol: K::WORD,
            device: device.name(),
            transport: "rc",
            size_bytes,
            settings: settings::describe(K::SETTINGS, config),
            bytes: all,
            bytes_per_s,
            messages,
            messages_per_s: messages as f64 / seconds,
            rdma_ops_per_message: whole.work.operations as f64 / messages.max(1) as f64,
            mean_transfer_bytes: whole.work.mean_transfer_bytes(),
            checksum_crc32,
            equal: true,
            machine: Machine::here(),
        })?,
        false => format!(
            "{} over {} on {}: {}/s, checksum (CRC-32) {checksum_crc32}, equal at both ends",
            bytes(all),
            K::WORD,
            device.name(),
            bytes(bytes_per_s as u64)
        ),
    };
    // The listening end's standard output is the stream.
    match common.json && options.ends.connect.is_some() {
        true => say!("{text}"),
        false => remark!("{text}"),
    }
    Ok(())
}
