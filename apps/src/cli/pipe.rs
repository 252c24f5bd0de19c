//! The flags of `pipe`.

use base::cli::values;
use clap::Args as ClapArgs;

use super::{ConnectionArgs, EndsArgs, ProtocolKind};

#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct PipeArgs {
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Bytes of a piece of the stream, at most (4096, 4k, 1M, as all BYTES)
    #[arg(long, value_name = "BYTES", help_heading = "The stream", default_value = "64k", value_parser = values::piece)]
    pub(crate) size: u32,
}

impl PipeArgs {
    /// The connection that was asked for, or Buffered Read.
    pub(crate) fn protocol(&self) -> ProtocolKind {
        self.connection.protocol.unwrap_or(ProtocolKind::BufferedRead)
    }
}
