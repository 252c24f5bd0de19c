//! `bench --input FILE`: a real file, cut into messages, compared with what arrived.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::outcome::{CommandResult, usage};
use base::{progress, say, signals};
use indicatif::ProgressBar;
use rdma_conn::device::Device;

use super::connect;
use super::gather::{self, ListeningEnd, Party};
use super::rounds::config;
use crate::cli::{BenchArgs, CommonArgs};
use crate::cmd::stream::{Passed, confirm, confirmed, send_all, take_all};
use crate::measure::figures::{bytes, counted_as, rate};
use crate::measure::{MessageLoad, Work, pair};
use crate::protocol::{MeasuredProtocol, MeasuredSender};
use crate::session::{self, SessionChannel, TrafficParameters, cause};

/// The message size when none is given.
const DEFAULT_SIZE: u32 = 65_536;

/// A file, and what will tell whether it arrived whole.
struct InputFile {
    file: File,
    length: u64,
    checksum: u32,
}

pub(crate) fn run<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &BenchArgs,
    device: &Device,
    path: &Path,
) -> CommandResult {
    if let Some(rounds) = options.rounds.rounds {
        return Err(usage(format!(
            "--rounds {rounds}: --input sends a file once, and compares it: leave --rounds out, or \
             measure with --size or --messages instead of a file"
        )));
    }
    let source = InputFile::open(path)?;
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
    let load = MessageLoad { size, ..MessageLoad::new(options, size) };
    let traffic = connect::traffic::<K>(options, &config, &load, Some(expected));
    let passed = match options.ends.connect {
        Some(address) => connect::<K>(device, &config, &traffic, address, source, &bar)?,
        None => within_process::<K>(device, &config, source, size, &bar)?,
    };
    bar.finish_and_clear();
    report::<K>(common, device, (&config, size), &passed, expected)
}

/// Sends the file to the listener at `address`, which says whether it has arrived.
fn connect<K: MeasuredProtocol>(
    device: &Device,
    config: &K::Settings,
    traffic: &TrafficParameters,
    address: SocketAddr,
    source: InputFile,
    bar: &ProgressBar,
) -> Result<Passed> {
    let session = session::MeasurementIndex::only().session("bench", 1, 0, traffic.clone());
    let (outlet, mut wire) = connect::join::<K>(&session, device, config, address)?;
    connect::begin(&mut wire)?;
    let mut passed = Passed::new();
    let sent = source.send(outlet.sender, traffic.size, &mut passed, bar);
    let confirmed = sent.and_then(|work| confirmed(&mut wire, &passed, work, SessionChannel::hear));
    confirmed.map_err(|e| cause(e, [&mut wire]))?;
    Ok(passed)
}

fn within_process<K: MeasuredProtocol>(
    device: &Device,
    config: &K::Settings,
    source: InputFile,
    size: u32,
    bar: &ProgressBar,
) -> Result<Passed> {
    let mut far = K::new_receiver(device, config, 1, None)?;
    let other = session::card::peer_device(device)?;
    let devices = [device, other.as_ref().unwrap_or(device)];
    let near = K::join(&mut far, None, devices, config)?;
    let (mut sent, mut passed) = (Passed::new(), Passed::new());
    let lead = || source.send(near, size, &mut sent, bar);
    let follow = || {
        let mut far = far;
        take_all(&mut far, &mut passed, |_| Ok(()), |_| Ok(()))
    };
    let (led, followed) = pair(lead, follow)?;
    led?;
    followed?;
    Ok(passed)
}

impl InputFile {
    /// Reads the file once, for its checksum.
    fn open(path: &Path) -> Result<InputFile> {
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
            signals::go_on()?;
            match file.read(&mut block).with_context(|| format!("reading {}", path.display()))? {
                0 => break,
                n => {
                    hasher.update(&block[..n]);
                    length += n as u64;
                }
            }
        }
        Ok(InputFile { file: open()?, length, checksum: hasher.finalize() })
    }

    /// Sends the file. A part of a file is no result: a signal is an error.
    fn send(
        mut self,
        sender: impl MeasuredSender,
        size: u32,
        passed: &mut Passed,
        bar: &ProgressBar,
    ) -> Result<Work> {
        let mut left = self.length;
        send_all(
            sender,
            size,
            passed,
            |room| {
                let length = left.min(room.len() as u64);
                left -= length;
                let read = self.file.read_exact(&mut room[..length as usize]);
                read.context("the file changed while it was sent")?;
                Ok(length as usize)
            },
            |bytes| {
                bar.set_position(bytes);
                Ok(signals::go_on()?)
            },
        )
    }
}

/// The listening end's part.
pub(super) fn receive<K: MeasuredProtocol>(
    host: &ListeningEnd<'_, K>,
    mut party: Party<K>,
    expected: (u64, u32),
) -> CommandResult {
    let (config, size) = (party.config, party.session.traffic.size);
    let mut inlets = party.sides.take().into_iter().flat_map(|s| s.receivers).flatten();
    let mut receiver = inlets.next().context("a party without a receiver")?.receiver;
    party.begin();
    let mut passed = Passed::new();
    let taken = session::engaged::<K, _>(&host.listener, "bench", gather::BUSY, || {
        take_all(&mut receiver, &mut passed, |_| Ok(()), |_| Ok(signals::go_on()?))
    });
    // A difference is in the result.
    let confirmed = taken
        .and_then(|work| party.wires().try_for_each(|wire| confirm(wire, &passed, work).map(drop)));
    confirmed.map_err(|e| cause(e, party.wires()))?;
    report::<K>(host.common, host.device, (&config, size), &passed, expected)
}

fn report<K: MeasuredProtocol>(
    common: &CommonArgs,
    device: &Device,
    (config, size): (&K::Settings, u32),
    passed: &Passed,
    expected: (u64, u32),
) -> CommandResult {
    let checksum = passed.checksum();
    let equal = (passed.bytes, checksum) == expected;
    let line = passed.line::<K>(device, config, size).with("equal", equal);
    if common.json {
        say!("{}", serde_json::to_string(&line)?);
    } else {
        say!(
            "{} in {} over {}: {}/s, {} messages/s",
            bytes(passed.bytes),
            counted_as(passed.messages, "message", "messages"),
            device.name(),
            bytes(line.figure("bytes_per_s") as u64),
            rate(line.figure("messages_per_s"))
        );
        let verdict = if equal { "equal to the file's" } else { "NOT the file's" };
        say!("checksum (CRC-32) of what arrived: {checksum:08x}, {verdict}");
    }
    if !equal {
        bail!(
            "{} bytes with checksum {checksum:08x} arrived, the file has {} bytes and {:08x}",
            passed.bytes,
            expected.0,
            expected.1
        );
    }
    Ok(())
}
