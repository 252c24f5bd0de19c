//! Policies of a Direct Read connection.

use std::time::Duration;

use conn_core::direct_read::{AckMode, HEADER_LEN, MAX_WINDOW, SignalAt};

use crate::send_recv::{ConfigError, Transport};
use crate::wait::WaitStrategy;

/// Policies of either end. The sender's `ack` and `signal_at` hold, `app_bytes` and
/// `gather` are the receiver's; of windows and READs in flight the smaller ones hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Messages that are not acknowledged, at most: 32, as in Fischer's design.
    pub window: u32,
    /// How the sender learns that a message was read.
    pub ack: AckMode,
    /// Where the signals are that say so, in the modes that have some: `Tail` needs
    /// buffers that were made with one.
    pub signal_at: SignalAt,
    /// Longest application data of a request, in bytes. A request is handed over inline
    /// if the device takes so much.
    pub app_bytes: u32,
    /// READs in flight, 1 to 255. What the devices at both ends permit limits it, too.
    pub reads: u8,
    /// Longest READ in bytes; 0 is what the port permits. Longer messages are read in
    /// parts.
    pub max_read_bytes: u32,
    /// Messages that a count (or a SEND) waits for while READs are in flight; 0 chooses a
    /// quarter of the window.
    pub gather: u32,
    /// What a waiting thread does with its time.
    pub wait: WaitStrategy,
    /// How long the peer may be silent before a waiter asks whether it is there.
    pub keepalive: Duration,
    /// How long dropping an end may take to say goodbye.
    pub linger: Duration,
    /// The port, and the patience of the transport.
    pub transport: Transport,
    /// For tests: acknowledges without fence and without waiting, and so too early.
    #[doc(hidden)]
    pub too_early: bool,
}

impl Default for Config {
    /// Windows of 32, acknowledged by a WRITE when the READ has completed, signals apart
    /// from the messages.
    fn default() -> Config {
        Config {
            window: 32,
            ack: AckMode::Write,
            signal_at: SignalAt::Separate,
            app_bytes: 216,
            reads: 16,
            max_read_bytes: 0,
            gather: 0,
            wait: WaitStrategy::Adaptive,
            keepalive: Duration::from_secs(1),
            linger: Duration::from_secs(1),
            transport: Transport::default(),
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
        let window = (1..=MAX_WINDOW).contains(&self.window);
        check("window", self.window, window, "1 to 16384")?;
        let app = self.app_bytes <= Self::MAX_APP_BYTES;
        check("app_bytes", self.app_bytes, app, "0 to 8192")?;
        check("reads", self.reads.into(), self.reads > 0, "1 to 255")?;
        let gather = self.gather <= self.window;
        check("gather", self.gather, gather, "0 (choose) to window")?;
        self.transport.validate()
    }

    /// Bytes of a request.
    pub(crate) fn request_bytes(&self) -> u32 {
        HEADER_LEN as u32 + self.app_bytes
    }

    /// `gather`, chosen where it was left open.
    pub(crate) fn gather_of(&self, window: u32) -> u32 {
        match self.gather {
            0 => (window / 4).max(1),
            chosen => chosen.min(window),
        }
    }
}

fn check(field: &'static str, value: u32, ok: bool, rule: &'static str) -> Result<(), ConfigError> {
    if ok { Ok(()) } else { Err(ConfigError { field, value: value.into(), rule }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_out_of_range_is_named() {
        let ok = Config::default();
        ok.validate().unwrap();
        let cases = [
            ("window", Config { window: 0, ..ok }),
            ("window", Config { window: MAX_WINDOW + 1, ..ok }),
            ("app_bytes", Config { app_bytes: 8193, ..ok }),
            ("reads", Config { reads: 0, ..ok }),
            ("gather", Config { gather: 33, ..ok }),
            ("transport.port", Config { transport: Transport { port: 0, ..ok.transport }, ..ok }),
        ];
        for (field, config) in cases {
            assert_eq!(config.validate().unwrap_err().field, field);
        }
    }
}
