//! Reliable messages over unreliable datagrams (UD): fragments, acknowledgements, repetition.
//!
//! A datagram is at most one MTU long, and may be lost, repeated or overtaken without an error
//! (RDMA Tutorial, the choice of queue pair types). Here the ends repair this: the sender cuts
//! messages into fragments and numbers them; the receiver puts them together in order, and tells
//! the sender which ones it has (selective acknowledgements, as in RFC 2018).
//!
//! All integers are little-endian:
//!
//! | bytes | fragment | acknowledgement |
//! |---|---|---|
//! | 1 | kind: 1 | kind: 2 |
//! | 3 | 0 | 0 |
//! | 4 | its number, modulo 2³² | number of the first fragment that is missing or not yet taken |
//! | 4 | bytes of its message | bit i: fragment (that number + 1 + i) has arrived |
//! | 4 | offset in the message | …, 64 bits in all |
//! | … | payload | |
//!
//! A fragment counts as lost, and is repeated, when another one is acknowledged that was sent three
//! transmissions later or more (RFC 9002, section 6.1.1). The oldest fragment is also repeated when
//! it is not acknowledged within a timeout, which follows from the measured round trip, and doubles
//! each time until a newer fragment is acknowledged (RFC 6298). An acknowledgement of a repeated
//! fragment counts for neither rule: it does not tell which transmission arrived. The window is
//! fixed: there is no congestion control.
//!
//! # The drive loop
//!
//! The sender:
//!
//! 1. [`cut`](FragmentSender::cut) the next fragments of a message, until the window is full.
//! 2. While [`transmit`](FragmentSender::transmit) writes a datagram, send it.
//! 3. Give each received acknowledgement to [`on_ack`](FragmentSender::on_ack).
//! 4. End the connection if [`check_peer`](FragmentSender::check_peer) reports that the peer is
//!    silent.
//! 5. Go to step 1 when an acknowledgement arrives, or at [`wants_ns`](FragmentSender::wants_ns).
//!
//! The receiver:
//!
//! 1. Give each datagram to [`arrive`](FragmentReceiver::arrive), and copy the fragment that it
//!    returns into the message; then copy those that [`take`](FragmentReceiver::take) returns,
//!    which arrived early.
//! 2. When [`ack_is_due`](FragmentReceiver::ack_is_due), or no more datagrams wait and some
//!    fragments are [`unacked`](FragmentReceiver::unacked), send [`ack`](FragmentReceiver::ack).
//!
//! An end that does both tells the datagrams of its peer's two machines apart by [`is_ack`].
//!
//! ```
//! use conn_core::datagram::{FragmentReceiver, FragmentSender, SenderConfig};
//!
//! const DATAGRAM_BYTES: usize = 64;
//! let config = SenderConfig { window: 4, ..SenderConfig::default() };
//! let mut sender = FragmentSender::new(config, DATAGRAM_BYTES, [0; 4 * DATAGRAM_BYTES])?;
//! let mut receiver = FragmentReceiver::new(4, DATAGRAM_BYTES, 100, [0; 4 * DATAGRAM_BYTES])?;
//!
//! let (message, mut received) = ([7; 100], Vec::<u8>::new());
//! let (mut offset, mut datagram) = (0, [0; DATAGRAM_BYTES]);
//! let (mut now_ns, mut sent) = (0, 0);
//! while received.len() < message.len() {
//!     while offset < message.len()
//!         && let Some(next) = sender.cut(&message, offset)
//!     {
//!         offset = next;
//!     }
//!     while let Some(len) = sender.transmit(now_ns, &mut datagram) {
//!         sent += 1;
//!         if sent == 2 {
//!             continue; // the network loses it
//!         }
//!         received.extend(receiver.arrive(&datagram[..len])?.map_or(&[][..], |f| f.bytes));
//!         while let Some(fragment) = receiver.take()? {
//!             received.extend(fragment.bytes);
//!         }
//!     }
//!     sender.on_ack(&receiver.ack(), now_ns)?;
//!     now_ns = sender.wants_ns().unwrap_or(now_ns);
//! }
//! assert_eq!(received, message);
//! assert_eq!((sender.is_idle(), sender.repeated()), (true, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use crate::wire::Wire;

pub use receiver::{Fragment, FragmentReceiver};
pub use sender::{FragmentSender, SenderConfig};

/// Beginning of both kinds of datagrams: the kind, zeros, a number, and 64 bits.
type Header = (u8, [u8; 3], u32, u64);

