//! `rdma-conn copy`: replicates files and directories to one or many receivers.
//!
//! Each receiver reads the pieces of a file out of memory of the sender (Direct Read), to a
//! file of another name: straight into it, where it can be mapped and registered, or else
//! into registered buffers that are written out behind it. When all of it is there and its
//! checksum is right, the file gets its own.
//!
//! Nothing here accesses a mapping: what has landed is looked at by reading the file, so
//! that somebody who cuts it off meanwhile gets an error, and no SIGBUS.

mod gathering;
mod pace;
mod place;
mod receive;
mod send;
mod shelf;
mod source;
mod tally;
mod wire;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rdma_conn::device::Device;
use rdma_conn::direct_read::{Config, Incoming, Listener};
use rdma_conn::send_recv::{ConnectError, Transport};
use serde::Serialize;

use crate::args::{Common, Copy, Ends};
use crate::bench::{bytes, right_aligned};
use crate::outcome::{Outcome, printable, usage};
use crate::{progress, session, signals};
use place::Root;
use receive::Received;
use send::{Done, Source, Stopped};
use shelf::Pieces;
use tally::{Onlooker, Tally};
use wire::Finished;

/// Pieces on offer to each receiver.
const WINDOW: u32 = 16;

/// How long a listener waits until it tries again to accept somebody.
const LITTLE: Duration = Duration::from_millis(100);

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    protocol: &'static str,
    device: &'a str,
    /// Who is at the other end.
    peer: String,
    entries: u64,
    /// Bytes that went over, and that were there already.
    bytes: u64,
    bytes_present: u64,
    seconds: f64,
    bytes_per_s: f64,
    /// How the destination was written: `mapped` (READs have landed in it), `buffers`
    /// (written out of them), both, or nothing. At the sender: what the receiver says, or
    /// `unknown`.
    destination: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_mapped: Option<u64>,
    /// Whether all of it is on the receiver's disk.
    synced: bool,
    /// At the receiver: why something was not mapped that is worth it.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_mapped: Option<String>,
    failed: u64,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Whether this is what a sender of copies says in the handshake, of whichever version.
pub(crate) fn is_greeting(said: &[u8]) -> bool {
    said.starts_with(wire::ANY_GREETING)
}

/// How so many bytes in files themselves, and out of buffers, are called.
fn destination(mapped: u64, buffered: u64) -> &'static str {
    match (mapped, buffered) {
        (0, 0) => "nothing",
        (_, 0) => "mapped",
        (0, _) => "buffers",
        _ => "mapped and buffers",
    }
}

pub(crate) fn run(common: &Common, options: &Copy) -> Outcome {
    let ends = Ends { listen: options.listen, connect: options.to.first().copied() };
    let device = session::open_device(common, &ends)?;
    let transport = Transport { gid_index: common.gid_index, ..Transport::default() };
    let wait = options.wait.strategy();
    let config = receive::config(Config { window: WINDOW, transport, wait, ..Config::default() });
    match options.listen {
        Some(address) => listen(common, options, &device, &config, address),
        None => send(common, options, &device, &config),
    }
}

