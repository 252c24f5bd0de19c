//! Latency of a device's network.

/// Returns the least time, in nanoseconds, of a message that crosses the network `hops` times, one
/// after the other, on a device at a distance (`soft0@5us`: a round trip of 5 µs). On others
/// nothing is planned.
pub(crate) fn planned_ns(device: &str, hops: Option<u32>) -> Option<u64> {
    let round_trip = device.strip_prefix("soft0@")?;
    let number = |unit: &str| round_trip.strip_suffix(unit)?.parse::<u64>().ok();
    let ns = number("us").map(|us| 1000 * us).or_else(|| number("ns"))?;
    Some(ns * u64::from(hops?) / 2)
}

#[cfg(test)]
mod tests;
