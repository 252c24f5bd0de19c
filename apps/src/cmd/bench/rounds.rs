//! The sizes of a measurement, and what is measured of each.

use crate::cli::{BenchArgs, CommonArgs};
use crate::measure::{LoadShape, MessageLoad};
use crate::protocol::{self, MeasuredProtocol, Purpose};

pub(super) fn sizes(options: &BenchArgs) -> Vec<u32> {
    if options.size.is_empty() { vec![16] } else { options.size.clone() }
}

pub(super) fn config<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &BenchArgs,
    size: u32,
) -> K::Settings {
    let config = protocol::config::<K>(common, &options.connection, Purpose::Throughput, size);
    K::suit_peers(config, &options.connection, LoadShape::new(options).peers())
}

/// The settings and the load of each size.
pub(super) fn cases<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &BenchArgs,
) -> Vec<(K::Settings, MessageLoad)> {
    let case = |size| (config::<K>(common, options, size), MessageLoad::new(options, size));
    sizes(options).into_iter().map(case).collect()
}
