//! The settings of Send/Receive.

use rdma_conn::send_recv::{Config, Inline, Preset};

use super::flags::{
    BATCH, INLINE, POLL_BATCH, QUEUES, RECV_DEPTH, REPOST_BATCH, SIGNAL_EVERY, UNACKED,
};
use super::spec::flag;
use super::{FlagSpec, Setting, Takes, Value, field};

pub(crate) const PRESET: FlagSpec = flag! {
    /// Send/Receive: settings to start from: sequential (1 unacknowledged message), unbatched
    /// (64) or batched (256, 8 to a doorbell), with fewer of long messages [default: batched; of
    /// pingpong: up to 8, one to a doorbell]
    "--preset", "Connection", Takes::Word("NAME", preset)
};

fn preset(name: &str) -> Result<Value, String> {
    let preset: Result<Preset, _> = name.parse();
    preset.map(|preset| preset.name().into()).map_err(|e| e.to_string())
}

const PACK: FlagSpec = flag! {
    /// Pack small messages into sends of up to BYTES; 0: do not [default: 0]
    "--pack", QUEUES, Takes::Bytes
};

const NO_CREDITS: FlagSpec = flag! {
    /// No flow control: a receiver that falls behind causes RNR events
    "--no-credits", QUEUES, Takes::Off
};

type Of = Setting<Config>;

pub(crate) const SETTINGS: &[Of] = &[
    Of::own(PRESET, (|_| Value::Nothing, |_, _| Some(()))),
    Of::told(UNACKED, field!(unacked)).json().title(|c| format!("{} unacknowledged", c.unacked)),
    Of::told(BATCH, field!(batch)).json().title(|c| format!("{} to a doorbell", c.batch)),
    Of::own(SIGNAL_EVERY, field!(signal_every)),
    Of::told(RECV_DEPTH, field!(recv_depth)).json(),
    Of::own(POLL_BATCH, field!(poll_batch)),
    Of::own(REPOST_BATCH, field!(repost_batch)),
    Of::told(PACK, (|c| c.pack_bytes.into(), set_pack))
        .json_if(|c| c.pack_bytes > 0)
        .key("pack_bytes"),
    Of::own(INLINE, (|_| Value::Nothing, |c, value| set_inline(&mut c.inline, value))),
    Of::told(NO_CREDITS, field!(credits))
        .json()
        .title(|c| if c.credits { "" } else { "no credits" }.into()),
    Of::told(FlagSpec::NONE, field!(message_bytes)),
];

/// A buffer holds a pack.
fn set_pack(config: &mut Config, value: &Value) -> Option<()> {
    config.pack_bytes = value.get()?;
    config.message_bytes = config.message_bytes.max(config.pack_bytes);
    Some(())
}

/// Sets the most bytes that may travel inside a work request; 0 is none.
pub(super) fn set_inline(inline: &mut Inline, value: &Value) -> Option<()> {
    *inline = match value.get()? {
        0 => Inline::Never,
        bytes => Inline::UpTo(bytes),
    };
    Some(())
}
