//! The flags of `copy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use base::cli::{WaitFlag, values};
use clap::Args as ClapArgs;

/// Flags of `copy`. There are two ways to call it: as a receiver, and as the sender.
#[derive(ClapArgs, Debug, Clone)]
pub struct CopyArgs {
    /// Receive what is sent to an address or a host's name; port 18515 by default
    #[arg(long, help_heading = "Receiving", value_name = "ADDRESS[:PORT]", requires = "into", conflicts_with_all = ["to", "paths"], value_parser = values::socket_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The directory that everything received goes into; made if there is none
    #[arg(long, value_name = "DIR", requires = "listen", help_heading = "Receiving")]
    pub(crate) into: Option<PathBuf>,
    /// Replace files and symbolic links that exist and differ
    #[arg(long, requires = "listen", help_heading = "Receiving")]
    pub(crate) force: bool,
    /// Read into buffers and write them out, also where pieces could land in the files themselves
    #[arg(long, requires = "listen", help_heading = "Receiving")]
    pub(crate) buffers: bool,
    /// Read straight into the files where those can be registered, also with the software
    /// device, to which buffers are faster [default with a card]
    #[arg(long, requires = "listen", conflicts_with = "buffers", help_heading = "Receiving")]
    pub(crate) mapped: bool,
    /// Say that a copy is done before its bytes are on the disk: a power failure may lose some
    #[arg(long, requires = "listen", help_heading = "Receiving")]
    pub(crate) no_sync: bool,
    /// Receive one copy, and exit with its status
    #[arg(long, requires = "listen", help_heading = "Receiving")]
    pub(crate) once: bool,
    /// Send to the receiver that listens there; give it again for each receiver
    #[arg(long, help_heading = "Sending", value_name = "ADDRESS[:PORT]", value_parser = values::socket_address)]
    pub(crate) to: Vec<SocketAddr>,
    /// Files, directories and links to send; links are sent as such
    #[arg(help_heading = "Sending", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Waiting strategy
    #[arg(long, value_enum, default_value_t)]
    pub(crate) wait: WaitFlag,
}
