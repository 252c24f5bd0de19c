//! A stream of bytes over a connection, in pieces: both ends compare what has gone by.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rdma_conn::device::Device;

use crate::measure::{HAS_COME, ResultLine, Work, per_s};
use crate::protocol::{MeasuredProtocol, MeasuredReceiver, MeasuredSender, TakeOutcome};
use crate::session::{self, ControlMessage, GLANCE, SessionChannel};
use crate::settings;

/// Part of the stream that one end sent or received.
pub(super) struct Passed {
    pub(super) bytes: u64,
    pub(super) messages: u64,
    hasher: crc32fast::Hasher,
    start: Instant,
    /// From the first piece to the end, once there is one.
    elapsed: Duration,
}

impl Passed {
    pub(super) fn new() -> Passed {
        let (hasher, start) = (crc32fast::Hasher::new(), host::time::now());
        Passed { bytes: 0, messages: 0, hasher, start, elapsed: Duration::ZERO }
    }

    /// One more piece; a first one starts the clock.
    fn add(&mut self, piece: &[u8]) {
        if self.messages == 0 {
            self.start = host::time::now();
        }
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        self.messages += 1;
    }

    /// The clock stops now.
    pub(super) fn end(&mut self) {
        self.elapsed = host::time::since(self.start);
    }

    pub(super) fn checksum(&self) -> u32 {
        self.hasher.clone().finalize()
    }

    /// The result, with pieces of `size` bytes at most.
    pub(super) fn line<K: MeasuredProtocol>(
        &self,
        device: &Device,
        config: &K::Settings,
        size: u32,
    ) -> ResultLine {
        ResultLine::new(K::WORD, device.name(), "rc", size)
            .with_settings(settings::describe(K::SETTINGS, config))
            .with("messages", self.messages)
            .with("messages_per_s", per_s(self.messages, self.elapsed))
            .with("bytes", self.bytes)
            .with("bytes_per_s", per_s(self.bytes, self.elapsed))
            .with("checksum_crc32", format!("{:08x}", self.checksum()))
    }
}

/// Sends all that `read` gives, in pieces of `size` bytes at most, and says goodbye. `next` gets the
/// bytes so far before each piece. Returns the work of this end.
pub(super) fn send_all(
    mut sender: impl MeasuredSender,
    size: u32,
    passed: &mut Passed,
    read: impl FnMut(&mut [u8]) -> Result<usize>,
    next: impl FnMut(u64) -> Result<()>,
) -> Result<Work> {
    let sent = send_pieces(&mut sender, size, passed, read, next);
    let work = sender.work();
    // An error of sending is reported first: closing then fails as a consequence.
    let closed = sender.close();
    passed.end();
    sent.and(closed).map(|()| work)
}

fn send_pieces(
    sender: &mut impl MeasuredSender,
    size: u32,
    passed: &mut Passed,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    mut next: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut scratch = vec![0; size as usize];
    loop {
        next(passed.bytes)?;
        let sent = sender.send_up_to(&mut scratch, |room| {
            let got = read(room)?;
            if got > 0 {
                passed.add(&room[..got]);
            }
            Ok(got)
        })?;
        if sent == 0 {
            return sender.wait_all();
        }
        if sent < scratch.len() {
            // There may be no more for long.
            sender.flush()?;
        }
    }
}

/// Gives all pieces to `write` until the other end says goodbye. `next` gets the bytes so far before
/// each look for more. Returns the work of this end.
pub(super) fn take_all(
    receiver: &mut impl MeasuredReceiver,
    passed: &mut Passed,
    mut write: impl FnMut(&[u8]) -> Result<()>,
    mut next: impl FnMut(u64) -> Result<()>,
) -> Result<Work> {
    loop {
        next(passed.bytes)?;
        let is_first = passed.messages == 0;
        let taken = receiver.take(Some(GLANCE), |_, piece| {
            passed.add(piece);
            write(piece)
        })?;
        match taken {
            TakeOutcome::Some(_) if is_first => tracing::info!("{HAS_COME}"),
            TakeOutcome::Some(_) | TakeOutcome::Nothing => {}
            TakeOutcome::Closed => {
                passed.end();
                return Ok(receiver.work());
            }
        }
    }
}

/// Says what was sent; returns the work of both ends if that has arrived, which `hear` waits for.
pub(super) fn confirmed(
    wire: &mut SessionChannel,
    passed: &Passed,
    work: Work,
    hear: impl FnOnce(&mut SessionChannel) -> Result<ControlMessage>,
) -> Result<Work> {
    wire.tell(&ControlMessage::Streamed { bytes: passed.bytes, crc32: passed.checksum(), work })?;
    match hear(wire)? {
        ControlMessage::Arrived { equal: Some(true), work, .. } => Ok(work),
        ControlMessage::Arrived { .. } => bail!("what has arrived is not what was sent"),
        other => session::unexpected(other),
    }
}

/// Compares what has arrived with what was sent, and tells the other end; returns the work of both
/// ends, and the difference, if there is one. A goodbye alone proves nothing: an end that fails says
/// goodbye, too.
pub(super) fn confirm(
    wire: &mut SessionChannel,
    passed: &Passed,
    here: Work,
) -> Result<(Work, Option<String>)> {
    let checksum = passed.checksum();
    match wire.hear()? {
        ControlMessage::Streamed { bytes, crc32, work } => {
            let (equal, work) = ((bytes, crc32) == (passed.bytes, checksum), work + here);
            wire.tell(&ControlMessage::Arrived {
                messages: passed.messages,
                work,
                equal: Some(equal),
            })?;
            let difference = (!equal).then(|| {
                format!(
                    "{} bytes with checksum {checksum:08x} have arrived, {bytes} with {crc32:08x} \
                     were sent",
                    passed.bytes
                )
            });
            Ok((work, difference))
        }
        other => session::unexpected(other),
    }
}
