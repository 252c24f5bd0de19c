//! The settings of Buffered Read.

use rdma_conn::buffered_read::Config;

use super::flags::{HEAD_THRESHOLD, RING_BYTES, RINGS};
use super::spec::flag;
use super::{FlagSpec, Setting, SettingValue, ValueSyntax, field};
use crate::measure::figures::size;

const READS: FlagSpec = flag! {
    /// Buffered Read: READs of data in flight at once, 1 to 16 [default: 4]
    "--reads", RINGS, ValueSyntax::Number("N")
};

const MAX_READ_BYTES: FlagSpec = flag! {
    /// Buffered Read: the longest READ [default: 512k]
    "--max-read-bytes", RINGS, ValueSyntax::Bytes
};

const NO_PREFETCH: FlagSpec = flag! {
    /// Buffered Read: do not prefetch; READ only when all messages were handed out
    "--no-prefetch", RINGS, ValueSyntax::Off
};

type BufferedReadSetting = Setting<Config>;

pub(crate) const SETTINGS: &[BufferedReadSetting] = &[
    BufferedReadSetting::told(RING_BYTES, (|c| c.ring.ring_bytes.into(), set_ring))
        .json()
        .title(|c| format!("a ring of {}", size(c.ring.ring_bytes))),
    BufferedReadSetting::told(HEAD_THRESHOLD, field!(head_threshold))
        .json_if(|c| c.head_threshold > 0),
    BufferedReadSetting::told(READS, field!(reads))
        .json()
        .title(|c| format!("up to {} READs of {}", c.reads, size(c.max_read_bytes.into()))),
    BufferedReadSetting::told(MAX_READ_BYTES, field!(max_read_bytes)).json(),
    BufferedReadSetting::told(NO_PREFETCH, field!(prefetch))
        .json()
        .title(|c| if c.prefetch { "prefetching" } else { "" }.into()),
];

/// The receiver has a ring like the sender's.
fn set_ring(config: &mut Config, value: &SettingValue) -> Option<()> {
    config.ring.ring_bytes = value.get()?;
    config.peer_ring_bytes = config.peer_ring_bytes.max(config.ring.ring_bytes);
    Some(())
}
