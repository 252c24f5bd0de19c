//! The messages of a run, by the words of its command line.

use base::cli::values::byte_count;

/// The order in which messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// `pingpong`: one message at a time.
    PingPong,
    /// `bench`: as many as there is room for.
    Stream,
    /// `multicast --burst 1`: each when the one before it has been delivered, or is inhibited.
    Multicast,
    /// `multicast --lone`: each when nothing is under way.
    LoneMulticast,
}

/// The protocol that carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    SendRecv,
    /// WRITEs without a connection: the receiver's processor has no part in them.
    Write,
    DirectRead,
    BufferedRead,
    BufferedWrite,
}

/// The messages of a run. Numbers are those of the model's formulas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Workload {
    pub(crate) pattern: Pattern,
    pub(crate) carrier: Carrier,
    pub(crate) bytes: f64,
    /// Unacknowledged messages at most.
    pub(crate) unacked: f64,
    /// Requests posted with a doorbell, completions taken by a poll, receives posted with a doorbell.
    pub(crate) batch: f64,
    pub(crate) polled: f64,
    pub(crate) reposted: f64,
    /// Senders of each receiving thread.
    pub(crate) senders: f64,
    /// Receiving threads, each with connections of its own.
    pub(crate) threads: f64,
    /// All connections receive from one shared receive queue.
    pub(crate) is_shared: bool,
    /// Direct Read: whether acknowledgements are held back by a fence.
    pub(crate) is_fenced: bool,
    /// Buffered Read: READs of data under way, and whether they are posted ahead.
    pub(crate) reads: f64,
    pub(crate) is_ahead: bool,
    /// Bytes of a transfer of a ring, if the command line says so.
    pub(crate) transfer: Option<f64>,
    /// Buffered Write: whether the tail is a WRITE of its own, and no immediate.
    pub(crate) is_tail_written: bool,
    /// Multicast: members, messages to a push (k), and whether each message is flushed.
    pub(crate) members: f64,
    pub(crate) every: f64,
    pub(crate) is_flushed: bool,
}

/// Flags that have a part in the model; it says nothing about a run with another one.
const KNOWN: &[&str] = &[
    "--protocol",
    "--op",
    "--size",
    "--preset",
    "--unacked",
    "--batch",
    "--poll-batch",
    "--repost-batch",
    "--senders",
    "--threads",
    "--single-receiver",
    "--srq",
    "--ack",
    "--reads",
    "--no-prefetch",
    "--max-read-bytes",
    "--batch-bytes",
    "--tail",
    "--members",
    "--push",
    "--burst",
    "--lone",
    "--flush-every",
];

/// The flags of a command line, with their values.
struct Flags<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Flags<'a> {
    fn split(words: &'a [String]) -> Flags<'a> {
        let mut words = words.iter().map(String::as_str).peekable();
        let mut flags = Vec::new();
        while let Some(flag) = words.next() {
            let value = words.next_if(|word| !word.starts_with("--"));
            flags.push((flag, value.unwrap_or_default()));
        }
        Flags(flags)
    }

    fn text(&self, flag: &str) -> Option<&'a str> {
        self.0.iter().find(|(name, _)| *name == flag).map(|(_, value)| *value)
    }

    fn has(&self, flag: &str) -> bool {
        self.text(flag).is_some()
    }

    /// A count, or a number of bytes. `None` if it is no number.
    fn number(&self, flag: &str, default: f64) -> Option<f64> {
        self.text(flag).map_or(Some(default), |text| byte_count(text).ok().map(f64::from))
    }
}

impl Workload {
    /// That of a run, if the model is about it.
    pub(crate) fn parse(words: &[String]) -> Option<Workload> {
        let (command, flags) = words.split_first()?;
        let flags = Flags::split(flags);
        if flags.0.iter().any(|(flag, _)| !KNOWN.contains(flag)) {
            return None;
        }
        let pattern = match command.as_str() {
            "pingpong" => Pattern::PingPong,
            "bench" => Pattern::Stream,
            "multicast" if flags.has("--lone") => Pattern::LoneMulticast,
            "multicast" if flags.text("--burst") == Some("1") => Pattern::Multicast,
            _ => return None,
        };
        let carrier = match (flags.text("--op"), flags.text("--protocol")) {
            (None, None | Some("send-recv")) | (Some("send"), None) => Carrier::SendRecv,
            (Some("write"), None) => Carrier::Write,
            (None, Some("direct-read")) => Carrier::DirectRead,
            (None, Some("buffered-read")) => Carrier::BufferedRead,
            (None, Some("buffered-write")) => Carrier::BufferedWrite,
            _ => return None,
        };
        let is_multicast = matches!(pattern, Pattern::Multicast | Pattern::LoneMulticast);
        let (unacked, batch) = match (flags.text("--preset"), carrier) {
            (Some("sequential"), _) => (1.0, 1.0),
            (Some("unbatched"), _) => (64.0, 1.0),
            (Some("batched"), _) => (256.0, 8.0),
            (Some(_), _) => return None,
            (None, _) if flags.has("--op") => (64.0, 1.0),
            (None, Carrier::DirectRead) => (32.0, 1.0),
            (None, _) => (256.0, 8.0),
        };
        let batch = flags.number("--batch", batch)?;
        // The thesis' batches of the receiver go with those of the sender.
        let (polled, reposted) = if batch > 1.0 { (32.0, 8.0) } else { (1.0, 1.0) };
        let is_fenced = match flags.text("--ack") {
            None | Some("write") => false,
            Some("fenced-write") => true,
            Some(_) => return None,
        };
        let every = match (is_multicast, flags.text("--push")) {
            (false, _) | (true, None) => 1.0,
            (true, Some(push)) => push.strip_prefix("every:")?.parse().ok()?,
        };
        let transfer = ["--max-read-bytes", "--batch-bytes"].into_iter().find(|f| flags.has(f));
        Some(Workload {
            pattern,
            carrier,
            bytes: match flags.has("--size") || is_multicast {
                true => flags.number("--size", 100.0)?,
                false => return None,
            },
            unacked: flags.number("--unacked", unacked)?,
            batch,
            polled: flags.number("--poll-batch", polled)?,
            reposted: flags.number("--repost-batch", reposted)?,
            senders: flags.number("--senders", 1.0)?,
            threads: flags.number("--threads", 1.0)?,
            is_shared: flags.has("--srq"),
            is_fenced,
            reads: flags.number("--reads", 4.0)?,
            is_ahead: !flags.has("--no-prefetch"),
            transfer: match transfer {
                Some(flag) => Some(flags.number(flag, 0.0)?),
                None => None,
            },
            is_tail_written: flags.text("--tail") == Some("written"),
            members: flags.number("--members", 3.0)?,
            every,
            is_flushed: flags.has("--flush-every"),
        })
    }

    /// Several queue pairs that receive from one queue.
    pub(crate) fn shares(&self) -> bool {
        self.is_shared && self.senders * self.threads > 1.0
    }
}

#[cfg(test)]
mod tests;
