//! The flags that set up a connection.

use base::outcome::{CommandResult, usage};
use clap::Args as ClapArgs;

use super::WaitFlag;
use super::protocol::{ProtocolKind, ProtocolParser};
use crate::settings::GivenSettings;

/// Options of a connection, for every command that makes one.
#[derive(ClapArgs, Debug, Clone, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Connection to use [default: send-recv; of pipe: buffered-read]
    #[arg(long, value_name = "NAME", value_parser = ProtocolParser)]
    pub(crate) protocol: Option<ProtocolKind>,
    /// Waiting strategy
    #[arg(long, value_enum, default_value_t)]
    pub(crate) wait: WaitFlag,
    #[command(flatten)]
    pub(crate) given: GivenSettings,
}

impl ConnectionArgs {
    /// The connection that was asked for, or Send/Receive.
    pub(crate) fn protocol(&self) -> ProtocolKind {
        self.protocol.unwrap_or(ProtocolKind::SendRecv)
    }

    /// Refuses flags that mean nothing to a verb without a connection, which has `known`.
    pub(crate) fn check_raw(&self, known: &[&str]) -> CommandResult {
        match self.given.names().into_iter().find(|name| !known.contains(&&**name)) {
            Some(flag) => Err(usage(format!("{flag} means nothing to --op: leave it out"))),
            None => Ok(()),
        }
    }
}
