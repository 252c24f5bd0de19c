//! The settings of Direct Write.

use rdma_conn::direct_write::{Config, Detection};

use super::flags::{BATCH, INLINE, SIGNAL_EVERY};
use super::send_recv::set_inline;
use super::spec::flag;
use super::{FlagSpec, Setting, SettingValue, ValueSyntax, field};

const HEADING: &str = "Direct Write";

const BUFFERS: FlagSpec = flag! {
    /// Buffers of the receiver for each sender [default: 128, or fewer of long messages]
    "--buffers", HEADING, ValueSyntax::Number("N")
};

const DETECTION: FlagSpec = flag! {
    /// Means by which the receiver finds messages [default: polled; of pipe, and with --wait block:
    /// immediate]
    "--detection", HEADING, ValueSyntax::Words("HOW", || {
        vec![
            (IMMEDIATE, "By an immediate, which wakes it"),
            (POLLED, "By the trailer at the end of the buffer, which it polls"),
        ]
    })
};

const IMMEDIATE: &str = "immediate";
const POLLED: &str = "polled";

type DirectWriteSetting = Setting<Config>;

pub(crate) const SETTINGS: &[DirectWriteSetting] = &[
    DirectWriteSetting::told(BUFFERS, (|c| c.buffers.into(), set_buffers))
        .json()
        .title(|c| format!("{} buffers", c.buffers)),
    DirectWriteSetting::told(DETECTION, (|c| name(c.detection).into(), set_detection))
        .json()
        .title(|c| format!("messages found by {}", found_by(c.detection))),
    DirectWriteSetting::told(BATCH, field!(batch)).json().title(|c| match c.batch {
        1 => String::new(),
        batch => format!("{batch} in a batch"),
    }),
    DirectWriteSetting::told(FlagSpec::NONE, field!(message_bytes)),
    DirectWriteSetting::own(SIGNAL_EVERY, field!(signal_every)),
    DirectWriteSetting::own(
        INLINE,
        (|_| SettingValue::Nothing, |c, value| set_inline(&mut c.inline, value)),
    ),
];

/// The sender has slots for all of them.
fn set_buffers(config: &mut Config, value: &SettingValue) -> Option<()> {
    config.buffers = value.get()?;
    config.max_peer_buffers = config.max_peer_buffers.max(config.buffers);
    Some(())
}

fn name(detection: Detection) -> &'static str {
    match detection {
        Detection::Immediate => IMMEDIATE,
        Detection::Polled => POLLED,
    }
}

fn found_by(detection: Detection) -> &'static str {
    match detection {
        Detection::Immediate => "immediates",
        Detection::Polled => "polling",
    }
}

fn set_detection(config: &mut Config, value: &SettingValue) -> Option<()> {
    config.detection = match value.word()? {
        IMMEDIATE => Detection::Immediate,
        POLLED => Detection::Polled,
        _ => return None,
    };
    Some(())
}
