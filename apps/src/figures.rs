//! Figures: experiments, as files have them.
#![allow(dead_code, reason = "the command that shows them follows")]

pub(crate) mod builtin;
mod chart;
pub(crate) mod expect;
pub(crate) mod experiment;
mod location;
pub(crate) mod page;
mod plot;
pub(crate) mod report;
mod scale;
mod text;
pub(crate) mod unit;

#[cfg(test)]
mod sample;
