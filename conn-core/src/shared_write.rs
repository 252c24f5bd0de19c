//! Shared Write: one ring in the receiver's memory, which many senders write their messages to.
//!
//! ```text
//!   senders                                        receiver
//!   a ticket            -- FETCH_ADD of the tail ->  tail
//!   which extent it has <- READ of its entry ------  entries, granted in the order of tickets
//!   message, trailer    -- WRITE into the extent ->  extents, polled; copied out, cleared
//! ```
//!
//! The ring is cut into *extents* of one size ([`Layout`]). A sender takes a *ticket*, by one
//! fetch-and-add on the ring's tail. The receiver grants its free extents to tickets in their
//! order, also to tickets that no sender has taken yet. As long as there are free extents, the
//! entry of a ticket names its extent at once, without the receiver's processor. A freed extent
//! goes to the next ticket. So an idle sender that keeps its extent blocks no other one, as long as
//! there are two extents for each sender. There are twice as many entries as extents. If the entry
//! of a ticket is still in use by an earlier one, the later ticket is *passed over*, and its sender
//! takes another one.
//!
//! A sender takes its next ticket before its extent is full, and writes messages only to an extent
//! that it has: an accepted message needs no further step. Messages fill an extent from its end to
//! its beginning, each in front of a *trailer*: the ticket, the place in the extent, the length,
//! and a [checksum](crate::checksum). The receiver polls the next trailer of each sender. The last
//! trailer in an extent names the ticket of the sender's next extent. Extents are cleared before
//! they are granted again, so that bytes of a message are never taken for a trailer.
//!
//! # Tickets of senders that have died
//!
//! A sender that dies between its fetch-and-add and its first message has an extent that the
//! receiver does not know. So each sender announces a ticket before it takes it, and reports it
//! afterwards, in the words of its [link](LinkWords). The four requests for it are posted as one
//! list ([`Claim`]): a card executes them to the end, even if the program dies. (A software device
//! executes them in the sender's process, and stops with it.) When a sender has died, the receiver
//! makes an *audit*. It loads the tail, and waits until each other sender was seen with all
//! announced tickets reported, or with an extent of a later ticket. A granted ticket below that
//! tail that belongs to none of them is an *orphan*, and its extent is free. The dead sender's
//! words are not read. No timeout is involved: an audit ends as soon as each living sender has
//! advanced, is idle, or is found dead itself.
//!
//! The senders share the memory: a hostile one can overwrite the messages of others. The machines
//! check all words, so that this ends in an error or in a wrong message, never in an access out of
//! bounds.
//!
//! Source: the Shared Write connection of Fischer, "Know Your Memory" (2021), and its code. There
//! each message takes a fetch-and-add, and a sender that dies after it blocks the ring for ever.

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod receiver;
mod sender;
pub mod terms;
#[cfg(test)]
mod tests;

pub use receiver::{
    Emptied, ExtentError, ExtentReceiver, ExtentSlot, Grant, LinkSlot, LookOutcome,
};
pub use sender::{Claim, ClaimError, ExtentSender, Spot};

/// Bytes of a trailer: the ticket, where and how long, their checksum.
pub const TRAILER_BYTES: u64 = 24;
/// Bytes of an entry, and of the count of decided tickets: a word and its checksum.
pub const ENTRY_BYTES: u64 = 16;
/// Bytes of the words of a link.
pub const LINK_BYTES: u64 = 128;
/// The most extents of a ring.
pub const MAX_EXTENTS: u32 = 1 << 16;
/// The longest extent, in bytes.
pub const MAX_EXTENT_BYTES: u32 = 1 << 30;
/// The most senders.
pub const MAX_LINKS: u32 = 1 << 16;
/// Offset of the tail, the next ticket. The first ticket is 1, which the receiver stores.
pub const TAIL_AT: u64 = 0;
/// Offset of the word below which all tickets are decided: granted or passed over.
pub const DECIDED_AT: u64 = 64;
/// In the words of a link: the number of the ticket that is about to be taken, the ticket of the
/// extent in use (0 if there is none), their checksum.
pub const ANNOUNCED_AT: u64 = 0;
/// In the words of a link: the first ticket, as the fetch-and-add has returned it.
pub const FIRST_AT: u64 = 24;
/// In the words of a link: the last one of the further tickets.
pub const AHEAD_AT: u64 = 32;
/// In the words of a link: the words that were announced for the ticket that was taken last, and
/// their checksum.
pub const REPORTED_AT: u64 = 40;
/// In the words of a link: the goodbye. How many messages there were, [`GOODBYE`], checksum.
pub const GOODBYE_AT: u64 = 64;
/// The second word of a goodbye that was written.
pub const GOODBYE: u64 = 1;
/// Bytes of a sender's memory: the receiver's stop.
pub const STOP_BYTES: u64 = 24;
/// The second word of a stop that was written; the first one counts the messages taken.
pub const STOPPED: u64 = 1;

/// The length of a trailer that ends an extent. Its ticket is that of the next one.
const END: u32 = u32::MAX;
/// Bits of a ticket: the others of an entry are for the extent.
const TICKET_BITS: u32 = 48;
/// Offset of the entries.
const ENTRIES_AT: u64 = 128;
const LINE: u64 = 64;

/// The shape of a receiver's memory: the tail, entries of tickets, words of the links, extents.
///
/// ```
/// use conn_core::shared_write::Layout;
///
/// let layout = Layout::new(64, 4096, 1000, 8)?;
/// assert_eq!(layout.entry_at(1), 128 + 16); // there are twice as many as extents
/// assert_eq!(layout.entry_at(129), layout.entry_at(1));
/// let end = layout.extent_at(0) + 4096;
/// assert_eq!(layout.trailer_at(0, 0), end - 24); // extents are filled from their ends
/// assert_eq!(layout.payload_at(0, 0, 100), end - 24 - 104);
/// # Ok::<(), conn_core::shared_write::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    extents: u32,
    extent_bytes: u32,
    max_message: u32,
    links: u32,
}