fn send(common: &Common, options: &Copy, device: &Device, config: &Config) -> Outcome {
    if options.to.is_empty() || options.paths.is_empty() {
        return Err(usage(
            "copy --to ADDRESS PATH… sends, copy --listen ADDRESS --into DIR receives",
        ));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = options.to.iter().find(|to| !seen.insert(**to)) {
        return Err(usage(format!("--to {twice} is given twice")));
    }
    let source::Tree { entries, left_out } = source::tree(&options.paths)?;
    for (path, why) in &left_out {
        complain(format_args!("{}: left out: {why:#}", path.display()));
    }
    let total: u64 = entries.iter().map(|entry| entry.len).sum();
    if !common.json {
        remark!("sending {} entries, {}", entries.len(), bytes(total));
    }
    let bar = progress::bytes(total * options.to.len() as u64, common.json);
    let cleared = bar.clone();
    signals::watch(move |signal| {
        cleared.finish_and_clear();
        remark!("rdma-conn: interrupted by {signal}: {GOES_ON}");
        std::process::exit(1);
    })?;
    let pieces = Pieces::new(device);
    let source = Source { device, entries: &entries, pieces: &pieces, config: *config };
    let sent = send_to_all(common, options, source, (total, &bar));
    bar.finish_and_clear();
    let bad = report(common, device, source, &sent)?;
    match (bad, left_out.len()) {
        (0, 0) => Ok(()),
        (0, n) => Err(anyhow::anyhow!("left out: {n}; all else is there")),
        (n, _) => {
            Err(anyhow::anyhow!("{n} of {} receivers have not got everything", options.to.len()))
        }
    }
}

/// What has come of one receiver.
struct ToOne {
    to: SocketAddr,
    tally: Tally,
    end: (Done, Result<(), Stopped>),
    time: Duration,
}

/// Sends everything to every receiver, on a thread for each.
fn send_to_all(
    common: &Common,
    options: &Copy,
    source: Source<'_>,
    (total, bar): (u64, &ProgressBar),
) -> Vec<ToOne> {
    let start = Instant::now();
    let whole = (total, source.entries.len() as u64);
    let send = |to: SocketAddr, runner| {
        let tally = Tally::default();
        let mut onlooker = Onlooker::new(to.to_string(), &tally, Some(whole));
        let is_seen = common.json || progress::has_bar();
        let work = || send::copy(source, to, runner, &tally, bar);
        let end = progress::told(is_seen, || onlooker.line(), work);
        ToOne { to, end, tally, time: start.elapsed() }
    };
    std::thread::scope(|scope| {
        // They are together before one of them begins.
        let runners: Vec<_> = options.to.iter().map(|to| (*to, source.pieces.join())).collect();
        let start = |(to, runner)| {
            let send = &send;
            scope.spawn(move || send(to, runner))
        };
        let threads: Vec<_> = runners.into_iter().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Says what has come of all receivers; how many of them lack something.
fn report(common: &Common, device: &Device, source: Source<'_>, sent: &[ToOne]) -> Result<u32> {
    let entries = source.entries;
    let named = Named::of(common);
    // What cannot be read is told once, whoever lacks it.
    let unreadable: BTreeMap<usize, &str> = sent
        .iter()
        .flat_map(|one| one.end.0.unreadable.iter().map(|(at, why)| (*at, &**why)))
        .collect();
    let paths = |(at, why): (usize, _)| (entries[at].path.display().to_string(), why);
    complain_of_each("", unreadable.into_iter().map(paths), named, 0);
    let mut bad = 0;
    let mut table =
        right_aligned(&["receiver", "entries", "sent", "present", "destination", "rate", "failed"]);
    for ToOne { to, tally, end: (done, end), time } in sent {
        let names = done
            .failed
            .iter()
            .map(|(at, why)| (String::from_utf8_lossy(&entries[*at].name).into_owned(), &**why));
        complain_of_each(&format!("{to}: "), names, named, 0);
        match end {
            Ok(()) => {}
            Err(Stopped::Before(error)) => complain(format_args!("{error:#}")),
            Err(Stopped::During(error)) => complain(format_args!("{to}: {error:#}; {GOES_ON}")),
        }
        let error = match end {
            Ok(()) => None,
            Err(Stopped::Before(error) | Stopped::During(error)) => Some(format!("{error:#}")),
        };
        let failed = (done.failed.len() + done.unreadable.len()) as u64;
        bad += u32::from(error.is_some() || failed > 0);
        let counts = Counts { tally, how: done.finished, failed };
        let line = line(device, to.to_string(), counts, *time, error);
        match common.json {
            true => say!("{}", serde_json::to_string(&line)?),
            false => drop(table.add_row(line.row(entries.len() as u64))),
        }
    }
    if !common.json {
        say!("{table}");
    }
    Ok(bad)
}

/// How much of what has failed is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// So much of it as anybody reads.
    Some,
    /// All (`-v`).
    All,
}

impl Named {
    const MOST: usize = 20;

    fn of(common: &Common) -> Named {
        if common.verbose > 0 { Named::All } else { Named::Some }
    }
}

/// What to do after an interruption.
const GOES_ON: &str = "the same command goes on from there";

/// Says what has failed, beside what is not kept, which `-v` has told when it failed. What fails in a
/// directory that has failed is no news.
fn complain_of_each<'a>(
    whose: &str,
    failed: impl Iterator<Item = (String, &'a str)>,
    named: Named,
    forgotten: u64,
) {
    for line in complaints(failed, named, forgotten) {
        complain(format_args!("{whose}{line}"));
    }
}

fn complaints<'a>(
    failed: impl Iterator<Item = (String, &'a str)>,
    named: Named,
    forgotten: u64,
) -> Vec<String> {
    let (mut last, mut lines, mut below, mut others) = (None, Vec::new(), 0, forgotten);
    for (name, why) in failed {
        let is_below = |last: &String| name.starts_with(&format!("{last}/"));
        if last.as_ref().is_some_and(is_below) {
            below += 1;
        } else if named == Named::Some && lines.len() == Named::MOST {
            others += 1;
        } else {
            lines.push(format!("{name}: {why}"));
            last = Some(name);
        }
    }
    if below > 0 {
        lines.push(format!("and {below} more, in directories that have failed"));
    }
    if others > 0 {
        let where_told = if named == Named::All { "told above" } else { "of which -v tells" };
        lines.push(format!("and {others} more, {where_told}"));
    }
    lines
}

/// Says what has gone wrong, in a line, whoever has chosen its words.
fn complain(what: std::fmt::Arguments<'_>) {
    remark!("rdma-conn: {}", printable(&what.to_string()));
}

/// What has come of one copy.
struct Counts<'a> {
    tally: &'a Tally,
    /// How it was written, if that is known.
    how: Option<Finished>,
    failed: u64,
}

fn line<'a>(
    device: &'a Device,
    peer: String,
    counts: Counts<'_>,
    time: Duration,
    error: Option<String>,
) -> Line<'a> {
    let seconds = time.as_secs_f64();
    let Counts { tally, how, failed } = counts;
    Line {
        protocol: "direct-read",
        device: device.name(),
        peer,
        entries: tally.entries(),
        bytes: tally.moved(),
        bytes_present: tally.had(),
        seconds,
        bytes_per_s: tally.moved() as f64 / seconds.max(1e-9),
        destination: how.map_or("unknown", |how| destination(how.mapped, how.buffered)),
        bytes_mapped: how.map(|how| how.mapped),
        synced: how.is_some_and(|how| how.synced),
        not_mapped: None,
        failed,
        ok: error.is_none() && failed == 0,
        error,
    }
}

