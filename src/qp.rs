//! Attributes of the queue pairs of any connection.

use crate::error::{ConfigError, check};

/// Attributes of the queue pairs. Each is set explicitly: zero is rarely a useful value (0 as
/// `min_rnr_timer` is 655 ms).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// Port of the device, from 1.
    pub port: u8,
    /// Index in the port's GID table; `None` prefers the IPv4-mapped RoCE v2 GID.
    pub gid_index: Option<u32>,
    /// Time to an acknowledgement is 4.096 µs · 2^`timeout`; 16 is 268 ms. With 6 retries a peer is
    /// lost after 1.9 s: a device that is software (the kernel's rxe) answers in a thread, which a
    /// busy machine may not run for half a second.
    pub timeout: u8,
    /// Retries before `RETRY_EXC`, 0 to 7. To the kernel's rxe, 7 is for ever: a peer that
    /// has gone would never be missed.
    pub retry_count: u8,
    /// Retries after a receiver-not-ready before `RNR_RETRY_EXC`, 0 to 6; 7 is for
    /// ever and refused, because a wait has to end.
    pub rnr_retry: u8,
    /// Code of the time that the peer waits after our receiver-not-ready; 12 is
    /// 0.64 ms.
    pub min_rnr_timer: u8,
}

impl Default for Transport {
    fn default() -> Transport {
        Transport {
            port: 1,
            gid_index: None,
            timeout: 16,
            retry_count: 6,
            rnr_retry: 6,
            min_rnr_timer: 12,
        }
    }
}

impl Transport {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let timeout = (1..32).contains(&self.timeout);
        check("transport.timeout", self.timeout, timeout, "1 to 31")?;
        check("transport.retry_count", self.retry_count, self.retry_count < 8, "0 to 7")?;
        check("transport.rnr_retry", self.rnr_retry, self.rnr_retry < 7, "0 to 6")?;
        let timer = (1..32).contains(&self.min_rnr_timer);
        check("transport.min_rnr_timer", self.min_rnr_timer, timer, "1 to 31")?;
        check("transport.port", self.port, self.port > 0, "from 1")
    }
}

/// Limit up to which small messages travel inside their work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inline {
    /// The device's limit, but at most 256 bytes: beyond that the copy into the work request costs
    /// more than the device's read.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Up to this number of bytes, if the device grants them.
    UpTo(
        /// Bytes.
        u32,
    ),
}

impl Inline {
    /// Returns the bytes to ask the device for.
    pub(crate) fn asked_bytes(self) -> u32 {
        match self {
            Inline::Auto => 256,
            Inline::Never => 0,
            Inline::UpTo(bytes) => bytes,
        }
    }
}