/// A shape that memory cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// No extents, or more than [`MAX_EXTENTS`].
    #[error("{0} extents; there are 1 to {max}", max = MAX_EXTENTS)]
    Extents(u32),
    /// Extents of no whole number of cache lines, or longer than [`MAX_EXTENT_BYTES`].
    #[error(
        "extents of {0} bytes; a multiple of {line}, at most {max}",
        line = LINE,
        max = MAX_EXTENT_BYTES
    )]
    ExtentBytes(u32),
    /// Messages that do not fit into an extent with their trailer and the last one.
    #[error("messages of {0} bytes do not fit into an extent")]
    Message(u32),
    /// No senders, or more than [`MAX_LINKS`].
    #[error("{0} senders; there are 1 to {max}", max = MAX_LINKS)]
    Links(u32),
}

impl Layout {
    /// Layout of `extents` extents of `extent_bytes` bytes, for messages of at most `max_message`
    /// bytes from `senders` senders.
    ///
    /// # Errors
    /// [`LayoutError`]
    pub const fn new(
        extents: u32,
        extent_bytes: u32,
        max_message: u32,
        links: u32,
    ) -> Result<Self, LayoutError> {
        if extents == 0 || extents > MAX_EXTENTS {
            return Err(LayoutError::Extents(extents));
        }
        if !(extent_bytes as u64).is_multiple_of(LINE)
            || extent_bytes == 0
            || extent_bytes > MAX_EXTENT_BYTES
        {
            return Err(LayoutError::ExtentBytes(extent_bytes));
        }
        if extent_bytes_for(max_message) > extent_bytes as u64 {
            return Err(LayoutError::Message(max_message));
        }
        if links == 0 || links > MAX_LINKS {
            return Err(LayoutError::Links(links));
        }
        Ok(Self { extents, extent_bytes, max_message, links })
    }

    /// Number of extents.
    pub const fn extents(&self) -> u32 {
        self.extents
    }

    /// Bytes of an extent.
    pub const fn extent_bytes(&self) -> u32 {
        self.extent_bytes
    }

    /// The longest message, in bytes.
    pub const fn max_message(&self) -> u32 {
        self.max_message
    }

    /// Largest number of senders at a time.
    pub const fn links(&self) -> u32 {
        self.links
    }

    /// Number of entries.
    pub const fn entries(&self) -> u32 {
        2 * self.extents
    }

    /// Bytes in all.
    pub const fn bytes(&self) -> u64 {
        self.extent_at(self.extents)
    }

    /// Offset of a ticket's entry: a [word](entry_word) and its checksum.
    pub const fn entry_at(&self, ticket: u64) -> u64 {
        ENTRIES_AT + ticket % self.entries() as u64 * ENTRY_BYTES
    }

    /// Offset of the words of a link.
    pub const fn link_at(&self, link: u32) -> u64 {
        let entries_end = ENTRIES_AT + self.entries() as u64 * ENTRY_BYTES;
        entries_end.next_multiple_of(LINE) + link as u64 * LINK_BYTES
    }

    /// Offset of an extent.
    pub const fn extent_at(&self, extent: u32) -> u64 {
        self.link_at(self.links) + extent as u64 * self.extent_bytes as u64
    }

    /// Offset of the next trailer in an extent that has this many bytes `used`.
    pub const fn trailer_at(&self, extent: u32, used: u32) -> u64 {
        self.extent_at(extent) + (self.extent_bytes - used) as u64 - TRAILER_BYTES
    }

    /// Offset of a message's payload, which lies in whole words in front of its trailer.
    pub const fn payload_at(&self, extent: u32, used: u32, len: u32) -> u64 {
        self.trailer_at(extent, used) - padded(len)
    }

    /// Reports whether a message of `len` bytes, and the last trailer, have room behind `used`
    /// bytes.
    #[inline]
    const fn fits(&self, used: u32, len: u32) -> bool {
        used as u64 + extent_bytes_for(len) <= self.extent_bytes as u64
    }
}

/// Bytes of a payload in whole words.
pub const fn padded(len: u32) -> u64 {
    (len as u64).next_multiple_of(8)
}

/// Bytes of a message with its trailer.
pub const fn record_bytes(len: u32) -> u64 {
    padded(len) + TRAILER_BYTES
}

/// Fewest bytes of an extent, for messages of at most `max_message` bytes.
pub const fn extent_bytes_for(max_message: u32) -> u64 {
    record_bytes(max_message) + TRAILER_BYTES
}

/// The word of an entry: this extent is the ticket's.
pub const fn entry_word(ticket: u64, extent: u32) -> u64 {
    ticket << (64 - TICKET_BITS) | extent as u64
}

/// Words that a sender has written for its link, as the receiver finds them now.
///
/// Load them in the order of the fields: if the ticket is visible, so is its announcement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkWords {
    /// The words at [`REPORTED_AT`], `None` while they are being written.
    pub reported: Option<[u64; 2]>,
    /// The word at [`FIRST_AT`].
    pub first: u64,
    /// The word at [`AHEAD_AT`].
    pub ahead: u64,
    /// The words at [`ANNOUNCED_AT`], `None` while they are being written.
    pub announced: Option<[u64; 2]>,
}

/// The words of a trailer.
const fn trailer(ticket: u64, used: u32, len: u32) -> [u64; 2] {
    [ticket, (used as u64) << 32 | len as u64]
}