impl Line<'_> {
    /// For people, where there are so many entries in all: where it has ended before its end, all
    /// that is not there is missing.
    fn row(&self, all: u64) -> [String; 7] {
        let is_whole = self.error.is_none();
        let there = if is_whole { String::new() } else { format!(" of {all}") };
        let failed = if is_whole { self.failed } else { all - self.entries.min(all) };
        [
            self.peer.clone(),
            format!("{}{there}", self.entries),
            bytes(self.bytes),
            bytes(self.bytes_present),
            self.destination.to_owned(),
            format!("{}/s", bytes(self.bytes_per_s as u64)),
            failed.to_string(),
        ]
    }

    /// For people at the receiver.
    fn says(&self) -> String {
        let Line { peer, entries, destination, failed, seconds, .. } = self;
        let (moved, had) = (bytes(self.bytes), bytes(self.bytes_present));
        let early = if self.error.is_none() { "" } else { ", and no more" };
        format!(
            "{peer}: {entries} entries, {moved} read ({destination}) in {seconds:.1} s, \
             {had} present, {failed} failed{early}"
        )
    }
}

fn listen(
    common: &Common,
    options: &Copy,
    device: &Device,
    config: &Config,
    address: SocketAddr,
) -> Outcome {
    let into = options.into.as_deref().ok_or_else(|| usage("--listen needs --into DIR"))?;
    let root = Root::open(into)?;
    let listener = Listener::bind(address).map_err(|e| session::cannot_bind(address, e))?;
    let underway = Underway::default();
    underway.watch(options.once)?;
    remark!("listening on {}", listener.local_addr());
    std::thread::scope(|scope| {
        let mut is_told = false;
        loop {
            let incoming = match listener.next() {
                Ok(incoming) => incoming,
                // Whoever could not be accepted, for want of descriptors say, still waits.
                Err(e @ ConnectError::System { .. }) => {
                    if !std::mem::replace(&mut is_told, true) {
                        complain(format_args!("nobody can be accepted ({e}): it is tried again"));
                    }
                    std::thread::sleep(LITTLE);
                    continue;
                }
                Err(e) => {
                    session::refused(None, &e.to_string());
                    continue;
                }
            };
            is_told = false;
            let from = incoming.from();
            let incoming = match receive::welcome(incoming) {
                Ok(incoming) => incoming,
                // Who is refused is no copy, and does not count.
                Err(why) => {
                    session::refused(from, why);
                    continue;
                }
            };
            let serve = {
                let (root, underway) = (&root, &underway);
                move || underway.during(|| serve(common, options, device, config, root, incoming))
            };
            if options.once {
                return serve();
            }
            scope.spawn(move || {
                if let Err(e) = serve() {
                    complain(format_args!("{e:#}"));
                }
            });
        }
    })
}

