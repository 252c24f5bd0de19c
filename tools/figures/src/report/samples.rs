//! The samples of a point.

use std::ops::Deref;

use base::spread::Spread;
use serde::{Deserialize, Serialize};

/// One value for each round, in order. The JSON also contains median, minimum and maximum, which are
/// computed when it is written.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(from = "Saved", into = "Saved")]
pub(crate) struct RoundSamples(Vec<f64>);

#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(skip_deserializing)]
    median: f64,
    #[serde(skip_deserializing)]
    min: f64,
    #[serde(skip_deserializing)]
    max: f64,
    samples: Vec<f64>,
}

impl Deref for RoundSamples {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.0
    }
}

impl From<Saved> for RoundSamples {
    fn from(saved: Saved) -> RoundSamples {
        RoundSamples(saved.samples)
    }
}

impl From<RoundSamples> for Saved {
    fn from(samples: RoundSamples) -> Saved {
        let Spread { median, min, max } = samples.spread().unwrap_or(Spread::of([]));
        Saved { median, min, max, samples: samples.0 }
    }
}

impl FromIterator<f64> for RoundSamples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> RoundSamples {
        RoundSamples(values.into_iter().collect())
    }
}

impl RoundSamples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Median, minimum and maximum; `None` without a sample.
    pub(crate) fn spread(&self) -> Option<Spread> {
        (!self.0.is_empty()).then(|| Spread::of(self.0.iter().copied()))
    }
}
