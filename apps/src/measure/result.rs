//! Result of a measurement: a line of `--json`, and what a row of a table is made of.

use anyhow::{Result, ensure};
use base::pinning;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::{bytes, counted_as, memory, rate, size, spread};
use super::{Described, Spread};

/// Keys that are sums over all rounds.
const COUNTS: [&str; 9] = [
    "messages",
    "rnr_events",
    "forced_pushes",
    "lost",
    "dropped",
    "reordered",
    "late",
    "repeated",
    "resent",
];
/// Keys of which each round has a mean per message: they are means over the messages of all rounds.
const PER_MESSAGE: [&str; 2] = ["rdma_ops_per_message", "mean_transfer_bytes"];
/// Keys that are those of the least round.
const LEAST: [&str; 2] = ["sender_fairness", "rate_per_sender"];

/// One line of `--json`. A figure that was not measured is absent.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub(crate) struct ResultLine {
    #[serde(flatten)]
    figures: Described,
    /// The settings for people; no end tells them to the other one.
    #[serde(skip)]
    pub(crate) words: String,
}

impl From<Described> for ResultLine {
    fn from(figures: Described) -> ResultLine {
        ResultLine { figures, words: String::new() }
    }
}

impl ResultLine {
    /// The line of a measurement of this process; it has no figures yet.
    pub(crate) fn new(
        protocol: &str,
        device: &str,
        transport: &str,
        size_bytes: u32,
    ) -> ResultLine {
        let mut line = ResultLine::default().with("protocol", protocol);
        line.measured_by(device);
        line.with("transport", transport).with("size_bytes", size_bytes)
    }