/// Copies that are being received.
#[derive(Debug, Default, Clone)]
struct Underway(Arc<AtomicUsize>);

impl Underway {
    /// Does the work of one.
    fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        // Relaxed: a number for people.
        self.0.fetch_add(1, Ordering::Relaxed);
        let done = work();
        self.0.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Has a signal end the process, with a word of what ends with it: that is no failure where
    /// nothing does, unless one copy was `wanted`.
    fn watch(&self, wanted: bool) -> Result<()> {
        let underway = self.clone();
        signals::watch(move |signal| {
            let which = match underway.0.load(Ordering::Relaxed) {
                0 => {
                    remark!("rdma-conn: interrupted by {signal}: no copy was under way");
                    std::process::exit(i32::from(wanted));
                }
                1 => "a copy: start it again, and its sender goes on".to_owned(),
                n => format!("{n} copies: start it again, and their senders go on"),
            };
            remark!(
                "rdma-conn: interrupted by {signal} in the middle of {which} from there with the \
                 same command"
            );
            std::process::exit(1);
        })
    }
}

fn serve(
    common: &Common,
    options: &Copy,
    device: &Device,
    config: &Config,
    root: &Root,
    incoming: Incoming,
) -> Outcome {
    let peer = incoming.from().map_or("?".into(), |from| from.to_string());
    if !common.json {
        remark!("{peer}: has connected");
    }
    let (start, tally) = (Instant::now(), Tally::default());
    let mut onlooker = Onlooker::new(peer.clone(), &tally, None);
    let work = || receive::receive(incoming, device, config, root, options, &tally);
    let received = progress::told(common.json, || onlooker.line(), work);
    let received = received.with_context(|| format!("the copy from {peer}"))?;
    let written = received.written(&tally);
    let Received { not_mapped, failures, failed, finished, error, .. } = received;
    let forgotten = failures - failed.len() as u64;
    let failed = failed.iter().map(|(name, why)| (name.clone(), &**why));
    complain_of_each(&format!("{peer}: "), failed, Named::of(common), forgotten);
    let counts = Counts { tally: &tally, how: Some(finished.unwrap_or(written)), failed: failures };
    let text = error.as_ref().map(|e| format!("{e:#}"));
    let mut line = line(device, peer.clone(), counts, start.elapsed(), text);
    line.not_mapped = not_mapped;
    if common.json {
        say!("{}", serde_json::to_string(&line)?);
    } else {
        say!("{}", line.says());
        if let Some(why) = &line.not_mapped {
            say!("{peer}: buffers, because: {}", printable(why));
        }
    }
    match (error, line.ok) {
        (Some(e), _) => Err(e.context(format!("the copy from {peer}"))),
        (None, false) => Err(anyhow::anyhow!("the copy from {peer}: not everything has arrived")),
        (None, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_can_be_asked_for_or_follows_from_what_is() {
        let failed = || {
            let inside = (0..30).map(|at| (format!("a/{at}"), "no"));
            let beside = (0..30).map(|at| (format!("{at}"), "no"));
            std::iter::once(("a".to_owned(), "no")).chain(inside).chain(beside)
        };
        let all = complaints(failed(), Named::All, 0);
        assert_eq!((all.len(), &*all[30]), (32, "29: no"));
        assert_eq!(all[31], "and 30 more, in directories that have failed");
        let some = complaints(failed(), Named::Some, 5);
        assert_eq!((some.len(), &*some[19]), (22, "18: no"));
        assert_eq!(some[21], "and 16 more, of which -v tells");
        assert_eq!(complaints(failed(), Named::All, 5)[32], "and 5 more, told above");
    }

    #[test]
    fn who_has_a_part_is_told_of_how_much() {
        let (device, tally) = (rdma_conn::device::soft().unwrap(), Tally::default());
        tally.moves(40_000);
        tally.done();
        let of = |error: Option<&str>| {
            let counts = Counts { tally: &tally, how: None, failed: 2 };
            line(&device, "x".into(), counts, Duration::from_secs(1), error.map(Into::into))
        };
        let row = of(Some("it has gone")).row(7);
        assert_eq!([&*row[1], &*row[2], &*row[6]], ["1 of 7", "40.0 kB", "6"]);
        let row = of(None).row(3);
        assert_eq!([&*row[1], &*row[6]], ["1", "2"]);
        let says = of(Some("it has gone")).says();
        assert!(says.ends_with("2 failed, and no more"), "{says}");
    }
}
