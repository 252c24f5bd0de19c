//! `bench --input FILE`: a real file, cut into messages, compared with what arrived.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    Config, Incoming, Receiver, RecvError, SendError, Sender, connect_sender_over, join, receiver,
};
use serde::Serialize;

use super::config;
use super::report::{bytes, rate};
use crate::args::{Bench, Common};
use crate::outcome::{Outcome, usage};
use crate::progress;
use crate::session::{self, Session};

/// The message size when none is given.
const DEFAULT_SIZE: u32 = 65_536;

/// A file, and what will tell whether it arrived whole.
struct Source {
    file: File,
    length: u64,
    checksum: u32,
}

/// What one end has seen go by.
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
    unacked: u32,
    batch: u32,
    messages: u64,
    messages_per_s: f64,
    bytes: u64,
    bytes_per_s: f64,
    checksum_crc32: String,
    /// Absent where the file arrives elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    equal: Option<bool>,
    build: String,
}

pub(crate) fn run(common: &Common, options: &Bench, device: &Device, path: &Path) -> Outcome {
    let source = Source::open(path)?;
    let size = match options.size[..] {
        [] => DEFAULT_SIZE,
        [size] => size,
        _ => return Err(usage("--input takes one --size")),
    };
    if size == 0 {
        return Err(usage("--input needs messages of at least 1 byte"));
    }
    options.connection.check_pack(size)?;
    let config = config(common, options, size);
    let bar = progress::bytes(source.length, common.json);
    let expected = (source.length, source.checksum);
    let passed = match options.ends.connect {
        Some(address) => {
            let session = session_of(options, &config, size, expected).encode()?;
            let mut stream = session::dial(address)?;
            let sender = connect_sender_over(&mut stream, device, &config, &session)?;
            send(sender, source, size, &bar)?
        }
        None => within_process(device, &config, source, size, &bar)?,
    };
    bar.finish_and_clear();
    let arrived = options.ends.connect.is_none();
    report(common, device, &config, &passed, expected, arrived)
}

fn within_process(
    device: &Device,
    config: &Config,
    source: Source,
    size: u32,
    bar: &ProgressBar,
) -> Result<Passed> {
    let mut far = receiver(device, config, 1, None)?;
    let near = join(&mut far, device, device, config)?;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || take(far));
        let sent = send(near, source, size, bar);
        let taken = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent?;
        taken
    })
}

impl Source {
    /// Reads the file once, for its checksum.
    fn open(path: &Path) -> Result<Source> {
        let open = || File::open(path).map_err(|e| usage(format!("{}: {e}", path.display())));
        let mut file = open()?;
        if !file.metadata()?.is_file() {
            return Err(usage(format!("{} is not a file", path.display())));
        }
        let (mut hasher, mut block, mut length) = (crc32fast::Hasher::new(), vec![0; 1 << 20], 0);
        loop {
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
fn send(mut sender: Sender, mut source: Source, size: u32, bar: &ProgressBar) -> Result<Passed> {
    let start = Instant::now();
    let mut hasher = crc32fast::Hasher::new();
    let (mut at, mut messages) = (0, 0);
    while at < source.length {
        let length = u64::from(size).min(source.length - at) as usize;
        let mut read = Ok(());
        match sender.try_send_with(length, |slot| {
            read = source.file.read_exact(slot);
            hasher.update(slot);
        }) {
            Err(SendError::Full(_)) => {
                sender.wait_for_room()?;
                continue;
            }
            sent => sent?,
        };
        read.context("the file changed while it was sent")?;
        at += length as u64;
        messages += 1;
        bar.inc(length as u64);
    }
    sender.close()?;
    Ok(Passed { bytes: at, messages, checksum: hasher.finalize(), elapsed: start.elapsed() })
}

fn take(mut receiver: Receiver) -> Result<Passed> {
    let start = Instant::now();
    let mut hasher = crc32fast::Hasher::new();
    let (mut bytes, mut messages) = (0, 0);
    loop {
        let message = match receiver.recv() {
            Ok(message) => message,
            Err(RecvError::Closed) => break,
            Err(e) => return Err(e.into()),
        };
        hasher.update(&message);
        bytes += message.len() as u64;
        messages += 1;
        receiver.free(message);
    }
    Ok(Passed { bytes, messages, checksum: hasher.finalize(), elapsed: start.elapsed() })
}

/// The listening end's part.
pub(crate) fn receive(
    common: &Common,
    incoming: Incoming,
    device: &Device,
    config: &Config,
    expected: (u64, u32),
) -> Outcome {
    let mut far = receiver(device, config, 1, None)?;
    incoming.accept_into(&mut far, None, device, config)?;
    report(common, device, config, &take(far)?, expected, true)
}

fn session_of(options: &Bench, config: &Config, size: u32, file: (u64, u32)) -> Session {
    Session {
        command: "bench".into(),
        size,
        message_bytes: config.message_bytes,
        unacked: config.unacked,
        batch: config.batch,
        preset: options.connection.preset.map(|p| p.name().to_owned()),
        pack_bytes: config.pack_bytes,
        recv_window: config.recv_window,
        credits: config.credits,
        verify: !options.no_verify,
        senders: 1,
        sender: 0,
        single_receiver: false,
        srq: None,
        file: Some(file),
    }
}

fn report(
    common: &Common,
    device: &Device,
    config: &Config,
    passed: &Passed,
    expected: (u64, u32),
    arrived: bool,
) -> Outcome {
    let equal = (passed.bytes, passed.checksum) == expected;
    let per_s = |n: u64| n as f64 / passed.elapsed.as_secs_f64();
    if common.json {
        let line = Line {
            protocol: "send-recv",
            device: device.name(),
            transport: "rc",
            size_bytes: config.message_bytes,
            unacked: config.unacked,
            batch: config.batch,
            messages: passed.messages,
            messages_per_s: per_s(passed.messages),
            bytes: passed.bytes,
            bytes_per_s: per_s(passed.bytes),
            checksum_crc32: format!("{:08x}", passed.checksum),
            equal: arrived.then_some(equal),
            build: rdma_conn::build::summary(),
        };
        say!("{}", serde_json::to_string(&line)?);
    } else {
        say!(
            "{} in {} messages over {}: {}/s, {} messages/s",
            bytes(passed.bytes),
            passed.messages,
            device.name(),
            bytes(per_s(passed.bytes) as u64),
            rate(per_s(passed.messages))
        );
        let verdict = if equal { "equal to the file's" } else { "NOT the file's" };
        let what = if arrived { "arrived" } else { "was sent" };
        say!("checksum (CRC-32) of what {what}: {:08x}, {verdict}", passed.checksum);
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
