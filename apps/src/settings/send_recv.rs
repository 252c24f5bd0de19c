//! The settings of Send/Receive.

use rdma_conn::send_recv::{Config, Inline};
use serde_json::Value;

use super::{Setting, field, read};

type SendRecvSetting = Setting<Config>;

pub(crate) const SETTINGS: &[SendRecvSetting] = &[
    SendRecvSetting::own("--preset", (|_| Value::Null, |_, _| Some(()))),
    SendRecvSetting::told("--unacked", field!(unacked))
        .json()
        .title(|c| format!("{} unacknowledged", c.unacked)),
    SendRecvSetting::told("--batch", field!(batch))
        .json()
        .title(|c| format!("{} to a doorbell", c.batch)),
    SendRecvSetting::own("--signal-every", field!(signal_every)),
    SendRecvSetting::told("--recv-depth", field!(recv_depth)).json(),
    SendRecvSetting::own("--poll-batch", field!(poll_batch)),
    SendRecvSetting::own("--repost-batch", field!(repost_batch)),
    SendRecvSetting::told("--pack", (|c| c.pack_bytes.into(), set_pack))
        .json_if(|c| c.pack_bytes > 0)
        .key("pack_bytes"),
    SendRecvSetting::own(
        "--inline",
        (|_| Value::Null, |c, value| set_inline(&mut c.inline, value)),
    ),
    SendRecvSetting::told("--no-credits", field!(credits))
        .json()
        .title(|c| if c.credits { "" } else { "no credits" }.into()),
    SendRecvSetting::told("", field!(message_bytes)),
];

/// A buffer holds a pack.
fn set_pack(config: &mut Config, value: &Value) -> Option<()> {
    config.pack_bytes = read(value)?;
    config.message_bytes = config.message_bytes.max(config.pack_bytes);
    Some(())
}

/// Sets the most bytes that may travel inside a work request; 0 is none.
pub(super) fn set_inline(inline: &mut Inline, value: &Value) -> Option<()> {
    *inline = match read(value)? {
        0 => Inline::Never,
        bytes => Inline::UpTo(bytes),
    };
    Some(())
}
