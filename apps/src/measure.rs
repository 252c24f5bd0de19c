//! Parts of a measurement: loads, rounds, payloads, and the resulting figures.

pub(crate) mod crowd;
pub(crate) mod figures;
mod latency;
pub(crate) mod line;
mod load;
mod measured;
mod result;
pub(crate) mod rounds;
mod threads;
pub(crate) mod verify;

pub(crate) use base::spread::Spread;
pub(crate) use crowd::Crowd;
pub(crate) use latency::planned_ns;
pub(crate) use load::{EndOfLoad, LoadShape, MessageLoad, Pacer, ReceiverThreads};
pub(crate) use measured::{Described, HAS_COME, MEASURES, RoundResult, Whole, Work, per_s, since};
pub(crate) use result::ResultLine;
pub(crate) use threads::{pair, start_all};
pub(crate) use verify::Payload;
