//! The attributes of a requester.

use super::window::MAX_WINDOW;
use crate::lengths::PATH_MTUS;
use crate::psn::Psn;

/// An `rnr_retry` that never ends.
pub const RNR_RETRY_FOREVER: u8 = 7;

/// The attributes of the queue pair that the requester obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// The path MTU: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu: u32,
    /// The peer's queue pair.
    pub dest_qpn: u32,
    /// Partition key of all packets.
    pub pkey: u16,
    /// The number of the first packet (`sq_psn`).
    pub first_psn: Psn,
    /// The timeout is 4.096 µs times 2 to this power; 0 means never. At most 31.
    pub timeout: u8,
    /// Times that packets are repeated without progress before the request fails.
    pub retry_cnt: u8,
    /// The same after RNR NAKs; [`RNR_RETRY_FOREVER`] sets no limit.
    pub rnr_retry: u8,
    /// READs (or parts of them) and atomics under way at once.
    pub max_rd_atomic: u8,
    /// Packets under way at once, at most [`MAX_WINDOW`].
    pub max_window: u32,
    /// Packets of a READ's response that are asked for at once, at most [`MAX_WINDOW`]. More than
    /// the window are asked for when nothing else is under way.
    pub read_packets: u32,
}

/// The attributes that may change while the connection works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changeable {
    /// As [`RequesterConfig::timeout`].
    pub timeout: u8,
    /// As [`RequesterConfig::retry_cnt`].
    pub retry_cnt: u8,
    /// As [`RequesterConfig::rnr_retry`].
    pub rnr_retry: u8,
    /// As [`RequesterConfig::max_rd_atomic`].
    pub max_rd_atomic: u8,
}

/// A configuration that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The path MTU is none of the five.
    #[error("mtu ({0}) must be 256, 512, 1024, 2048 or 4096")]
    Mtu(u32),
    /// The timeout is over 31.
    #[error("timeout ({0}) must be at most 31")]
    Timeout(u8),
    /// A window or a part of a READ of 0 or of more than [`MAX_WINDOW`] packets.
    #[error("window ({0}) must be from 1 to {MAX_WINDOW} packets")]
    Window(u32),
    /// The send queue has no entries.
    #[error("the send queue must have an entry")]
    NoSlots,
}

impl RequesterConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !PATH_MTUS.contains(&(self.mtu as usize)) {
            return Err(ConfigError::Mtu(self.mtu));
        }
        if self.timeout > 31 {
            return Err(ConfigError::Timeout(self.timeout));
        }
        let wrong = |packets: &u32| *packets == 0 || *packets > MAX_WINDOW;
        match [self.max_window, self.read_packets].into_iter().find(wrong) {
            Some(packets) => Err(ConfigError::Window(packets)),
            None => Ok(()),
        }
    }
}
