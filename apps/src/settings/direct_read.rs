//! The settings of Direct Read.

use rdma_conn::direct_read::{self, AckMode, SignalAt};

use super::flags::UNACKED;
use super::spec::flag;
use super::{FlagSpec, Setting, SettingValue, ValueSyntax, field};

/// The policies, and the length of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectReadSettings {
    pub(crate) policies: direct_read::Config,
    pub(crate) size: u32,
}

const HEADING: &str = "Direct Read";

const ACK: FlagSpec = flag! {
    /// Means by which the sender learns that a message was read [default: write]
    "--ack",
    HEADING,
    ValueSyntax::Words("HOW", || AckMode::ALL.map(|ack| (ack.name(), ack_help(ack))).into())
};

fn ack_help(ack: AckMode) -> &'static str {
    match ack {
        AckMode::FencedWrite => "A WRITE behind each READ, held back by a fence",
        AckMode::Write => "A WRITE for each READ, when that has completed",
        AckMode::Send => "A SEND when READs have completed",
        AckMode::Cumulative => "A WRITE of how many were read, for many messages",
        AckMode::Pull => "The sender READs how many were read, when it needs buffers",
    }
}

const SIGNAL_AT: FlagSpec = flag! {
    /// Place of the acknowledgement flag of a message [default: separate]
    "--signal-at", HEADING, ValueSyntax::Words("WHERE", || {
        vec![(TAIL, "Behind the message's buffer"), (SEPARATE, "In memory of its own")]
    })
};

const TAIL: &str = "tail";
const SEPARATE: &str = "separate";

type DirectReadSetting = Setting<DirectReadSettings>;

pub(crate) const SETTINGS: &[DirectReadSetting] = &[
    DirectReadSetting::told(UNACKED, field!(policies.window))
        .json()
        .title(|c| format!("{} unacknowledged", c.policies.window)),
    DirectReadSetting::derived("batch", |_| 1_u32.into()),
    DirectReadSetting::told(ACK, (|c| c.policies.ack.name().into(), set_ack))
        .json()
        .title(|c| format!("acknowledged by {}", c.policies.ack.name())),
    DirectReadSetting::derived("fence", |c| (c.policies.ack == AckMode::FencedWrite).into()),
    DirectReadSetting::told(SIGNAL_AT, (|c| place_name(c.policies.signal_at).into(), set_place))
        .json_if(|c| c.policies.ack.signals()),
    DirectReadSetting::told(FlagSpec::NONE, field!(size)),
];

fn set_ack(config: &mut DirectReadSettings, value: &SettingValue) -> Option<()> {
    let name = value.word()?;
    config.policies.ack = AckMode::ALL.into_iter().find(|ack| ack.name() == name)?;
    Some(())
}

fn place_name(at: SignalAt) -> &'static str {
    match at {
        SignalAt::Separate => SEPARATE,
        SignalAt::Tail => TAIL,
    }
}

fn set_place(config: &mut DirectReadSettings, value: &SettingValue) -> Option<()> {
    config.policies.signal_at = match value.word()? {
        TAIL => SignalAt::Tail,
        SEPARATE => SignalAt::Separate,
        _ => return None,
    };
    Some(())
}
