//! The settings of Shared Write.

use rdma_conn::shared_write::Config;
use serde_json::Value;

use super::send_recv::set_inline;
use super::{Setting, field};
use crate::measure::figures::size;

type SharedWriteSetting = Setting<Config>;

pub(crate) const SETTINGS: &[SharedWriteSetting] = &[
    SharedWriteSetting::told("--extents", field!(extents))
        .json()
        .title(|c| format!("{} extents of {}", c.extents, size(c.extent_bytes.into()))),
    SharedWriteSetting::told("--extent-bytes", field!(extent_bytes)).json(),
    SharedWriteSetting::told("--batch", field!(batch)).json().title(|c| match c.batch {
        1 => String::new(),
        batch => format!("{batch} in a batch"),
    }),
    SharedWriteSetting::told("", field!(message_bytes)),
    SharedWriteSetting::own("--signal-every", field!(signal_every)),
    SharedWriteSetting::own(
        "--inline",
        (|_| Value::Null, |c, value| set_inline(&mut c.inline, value)),
    ),
];
