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
mod wire;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdma_conn::device::Device;
use rdma_conn::direct_read::{Config, Incoming, Listener};
use rdma_conn::send_recv::{ConnectError, Transport};
use serde::Serialize;

use crate::args::{Common, Copy, Ends};
use crate::bench::{bytes, right_aligned};
use crate::outcome::{Outcome, printable, usage};
use crate::{progress, session};
use place::Root;
use receive::Received;
use send::{Done, Source};
use shelf::Pieces;
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
    /// (written out of them), both, or nothing. At the sender: what the receiver says.
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
    let bar = progress::bytes(total * options.to.len() as u64, common.json);
    let pieces = Pieces::new(device);
    let source = Source { device, entries: &entries, pieces: &pieces, config: *config };
    let start = Instant::now();
    let ends: Vec<(Result<Done>, Duration)> = std::thread::scope(|scope| {
        let each = |to: &SocketAddr| {
            // They are together before one of them begins.
            let (to, bar, runner) = (*to, &bar, pieces.join());
            scope.spawn(move || (send::copy(source, to, runner, bar), start.elapsed()))
        };
        let threads: Vec<_> = options.to.iter().map(each).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    bar.finish_and_clear();
    let mut bad = 0;
    let mut table =
        right_aligned(&["receiver", "entries", "sent", "present", "destination", "rate", "failed"]);
    for (to, (end, time)) in options.to.iter().zip(ends) {
        let (done, error) = match end {
            Ok(done) => (done, None),
            Err(e) => (Done::default(), Some(format!("{e:#}"))),
        };
        for (at, why) in &done.failed {
            let name = String::from_utf8_lossy(&entries[*at].name);
            complain(format_args!("{to}: {name}: {why}"));
        }
        if let Some(error) = &error {
            // What nobody answered to names the receiver already.
            let whom = match error.starts_with(&format!("nobody listens on {to}")) {
                true => String::new(),
                false => format!("{to}: "),
            };
            complain(format_args!("{whom}{error}; the same command goes on from there"));
        }
        let failed = done.failed.len() as u64;
        let ok = error.is_none() && failed == 0;
        bad += u32::from(!ok);
        let (moved, had) = (done.sent, done.had);
        let counts = Counts { entries: done.entries, moved, had, how: done.finished };
        let line = line(device, to.to_string(), counts, time, failed, error);
        match common.json {
            true => say!("{}", serde_json::to_string(&line)?),
            false => drop(table.add_row(line.row())),
        }
    }
    if !common.json {
        say!("{table}");
    }
    match (bad, left_out.len()) {
        (0, 0) => Ok(()),
        (0, n) => Err(anyhow::anyhow!("left out: {n}; all else is there")),
        (n, _) => {
            Err(anyhow::anyhow!("{n} of {} receivers have not got everything", options.to.len()))
        }
    }
}

/// Says what has gone wrong, in a line, whoever has chosen its words.
fn complain(what: std::fmt::Arguments<'_>) {
    eprintln!("rdma-conn: {}", printable(&what.to_string()));
}

/// What went over, what was there already, and how it was written, if that is known.
struct Counts {
    entries: u64,
    moved: u64,
    had: u64,
    how: Option<Finished>,
}

fn line(
    device: &Device,
    peer: String,
    counts: Counts,
    time: Duration,
    failed: u64,
    error: Option<String>,
) -> Line<'_> {
    let seconds = time.as_secs_f64();
    let Counts { entries, moved: bytes, had: bytes_present, how } = counts;
    Line {
        protocol: "direct-read",
        device: device.name(),
        peer,
        entries,
        bytes,
        bytes_present,
        seconds,
        bytes_per_s: bytes as f64 / seconds.max(1e-9),
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
    fn row(&self) -> [String; 7] {
        [
            self.peer.clone(),
            self.entries.to_string(),
            bytes(self.bytes),
            bytes(self.bytes_present),
            self.destination.to_owned(),
            format!("{}/s", bytes(self.bytes_per_s as u64)),
            self.error.as_ref().map_or(self.failed.to_string(), |_| "all".into()),
        ]
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
    eprintln!("listening on {}", listener.local_addr());
    std::thread::scope(|scope| {
        loop {
            let incoming = match listener.next() {
                Ok(incoming) => incoming,
                Err(e) => {
                    complain(format_args!("{e}"));
                    // Whoever could not be accepted, for want of descriptors say, still waits.
                    if matches!(e, ConnectError::System { .. }) {
                        std::thread::sleep(LITTLE);
                    }
                    continue;
                }
            };
            let serve = {
                let root = &root;
                move || serve(common, options, device, config, root, incoming)
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

fn serve(
    common: &Common,
    options: &Copy,
    device: &Device,
    config: &Config,
    root: &Root,
    incoming: Incoming,
) -> Outcome {
    let peer = incoming.from().map_or("?".into(), |from| from.to_string());
    let start = Instant::now();
    let received = receive::receive(incoming, device, config, root, options);
    let received = received.with_context(|| format!("the copy from {peer}"))?;
    let Received { entries, read, had, mapped, not_mapped, failures, failed, finished } = received;
    for (name, why) in &failed {
        complain(format_args!("{name}: {why}"));
    }
    let error = finished.is_none().then(|| "it has ended before its end".to_owned());
    let landed = Finished { mapped, buffered: read - mapped, synced: false };
    let how = Some(finished.unwrap_or(landed));
    let counts = Counts { entries, moved: read, had, how };
    let mut line = line(device, peer, counts, start.elapsed(), failures, error);
    line.not_mapped = not_mapped;
    if common.json {
        say!("{}", serde_json::to_string(&line)?);
    } else {
        let Line { peer, entries, bytes: moved, bytes_present, .. } = &line;
        let (moved, had) = (bytes(*moved), bytes(*bytes_present));
        let how = line.destination;
        say!("{peer}: {entries} entries, {moved} read ({how}), {had} present, {failures} failed");
        if let Some(why) = &line.not_mapped {
            say!("{peer}: buffers, because: {}", printable(why));
        }
    }
    match line.ok {
        true => Ok(()),
        false => Err(anyhow::anyhow!("not everything has arrived")),
    }
}
