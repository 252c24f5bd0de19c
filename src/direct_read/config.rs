//! Policies of a Direct Read connection.

use conn_core::direct_read::{AckMode, HEADER_LEN, MAX_WINDOW, SignalAt};

use crate::common::{Common, has_common};
use crate::error::{ConfigError, check_in, chosen};

/// Policies of either end. The sender's `ack` and `signal_at` hold, `app_bytes` and
/// `gather` are the receiver's; of windows and READs in flight the smaller ones hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Settings that every connection has.
    pub common: Common,
    /// Messages that are not acknowledged, at most: 32, as in Fischer's design.
    pub window: u32,
    /// Way in which the sender learns that a message was read.
    pub ack: AckMode,
    /// Location of the acknowledgement signals, in the modes that have them: `Tail` needs
    /// buffers that were made with one.
    pub signal_at: SignalAt,
    /// Longest message of [`SendHalf::send`](crate::SendHalf::send), in bytes: it is copied into a
    /// registered buffer of this size, and read into another one. A sender has at most `window` of
    /// these buffers, and a receiver `window` times `max_peers`; they are made at first use. The
    /// smaller value of both ends holds.
    pub message_bytes: u32,
    /// Longest application data of a request, in bytes. A request goes inline if the device permits
    /// its length.
    pub app_bytes: u32,
    /// READs in flight, 1 to 255; also limited by the devices at both ends.
    pub reads: u8,
    /// Longest READ in bytes; 0 is the limit of the port. Longer messages are read in parts.
    pub max_read_bytes: u32,
    /// Messages that a count (or a SEND) waits for while READs are in flight; 0 chooses a
    /// quarter of the window.
    pub gather: u32,
    /// For tests: acknowledges without fence and without waiting, and so too early.
    #[doc(hidden)]
    pub too_early: bool,
}

has_common!(Config);

impl Default for Config {
    /// Windows of 32, acknowledged by a WRITE when the READ has completed, signals apart
    /// from the messages.
    fn default() -> Config {
        Config {
            window: 32,
            ack: AckMode::Write,
            signal_at: SignalAt::Separate,
            message_bytes: 64 << 10,
            app_bytes: 216,
            reads: 16,
            max_read_bytes: 0,
            gather: 0,
            common: Common::default(),
            too_early: false,
        }
    }
}

impl Config {
    /// The longest application data that can be asked for, in bytes.
    pub const MAX_APP_BYTES: u32 = 8192;

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_in("window", self.window, 1..=MAX_WINDOW, "1 to 16384")?;
        check_in("message_bytes", self.message_bytes, 1.., "at least 1")?;
        check_in("app_bytes", self.app_bytes, ..=Self::MAX_APP_BYTES, "0 to 8192")?;
        check_in("reads", self.reads, 1.., "1 to 255")?;
        check_in("gather", self.gather, ..=self.window, "0 (choose) to window")?;
        self.common.validate()
    }

    /// Bytes of a request.
    pub(crate) fn request_bytes(&self) -> u32 {
        HEADER_LEN as u32 + self.app_bytes
    }

    /// `gather`, chosen where it was left open.
    pub(crate) fn gather_of(&self, window: u32) -> u32 {
        chosen(self.gather.min(window), (window / 4).max(1))
    }
}

#[cfg(test)]
mod tests;
