//! Parts of a measurement: loads, rounds, payloads, and the resulting figures.

pub(crate) mod crowd;
pub(crate) mod figures;
mod latency;
pub(crate) mod line;
mod load;
mod measured;
mod quantiles;
mod rates;
pub(crate) mod rounds;
mod threads;
pub(crate) mod verify;

pub(crate) use base::spread::Spread;
pub(crate) use crowd::Crowd;
pub(crate) use latency::{Latency, planned_ns};
pub(crate) use load::{EndOfLoad, Load, Pacer, Receivers, Shape};
pub(crate) use measured::{Described, HAS_COME, MEASURES, Machine, Measured, Whole, Work, since};
pub(crate) use quantiles::Quantiles;
pub(crate) use rates::Rates;
pub(crate) use threads::{NO_THREAD, start_all};
pub(crate) use verify::Payload;
