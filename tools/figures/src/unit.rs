//! Units of results. The key of a result determines its quantity, and the quantity determines the units
//! that an axis may have: an experiment contains no conversion factor.

/// The name of a unit, and its size in the unit of the key.
type Unit = (&'static str, f64);

/// The physical quantity of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Nanoseconds.
    Time,
    /// Messages per second.
    Rate,
    /// Bytes per second.
    Bandwidth,
    Bytes,
    /// Any other: a count or a ratio, with the unit that the experiment names.
    Count,
}

impl Quantity {
    /// The quantity of a key of the JSON.
    pub(crate) fn for_key(key: &str) -> Quantity {
        let base = key.strip_suffix("_min").or(key.strip_suffix("_max")).unwrap_or(key);
        match base {
            _ if base.starts_with("latency_ns_") => Quantity::Time,
            _ if base.ends_with("messages_per_s") => Quantity::Rate,
            _ if base.ends_with("bytes_per_s") => Quantity::Bandwidth,
            _ if base.ends_with("_bytes") => Quantity::Bytes,
            _ => Quantity::Count,
        }
    }

    /// The units that its values can have; a count has any.
    pub(crate) fn units(self) -> &'static [Unit] {
        match self {
            Quantity::Time => &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6)],
            Quantity::Rate => &[("msg/s", 1.0), ("k msg/s", 1e3), ("M msg/s", 1e6)],
            // A Gbit is 10^9 bits.
            Quantity::Bandwidth => {
                &[("B/s", 1.0), ("MB/s", 1e6), ("GB/s", 1e9), ("Gbit/s", 1e9 / 8.0)]
            }
            Quantity::Bytes => &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0)],
            Quantity::Count => &[],
        }
    }
}

/// The divisor that converts a value of `key` to `unit`.
///
/// # Errors
/// The unit does not fit the key: the message lists those that do.
pub(crate) fn divisor(key: &str, unit: &str) -> Result<f64, String> {
    let units = Quantity::for_key(key).units();
    if units.is_empty() {
        return Ok(1.0);
    }
    let found = units.iter().find(|(name, _)| *name == unit);
    found.map(|(_, divisor)| *divisor).ok_or_else(|| {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        format!("the unit of {key} may be {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests;
