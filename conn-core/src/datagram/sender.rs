//! The sending end.

use super::{ACK, ConfigError, DatagramError, FragmentHeader, HEADER_LEN, MAX_WINDOW, PeerSilent};
use super::{ahead, check, decode};

/// A fragment counts as lost when one is acknowledged that was sent this many transmissions later,
/// or more (RFC 9002, section 6.1.1).
const REORDERING: u64 = 3;
/// The timeout until the first round trip is measured.
const FIRST_TIMEOUT_NS: u64 = 10_000_000;

/// Window and timeouts of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// The most fragments under way, 1 to [`MAX_WINDOW`]; the receiver's must not be smaller.
    pub window: u32,
    /// The least timeout: time before a fragment is repeated although no acknowledgement shows that
    /// it is lost. It should be longer than a receiver may have to wait for a processor: otherwise
    /// fragments are repeated that did arrive.
    pub min_timeout_ns: u64,
    /// Time without a new acknowledgement after which the peer counts as gone; no timeout is
    /// longer.
    pub patience_ns: u64,
}

impl Default for SenderConfig {
    /// A window of 64 fragments; a timeout of 1 ms at least; 8 s until the peer counts as gone.
    fn default() -> Self {
        Self { window: MAX_WINDOW, min_timeout_ns: 1_000_000, patience_ns: 8_000_000_000 }
    }
}

/// A fragment in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WindowSlot {
    len: u32,
    /// Time of the last transmission.
    sent_ns: u64,
    /// Number of its last transmission, among those of all fragments; 0 before the first.
    order: u64,
    is_repeated: bool,
    is_acked: bool,
}

