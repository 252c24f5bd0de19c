//! `rdma-conn roced`: a process that keeps an address of the network bound.

use anyhow::Context;
use base::cli::CommonArgs;
use base::outcome::{CommandResult, usage};
use base::{remark, signals};
use host::channel::channel;
use soft_rnic::Roce;

use crate::cli::RocedArgs;

/// Is one of the processes of the address until a signal arrives. What others need of it, the
/// device's own threads do.
pub fn run(common: &CommonArgs, options: &RocedArgs) -> CommandResult {
    if let Some(flag) = common.given().first() {
        return Err(usage(format!("{flag}: roced only keeps an address bound: leave {flag} out")));
    }
    let roce: Roce = options.address.parse().map_err(|why| usage(format!("roced: {why}")))?;
    let (tell, came) = channel();
    signals::watch(move |signal| {
        // Nothing waits for a second one: the process is ending.
        let _ = tell.send(signal);
    })?;
    let name = roce.list().with_context(|| format!("cannot keep {} bound", options.address))?;
    remark!("{name} is bound");
    let signal = came.recv().ok().context("no way to hear of signals")?;
    tracing::info!("received {signal}");
    Ok(())
}
