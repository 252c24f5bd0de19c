//! The figures of the papers: experiments, their results, and pages that show them.
//!
//! 1. An experiment is a file (`experiment`): its axes, its cases, the points of the papers, and what
//!    is expected. Those in `experiments/` are part of the command (`builtin`).
//! 2. A run of experiments, each point a process of the command, fills a report (`report`), which is
//!    saved as JSON and as CSV.
//! 3. `expect` compares a report with what is expected, `model` has what LogGP predicts, with the
//!    parameters that [`calibrate`] measures.
//! 4. A page (`page`) shows a report, or two beside each other, with a plot for each figure.
//!
//! **Contract: only `command` and [`calibrate`] open a device or run anything**: a report can be shown
//! on another machine.
#![forbid(unsafe_code)]
// It panics where standard error is closed: `remark!` does not.
#![deny(clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod builtin;
pub mod calibrate;
mod calibration;
mod chart;
mod cli;
mod command;
mod expect;
mod experiment;
mod headlines;
mod location;
mod model;
mod page;
mod plot;
mod report;
mod requirements;
mod scale;
mod text;
mod unit;

#[cfg(test)]
mod sample;

pub use cli::FiguresArgs;
pub use command::{Parses, run};
