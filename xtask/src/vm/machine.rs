//! Parameters of the guest, as the command line gives them.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::cache::GuestCache;
use super::guest::{Guest, GuestOutcome};

/// Parameters of the guest.
#[derive(Args)]
pub(super) struct GuestMachine {
    /// Seconds that the command may take, once the guest is up
    #[arg(long, default_value_t = 2700)]
    pub(super) limit: u64,
    /// Memory of the guest, in MiB
    #[arg(long, default_value_t = 4096)]
    pub(super) memory: u32,
    /// Show the guest's console while it boots
    #[arg(long)]
    pub(super) verbose: bool,
}

impl GuestMachine {
    /// Runs a command for bash in the guest, with these files in the shared folder.
    pub(super) fn run(&self, command: String, files: &[(&str, Vec<u8>)]) -> Result<ExitCode> {
        let guest = Guest {
            command,
            limit: Duration::from_secs(self.limit),
            memory_mib: self.memory,
            verbose: self.verbose,
        };
        let GuestOutcome { status } = guest.run(&GuestCache::filled()?, files)?;
        Ok(ExitCode::from(status))
    }
}
