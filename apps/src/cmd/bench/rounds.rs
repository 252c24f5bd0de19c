//! The sizes and the rounds of a measurement, wherever its ends are.

use anyhow::Result;
use base::outcome::Failure;

use crate::cli::{Bench, Common};
use crate::measure::{Load, Measured, Shape, rounds};
use crate::protocol::{self, Kind, Purpose};

/// Measures a load in as many rounds as were asked for.
pub(super) fn in_rounds(
    options: &Bench,
    load: &Load,
    mut one: impl FnMut(&Load) -> Result<Measured>,
) -> SoFar {
    let rounds = load.end.rounds(options.rounds.asked());
    let (done, ended) = rounds::each(rounds, |round| one(&load.of_round(round, rounds)));
    let counts = rounds::count(&done, ended.as_ref());
    (counts.then(|| Measured::of_rounds(&done)).and_then(Result::ok), ended)
}

/// Result of the rounds that were measured, if any, and the failure that ended them early, if one
/// did.
pub(super) type SoFar = (Option<Measured>, Option<Failure>);

pub(super) fn sizes(options: &Bench) -> Vec<u32> {
    if options.size.is_empty() { vec![16] } else { options.size.clone() }
}

pub(super) fn config<K: Kind>(common: &Common, options: &Bench, size: u32) -> K::Settings {
    let config = protocol::config::<K>(common, &options.connection, Purpose::Throughput, size);
    K::suit_peers(config, &options.connection, Shape::new(options).peers())
}
