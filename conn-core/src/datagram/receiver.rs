//! The receiving end.

use super::{ACK, ACK_LEN, ConfigError, DatagramError, FragmentHeader, HEADER_LEN, MAX_WINDOW};
use super::{ahead, check, encode};

/// A part of a message, which follows the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Bytes of the whole message.
    pub message_bytes: u32,
    /// Offset of [`bytes`](Self::bytes) in the message.
    pub offset: u32,
    /// Bytes of the part.
    pub bytes: &'a [u8],
}

impl Fragment<'_> {
    /// Reports whether the fragment completes its message.
    pub fn is_last(&self) -> bool {
        self.offset as usize + self.bytes.len() == self.message_bytes as usize
    }
}

/// Puts fragments in order, and drops duplicates. See the [module](super) for its drive
/// loop.
// Invariant: bit i of `early` is set if and only if fragment next + i has arrived, and lies in its
// place; `filled < message_bytes` of a message that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentReceiver<S> {
    pub(super) window: u32,
    datagram_bytes: usize,
    max_message: u32,
    /// The first fragment that is missing, or not taken yet.
    pub(super) next: u64,
    early: u64,
    /// Lengths of the datagrams that arrived early, by place.
    lens: [u32; MAX_WINDOW as usize],
    /// Length of the message that has begun, and how many of its bytes were returned.
    begun: Option<(u32, u32)>,
    unacked: u32,
    is_urgent: bool,
    repeated: u64,
    storage: S,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> FragmentReceiver<S> {
    /// A receiver of messages of at most `max_message` bytes, in datagrams of at most
    /// `datagram_bytes` bytes; `storage` keeps a `window` of those that arrive early.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(
        window: u32,
        datagram_bytes: usize,
        max_message: u32,
        storage: S,
    ) -> Result<Self, ConfigError> {
        check(window, datagram_bytes, storage.as_ref().len())?;
        Ok(Self {
            window,
            datagram_bytes,
            max_message,
            next: 0,
            early: 0,
            lens: [0; MAX_WINDOW as usize],
            begun: None,
            unacked: 0,
            is_urgent: false,
            repeated: 0,
            storage,
        })
    }

    /// Takes a datagram, and returns its fragment if it is the next one. One that arrives early is
    /// kept for [`take`](Self::take); a duplicate is dropped.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub fn arrive<'d>(
        &mut self,
        datagram: &'d [u8],
    ) -> Result<Option<Fragment<'d>>, DatagramError> {
        let (header, fragment) = self.decode(datagram)?;
        let ahead = ahead(self.next, header.number);
        if ahead >= self.window as i32 {
            return Err(DatagramError::BeyondWindow);
        }
        if ahead < 0 || self.early >> ahead & 1 == 1 {
            // Perhaps its acknowledgement was lost: another one is urgent.
            self.repeated += 1;
            self.is_urgent = true;
            return Ok(None);
        }
        if ahead == 0 {
            self.advance(&fragment)?;
            self.unacked += 1;
            return Ok(Some(fragment));
        }
        let at = self.place(self.next + ahead as u64);
        self.storage.as_mut()[at * self.datagram_bytes..][..datagram.len()]
            .copy_from_slice(datagram);
        self.lens[at] = datagram.len() as u32;
        self.early |= 1 << ahead;
        self.unacked += 1;
        self.is_urgent = true;
        Ok(None)
    }

    /// Returns the next fragment, if it arrived early; `None` if it has not arrived.
    ///
    /// # Errors
    /// [`DatagramError::OutOfPlace`].
    pub fn take(&mut self) -> Result<Option<Fragment<'_>>, DatagramError> {
        if self.early & 1 == 0 {
            return Ok(None);
        }
        let at = self.place(self.next);
        let range = at * self.datagram_bytes..at * self.datagram_bytes + self.lens[at] as usize;
        let (_, Fragment { message_bytes, offset, .. }) =
            self.decode(&self.storage.as_ref()[range.clone()])?;
        let bytes = range.start + HEADER_LEN..range.end;
        let len = bytes.len() as u32;
        self.advance_by(message_bytes, offset, len)?;
        self.unacked = self.unacked.max(1);
        let bytes = &self.storage.as_ref()[bytes];
        Ok(Some(Fragment { message_bytes, offset, bytes }))
    }

    /// Reports whether to acknowledge at once: since the last acknowledgement, a fragment arrived
    /// early or again, or more than a quarter of the window has arrived.
    pub fn ack_is_due(&self) -> bool {
        self.is_urgent || self.unacked > self.window / 4
    }

    /// Fragments that have arrived since the last acknowledgement.
    pub fn unacked(&self) -> u32 {
        self.unacked
    }

    /// Returns the acknowledgement of all received fragments.
    pub fn ack(&mut self) -> [u8; ACK_LEN] {
        (self.unacked, self.is_urgent) = (0, false);
        // `next` counts as missing even if it waits to be taken: the sender's window must not move
        // past it, as `storage` still holds it.
        encode(ACK, self.next as u32, self.early >> 1)
    }

    /// Number of duplicate fragments.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    fn decode<'d>(
        &self,
        datagram: &'d [u8],
    ) -> Result<(FragmentHeader, Fragment<'d>), DatagramError> {
        let decoded =
            FragmentHeader::decode(datagram).filter(|_| datagram.len() <= self.datagram_bytes);
        let (header, bytes) = decoded.ok_or(DatagramError::Malformed)?;
        let FragmentHeader { message_bytes, offset, .. } = header;
        if message_bytes > self.max_message {
            let (bytes, max) = (message_bytes, self.max_message);
            return Err(DatagramError::MessageTooLong { bytes, max });
        }
        let end = u64::from(offset) + bytes.len() as u64;
        if end > message_bytes.into() || (bytes.is_empty() && message_bytes > 0) {
            return Err(DatagramError::Malformed);
        }
        Ok((header, Fragment { message_bytes, offset, bytes }))
    }

    fn advance(&mut self, fragment: &Fragment<'_>) -> Result<(), DatagramError> {
        self.advance_by(fragment.message_bytes, fragment.offset, fragment.bytes.len() as u32)
    }

    /// Moves past the next fragment, which has to continue its message.
    fn advance_by(&mut self, bytes: u32, offset: u32, len: u32) -> Result<(), DatagramError> {
        let (message_bytes, expected) = self.begun.unwrap_or((bytes, 0));
        if (bytes, offset) != (message_bytes, expected) {
            return Err(DatagramError::OutOfPlace { offset, expected });
        }
        let filled = offset + len;
        self.begun = (filled < bytes).then_some((bytes, filled));
        self.next += 1;
        self.early >>= 1;
        Ok(())
    }

    fn place(&self, number: u64) -> usize {
        (number % u64::from(self.window)) as usize
    }
}
