//! `bench --input FILE`: a real file, cut into messages, compared with what arrived.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::outcome::{Outcome, usage};
use base::signals::{self, Interrupted};
use base::{progress, say};
use indicatif::ProgressBar;
use rdma_conn::device::Device;
use serde::Serialize;

use super::connect;
use super::gather::{self, Host, Party};
use super::rounds::config;
use crate::cli::{Bench, Common};
use crate::measure::figures::{bytes, counted_as, rate};
use crate::measure::{Described, HAS_COME, Load, Machine, NO_THREAD, Work};
use crate::protocol::{Kind, Receiving, Sending, Taken};
use crate::session::{self, Control, GLANCE, Traffic, cause};
use crate::settings;

/// The message size when none is given.
const DEFAULT_SIZE: u32 = 65_536;

/// A file, and what will tell whether it arrived whole.
struct Source {
    file: File,
    length: u64,
    checksum: u32,
}

/// Part of the stream that one end sent or received.
struct Passed {
    bytes: u64,
    messages: u64,
    checksum: u32,
    elapsed: Duration,
}

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    protocol: &'a str,
    device: &'a str,
    transport: &'a str,
    size_bytes: u32,
    #[serde(flatten)]
    settings: Described,
    messages: u64,
    messages_per_s: f64,
    bytes: u64,
    bytes_per_s: f64,
    checksum_crc32: String,
    equal: bool,
    #[serde(flatten)]
    machine: Machine,
}

pub(crate) fn run<K: Kind>(
    common: &Common,
    options: &Bench,
    device: &Device,
    path: &Path,
) -> Outcome {
    if let Some(rounds) = options.rounds.rounds {
        return Err(usage(format!(
            "--rounds {rounds}: --input sends a file once, and compares it: leave --rounds out, or \
             measure with --size or --messages instead of a file"
        )));
    }
    let source = Source::open(path)?;
    let size = match options.size[..] {
        [] => DEFAULT_SIZE,
        [size] => size,
        _ => return Err(usage("--input takes one --size")),
    };
    if size == 0 {
        return Err(usage("--input needs messages of at least 1 byte"));
    }
    let config = config::<K>(common, options, size);
    K::check(&options.connection, &config, size)?;
    let bar = progress::bytes(source.length, common.json);
    let expected = (source.length, source.checksum);
    let load = Load { size, ..Load::new(options, size) };
    let traffic = connect::traffic::<K>(options, &config, &load, Some(expected));
    let passed = match options.ends.connect {
        Some(address) => connect::<K>(device, &config, &traffic, address, source, &bar)?,
        None => within_process::<K>(device, &config, source, size, &bar)?,
    };
    bar.finish_and_clear();
    report::<K>(common, device, &config, size, &passed, expected)
}

/// Sends the file to the listener at `address`, which says what has arrived.
fn connect<K: Kind>(
    device: &Device,
    config: &K::Settings,
    traffic: &Traffic,
    address: SocketAddr,
    source: Source,
    bar: &ProgressBar,
) -> Result<Passed> {
    let session = session::Part::only().session("bench", 1, 0, traffic.clone());
    let (outlet, mut wire) = connect::join::<K>(&session, device, config, address)?;
    connect::begin(&mut wire)?;
    let sent = send(outlet.sender, source, traffic.size, bar);
    let passed = sent.map_err(|e| cause(e, [&mut wire]))?;
    wire.tell(&Control::Sent {
        messages: passed.messages,
        work: Work::default(),
        interrupted: None,
    })?;
    match wire.hear()? {
        Control::Arrived { equal: Some(true), .. } => Ok(passed),
        Control::Arrived { .. } => bail!("what arrived at {address} is not the file"),
        other => session::unexpected(other),
    }
}

fn within_process<K: Kind>(
    device: &Device,
    config: &K::Settings,
    source: Source,
    size: u32,
    bar: &ProgressBar,
) -> Result<Passed> {
    let mut far = K::new_receiver(device, config, 1, None)?;
    let near = K::join(&mut far, None, [device, device], config)?;
    host::thread::scope(|scope| {
        let receiving = scope.spawn(move || take(far, || Ok(()))).context(NO_THREAD)?;
        let sent = send(near, source, size, bar);
        let taken = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent?;
        taken
    })
}

impl Source {
    /// Reads the file once, for its checksum.
    fn open(path: &Path) -> Result<Source> {
        let open =
            || File::open(path).map_err(|e| usage(format!("--input {}: {e}", path.display())));
        // Before it is opened: a pipe would wait for its writer.
        if std::fs::metadata(path).is_ok_and(|known| !known.is_file()) {
            return Err(usage(format!(
                "--input {}: not a regular file, and it is read twice: name a file",
                path.display()
            )));
        }
        let mut file = open()?;
        let (mut hasher, mut block, mut length) = (crc32fast::Hasher::new(), vec![0; 1 << 20], 0);
        loop {
            go_on()?;
            match file.read(&mut block).with_context(|| format!("reading {}", path.display()))? {
                0 => break,
                n => {
                    hasher.update(&block[..n]);
                    length += n as u64;
                }
            }
        }
        Ok(Source { file: open()?, length, checksum: hasher.finalize() })
    }
}

