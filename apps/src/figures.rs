//! Figures: experiments, as files have them.
#![allow(dead_code, reason = "the command that shows them follows")]

pub(crate) mod builtin;
pub(crate) mod experiment;
mod location;
mod text;
pub(crate) mod unit;
