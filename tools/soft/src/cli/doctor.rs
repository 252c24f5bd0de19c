//! The flags of `doctor`.

use base::cli::refused;
use clap::Args as ClapArgs;

/// Flags of `doctor`.
#[derive(ClapArgs, Debug, Clone)]
#[command(args = refused(&["cpu", "gid_index"]))]
pub struct DoctorArgs {
    /// Address or host of the peer, at which `doctor --listen` runs, or its device, roce:ADDRESS
    #[arg(long, value_name = "PEER", conflicts_with = "listen")]
    pub(crate) connect: Option<String>,
    /// Answer the tests of one session of the other end, and report what arrived
    #[arg(long)]
    pub(crate) listen: bool,
}
