//! The experiments that are part of the command: a table of the files in `experiments/`, in the
//! order in which a page has them.

use super::experiment::{Experiment, ExperimentError};

/// An experiment of the command: its name, and the text of its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// A file of `experiments/`.
macro_rules! experiment {
    ($name:literal) => {
        Builtin { name: $name, text: include_str!(concat!("../experiments/", $name, ".toml")) }
    };
}

/// All of them.
pub(crate) const ALL: &[Builtin] = &[
    experiment!("send-recv-latency-by-size"),
    experiment!("send-recv-rate-by-unacked"),
    experiment!("send-recv-rate-by-batch"),
    experiment!("send-recv-bandwidth-by-size"),
    experiment!("send-recv-rate-by-poll-and-repost"),
    experiment!("send-recv-rate-by-signal-interval"),
    experiment!("send-recv-latency-by-inline-size"),
    experiment!("send-recv-rate-by-threads"),
    experiment!("send-recv-rate-by-threads-srq"),
    experiment!("send-recv-rate-by-senders"),
    experiment!("send-recv-rate-by-senders-srq"),
    experiment!("send-recv-rate-by-size-srq"),
    experiment!("send-recv-rate-by-queue-pairs"),
    experiment!("send-recv-rate-by-reposting"),
    experiment!("send-recv-rnr-by-rate"),
    experiment!("send-recv-processor-use-by-rate"),
    experiment!("send-recv-memory-by-senders"),
    experiment!("direct-read-latency-by-size"),
    experiment!("direct-read-bandwidth-by-size"),
    experiment!("direct-read-rate-by-acknowledgement"),
    experiment!("direct-read-rate-by-reads"),
    experiment!("direct-read-rate-by-threads"),
    experiment!("direct-read-rate-by-senders"),
    experiment!("direct-read-rate-by-receivers"),
    experiment!("buffered-read-latency-by-size"),
    experiment!("buffered-read-bandwidth-by-size"),
    experiment!("buffered-read-bandwidth-by-transfer-cap"),
    experiment!("buffered-read-rate-by-threads"),
    experiment!("buffered-read-rate-by-threads-of-a-ring"),
    experiment!("buffered-read-rate-by-senders"),
    experiment!("buffered-read-bandwidth-by-reads-ahead"),
    experiment!("buffered-read-paper-protocol"),
    experiment!("direct-write-latency-by-size"),
    experiment!("direct-write-bandwidth-by-size"),
    experiment!("direct-write-rate-by-buffers"),
    experiment!("direct-write-rate-by-batch"),
    experiment!("direct-write-rate-by-threads"),
    experiment!("direct-write-rate-by-senders"),
    experiment!("shared-write-latency-by-size"),
    experiment!("shared-write-bandwidth-by-size"),
    experiment!("shared-write-rate-by-extents"),
    experiment!("shared-write-rate-by-batch"),
    experiment!("shared-write-rate-by-senders"),
    experiment!("buffered-write-latency-by-size"),
    experiment!("buffered-write-bandwidth-by-size"),
    experiment!("buffered-write-rate-by-gathered-bytes"),
    experiment!("buffered-write-rate-by-threads"),
    experiment!("buffered-write-rate-by-senders"),
    experiment!("connections-latency"),
    experiment!("connections-bandwidth"),
    experiment!("connections-by-senders"),
    experiment!("tutorial-rate-by-concurrency"),
    experiment!("tutorial-rate-by-size"),
    experiment!("tutorial-optimisations"),
    experiment!("tutorial-rate-by-batch"),
    experiment!("tutorial-detection-by-peers"),
    experiment!("tutorial-bandwidth-of-reliable-datagrams"),
    experiment!("tutorial-latency-of-reliable-datagrams"),
    experiment!("multicast-rate-by-k"),
    experiment!("multicast-operations-by-members"),
    experiment!("multicast-rate-by-burst"),
    experiment!("multicast-latency-by-members"),
    experiment!("multicast-latency-by-k"),
    experiment!("multicast-latency-by-deadline"),
];

/// The one of this name.
pub(crate) fn named(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// The experiment.
    ///
    /// # Errors
    /// None: a test reads them all.
    pub(crate) fn experiment(&self) -> Result<Experiment, ExperimentError> {
        Experiment::parse(&format!("{}.toml", self.name), self.text)
    }
}

#[cfg(test)]
mod tests;
