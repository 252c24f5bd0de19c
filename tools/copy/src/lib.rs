//! `rdma-conn copy`: replicates files and directories to one or many receivers.
//!
//! Each receiver reads the pieces of a file out of memory of the sender (Direct Read), to a
//! file of another name: straight into it, where it can be mapped and registered, or else
//! into registered buffers that are written out behind it. When all of it is there and its
//! checksum is right, the file gets its own.
//!
//! **Contract: nothing here accesses a mapping.** What has landed is checked by reading the file. A
//! file that another process truncates meanwhile is an error, and not a SIGBUS.
#![forbid(unsafe_code)]
// It panics where standard error is closed: `remark!` does not.
#![deny(clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod cli;
mod ending;
mod listen;
mod pace;
mod partial_file;
mod piece_cache;
mod place;
mod receive;
mod report;
mod send;
mod send_all;
mod source;
mod tally;
mod wire;

use base::cli::{CommonArgs, EndsArgs};
use base::outcome::CommandResult;
use base::session;
use rdma_conn::direct_read::Config;
use rdma_conn::send_recv::Transport;

pub use cli::CopyArgs;
pub use wire::is_copy;

/// Pieces on offer to each receiver.
const WINDOW: u32 = 16;

/// Receives copies, or sends one to all receivers.
pub fn run(common: &CommonArgs, options: &CopyArgs) -> CommandResult {
    let ends = EndsArgs { listen: options.listen, connect: options.to.first().copied() };
    let device = session::open_device(common, &ends)?;
    let transport = Transport { gid_index: common.gid_index, ..Transport::default() };
    let wait = options.wait.strategy();
    let settings = rdma_conn::Common { transport, wait, ..Default::default() };
    let config = Config { window: WINDOW, common: settings, ..Config::default() };
    let config = receive::config(config);
    match options.listen {
        Some(address) => listen::listen(common, options, &device, &config, address),
        None => send_all::send(common, options, &device, &config),
    }
}
