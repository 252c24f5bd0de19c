//! The settings of Direct Write.

use rdma_conn::direct_write::{Config, Detection};
use serde_json::Value;

use super::send_recv::set_inline;
use super::words::{DETECTIONS, in_words};
use super::{Setting, field, read};

type DirectWriteSetting = Setting<Config>;

pub(crate) const SETTINGS: &[DirectWriteSetting] = &[
    DirectWriteSetting::told("--buffers", (|c| c.buffers.into(), set_buffers))
        .json()
        .title(|c| format!("{} buffers", c.buffers)),
    DirectWriteSetting::told("--detection", in_words!(DETECTIONS, detection)).json().title(|c| {
        match c.detection {
            Detection::Immediate => "messages found by immediates".into(),
            Detection::Polled => "messages found by polling".into(),
        }
    }),
    DirectWriteSetting::told("--batch", field!(batch)).json().title(|c| match c.batch {
        1 => String::new(),
        batch => format!("{batch} in a batch"),
    }),
    DirectWriteSetting::told("", field!(message_bytes)),
    DirectWriteSetting::own("--signal-every", field!(signal_every)),
    DirectWriteSetting::own(
        "--inline",
        (|_| Value::Null, |c, value| set_inline(&mut c.inline, value)),
    ),
];

/// The sender has slots for all of them.
fn set_buffers(config: &mut Config, value: &Value) -> Option<()> {
    config.buffers = read(value)?;
    config.max_peer_buffers = config.max_peer_buffers.max(config.buffers);
    Some(())
}
