//! `rdma-conn trace`: what a traced program waits for.

mod files;
mod json;
mod text;
mod why;

use base::cli::CommonArgs;
use base::outcome::{CommandResult, usage};
use base::say;

use crate::cli::TraceArgs;

/// Requests of a queue that are printed unless all are asked for.
const SHOWN: usize = 8;

/// Prints what each traced process has posted and never seen complete, and why.
pub fn run(common: &CommonArgs, options: &TraceArgs) -> CommandResult {
    if let Some(flag) = common.given().iter().find(|flag| **flag != "--json") {
        return Err(usage(format!("{flag}: trace only reads files: leave {flag} out")));
    }
    let found = files::read(&options.files)?;
    let shown = if options.all { usize::MAX } else { SHOWN };
    let known = why::KnownTraces::index(&found);
    for i in 0..found.len() {
        let report = why::report(&known, i, options.events as usize);
        if common.json {
            say!("{}", json::line(&report));
            continue;
        }
        if i > 0 {
            say!("");
        }
        text::print(&report, shown);
    }
    Ok(())
}
