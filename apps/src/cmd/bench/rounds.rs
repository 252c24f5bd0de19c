//! The sizes of a measurement, and what is measured of each.

use crate::cli::{BenchArgs, CommonArgs};
use crate::measure::{Load, Shape};
use crate::protocol::{self, Kind, Purpose};

pub(super) fn sizes(options: &BenchArgs) -> Vec<u32> {
    if options.size.is_empty() { vec![16] } else { options.size.clone() }
}

pub(super) fn config<K: Kind>(common: &CommonArgs, options: &BenchArgs, size: u32) -> K::Settings {
    let config = protocol::config::<K>(common, &options.connection, Purpose::Throughput, size);
    K::suit_peers(config, &options.connection, Shape::new(options).peers())
}

/// The settings and the load of each size.
pub(super) fn cases<K: Kind>(common: &CommonArgs, options: &BenchArgs) -> Vec<(K::Settings, Load)> {
    let case = |size| (config::<K>(common, options, size), Load::new(options, size));
    sizes(options).into_iter().map(case).collect()
}
