//! A figure that was measured several times.

/// A figure of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The one in the middle, or halfway between the two that are.
    pub median: f64,
    /// The least one: `min <= median`.
    pub min: f64,
    /// The greatest one: `median <= max`.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of the figures of the rounds.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Spread {
        let mut all: Vec<f64> = figures.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (all.first(), all.last()) else {
            return Spread { median: 0.0, min: 0.0, max: 0.0 };
        };
        let middle = all.len() / 2;
        let median = match all.len() % 2 {
            0 => f64::midpoint(all[middle - 1], all[middle]),
            _ => all[middle],
        };
        Spread { median, min: *min, max: *max }
    }

    /// Returns the median, the least and the greatest of whole numbers; the median is rounded.
    pub fn of_whole(figures: impl IntoIterator<Item = u64>) -> (u64, u64, u64) {
        let Spread { median, min, max } = Spread::of(figures.into_iter().map(|n| n as f64));
        (median.round() as u64, min as u64, max as u64)
    }
}

#[cfg(test)]
mod tests;
