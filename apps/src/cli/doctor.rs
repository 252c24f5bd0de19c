//! The flags of `doctor`.

use clap::Args as ClapArgs;

use super::common::refused;

#[derive(ClapArgs, Debug, Clone)]
#[command(args = refused(&["device", "cpu", "gid_index"]))]
pub(crate) struct Doctor {
    /// A device on the network: roce:ADDRESS or roce:INTERFACE, of this machine
    #[arg(value_name = "DEVICE")]
    pub(crate) subject: String,
    /// The address of another machine's device, at which `doctor --listen` runs; or its name
    #[arg(value_name = "PEER", conflicts_with = "listen")]
    pub(crate) peer: Option<String>,
    /// Answer the other end's tests, of one session, and report what has come
    #[arg(long)]
    pub(crate) listen: bool,
}
