//! The two commands of a comparison: perftest's and ours, asked for the same.
//!
//! Both are given in full, so that a line of the report can be run by hand: the first of
//! a pair waits for the second. Each has a processor of its own (`taskset`): with both
//! on one, each would wait for the other's time slice.

use std::path::Path;

use super::cases::{CompareCase, CompareQuantity, Comparison, Verb};
use crate::pair::CommandPair;

/// Address at which the two ends meet.
pub(super) const ADDRESS: &str = "127.0.0.1";

/// Device that is used, and how.
#[derive(Debug, Clone)]
pub(super) struct CompareSetting<'a> {
    pub(super) device: &'a str,
    /// The index of its IPv4-mapped GID, which perftest has to be told.
    pub(super) gid_index: u32,
    /// The command `rdma-conn`.
    pub(super) ours: &'a Path,
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A command with these words more for its two ends, each end on a processor of its own.
fn pair_of(both: &[String], ends: [String; 2]) -> CommandPair {
    let on_processor = |processor: usize| {
        let first = words(&format!("taskset -c {processor}"));
        [&first[..], both, &words(&ends[processor])].concat()
    };
    CommandPair { listener: on_processor(0), connector: on_processor(1) }
}

impl Comparison {
    /// Perftest's command; its ends meet at `port`.
    pub(super) fn perftest(&self, setting: &CompareSetting<'_>, port: u16) -> CommandPair {
        let ends = [format!("-p {port}"), format!("-p {port} {ADDRESS}")];
        pair_of(&words(&self.perftest_line(setting)), ends)
    }

    fn perftest_line(&self, setting: &CompareSetting<'_>) -> String {
        let Comparison { case, size, .. } = self;
        let verb = case.verb.name();
        let kind = if case.kind == CompareQuantity::Latency { "lat" } else { "bw" };
        let CompareSetting { device, gid_index, .. } = setting;
        let messages = self.messages();
        let mut line =
            format!("ib_{verb}_{kind} -d {device} -x {gid_index} -F -s {size} -n {messages}");
        // A datagram has the MTU of the port.
        line += &if case.datagrams { " -c UD".into() } else { format!(" -m {}", CompareCase::MTU) };
        if case.kind == CompareQuantity::Rate {
            let (depth, every) = (CompareCase::DEPTH, case.signal_every());
            // Without -N it looks at the clock for every message.
            line += &format!(" -N -t {depth} -Q {every} -q {}", case.qps);
        }
        if case.list > 1 {
            line += &format!(" -l {}", case.list);
        }
        match case.verb {
            Verb::Send => line += &format!(" -r {}", CompareCase::RECEIVES),
            Verb::Read => line += &format!(" -o {}", CompareCase::READS),
            Verb::Write => {}
        }
        if case.verb != Verb::Read {
            line += &format!(" -I {}", self.inline_bytes());
        }
        if case.srq {
            line += " --use-srq";
        }
        if case.events {
            line += " -e";
        }
        line
    }

    /// Our command; its ends meet at `port`.
    pub(super) fn ours(&self, setting: &CompareSetting<'_>, port: u16) -> CommandPair {
        let mut both = vec![setting.ours.display().to_string()];
        both.extend(words(&self.our_line(setting)));
        pair_of(&both, ["listen", "connect"].map(|role| format!("--{role} {ADDRESS}:{port}")))
    }

    fn our_line(&self, setting: &CompareSetting<'_>) -> String {
        let Comparison { case, size, .. } = self;
        let verb = case.verb.name();
        let (command, amount) = match case.kind {
            CompareQuantity::Latency => ("pingpong", "iterations"),
            CompareQuantity::Rate => ("bench", "messages"),
        };
        let what = match (case.connection, case.datagrams) {
            (Some(connection), _) => format!("--protocol {connection}"),
            (_, true) => format!("--op {verb} --transport ud --peers {}", case.qps),
            _ => format!("--op {verb} --qps {}", case.qps),
        };
        let wait = if case.events { "block" } else { "spin" };
        let mut line = format!(
            "{command} {what} --device {} --size {size} --{amount} {} --wait {wait} --no-verify --json",
            setting.device,
            self.our_messages(),
        );
        if case.gathers() {
            // A long message of Buffered Read is to be one READ, with its header.
            return match case.verb {
                Verb::Read => format!("{line} --max-read-bytes {}", size + 8),
                _ => line,
            };
        }
        if case.connection == Some("direct-read") {
            return format!("{line} --unacked {}", CompareCase::DEPTH);
        }
        line +=
            &format!(" --signal-every {} --inline {}", case.signal_every(), self.inline_bytes());
        if case.kind == CompareQuantity::Rate {
            line += &format!(" --unacked {} --batch {}", CompareCase::DEPTH, case.list);
        }
        if case.verb == Verb::Send {
            line += &format!(" --recv-depth {}", CompareCase::RECEIVES);
        }
        if case.srq {
            line += " --srq";
        }
        // Perftest polls memory on every device.
        if case.verb == Verb::Write && case.kind == CompareQuantity::Latency {
            line += " --assume-in-order";
        }
        line
    }

    fn inline_bytes(&self) -> u32 {
        if self.case.inline { self.size } else { 0 }
    }
}

/// A command line, as people would type it.
pub(super) fn shown(command: &[String]) -> String {
    command.join(" ")
}

#[cfg(test)]
mod tests;
