//! The settings of Send/Receive.

use rdma_conn::send_recv::{Config, Inline, Preset};

use super::flags::{
    BATCH, INLINE, POLL_BATCH, QUEUES, RECV_DEPTH, REPOST_BATCH, SIGNAL_EVERY, UNACKED,
};
use super::spec::flag;
use super::{FlagSpec, Setting, SettingValue, ValueSyntax, field};

pub(crate) const PRESET: FlagSpec = flag! {
    /// Send/Receive: settings to start from: sequential (1 unacknowledged message), unbatched
    /// (64) or batched (256, 8 to a doorbell), with fewer of long messages [default: batched; of
    /// pingpong: up to 8, one to a doorbell]
    "--preset", "Connection", ValueSyntax::Word("NAME", preset)
};

fn preset(name: &str) -> Result<SettingValue, String> {
    let preset: Result<Preset, _> = name.parse();
    preset.map(|preset| preset.name().into()).map_err(|e| e.to_string())
}

const PACK: FlagSpec = flag! {
    /// Pack small messages into sends of up to BYTES; 0: do not [default: 0]
    "--pack", QUEUES, ValueSyntax::Bytes
};

const NO_CREDITS: FlagSpec = flag! {
    /// No flow control: a receiver that falls behind causes RNR events
    "--no-credits", QUEUES, ValueSyntax::Off
};

type SendRecvSetting = Setting<Config>;

pub(crate) const SETTINGS: &[SendRecvSetting] = &[
    SendRecvSetting::own(PRESET, (|_| SettingValue::Nothing, |_, _| Some(()))),
    SendRecvSetting::told(UNACKED, field!(unacked))
        .json()
        .title(|c| format!("{} unacknowledged", c.unacked)),
    SendRecvSetting::told(BATCH, field!(batch))
        .json()
        .title(|c| format!("{} to a doorbell", c.batch)),
    SendRecvSetting::own(SIGNAL_EVERY, field!(signal_every)),
    SendRecvSetting::told(RECV_DEPTH, field!(recv_depth)).json(),
    SendRecvSetting::own(POLL_BATCH, field!(poll_batch)),
    SendRecvSetting::own(REPOST_BATCH, field!(repost_batch)),
    SendRecvSetting::told(PACK, (|c| c.pack_bytes.into(), set_pack))
        .json_if(|c| c.pack_bytes > 0)
        .key("pack_bytes"),
    SendRecvSetting::own(
        INLINE,
        (|_| SettingValue::Nothing, |c, value| set_inline(&mut c.inline, value)),
    ),
    SendRecvSetting::told(NO_CREDITS, field!(credits))
        .json()
        .title(|c| if c.credits { "" } else { "no credits" }.into()),
    SendRecvSetting::told(FlagSpec::NONE, field!(message_bytes)),
];

/// A buffer holds a pack.
fn set_pack(config: &mut Config, value: &SettingValue) -> Option<()> {
    config.pack_bytes = value.get()?;
    config.message_bytes = config.message_bytes.max(config.pack_bytes);
    Some(())
}

/// Sets the most bytes that may travel inside a work request; 0 is none.
pub(super) fn set_inline(inline: &mut Inline, value: &SettingValue) -> Option<()> {
    *inline = match value.get()? {
        0 => Inline::Never,
        bytes => Inline::UpTo(bytes),
    };
    Some(())
}