    /// Sets a figure, or takes it out.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        match value.into() {
            Value::Null => drop(self.figures.remove(key)),
            value => drop(self.figures.insert(key.to_owned(), value)),
        }
    }

    /// Adds a figure, if there is one.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> ResultLine {
        self.set(key, value);
        self
    }

    /// Adds the settings of a connection.
    pub(crate) fn with_settings(mut self, settings: Described) -> ResultLine {
        self.figures.extend(settings);
        self
    }

    /// Adds to the settings for people.
    pub(crate) fn with_words(mut self, words: &str) -> ResultLine {
        self.words.push_str(words);
        self
    }

    /// Sets the device of this process, its processors, where they were listed, and its build.
    pub(crate) fn measured_by(&mut self, device: &str) {
        self.set("device", device);
        self.set("cpu", pinning::listed());
        self.set("build", rdma_conn::build::summary());
    }

    /// Adds the rates of one round.
    pub(crate) fn with_rates(self, messages: u64, per_s: f64) -> ResultLine {
        let bytes_per_s = per_s * self.figure("size_bytes");
        let line = self.with("messages", messages).with("rounds", 1).with("messages_per_s", per_s);
        let line = line.with("messages_per_s_min", per_s).with("messages_per_s_max", per_s);
        line.with("bytes_per_s", bytes_per_s)
    }

    /// Adds the median and the 99th percentile of the times of one round, in nanoseconds.
    pub(crate) fn with_medians(mut self, times: &Histogram<u64>) -> ResultLine {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            for end in ["", "_min", "_max"] {
                let key = format!("latency_ns_{name}{end}");
                self.set(&key, times.value_at_quantile(quantile));
            }
        }
        self
    }

    /// Adds the quantiles of the times of one round, in nanoseconds.
    pub(crate) fn with_latency(self, times: &Histogram<u64>) -> ResultLine {
        let line = self.with("latency_ns_min", times.min()).with("latency_ns_max", times.max());
        let line = line.with("latency_ns_p90", times.value_at_quantile(0.9));
        line.with("latency_ns_p999", times.value_at_quantile(0.999)).with_medians(times)
    }

    /// Checks a line that the other end has told.
    ///
    /// # Errors
    /// It is no line of results.
    pub(crate) fn validated(self) -> Result<ResultLine> {
        let is_plain = |value: &Value| !value.is_array() && !value.is_object();
        let is_whole = ["size_bytes", "messages"].iter().all(|key| self.count(key).is_some());
        ensure!(
            is_whole && self.figures.values().all(is_plain),
            "the other end tells a result that is none"
        );
        Ok(self)
    }

    /// Merges the rounds of each class of messages: a round has a line for each of them.
    pub(crate) fn merged(rounds: &[Vec<ResultLine>]) -> Vec<ResultLine> {
        let classes = rounds.iter().map(Vec::len).max().unwrap_or(0);
        let of = |class: usize| rounds.iter().filter_map(move |lines| lines.get(class).cloned());
        (0..classes).map(|class| ResultLine::of_rounds(&of(class).collect::<Vec<_>>())).collect()
    }

    /// Merges several rounds: a number becomes their median; a minimum or a maximum, that of all
    /// rounds; a count, their sum.
    pub(crate) fn of_rounds(rounds: &[ResultLine]) -> ResultLine {
        let mut merged = rounds.first().cloned().unwrap_or_default();
        if rounds.len() < 2 {
            return merged;
        }
        for (key, value) in rounds.iter().flat_map(|line| &line.figures) {
            merged.figures.entry(key).or_insert_with(|| value.clone());
        }
        // A sum of some rounds would pass for that of all. Where nothing is lost, that is not said.
        let is_partial = |key: &str| {
            let is_lacking = || rounds.iter().any(|line| line.number(key).is_none());
            COUNTS.contains(&key) && key != "lost" && is_lacking()
        };
        merged.figures.retain(|key, _| !is_partial(key));
        for (key, value) in &mut merged.figures {
            let numbers = || rounds.iter().filter_map(|line| line.number(key));
            let Spread { median, min, max } = Spread::of(numbers());
            *value = match key.as_str() {
                "rounds" => rounds.len().into(),
                // One round in which something was wrong is enough.
                _ if value.is_boolean() => rounds.iter().all(|line| line.is_true(key)).into(),
                _ if !value.is_number() => continue,
                key if COUNTS.contains(&key) => like(value, numbers().sum()),
                key if PER_MESSAGE.contains(&key) => per_message(rounds, key).into(),
                key if LEAST.contains(&key) || key.ends_with("_min") => like(value, min),
                key if key.ends_with("_max") => like(value, max),
                _ => like(value, median),
            };
        }
        merged
    }

    /// The keys and their values.
    pub(crate) fn figures(&self) -> &Described {
        &self.figures
    }

    /// A number, if it was measured.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.figures.get(key)?.as_f64()
    }

    /// A number that every line of the command has.
    pub(crate) fn figure(&self, key: &str) -> f64 {
        self.number(key).unwrap_or_default()
    }

    /// A count, if there is one.
    pub(crate) fn count(&self, key: &str) -> Option<u64> {
        self.figures.get(key)?.as_u64()
    }

    /// A text; an empty one where there is none.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.figures.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Reports whether something is said to be so.
    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.figures.get(key) == Some(&Value::Bool(true))
    }

    /// The number of rounds, with its noun.
    pub(crate) fn rounds(&self) -> String {
        counted_as(self.count("rounds").unwrap_or(1), "round", "rounds")
    }

    /// Says whether payloads were checked.
    pub(crate) fn checked(&self) -> &'static str {
        if self.is_true("verified") { "payloads checked" } else { "payloads not checked" }
    }

    /// The size of its messages.
    pub(crate) fn size(&self) -> String {
        size(self.count("size_bytes").unwrap_or_default())
    }

    /// Formats how far the rounds lie apart in a number.
    pub(crate) fn spread(&self, key: &str) -> String {
        let [min, max] = ["min", "max"].map(|end| self.figure(&format!("{key}_{end}")));
        spread(self.figure(key), min, max)
    }

    /// The cells of a quantile of the latency, in microseconds.
    pub(crate) fn us(&self, quantile: &str) -> String {
        format!("{:.2}", self.figure(&format!("latency_ns_{quantile}")) / 1e3)
    }

    /// A row of [`rates_table`](super::figures::rates_table).
    pub(crate) fn rates_row(&self) -> Vec<String> {
        let counted = |figure: Option<String>| figure.unwrap_or_else(|| "not counted".into());
        vec![
            self.size(),
            rate(self.figure("messages_per_s")),
            self.spread("messages_per_s"),
            format!("{}/s", bytes(self.figure("bytes_per_s") as u64)),
            counted(self.number("rdma_ops_per_message").map(|n| format!("{n:.3}"))),
            counted(self.count("rnr_events").map(|n| n.to_string())),
            memory(self.count("registered_bytes").unwrap_or_default()),
        ]
    }
}

/// A number, as whole as the one in its place.
fn like(place: &Value, number: f64) -> Value {
    if place.is_u64() { (number.round() as u64).into() } else { number.into() }
}

/// The mean, over the messages of all rounds, of a figure that each round has per message.
fn per_message(rounds: &[ResultLine], key: &str) -> f64 {
    let weighed =
        || rounds.iter().filter_map(|line| Some((line.number(key)?, line.figure("messages"))));
    let all: f64 = weighed().map(|(_, messages)| messages).sum();
    // By shares: both ends get the same number, where one counts the messages of several senders.
    let mean = weighed().map(|(mean, messages)| mean * (messages / all)).sum();
    if all > 0.0 { mean } else { 0.0 }
}

#[cfg(test)]
mod tests;
