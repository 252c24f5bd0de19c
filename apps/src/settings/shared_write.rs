//! The settings of Shared Write.

use rdma_conn::shared_write::Config;

use super::flags::{BATCH, INLINE, SIGNAL_EVERY};
use super::send_recv::set_inline;
use super::spec::flag;
use super::{FlagSpec, Setting, SettingValue, ValueSyntax, field};
use crate::measure::figures::size;

const HEADING: &str = "Shared Write";

pub(crate) const EXTENTS: FlagSpec = flag! {
    /// Extents of the receiver's ring, for all its senders together: at least 2 for each sender
    /// [default: 256, or fewer of long messages; for many senders of bench, 2 for each]
    "--extents", HEADING, ValueSyntax::Number("N")
};

const EXTENT_BYTES: FlagSpec = flag! {
    /// Bytes of an extent, a multiple of 64; 0: chosen [default: 16k, or room for four messages]
    "--extent-bytes", HEADING, ValueSyntax::Bytes
};

type SharedWriteSetting = Setting<Config>;

pub(crate) const SETTINGS: &[SharedWriteSetting] = &[
    SharedWriteSetting::told(EXTENTS, field!(extents))
        .json()
        .title(|c| format!("{} extents of {}", c.extents, size(c.extent_bytes.into()))),
    SharedWriteSetting::told(EXTENT_BYTES, field!(extent_bytes)).json(),
    SharedWriteSetting::told(BATCH, field!(batch)).json().title(|c| match c.batch {
        1 => String::new(),
        batch => format!("{batch} in a batch"),
    }),
    SharedWriteSetting::told(FlagSpec::NONE, field!(message_bytes)),
    SharedWriteSetting::own(SIGNAL_EVERY, field!(signal_every)),
    SharedWriteSetting::own(
        INLINE,
        (|_| SettingValue::Nothing, |c, value| set_inline(&mut c.inline, value)),
    ),
];
