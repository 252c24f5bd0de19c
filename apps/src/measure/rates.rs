//! Messages a second, as the JSON and the tables have them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Spread;
use super::figures::{bytes, memory, rate, size, spread};

/// Messages per second: the median of the rounds, and the least and the greatest of them.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    /// Messages of all rounds together.
    pub(crate) messages: u64,
    pub(crate) rounds: u32,
    pub(crate) messages_per_s: f64,
    pub(crate) messages_per_s_min: f64,
    pub(crate) messages_per_s_max: f64,
    pub(crate) bytes_per_s: f64,
}

impl Rates {
    /// Returns the rates of rounds with this spread, and messages of `size` bytes.
    pub(crate) fn new(messages: u64, rounds: u32, rates: Spread, size: u32) -> Rates {
        Rates {
            messages,
            rounds,
            messages_per_s: rates.median,
            messages_per_s_min: rates.min,
            messages_per_s_max: rates.max,
            bytes_per_s: rates.median * f64::from(size),
        }
    }

    /// Returns the rates of one round.
    pub(crate) fn of_round(messages: u64, elapsed: Duration, size: u32) -> Rates {
        let per_s = messages as f64 / elapsed.as_secs_f64().max(1e-9);
        Rates::new(messages, 1, Spread::of([per_s]), size)
    }

    /// Merges several rounds.
    pub(crate) fn of_rounds(rounds: impl Iterator<Item = Rates> + Clone, size: u32) -> Rates {
        let rates = Spread::of(rounds.clone().map(|round| round.messages_per_s));
        let messages = rounds.clone().map(|round| round.messages).sum();
        Rates::new(messages, rounds.count() as u32, rates, size)
    }

    /// Formats the spread of the rounds.
    pub(crate) fn spread(&self) -> String {
        spread(self.messages_per_s, self.messages_per_s_min, self.messages_per_s_max)
    }

    /// A row of [`rates_table`](super::figures::rates_table).
    pub(crate) fn row(
        &self,
        size_bytes: u32,
        operations_per_message: Option<f64>,
        rnr_events: Option<u64>,
        registered_bytes: u64,
    ) -> Vec<String> {
        let counted = |figure: Option<String>| figure.unwrap_or_else(|| "not counted".into());
        vec![
            size(size_bytes.into()),
            rate(self.messages_per_s),
            self.spread(),
            format!("{}/s", bytes(self.bytes_per_s as u64)),
            counted(operations_per_message.map(|n| format!("{n:.3}"))),
            counted(rnr_events.map(|n| n.to_string())),
            memory(registered_bytes),
        ]
    }
}
