//! The settings of Direct Read.

use rdma_conn::direct_read::{self, AckMode};

use super::words::{ACKS, SIGNALS, in_words};
use super::{Setting, field};

/// The policies, and the length of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectReadSettings {
    pub(crate) policies: direct_read::Config,
    pub(crate) size: u32,
}

type DirectReadSetting = Setting<DirectReadSettings>;

pub(crate) const SETTINGS: &[DirectReadSetting] = &[
    DirectReadSetting::told("--unacked", field!(policies.window))
        .json()
        .title(|c| format!("{} unacknowledged", c.policies.window)),
    DirectReadSetting::derived("batch", |_| 1_u32.into()),
    DirectReadSetting::told("--ack", in_words!(ACKS, policies.ack))
        .json()
        .title(|c| format!("acknowledged by {}", c.policies.ack.name())),
    DirectReadSetting::derived("fence", |c| (c.policies.ack == AckMode::FencedWrite).into()),
    DirectReadSetting::told("--signal-at", in_words!(SIGNALS, policies.signal_at))
        .json_if(|c| c.policies.ack.signals()),
    DirectReadSetting::told("", field!(size)),
];
