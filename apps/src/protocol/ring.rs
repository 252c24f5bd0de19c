//! Shape of the rings of the connections with a ring for each sender.

use anyhow::{Result, ensure};
use base::outcome::CommandError;
use rdma_conn::ring::RingShape;
use rdma_conn::send_recv::ConfigError;

use super::SessionMemory;
use crate::cli::ConnectionArgs;
use crate::protocol::by_flag::{by_flag_within, size_over};

/// A ring for messages of `size` bytes: like `shape`, or so large that it holds several of them.
pub(super) fn shape(size: u32, shape: RingShape) -> RingShape {
    let several = (4 * (u64::from(size) + 8)).next_power_of_two();
    let ring_bytes = shape.ring_bytes.max(several);
    RingShape { ring_bytes, message_bytes: size.max(1), ..shape }
}

/// The longest messages of which a ring without `--ring-bytes` holds several.
const LONGEST: u64 = RingShape::MAX_BYTES / 4 - 8;

/// An invalid configuration, by the flags that it is made of: without `--ring-bytes` the
/// ring's length is derived from `--size`.
pub(super) fn by_flag(
    error: &ConfigError,
    args: &ConnectionArgs,
    shape: RingShape,
) -> CommandError {
    if error.field == "ring_bytes" && args.given.ring_bytes.is_none() {
        return size_over(shape.message_bytes.into(), LONGEST);
    }
    let field = if error.field == "tail.window" { "recv_depth" } else { error.field };
    by_flag_within(&ConfigError { field, ..*error }, &[("ring_bytes", shape.ring_bytes)])
}

/// Refuses a ring that no peer may have.
pub(super) fn check_told(ring_bytes: u64, size: u32) -> Result<()> {
    let most = RingShape::MAX_BYTES;
    ensure!(ring_bytes <= most, "a ring of {ring_bytes} bytes: there may be {most}");
    ensure!(u64::from(size) < ring_bytes, "messages of {size} bytes in a ring of {ring_bytes}");
    Ok(())
}

/// Memory for the rings of `senders` senders, twice that if messages go `back`.
pub(super) fn room(ring_bytes: u64, senders: u32, back: bool) -> SessionMemory {
    let rings = u64::from(senders) * if back { 2 } else { 1 };
    let what = format!("{rings} rings of {ring_bytes} bytes");
    let bytes = rings.saturating_mul(ring_bytes);
    SessionMemory { bytes, what, flags: "--ring-bytes or --senders" }
}
