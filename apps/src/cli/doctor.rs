//! The flags of `doctor`.

use clap::Args as ClapArgs;

use super::common::refused;

#[derive(ClapArgs, Debug, Clone)]
#[command(args = refused(&["device", "cpu", "gid_index"]))]
pub(crate) struct Doctor {
    /// Device on the network, of this machine: roce:ADDRESS or roce:INTERFACE
    #[arg(value_name = "DEVICE")]
    pub(crate) subject: String,
    /// Address or host of the peer, at which `doctor --listen` runs, or its device, roce:ADDRESS
    #[arg(value_name = "PEER", conflicts_with = "listen")]
    pub(crate) peer: Option<String>,
    /// Answer the tests of one session of the other end, and report what arrived
    #[arg(long)]
    pub(crate) listen: bool,
}
