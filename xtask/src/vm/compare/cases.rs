//! Cases of the comparison: a verb, measured by its latency or its rate, in a form (post lists,
//! inline, shared receive queue, several queue pairs, datagrams), at four sizes. Connections stand
//! beside the verb that their messages would need without them.

use anyhow::{Result, bail};

/// The sizes of all cases, in bytes.
pub(super) const SIZES: &[u32] = &[16, 512, 8192, 65536];

/// Quantity that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompareQuantity {
    /// One message in flight: the median of half a round trip, of a READ of the whole
    /// operation.
    Latency,
    /// [`CompareCase::DEPTH`] messages in flight on each queue pair, one way.
    Rate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Write,
    Read,
}

impl CompareQuantity {
    /// Keys of the figure in the JSON of our command and of a comparison, and of the ratio in the latter.
    pub(super) fn keys(self) -> [&'static str; 2] {
        match self {
            Latency => ["latency_ns_p50", "ratio_latency"],
            Rate => ["messages_per_s", "ratio_rate"],
        }
    }
}

impl Verb {
    /// Name, as both programs have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Send => "send",
            Write => "write",
            Read => "read",
        }
    }
}

/// One case, at any of its sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CompareCase {
    pub(super) name: &'static str,
    pub(super) verb: Verb,
    pub(super) kind: CompareQuantity,
    /// Messages to a doorbell.
    pub(super) list: u32,
    pub(super) inline: bool,
    /// One shared receive queue at each end.
    pub(super) srq: bool,
    pub(super) qps: u32,
    /// Unreliable datagrams.
    pub(super) datagrams: bool,
    /// On our side not the verb alone, but this connection.
    pub(super) connection: Option<&'static str>,
    /// The rate, or the latency, that is meant to be reached, as a multiple of perftest's.
    pub(super) target: Option<f64>,
    /// The sizes that it has, in bytes.
    pub(super) sizes: (u32, u32),
    /// True if waits sleep until an event of the completion queue; otherwise they poll.
    pub(super) events: bool,
}

/// One case at one size: a line of the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Comparison {
    pub(super) case: CompareCase,
    pub(super) size: u32,
    /// True if it is enough that there is a figure.
    pub(super) quick: bool,
}

/// Messages to a doorbell where there is more than one.
const LIST: u32 = 8;
/// Queue pairs where there is more than one.
const QPS: u32 = 4;
/// The path MTU, which limits datagrams.
const MTU: u32 = 4096;
/// Beyond it a message is not meant to be inline.
const LONGEST_INLINE: u32 = 512;

/// From there on a message of Buffered Read is a READ of its own.
const LONG: u32 = 8192;

use CompareQuantity::{Latency, Rate};
use Verb::{Read, Send, Write};

const CASES: &[CompareCase] = &[
    CompareCase::plain("send-lat", Send, Latency),
    CompareCase { inline: true, ..CompareCase::plain("send-lat-inline", Send, Latency) },
    CompareCase { srq: true, ..CompareCase::plain("send-lat-srq", Send, Latency) },
    CompareCase { datagrams: true, ..CompareCase::plain("send-lat-ud", Send, Latency) },
    CompareCase::over("send-recv", "connection-lat", Send, Latency),
    CompareCase {
        events: true,
        ..CompareCase::over("send-recv", "connection-lat-events", Send, Latency)
    },
    CompareCase::plain("write-lat", Write, Latency),
    CompareCase { inline: true, ..CompareCase::plain("write-lat-inline", Write, Latency) },
    CompareCase::plain("read-lat", Read, Latency),
    CompareCase::plain("send-bw", Send, Rate),
    CompareCase { list: LIST, ..CompareCase::plain("send-bw-list", Send, Rate) },
    CompareCase { inline: true, ..CompareCase::plain("send-bw-inline", Send, Rate) },
    CompareCase { qps: QPS, ..CompareCase::plain("send-bw-qps", Send, Rate) },
    CompareCase { srq: true, qps: QPS, ..CompareCase::plain("send-bw-srq", Send, Rate) },
    CompareCase::over("send-recv", "connection-bw", Send, Rate),
    CompareCase {
        events: true,
        ..CompareCase::over("send-recv", "connection-bw-events", Send, Rate)
    },
    CompareCase::plain("write-bw", Write, Rate),
    CompareCase { list: LIST, ..CompareCase::plain("write-bw-list", Write, Rate) },
    CompareCase { inline: true, ..CompareCase::plain("write-bw-inline", Write, Rate) },
    CompareCase::plain("read-bw", Read, Rate),
    CompareCase { list: LIST, ..CompareCase::plain("read-bw-list", Read, Rate) },
    CompareCase {
        target: Some(20.0),
        sizes: (16, 16),
        ..CompareCase::over("buffered-read", "buffered-read-16", Send, Rate)
    },
    CompareCase {
        target: Some(1.0),
        sizes: (LONG, u32::MAX),
        ..CompareCase::over("buffered-read", "buffered-read-long", Read, Rate)
    },
    CompareCase::over("buffered-write", "buffered-write-lat", Write, Latency),
    CompareCase::over("buffered-write", "buffered-write-bw", Write, Rate),
    // No slower than READs alone, where they are long.
    CompareCase {
        target: Some(1.0),
        sizes: (65_536, u32::MAX),
        ..CompareCase::over("direct-read", "direct-read-bw", Read, Rate)
    },
];

