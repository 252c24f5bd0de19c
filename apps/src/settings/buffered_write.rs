//! The settings of Buffered Write.

use rdma_conn::buffered_write::{Config, Tail};
use serde_json::Value;

use super::send_recv::set_inline;
use super::words::{TAILS, in_words};
use super::{Setting, field, read};
use crate::measure::figures::size;

type BufferedWriteSetting = Setting<Config>;

pub(crate) const SETTINGS: &[BufferedWriteSetting] = &[
    BufferedWriteSetting::told("--ring-bytes", (|c| c.ring.ring_bytes.into(), set_ring))
        .json()
        .title(|c| format!("a ring of {}", size(c.ring.ring_bytes))),
    BufferedWriteSetting::told("--head-threshold", field!(head_threshold))
        .json_if(|c| c.head_threshold > 0),
    BufferedWriteSetting::told("--tail", in_words!(TAILS, tail)).json().title(|c| match c.tail {
        Tail::Immediate { .. } => "tails as immediates".into(),
        Tail::Written => "tails written".into(),
    }),
    BufferedWriteSetting::told("--recv-depth", (|c| window(c.tail), set_window)).json(),
    BufferedWriteSetting::told("--batch-bytes", field!(batch_bytes)).json().title(|c| {
        match c.batch_bytes {
            0 => String::new(),
            bytes => format!("{} gathered", size(bytes.into())),
        }
    }),
    BufferedWriteSetting::own("--signal-every", field!(signal_every)),
    BufferedWriteSetting::own(
        "--inline",
        (|_| Value::Null, |c, value| set_inline(&mut c.inline, value)),
    ),
    BufferedWriteSetting::own("--poll-batch", field!(poll_batch)),
];

/// The sender has a ring like the receiver's.
fn set_ring(config: &mut Config, value: &Value) -> Option<()> {
    config.ring.ring_bytes = read(value)?;
    config.max_peer_ring_bytes = config.max_peer_ring_bytes.max(config.ring.ring_bytes);
    Some(())
}

fn window(tail: Tail) -> Value {
    match tail {
        Tail::Immediate { window } => window.into(),
        Tail::Written => Value::Null,
    }
}

/// Without immediates there are no receives for them.
fn set_window(config: &mut Config, value: &Value) -> Option<()> {
    match &mut config.tail {
        Tail::Immediate { window } => *window = read(value)?,
        Tail::Written => {}
    }
    Some(())
}