/// Reads the file straight into send slots.
fn send(
    mut sender: impl Sending,
    mut source: Source,
    size: u32,
    bar: &ProgressBar,
) -> Result<Passed> {
    let start = host::time::now();
    let mut hasher = crc32fast::Hasher::new();
    let (mut at, mut messages) = (0, 0);
    while at < source.length {
        go_on()?;
        let length = u64::from(size).min(source.length - at) as usize;
        let mut read = Ok(());
        sender.send_with(length, |slot| {
            read = source.file.read_exact(slot);
            hasher.update(slot);
        })?;
        read.context("the file changed while it was sent")?;
        at += length as u64;
        messages += 1;
        bar.inc(length as u64);
    }
    sender.close()?;
    Ok(Passed {
        bytes: at,
        messages,
        checksum: hasher.finalize(),
        elapsed: host::time::since(start),
    })
}

/// # Errors
/// A signal has arrived: a part of a file is no result.
fn go_on() -> Result<(), Interrupted> {
    signals::interrupted().map_or(Ok(()), Err)
}

/// Receives until the sender has closed. `go_on` is asked before each wait.
fn take(
    mut receiver: impl Receiving,
    go_on: impl Fn() -> Result<(), Interrupted>,
) -> Result<Passed> {
    let start = host::time::now();
    let mut hasher = crc32fast::Hasher::new();
    let (mut bytes, mut messages) = (0, 0);
    loop {
        go_on()?;
        let taken = receiver.take(Some(GLANCE), |_, message| {
            hasher.update(message);
            bytes += message.len() as u64;
            Ok(())
        })?;
        match taken {
            Taken::Some(count) => {
                if messages == 0 {
                    tracing::info!("{HAS_COME}");
                }
                messages += count;
            }
            Taken::Nothing => {}
            Taken::Closed => break,
        }
    }
    Ok(Passed { bytes, messages, checksum: hasher.finalize(), elapsed: host::time::since(start) })
}

/// The listening end's part.
pub(super) fn receive<K: Kind>(
    host: &Host<'_, K>,
    mut party: Party<K>,
    expected: (u64, u32),
) -> Outcome {
    let (config, size) = (party.config, party.session.traffic.size);
    let mut inlets = party.sides.take().into_iter().flat_map(|s| s.receivers).flatten();
    let inlet = inlets.next().context("a party without a receiver")?;
    party.begin();
    let taken = session::engaged::<K, _>(&host.listener, "bench", gather::BUSY, || {
        take(inlet.receiver, go_on)
    });
    let taken = taken.and_then(|passed| told(&mut party, passed, expected));
    let passed = taken.map_err(|e| cause(e, party.wires()))?;
    report::<K>(host.common, host.device, &config, size, &passed, expected)
}

/// Tells the connecting end what has arrived.
fn told<K: Kind>(party: &mut Party<K>, passed: Passed, expected: (u64, u32)) -> Result<Passed> {
    for wire in party.wires() {
        gather::sent_by(wire)?;
        let equal = Some(passed.is(expected));
        wire.tell(&Control::Arrived { messages: passed.messages, work: Work::default(), equal })?;
    }
    Ok(passed)
}

impl Passed {
    fn is(&self, expected: (u64, u32)) -> bool {
        (self.bytes, self.checksum) == expected
    }
}

fn report<K: Kind>(
    common: &Common,
    device: &Device,
    config: &K::Settings,
    size: u32,
    passed: &Passed,
    expected: (u64, u32),
) -> Outcome {
    let equal = passed.is(expected);
    let per_s = |n: u64| n as f64 / passed.elapsed.as_secs_f64();
    if common.json {
        let line = Line {
            protocol: K::WORD,
            device: device.name(),
            transport: "rc",
            size_bytes: size,
            settings: settings::describe(K::SETTINGS, config),
            messages: passed.messages,
            messages_per_s: per_s(passed.messages),
            bytes: passed.bytes,
            bytes_per_s: per_s(passed.bytes),
            checksum_crc32: format!("{:08x}", passed.checksum),
            equal,
            machine: Machine::here(),
        };
        say!("{}", serde_json::to_string(&line)?);
    } else {
        say!(
            "{} in {} over {}: {}/s, {} messages/s",
            bytes(passed.bytes),
            counted_as(passed.messages, "message", "messages"),
            device.name(),
            bytes(per_s(passed.bytes) as u64),
            rate(per_s(passed.messages))
        );
        let verdict = if equal { "equal to the file's" } else { "NOT the file's" };
        say!("checksum (CRC-32) of what arrived: {:08x}, {verdict}", passed.checksum);
    }
    if !equal {
        bail!(
            "{} bytes with checksum {:08x} arrived, the file has {} bytes and {:08x}",
            passed.bytes,
            passed.checksum,
            expected.0,
            expected.1
        );
    }
    Ok(())
}
