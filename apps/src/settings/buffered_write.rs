//! The settings of Buffered Write.

use rdma_conn::buffered_write::{Config, Tail};

use super::flags::{
    HEAD_THRESHOLD, INLINE, POLL_BATCH, RECV_DEPTH, RING_BYTES, RINGS, SIGNAL_EVERY,
};
use super::send_recv::set_inline;
use super::spec::flag;
use super::{FlagSpec, Setting, SettingValue, ValueSyntax, field};
use crate::measure::figures::size;

const TAIL: FlagSpec = flag! {
    /// Buffered Write: how the sender tells how far it has written: with the data, as an
    /// immediate, which wakes a receiver; or behind them, to be polled, which is faster [default:
    /// immediate; of pingpong, and of messages from 4 KiB on: written, unless there is --wait
    /// block]
    "--tail", RINGS, ValueSyntax::Words("HOW", || {
        vec![(IMMEDIATE, "As the immediate of the last WRITE"), (WRITTEN, "By a WRITE of its own")]
    })
};

const IMMEDIATE: &str = "immediate";
const WRITTEN: &str = "written";

const BATCH_BYTES: FlagSpec = flag! {
    /// Buffered Write: gathered bytes that are worth a transfer; 0: each message has one
    /// [default: chosen]
    "--batch-bytes", RINGS, ValueSyntax::Bytes
};

type BufferedWriteSetting = Setting<Config>;

pub(crate) const SETTINGS: &[BufferedWriteSetting] = &[
    BufferedWriteSetting::told(RING_BYTES, (|c| c.ring.ring_bytes.into(), set_ring))
        .json()
        .title(|c| format!("a ring of {}", size(c.ring.ring_bytes))),
    BufferedWriteSetting::told(HEAD_THRESHOLD, field!(head_threshold))
        .json_if(|c| c.head_threshold > 0),
    BufferedWriteSetting::told(TAIL, (|c| tail_name(c.tail).into(), set_tail)).json().title(|c| {
        match c.tail {
            Tail::Immediate { .. } => "tails as immediates".into(),
            Tail::Written => "tails written".into(),
        }
    }),
    BufferedWriteSetting::told(RECV_DEPTH, (|c| window(c.tail), set_window)).json(),
    BufferedWriteSetting::told(BATCH_BYTES, field!(batch_bytes)).json().title(|c| {
        match c.batch_bytes {
            0 => String::new(),
            bytes => format!("{} gathered", size(bytes.into())),
        }
    }),
    BufferedWriteSetting::own(SIGNAL_EVERY, field!(signal_every)),
    BufferedWriteSetting::own(
        INLINE,
        (|_| SettingValue::Nothing, |c, value| set_inline(&mut c.inline, value)),
    ),
    BufferedWriteSetting::own(POLL_BATCH, field!(poll_batch)),
];

/// The sender has a ring like the receiver's.
fn set_ring(config: &mut Config, value: &SettingValue) -> Option<()> {
    config.ring.ring_bytes = value.get()?;
    config.max_peer_ring_bytes = config.max_peer_ring_bytes.max(config.ring.ring_bytes);
    Some(())
}

fn tail_name(tail: Tail) -> &'static str {
    match tail {
        Tail::Immediate { .. } => IMMEDIATE,
        Tail::Written => WRITTEN,
    }
}

/// Receives for immediates, where no other number was given.
const WINDOW: u32 = 512;

fn set_tail(config: &mut Config, value: &SettingValue) -> Option<()> {
    config.tail = match (value.word()?, config.tail) {
        (IMMEDIATE, Tail::Written) => Tail::Immediate { window: WINDOW },
        (IMMEDIATE, immediate) => immediate,
        (WRITTEN, _) => Tail::Written,
        _ => return None,
    };
    Some(())
}

fn window(tail: Tail) -> SettingValue {
    match tail {
        Tail::Immediate { window } => window.into(),
        Tail::Written => SettingValue::Nothing,
    }
}

/// Without immediates there are no receives for them.
fn set_window(config: &mut Config, value: &SettingValue) -> Option<()> {
    match &mut config.tail {
        Tail::Immediate { window } => *window = value.get()?,
        Tail::Written => {}
    }
    Some(())
}
