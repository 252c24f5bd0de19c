//! Figures: experiments, their results, and pages that show them.
//!
//! 1. An [`experiment`] is a file: its axes, its cases, the points of the papers, and what is
//!    expected. Those in `apps/figures/` are part of the command ([`builtin`]).
//! 2. A run of experiments fills a [`report`], which is saved as JSON and as CSV.
//! 3. [`expect`] compares a report with what is expected.
//! 4. A [`page`] shows a report, or two beside each other, with a [`plot`] for each figure.
//!
//! **Nothing here opens a device or runs a command**: a report can be shown on another machine.

pub(crate) mod builtin;
pub(crate) mod calibration;
mod chart;
pub(crate) mod expect;
pub(crate) mod experiment;
pub(crate) mod headlines;
mod location;
pub(crate) mod model;
pub(crate) mod page;
mod plot;
pub(crate) mod report;
mod requirements;
mod scale;
mod text;
pub(crate) mod unit;

#[cfg(test)]
mod sample;
