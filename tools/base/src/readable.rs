//! Figures as people read them.

/// Messages per second as people read them.
pub fn rate(per_s: f64) -> String {
    match per_s {
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n if n >= 10.0 => format!("{n:.0}"),
        n => format!("{n:.2}"),
    }
}

/// Formats a count with its noun.
pub fn counted_as(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Formats the spread of rounds: half of their range, as a part of their median.
pub fn spread(median: f64, min: f64, max: f64) -> String {
    format!("{:.0} %", 50.0 * (max - min) / median.max(f64::MIN_POSITIVE))
}

/// The size of a message or of a buffer, exactly.
pub fn size(n: u64) -> String {
    match n {
        n if n >= 1 << 30 && n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// An amount of memory.
pub fn memory(n: u64) -> String {
    match n {
        0 => "-".into(),
        n if n >= 10 << 30 => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
        n if n >= 10 << 20 => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
        n if n >= 10 << 10 => format!("{:.1} KiB", n as f64 / 1024.0),
        n => format!("{n} B"),
    }
}

/// Bytes as people read them, in powers of 1000.
pub fn bytes(n: u64) -> String {
    match n {
        n if n >= 1_000_000_000 => format!("{:.2} GB", n as f64 / 1e9),
        n if n >= 1_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        n if n >= 10_000 => format!("{:.1} kB", n as f64 / 1e3),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests;