/// Bytes in front of a fragment's payload.
pub const HEADER_LEN: usize = Header::LEN;
/// Bytes of an acknowledgement.
pub const ACK_LEN: usize = Header::LEN;
/// The most fragments under way: an acknowledgement has a bit for each one behind the first.
pub const MAX_WINDOW: u32 = 64;

const FRAGMENT: u8 = 1;
const ACK: u8 = 2;

/// A size that an end cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The window is not 1 to [`MAX_WINDOW`].
    #[error("a window of {0} fragments; it may be 1 to {MAX_WINDOW}")]
    Window(u32),
    /// Datagrams of this many bytes have no room for a payload, or their length does not fit 32
    /// bits.
    #[error("datagrams of {0} bytes; they may have {least} to {most}", least = HEADER_LEN + 1, most = u32::MAX)]
    DatagramBytes(usize),
    /// The storage has fewer bytes than a window of datagrams.
    #[error("storage of {given} bytes where the window takes {need}")]
    Storage {
        /// Bytes that are needed.
        need: usize,
        /// Bytes that the storage has.
        given: usize,
    },
}

/// A datagram that no correct peer sends: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// Not a valid fragment, or not an acknowledgement, where one is expected.
    #[error("a datagram that is no fragment or acknowledgement")]
    Malformed,
    /// A message longer than the receiver takes.
    #[error("a message of {bytes} bytes; at most {max} are taken")]
    MessageTooLong {
        /// Bytes of the message.
        bytes: u32,
        /// The most that the receiver takes.
        max: u32,
    },
    /// A fragment beyond the receiver's window, or an acknowledgement of one that was not sent.
    #[error("a number beyond the window, or of what was not sent")]
    BeyondWindow,
    /// A fragment does not continue its message: its offset, or the message's length in its header,
    /// differs.
    #[error(
        "a fragment for byte {offset} does not continue its message, which is at byte {expected}"
    )]
    OutOfPlace {
        /// Offset in the fragment's header.
        offset: u32,
        /// Offset at which the message continues.
        expected: u32,
    },
}

/// The peer has acknowledged nothing new for longer than [`SenderConfig::patience_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer does not acknowledge: {unacked} fragments are unanswered")]
pub struct PeerSilent {
    /// Fragments that it has not acknowledged.
    pub unacked: u32,
}

/// The header of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FragmentHeader {
    number: u32,
    message_bytes: u32,
    offset: u32,
}

impl FragmentHeader {
    fn encode(self) -> [u8; HEADER_LEN] {
        encode(FRAGMENT, self.number, u64::from(self.offset) << 32 | u64::from(self.message_bytes))
    }

    /// The header, and the payload behind it.
    fn decode(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (number, rest, payload) = decode(FRAGMENT, datagram)?;
        Some((Self { number, message_bytes: rest as u32, offset: (rest >> 32) as u32 }, payload))
    }
}

/// Reports whether a datagram is for a [`FragmentSender`]; any other one is for a
/// [`FragmentReceiver`]. Both check the rest of it.
#[must_use]
pub fn is_ack(datagram: &[u8]) -> bool {
    datagram.first() == Some(&ACK)
}

fn encode(kind: u8, number: u32, rest: u64) -> [u8; HEADER_LEN] {
    let header: Header = (kind, [0; 3], number, rest);
    header.encoded()
}

/// The number and the 64 bits of a datagram of this kind, and the payload behind them.
fn decode(kind: u8, datagram: &[u8]) -> Option<(u32, u64, &[u8])> {
    let ((found, zeros, number, rest), payload) = Header::split(datagram)?;
    (found == kind && zeros == [0; 3]).then_some((number, rest, payload))
}

/// Distance from `position` to the nearest position with these low bits; negative if it is behind.
fn ahead(position: u64, low: u32) -> i32 {
    low.wrapping_sub(position as u32) as i32
}

/// Checks the sizes of either end.
fn check(window: u32, datagram_bytes: usize, storage: usize) -> Result<(), ConfigError> {
    if !(1..=MAX_WINDOW).contains(&window) {
        return Err(ConfigError::Window(window));
    }
    let need = (window as usize).checked_mul(datagram_bytes);
    let fits = datagram_bytes > HEADER_LEN && u32::try_from(datagram_bytes).is_ok();
    match need.filter(|_| fits) {
        None => Err(ConfigError::DatagramBytes(datagram_bytes)),
        Some(need) if storage < need => Err(ConfigError::Storage { need, given: storage }),
        Some(_) => Ok(()),
    }
}
