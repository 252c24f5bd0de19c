//! The plan of the baseline, and the notes by which its ends agree on it.

use std::time::Duration;

use anyhow::{Result, bail};
use base::outcome::usage;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::super::plan::RawTask;
use crate::measure::ResultLine;
use crate::session::{self, ControlChannel};

/// Bytes of a RoCE v2 packet beside its payload: BTH and ICRC.
const AROUND: u32 = 16;
/// Bytes that the kernel adds to a packet that it keeps, as the device reckons.
const OVERHEAD: u32 = 1_024;
/// The largest window, in datagrams.
const MOST_UNACKED: u32 = 1 << 16;

/// The byte stream to the other end.
pub(super) type UdpChannel = ControlChannel<Note>;

/// Message of one end to the other on that stream.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) enum Note {
    /// The measurement, and the UDP port of the connecting end.
    Plan(UdpPlan, u16),
    /// The UDP port of the listening end, and the bytes of its receive buffer.
    Ready(u16, usize),
    /// Total of the datagrams sent: there will be no more.
    Done(u64),
    /// Number of datagrams received so far.
    Received(u64),
    /// Results of the measurement, and the signal that has ended it early.
    Results(Box<ResultLine>, Option<String>),
}

/// One measurement.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) struct UdpPlan {
    pub(super) task: RawTask,
    /// Bytes of a message.
    pub(super) size: u32,
    /// Bytes of a path MTU of RoCE v2, which a datagram has besides 16 bytes.
    pub(super) mtu: u32,
    /// Index of this measurement among the `of` measurements.
    pub(super) at: u32,
    pub(super) of: u32,
    pub(super) rounds: u32,
}

impl UdpPlan {
    /// Bytes of messages in a datagram.
    pub(super) fn payload(&self) -> u32 {
        self.size.min(self.mtu).max(1)
    }

    /// Bytes of a datagram.
    pub(super) fn datagram(&self) -> usize {
        (self.payload() + AROUND) as usize
    }

    /// Datagrams of a message.
    pub(super) fn datagrams(&self) -> u64 {
        u64::from(self.size.div_ceil(self.mtu).max(1))
    }

    /// Datagrams under way at once to an end whose receive buffer has `buffer` bytes.
    pub(super) fn window(&self, buffer: usize) -> u32 {
        let most = buffer / 2 / (self.datagram() + OVERHEAD as usize);
        u32::try_from(most).unwrap_or(MOST_UNACKED).clamp(4, MOST_UNACKED)
    }

    pub(super) fn check(&self) -> Result<()> {
        let mtus = [256, 512, 1_024, 2_048, 4_096];
        if !mtus.contains(&self.mtu) || self.size > MOST_BYTES || self.rounds == 0 || self.of == 0 {
            bail!("the other end asks for what cannot be: {self:?}");
        }
        if self.task == RawTask::Pingpong && self.datagrams() > 1 {
            return Err(usage(format!(
                "--size {}: a message of pingpong --op udp is one datagram, of up to {} bytes here",
                self.size, self.mtu
            )));
        }
        Ok(())
    }
}

/// The longest message.
const MOST_BYTES: u32 = 1 << 30;

/// Counts and times of a measurement at the leading end.
pub(super) struct UdpLed {
    pub(super) elapsed: Duration,
    /// Datagrams that were sent (pingpong: and answered).
    pub(super) sent: u64,
    pub(super) latencies: Option<Histogram<u64>>,
}

/// Reports whether the connecting end has sent all; a signal is an error, which ends the wait.
pub(super) fn has_ended(control: &mut UdpChannel) -> Result<bool> {
    control.end_at_signal()?;
    match control.heard()? {
        None => Ok(false),
        Some(Note::Done(_)) => Ok(true),
        Some(other) => session::unexpected(other),
    }
}
