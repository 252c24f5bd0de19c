//! `rdma-conn doctor`: tests what a device on the network needs, here and on the path to a peer.
//!
//! ```text
//!   doctor --device roce:HERE --connect THERE    doctor --device roce:THERE --listen
//!     | echoes: short, of each path MTU, many ---> |
//!     | <------ replies: source of each echo ----- |   UDP port 4791 at both ends,
//!     | join: queue pairs -----------------------> |   and nothing else
//!     |   both give the port to a device           |
//!     | <------ a datagram: its queue pair ------- |
//!     | messages of a reliable connection -------> |
//! ```

mod listen;
mod local;
mod path;
mod queue_pair;
mod report;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::Context;
use base::cli::CommonArgs;
use base::outcome::{CommandError, CommandResult, as_usage, usage};
use soft_rnic::Roce;

use crate::cli::DoctorArgs;
use report::DoctorReport;
pub use report::TestsFailed;

/// Tests the device here, and the path to a peer if there is one.
///
/// # Errors
/// [`TestsFailed`]: a test has failed.
pub fn run(common: &CommonArgs, options: &DoctorArgs) -> CommandResult {
    let is_foreign = |flag: &&&str| !["--json", "--device"].contains(*flag);
    if let Some(flag) = common.given().iter().find(is_foreign) {
        return Err(usage(format!("{flag}: doctor measures nothing: leave {flag} out")));
    }
    let Some(name) = &common.device else {
        return Err(usage(
            "doctor: name the device to be tested: --device roce:ADDRESS or --device roce:INTERFACE",
        ));
    };
    let Some(text) = name.strip_prefix("roce:") else {
        return Err(usage(format!(
            "{name}: doctor tests devices on the network, roce:ADDRESS or roce:INTERFACE: `rdma-conn devices` \
             lists them, and says what keeps others away"
        )));
    };
    let roce: Roce = text.parse().map_err(as_usage)?;
    let peer = options.connect.as_deref().map(|peer| address(peer, roce.ip)).transpose()?;
    let mut report = DoctorReport::new(common.json);
    let here = local::check(&mut report, &roce, options.listen || peer.is_some())?;
    match (here, peer) {
        (Some(here), Some(peer)) => path::check(&mut report, name, here, peer)?,
        (Some(here), None) if options.listen => listen::serve(&mut report, name, here)?,
        _ => {}
    }
    report.finish()
}

/// The address of a peer, of the same family as ours.
fn address(peer: &str, ours: IpAddr) -> Result<SocketAddr, CommandError> {
    let text = peer.strip_prefix("roce:").unwrap_or(peer);
    let found = (text, Roce::UDP_PORT).to_socket_addrs();
    let mut all = found.with_context(|| format!("{peer}: no address is known of it"))?;
    all.find(|addr| addr.is_ipv4() == ours.is_ipv4()).ok_or_else(|| {
        usage(format!(
            "{peer}: it has no address of the family of {ours}, and packets have two of one"
        ))
    })
}