/// Cuts messages into fragments, and repeats those that are lost. See the [module](super) for its
/// drive loop.
// Invariant: acked <= next <= cut <= acked + window; the slots of acked..cut hold datagrams, and
// those of acked..next were transmitted. All before `acked` are taken by the receiver, some of those
// behind it may have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentSender<S> {
    config: SenderConfig,
    datagram_bytes: usize,
    pub(super) acked: u64,
    pub(super) next: u64,
    pub(super) cut: u64,
    slots: [WindowSlot; MAX_WINDOW as usize],
    transmissions: u64,
    /// The latest transmission that is known to be acknowledged, by its order.
    newest_acked: u64,
    repeated: u64,
    round_trip: SmoothedRtt,
    /// Timeouts since `newest_acked` last changed.
    timeouts: u32,
    /// Time of the last new acknowledgement, or since which something is under way, if that is
    /// later.
    progress_ns: u64,
    storage: S,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> FragmentSender<S> {
    /// A sender of datagrams of at most `datagram_bytes` bytes, header included; `storage` keeps a
    /// window of them.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(
        config: SenderConfig,
        datagram_bytes: usize,
        storage: S,
    ) -> Result<Self, ConfigError> {
        check(config.window, datagram_bytes, storage.as_ref().len())?;
        Ok(Self {
            config,
            datagram_bytes,
            acked: 0,
            next: 0,
            cut: 0,
            slots: [WindowSlot::default(); MAX_WINDOW as usize],
            transmissions: 0,
            newest_acked: 0,
            repeated: 0,
            round_trip: SmoothedRtt::default(),
            timeouts: 0,
            progress_ns: 0,
            storage,
        })
    }

    /// Cuts the fragment of `message` that begins at `offset`, and returns the offset of the next
    /// one: once that is the message's length, the whole message is cut. `None` while the window
    /// is full. An empty message is one fragment.
    ///
    /// # Panics
    /// If the message has more than `u32::MAX` bytes, or if `offset` is not less than its length,
    /// unless both are 0.
    pub fn cut(&mut self, message: &[u8], offset: usize) -> Option<usize> {
        assert!(offset < message.len() || (message.is_empty() && offset == 0), "nothing is left");
        if self.cut - self.acked == u64::from(self.config.window) {
            return None;
        }
        let message_bytes = u32::try_from(message.len()).expect("a length of 32 bits");
        let payload = &message[offset..];
        let payload = &payload[..payload.len().min(self.datagram_bytes - HEADER_LEN)];
        let header =
            FragmentHeader { number: self.cut as u32, message_bytes, offset: offset as u32 };
        let at = self.place(self.cut);
        let datagram = &mut self.storage.as_mut()[at * self.datagram_bytes..];
        datagram[..HEADER_LEN].copy_from_slice(&header.encode());
        datagram[HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        self.slots[at] =
            WindowSlot { len: (HEADER_LEN + payload.len()) as u32, ..WindowSlot::default() };
        self.cut += 1;
        Some(offset + payload.len())
    }

    /// Writes the next datagram to send into `out`, and returns its length; lost ones are sent
    /// first. `None` if there is nothing to send now.
    ///
    /// # Panics
    /// If `out` is shorter than the datagram.
    pub fn transmit(&mut self, now_ns: u64, out: &mut [u8]) -> Option<usize> {
        let number = self.lost(now_ns).or((self.next < self.cut).then_some(self.next))?;
        if self.acked == self.next {
            self.progress_ns = now_ns;
        }
        self.next = self.next.max(number + 1);
        let at = self.place(number);
        let slot = &mut self.slots[at];
        slot.is_repeated = slot.order > 0;
        self.repeated += u64::from(slot.is_repeated);
        self.transmissions += 1;
        (slot.order, slot.sent_ns) = (self.transmissions, now_ns);
        let len = slot.len as usize;
        out[..len].copy_from_slice(&self.storage.as_ref()[at * self.datagram_bytes..][..len]);
        Some(len)
    }

    /// Takes the acknowledgement in `datagram`, and returns how many fragments it is the first to
    /// acknowledge.
    ///
    /// # Errors
    /// [`DatagramError`]: the datagram is no acknowledgement, or is one of a fragment that was not
    /// sent.
    pub fn on_ack(&mut self, datagram: &[u8], now_ns: u64) -> Result<u32, DatagramError> {
        let ack = decode(ACK, datagram).filter(|(_, _, behind)| behind.is_empty());
        let (missing, there, _) = ack.ok_or(DatagramError::Malformed)?;
        let Ok(ahead) = u64::try_from(ahead(self.acked, missing)) else {
            return Ok(0); // overtaken by a later one
        };
        let missing = self.acked + ahead;
        // Bit i stands for fragment missing + 1 + i.
        let bits = u64::from(u64::BITS - there.leading_zeros());
        let end = if there == 0 { missing } else { missing + 1 + bits };
        if end > self.next {
            return Err(DatagramError::BeyondWindow);
        }
        let (mut newly, measured) = (0, self.newest_acked);
        for number in self.acked..end {
            let bit = number.checked_sub(missing + 1);
            if number < missing || bit.is_some_and(|bit| there >> bit & 1 == 1) {
                newly += u32::from(self.acknowledge(number, now_ns));
            }
        }
        // The receiver keeps those behind the missing one, and may not have room for more.
        let before = core::mem::replace(&mut self.acked, missing);
        if newly > 0 || missing > before {
            self.progress_ns = now_ns;
        }
        if self.newest_acked > measured {
            self.timeouts = 0;
        }
        Ok(newly)
    }

    /// Marks fragment `number` as acknowledged, and reports whether it was not before.
    fn acknowledge(&mut self, number: u64, now_ns: u64) -> bool {
        let at = self.place(number);
        let slot = &mut self.slots[at];
        if core::mem::replace(&mut slot.is_acked, true) {
            return false;
        }
        // Of a repeated one, it is not known which transmission arrived (Karn's algorithm).
        if !slot.is_repeated {
            self.newest_acked = self.newest_acked.max(slot.order);
            self.round_trip.measured(now_ns.saturating_sub(slot.sent_ns));
        }
        true
    }

    /// Returns the oldest fragment to retransmit now; counts a timeout if that is the reason.
    fn lost(&mut self, now_ns: u64) -> Option<u64> {
        let overtaken = |number: &u64| {
            let slot = &self.slots[self.place(*number)];
            !slot.is_acked && slot.order + REORDERING <= self.newest_acked
        };
        let lost = (self.acked..self.next).find(overtaken);
        if lost.is_some() || self.wants_ns().is_none_or(|wants| now_ns < wants) {
            return lost;
        }
        self.timeouts = self.timeouts.saturating_add(1);
        Some(self.acked)
    }

    /// Time at which the oldest fragment is repeated if no acknowledgement arrives before: call
    /// [`transmit`](Self::transmit) then. `None` while nothing is under way.
    pub fn wants_ns(&self) -> Option<u64> {
        let oldest = &self.slots[self.place(self.acked)];
        let timeout = self.round_trip.timeout_ns().max(self.config.min_timeout_ns);
        let timeout = timeout.saturating_mul(1 << self.timeouts.min(16));
        (self.acked < self.next)
            .then(|| oldest.sent_ns.saturating_add(timeout.min(self.config.patience_ns).max(1)))
    }

    /// Checks that the peer still acknowledges fragments in flight.
    ///
    /// # Errors
    /// [`PeerSilent`].
    pub fn check_peer(&self, now_ns: u64) -> Result<(), PeerSilent> {
        let silence = now_ns.saturating_sub(self.progress_ns);
        let unacked = (self.next - self.acked) as u32;
        if unacked > 0 && silence > self.config.patience_ns {
            return Err(PeerSilent { unacked });
        }
        Ok(())
    }

    /// Reports whether all fragments that were cut are acknowledged.
    pub fn is_idle(&self) -> bool {
        self.acked == self.cut
    }

    /// Transmissions of fragments that were sent before.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    fn place(&self, number: u64) -> usize {
        (number % u64::from(self.config.window)) as usize
    }
}

/// The round trip, smoothed, and its mean deviation (RFC 6298).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SmoothedRtt {
    /// Smoothed time and deviation, in nanoseconds; `None` before the first measurement.
    smoothed: Option<(u64, u64)>,
}

impl SmoothedRtt {
    fn measured(&mut self, ns: u64) {
        self.smoothed = Some(match self.smoothed {
            None => (ns, ns / 2),
            Some((mean, deviation)) => {
                (mean - mean / 8 + ns / 8, deviation - deviation / 4 + mean.abs_diff(ns) / 4)
            }
        });
    }

    fn timeout_ns(&self) -> u64 {
        self.smoothed.map_or(FIRST_TIMEOUT_NS, |(mean, deviation)| {
            mean.saturating_add(deviation.saturating_mul(4))
        })
    }
}