impl CompareCase {
    /// Messages in flight on each queue pair, where a rate is measured.
    pub(super) const DEPTH: u32 = 128;
    /// Receives in each receive queue.
    pub(super) const RECEIVES: u32 = 512;
    /// READs in flight on each queue pair.
    pub(super) const READS: u32 = 16;
    /// The path MTU, in bytes.
    pub(super) const MTU: u32 = MTU;

    const fn plain(name: &'static str, verb: Verb, kind: CompareQuantity) -> CompareCase {
        CompareCase {
            name,
            verb,
            kind,
            list: 1,
            inline: false,
            srq: false,
            qps: 1,
            datagrams: false,
            connection: None,
            target: Some(1.0),
            sizes: (0, u32::MAX),
            events: false,
        }
    }

    /// A connection, without a target: it also keeps account of what the receiver has room
    /// for.
    const fn over(
        connection: &'static str,
        name: &'static str,
        verb: Verb,
        kind: CompareQuantity,
    ) -> CompareCase {
        let case = CompareCase::plain(name, verb, kind);
        CompareCase { connection: Some(connection), target: None, ..case }
    }

    /// Reports whether many messages share a transfer.
    pub(super) fn gathers(&self) -> bool {
        self.connection.is_some_and(|connection| connection.starts_with("buffered"))
    }

    /// Number of requests of which one is signalled. Perftest wants a post list to end with one.
    pub(super) fn signal_every(&self) -> u32 {
        match (self.kind, self.list) {
            (Latency, _) => 1,
            (Rate, 1) => 32,
            (Rate, list) => list,
        }
    }

    fn has_size(&self, size: u32) -> bool {
        size <= if self.inline { LONGEST_INLINE } else { u32::MAX }
            && size <= if self.datagrams { MTU } else { u32::MAX }
            && (self.sizes.0..=self.sizes.1).contains(&size)
    }
}

impl Comparison {
    /// Messages of each queue pair in one run: half a second or so, or less.
    pub(super) fn messages(&self) -> u32 {
        let all = match (self.case.kind, self.size) {
            (Latency, ..=512) => 4000,
            (Latency, ..=8192) => 2000,
            (Latency, _) => 400,
            (Rate, ..=512) => 16_000,
            (Rate, ..=8192) => 4000,
            (Rate, _) => 800,
        };
        let all = if self.quick { all / 8 } else { all };
        (all / self.case.qps).next_multiple_of(self.case.signal_every())
    }

    /// Messages of ours: more of those that share transfers, for it to take as long.
    pub(super) fn our_messages(&self) -> u32 {
        let is_many = self.case.gathers() && self.case.kind == Rate && self.size <= 512;
        self.messages() * if is_many { 32 } else { 1 }
    }
}

/// The names of all cases.
pub(super) fn names() -> Vec<&'static str> {
    CASES.iter().map(|case| case.name).collect()
}

/// All comparisons of these names and sizes; all names where there are none.
///
/// # Errors
/// A name that no case has, or nothing left to compare.
pub(super) fn chosen(wanted: &[String], sizes: &[u32]) -> Result<Vec<Comparison>> {
    if let Some(unknown) = wanted.iter().find(|name| !names().contains(&name.as_str())) {
        bail!("there is no case {unknown}: there are {}", names().join(", "));
    }
    let is_wanted =
        |case: &&CompareCase| wanted.is_empty() || wanted.iter().any(|n| n == case.name);
    let at_sizes = |case: &CompareCase| {
        let case = *case;
        let fits = sizes.iter().copied().filter(move |size| case.has_size(*size));
        fits.map(move |size| Comparison { case, size, quick: false })
    };
    let all: Vec<Comparison> = CASES.iter().filter(is_wanted).flat_map(at_sizes).collect();
    if all.is_empty() {
        bail!(
            "nothing to compare: inline cases have sizes up to {LONGEST_INLINE} bytes, datagrams \
             up to {MTU}, buffered-read-16 only 16, buffered-read-long from {LONG}"
        );
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
