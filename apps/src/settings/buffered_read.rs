//! The settings of Buffered Read.

use rdma_conn::buffered_read::Config;
use serde_json::Value;

use super::{Setting, field, read};
use crate::measure::figures::size;

type BufferedReadSetting = Setting<Config>;

pub(crate) const SETTINGS: &[BufferedReadSetting] = &[
    BufferedReadSetting::told("--ring-bytes", (|c| c.ring.ring_bytes.into(), set_ring))
        .json()
        .title(|c| format!("a ring of {}", size(c.ring.ring_bytes))),
    BufferedReadSetting::told("--head-threshold", field!(head_threshold))
        .json_if(|c| c.head_threshold > 0),
    BufferedReadSetting::told("--reads", field!(reads))
        .json()
        .title(|c| format!("up to {} READs of {}", c.reads, size(c.max_read_bytes.into()))),
    BufferedReadSetting::told("--max-read-bytes", field!(max_read_bytes)).json(),
    BufferedReadSetting::told("--no-prefetch", field!(prefetch))
        .json()
        .title(|c| if c.prefetch { "prefetching" } else { "" }.into()),
];

/// The receiver has a ring like the sender's.
fn set_ring(config: &mut Config, value: &Value) -> Option<()> {
    config.ring.ring_bytes = read(value)?;
    config.peer_ring_bytes = config.peer_ring_bytes.max(config.ring.ring_bytes);
    Some(())
}
