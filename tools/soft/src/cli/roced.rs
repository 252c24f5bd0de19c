//! The flags of `roced`.

use base::cli::refused;
use clap::Args as ClapArgs;

/// Flags of `roced`.
#[derive(ClapArgs, Debug, Clone)]
#[command(args = refused(&["device", "json", "cpu", "gid_index"]))]
pub struct RocedArgs {
    /// Address of this machine that programs name as --device roce:ADDRESS
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
}
