//! Settings that every connection has.

use std::time::Duration;

use crate::error::ConfigError;
use crate::qp::Transport;
use crate::wait::WaitStrategy;

/// Settings that the configuration of every [`Protocol`](crate::Protocol) has, as its `common`.
/// Generic code reaches them by `AsMut`:
///
/// ```
/// use std::time::Duration;
///
/// use rdma_conn::{Common, Protocol, SendRecv};
///
/// fn patient<P: Protocol>() -> P::Config {
///     let mut config = P::Config::default();
///     config.as_mut().keepalive = Duration::from_secs(10);
///     config
/// }
///
/// assert_eq!(patient::<SendRecv>().common.keepalive, Duration::from_secs(10));
/// assert_eq!(Common::default().keepalive, Duration::from_secs(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Common {
    /// Strategy of a waiting thread. Words that the peer writes or stores make no event: an end
    /// that waits for them sleeps briefly and looks again. These are a Buffered Read sender, a
    /// Buffered Write end, a Direct Write sender without a buffer and a receiver that polls, a
    /// Shared Write sender without an extent and each of its receivers.
    pub wait: WaitStrategy,
    /// A wait in which nothing happens for this time (at least a millisecond) asks whether the
    /// peer's device still answers. Waits that time out before count together. A receiver also
    /// probes each peer from which nothing has arrived for that time while others sent, or while
    /// the caller only polled. (A Buffered Read receiver needs none: its READs ask.)
    pub keepalive: Duration,
    /// Longest wait when an end is dropped: a sender waits until accepted messages and its goodbye
    /// are delivered; a receiver waits until its senders have STOP. A Send/Receive receiver also
    /// keeps the queue pair of a sender that has said goodbye for this time, unless it needs the
    /// place: the device's acknowledgement may have been lost, and must be repeated.
    pub linger: Duration,
    /// The port, and the transport's behaviour towards a peer that does not answer.
    pub transport: Transport,
}

impl Default for Common {
    /// Adaptive waits, a keepalive and a linger of one second.
    fn default() -> Common {
        Common {
            wait: WaitStrategy::Adaptive,
            keepalive: Duration::from_secs(1),
            linger: Duration::from_secs(1),
            transport: Transport::default(),
        }
    }
}

impl Common {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.transport.validate()
    }
}

/// Makes the `common` of a configuration reachable by `AsRef` and `AsMut`.
macro_rules! has_common {
    ($config:ty) => {
        impl AsRef<$crate::common::Common> for $config {
            fn as_ref(&self) -> &$crate::common::Common {
                &self.common
            }
        }

        impl AsMut<$crate::common::Common> for $config {
            fn as_mut(&mut self) -> &mut $crate::common::Common {
                &mut self.common
            }
        }
    };
}

pub(crate) use has_common;
