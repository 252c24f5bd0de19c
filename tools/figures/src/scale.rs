//! Axis scales: positions of values, and ticks.

use base::readable::size;

use super::experiment::Scale;

/// The range of an axis. `low < high`, both finite, and above 0 where the scale is
/// logarithmic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AxisRange {
    scale: Scale,
    low: f64,
    high: f64,
}

/// The steps that a decade is divided into.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// The most ticks of one axis, whatever the span.
const MOST_TICKS: usize = 64;

impl AxisRange {
    /// The exact range of the values, for an x axis.
    pub(super) fn covering(scale: Scale, values: impl Iterator<Item = f64>) -> AxisRange {
        match extremes(scale, values) {
            None => AxisRange { scale, low: 1.0, high: 2.0 },
            Some((low, high)) if low < high => AxisRange { scale, low, high },
            Some((value, _)) if scale == Scale::Linear => {
                let around = value.abs().max(1.0);
                AxisRange { scale, low: value - around, high: value + around }
            }
            Some((value, _)) => AxisRange { scale, low: value / 2.0, high: value * 2.0 },
        }
    }

    /// The range of the values, extended to round numbers, for a y axis. A linear range includes 0.
    pub(super) fn rounded(scale: Scale, values: impl Iterator<Item = f64>) -> AxisRange {
        let Some((low, high)) = extremes(scale, values) else {
            return AxisRange {
                scale,
                low: if scale == Scale::Linear { 0.0 } else { 1.0 },
                high: 10.0,
            };
        };
        match scale {
            Scale::Linear => {
                let (low, high) = (low.min(0.0), high.max(0.0));
                let step = nice((high - low).max(f64::MIN_POSITIVE) / 5.0);
                let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
                let high = if high > low { high } else { low + 1.0 };
                AxisRange { scale, low, high }
            }
            Scale::Log2 => {
                let (low, high) = (low.log2().floor().exp2(), high.log2().ceil().exp2());
                AxisRange { scale, low, high: if high > low { high } else { low * 2.0 } }
            }
            Scale::Log10 => {
                let (low, high) = (down(low), up(high));
                AxisRange { scale, low, high: if high > low { high } else { low * 2.0 } }
            }
        }
    }

    /// Position on the axis from 0 to 1; `None` for values that a logarithmic scale cannot show.
    pub(super) fn position(&self, value: f64) -> Option<f64> {
        if !has_place(self.scale, value) {
            return None;
        }
        let at = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            _ => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        at.is_finite().then_some(at.clamp(0.0, 1.0))
    }

    /// Ticks at round values: the densest for `thinning` 0, fewer for larger ones.
    pub(super) fn ticks(&self, thinning: usize) -> Vec<f64> {
        let ticks = match self.scale {
            Scale::Linear => self.linear(thinning),
            Scale::Log2 => self.powers(2.0, thinning + 1),
            Scale::Log10 => self.decades(thinning),
        };
        // Rounding errors must not drop a tick at the end.
        let slack = 1e-9;
        let inside = |tick: &f64| {
            *tick >= self.low - slack * self.low.abs()
                && *tick <= self.high + slack * self.high.abs()
        };
        ticks.into_iter().filter(inside).take(MOST_TICKS).collect()
    }

    fn linear(&self, thinning: usize) -> Vec<f64> {
        let mut step = nice((self.high - self.low) / 10.0);
        for _ in 0..thinning {
            step = nice(step * 1.5);
        }
        let first = (self.low / step).ceil();
        // Rounding errors must not turn 0 into -0 or 1e-17.
        (0..=MOST_TICKS).map(|n| round_to((first + n as f64) * step, step)).collect()
    }

    /// The powers of `base`, each `every`-th from the first that is shown.
    fn powers(&self, base: f64, every: usize) -> Vec<f64> {
        let first = (self.low.ln() / base.ln() - 1e-9).ceil();
        (0..=MOST_TICKS).map(|n| base.powf(first + (n * every) as f64)).collect()
    }

    fn decades(&self, thinning: usize) -> Vec<f64> {
        if thinning > 0 && self.high / self.low >= 100.0 {
            return self.powers(10.0, thinning);
        }
        let parts: &[f64] = match thinning {
            0 if self.high / self.low <= 10.0 => &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            0 | 1 => &[1.0, 2.0, 5.0],
            2 => &[1.0, 5.0],
            _ => &[1.0],
        };
        let first = self.low.log10().floor() as i32;
        let decades = (0..MOST_TICKS as i32).map(|n| 10_f64.powi(first.saturating_add(n)));
        let all = decades.flat_map(|decade| parts.iter().map(move |part| part * decade));
        let below = all.skip_while(|tick| *tick < self.low * (1.0 - 1e-9));
        below.take(MOST_TICKS).collect()
    }
}

fn has_place(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

/// Minimum and maximum of the values that the scale can show.
fn extremes(scale: Scale, values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let shown = values.filter(|value| has_place(scale, *value));
    shown.fold(None, |known, value| match known {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// The next of 1, 2, 5, 10 and so on that is not below `step`.
fn nice(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let part = STEPS.iter().find(|part| *part * decade >= step * (1.0 - 1e-9));
    part.map_or(step, |part| part * decade)
}

/// The last of 1, 2, 5, 10 and so on that is not above `value`.
fn down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let part = STEPS.iter().rev().find(|part| *part * decade <= value * (1.0 + 1e-9));
    part.map_or(value, |part| part * decade)
}

fn up(value: f64) -> f64 {
    nice(value)
}

fn round_to(value: f64, step: f64) -> f64 {
    let rounded = (value / step).round() * step;
    if rounded.abs() < step / 2.0 { 0.0 } else { rounded }
}

/// Formats a number with three significant digits, without trailing zeros.
pub(super) fn digits(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return if value.is_finite() { "0".into() } else { "-".into() };
    }
    if !(1e-4..1e6).contains(&size) {
        let text = format!("{value:.2e}");
        let (figure, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", trimmed(figure));
    }
    let places = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.places$}");
    trimmed(&text).to_owned()
}

/// Removes trailing zeros after the point.
fn trimmed(figure: &str) -> &str {
    match figure.contains('.') {
        true => figure.trim_end_matches('0').trim_end_matches('.'),
        false => figure,
    }
}

/// Formats a value of x: bytes with a binary unit.
pub(super) fn value_of_x(x: u64, unit: &str) -> String {
    if unit == "B" { size(x) } else { x.to_string() }
}

#[cfg(test)]
mod tests;
