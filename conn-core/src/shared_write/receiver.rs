//! The receiver's end.

mod orphans;

use super::{
    END, GOODBYE, Layout, LinkWords, TICKET_BITS, TRAILER_BYTES, entry_word, padded, record_bytes,
};

/// Data that no honest sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// A message that is longer than allowed, or than the rest of its extent.
    #[error("a message of {len} bytes has no room there")]
    TooLong {
        /// Length in its trailer.
        len: u32,
    },
    /// A trailer that belongs elsewhere.
    #[error("a trailer of ticket {ticket} in another's extent")]
    Stray {
        /// The ticket in it.
        ticket: u64,
    },
    /// A ticket that is another sender's, or has no extent.
    #[error("ticket {ticket} is not the sender's")]
    Ticket {
        /// The ticket.
        ticket: u64,
    },
    /// The tail is further than all senders together can have moved it.
    #[error("the senders cannot have moved the tail to {tail}")]
    Tail {
        /// The tail.
        tail: u64,
    },
    /// A goodbye that counts fewer messages than have arrived.
    #[error("a goodbye after {total} messages, more have come")]
    Goodbye {
        /// Number of messages in the goodbye.
        total: u64,
    },
    /// A goodbye after more messages than are there.
    #[error("a goodbye after more messages than are there")]
    Missing,
}

/// Result of a look at a sender's memory.
#[derive(Debug, PartialEq, Eq)]
pub enum LookOutcome {
    /// Nothing new.
    Nothing,
    /// A message, which is taken by that.
    Message {
        /// Offset of the message in the receiver's memory.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// The end of an extent. The sender goes on in another one.
    End(
        /// To be cleared.
        Emptied,
    ),
}

/// An extent that no sender uses any more. Clear it, then [give it back](ExtentReceiver::recycle).
#[must_use = "it is lost otherwise"]
#[derive(Debug, PartialEq, Eq)]
pub struct Emptied {
    /// Offset of the bytes that may be other than 0.
    pub offset: u64,
    /// Number of these bytes.
    pub len: u64,
    extent: u32,
}

/// An entry to store. Store the count of [decided](ExtentReceiver::decided) tickets after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Offset of the entry.
    pub entry_at: u64,
    /// Its word.
    pub word: u64,
}

/// State of an extent, as the receiver stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentSlot {
    /// 0 while it is free.
    ticket: u64,
    /// A link, [`UNKNOWN`] or [`EMPTIED`]; of a free one, the next free one.
    owner: u32,
    /// Extents in the entry of this slot's number, and in the entry of that number plus the number
    /// of extents.
    entries: [u32; 2],
}

/// No link is known to have it.
const UNKNOWN: u32 = u32::MAX;
/// It is being cleared.
const EMPTIED: u32 = u32::MAX - 1;
/// No sender has it any more.
const ORPHAN: u32 = u32::MAX - 2;
/// No extent.
const NONE: u32 = u32::MAX;

impl Default for ExtentSlot {
    fn default() -> Self {
        Self { ticket: 0, owner: UNKNOWN, entries: [NONE; 2] }
    }
}

/// State of a link, as the receiver stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSlot {
    is_open: bool,
    /// The ticket of the extent that is read; 0 if none is known.
    current: u64,
    /// That extent, as soon as the ticket has one.
    extent: u32,
    used: u32,
    received: u64,
    total: Option<u64>,
    /// In an audit: its tickets are known.
    is_audited: bool,
    /// Its further ticket, as of the last audit.
    kept: u64,
}

impl Default for LinkSlot {
    fn default() -> Self {
        let (current, used, received, kept) = (0, 0, 0, 0);
        let (is_open, is_audited, total, extent) = (false, false, None, NONE);
        Self { is_open, current, extent, used, received, total, is_audited, kept }
    }
}

/// The receiver's end. See the [module](super). `E` is storage for as many extents, and `L` for
/// as many links, as the layout has.
///
/// ```
/// use conn_core::shared_write::{
///     ExtentReceiver, ExtentSlot, Layout, LinkSlot, LinkWords, LookOutcome, entry_word,
/// };
///
/// let layout = Layout::new(2, 4096, 1000, 1)?;
/// let mut receiver =
///     ExtentReceiver::new(layout, [ExtentSlot::default(); 2], [LinkSlot::default(); 1])
///         .expect("storage as the layout has it");
/// let grant = receiver.grant().expect("an extent is free");
/// assert_eq!((grant.entry_at, grant.word), (layout.entry_at(1), entry_word(1, 0)));
/// receiver.open(0);
/// let words = LinkWords { first: 1, reported: Some([1, 0]), announced: Some([1, 0]), ahead: 0 };
/// receiver.on_link(0, words)?; // the sender has taken ticket 1
/// assert_eq!(receiver.trailer_at(0)?, Some(layout.trailer_at(0, 0)));
/// let found = receiver.on_trailer(0, Some([1, 100]))?;
/// assert!(matches!(found, LookOutcome::Message { len: 100, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: each extent is free (ticket 0, in the list), or granted to the ticket below `decided`
// that its entry says. A link's extent has the link as its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentReceiver<E, L> {
    layout: Layout,
    extents: E,
    links: L,
    /// The first one of the free extents.
    free: u32,
    /// The next ticket that is granted or passed over.
    decided: u64,
    /// Links that ever were: each may have left a ticket that is not decided.
    opened: u64,
    /// The tail of the audit that goes on.
    audit: Option<u64>,
    /// Links that it waits to see.
    unaudited: u32,
    /// Tickets below this one are orphans, unless a link is known to have them.
    audited: u64,
    /// Extents below this one are no orphans.
    swept: u32,
}

impl<E: AsRef<[ExtentSlot]> + AsMut<[ExtentSlot]>, L: AsRef<[LinkSlot]> + AsMut<[LinkSlot]>>
    ExtentReceiver<E, L>
{
    /// `None` if the storage has other lengths than the layout says.
    pub fn new(layout: Layout, mut extents: E, mut links: L) -> Option<Self> {
        let all = extents.as_mut();
        if all.len() != layout.extents() as usize || links.as_mut().len() != layout.links() as usize
        {
            return None;
        }
        all.fill(ExtentSlot::default());
        all.iter_mut().zip(1..).for_each(|(slot, next)| slot.owner = next);
        all.last_mut()?.owner = NONE;
        links.as_mut().fill(LinkSlot::default());
        let (free, decided, opened, swept) = (0, 1, 0, layout.extents());
        let (audit, unaudited, audited) = (None, 0, 0);
        Some(Self {
            layout,
            extents,
            links,
            free,
            decided,
            opened,
            audit,
            unaudited,
            audited,
            swept,
        })
    }

    /// The shape of this end's memory.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Up to which ticket, exclusively, all are granted or passed over.
    pub const fn decided(&self) -> u64 {
        self.decided
    }

    fn link(&self, link: u32) -> LinkSlot {
        self.links.as_ref().get(link as usize).copied().unwrap_or_default()
    }

    fn link_mut(&mut self, link: u32) -> Option<&mut LinkSlot> {
        self.links.as_mut().get_mut(link as usize)
    }

    /// Returns the place where the extent in a ticket's entry is remembered.
    fn entry(&mut self, ticket: u64) -> &mut u32 {
        let extents = u64::from(self.layout.extents());
        let nth = ticket % (2 * extents);
        &mut self.extents.as_mut()[(nth % extents) as usize].entries[usize::from(nth >= extents)]
    }

    /// The extent that a ticket has.
    fn extent_of(&mut self, ticket: u64) -> Option<u32> {
        let extent = *self.entry(ticket);
        let slot = self.extents.as_ref().get(extent as usize)?;
        let is_lost = [EMPTIED, ORPHAN].contains(&slot.owner);
        (ticket != 0 && slot.ticket == ticket && !is_lost).then_some(extent)
    }

    /// Reports whether an open link is known to have this ticket, which was not seen in use.
    fn is_kept(&self, ticket: u64) -> bool {
        self.links
            .as_ref()
            .iter()
            .any(|link| link.is_open && (link.kept == ticket || link.current == ticket))
    }

    /// Gives a free extent to the next ticket. A ticket is passed over if no sender has it any
    /// more, or if a ticket that still has its extent has the same entry.
    pub fn grant(&mut self) -> Option<Grant> {
        while self.free != NONE {
            let (ticket, extent) = (self.decided, self.free);
            self.decided += 1;
            let is_void = ticket < self.audited && !self.is_kept(ticket);
            let before = *self.entry(ticket);
            let slot = self.extents.as_ref().get(before as usize);
            let entries = u64::from(self.layout.entries());
            let is_in_use = slot
                .is_some_and(|slot| slot.ticket != 0 && slot.ticket % entries == ticket % entries);
            if is_void || is_in_use {
                continue;
            }
            *self.entry(ticket) = extent;
            let slot = &mut self.extents.as_mut()[extent as usize];
            let next = core::mem::replace(&mut slot.owner, UNKNOWN);
            slot.ticket = ticket;
            self.free = next;
            return Some(Grant {
                entry_at: self.layout.entry_at(ticket),
                word: entry_word(ticket, extent),
            });
        }
        None
    }

    /// An extent was cleared.
    pub fn recycle(&mut self, emptied: Emptied) {
        let Emptied { extent, .. } = emptied;
        if let Some(slot) = self.extents.as_mut().get_mut(extent as usize) {
            (slot.ticket, slot.owner) = (0, self.free);
            self.free = extent;
        }
    }

    /// Extents that no ticket has.
    pub fn free_extents(&self) -> u32 {
        self.extents.as_ref().iter().filter(|slot| slot.ticket == 0).count() as u32
    }
}

/// Receiving.
impl<E: AsRef<[ExtentSlot]> + AsMut<[ExtentSlot]>, L: AsRef<[LinkSlot]> + AsMut<[LinkSlot]>>
    ExtentReceiver<E, L>
{
    /// The lowest number that no open link has.
    pub fn vacant(&self) -> Option<u32> {
        self.links.as_ref().iter().position(|link| !link.is_open).map(|at| at as u32)
    }

    /// Opens the link with this number for a sender. The words of the link are 0.
    pub fn open(&mut self, link: u32) {
        if let Some(slot) = self.link_mut(link) {
            // Its tickets are later than those of an audit in progress.
            *slot = LinkSlot { is_open: true, is_audited: true, ..LinkSlot::default() };
            self.opened += 1;
        }
    }

    /// Messages of this link that were taken.
    pub fn received(&self, link: u32) -> u64 {
        self.link(link).received
    }

    /// Offset of a link's next trailer, if its extent is known. Otherwise the words of the link say
    /// [which one it is](Self::on_link).
    ///
    /// # Errors
    /// [`ExtentError::Ticket`]
    #[inline]
    pub fn trailer_at(&mut self, link: u32) -> Result<Option<u64>, ExtentError> {
        let LinkSlot { extent, used, current, .. } = self.link(link);
        if extent != NONE {
            return Ok(Some(self.layout.trailer_at(extent, used)));
        }
        if current == 0 {
            return Ok(None);
        }
        let Some(extent) = self.extent_of(current) else { return Ok(None) };
        self.take_over(link, current, extent)?;
        Ok(Some(self.layout.trailer_at(extent, 0)))
    }

    /// The link goes on in the extent of this ticket.
    fn take_over(&mut self, link: u32, ticket: u64, extent: u32) -> Result<(), ExtentError> {
        let slot = &mut self.extents.as_mut()[extent as usize];
        if slot.owner != UNKNOWN {
            return Err(ExtentError::Ticket { ticket });
        }
        slot.owner = link;
        if let Some(link) = self.link_mut(link) {
            (link.current, link.extent, link.used) = (ticket, extent, 0);
        }
        Ok(())
    }

    /// Takes the words of a link without a known extent: its first ticket, or a later one if that
    /// was passed over.
    ///
    /// # Errors
    /// [`ExtentError::Ticket`]
    pub fn on_link(&mut self, link: u32, words: LinkWords) -> Result<(), ExtentError> {
        let now = self.link(link);
        let (Some([number, used]), Some([announced, used_now])) = (words.reported, words.announced)
        else {
            return Ok(());
        };
        // If another ticket was announced and not reported, the word of the first one may be being
        // written, unless it is in use.
        let ticket = match used > 0 || (number > 0 && announced == number) {
            true => words.first,
            false if number > 0 && announced.checked_sub(1) == Some(number) => used_now,
            false => 0,
        };
        if !now.is_open || now.extent != NONE || ticket <= now.current {
            return Ok(());
        }
        let is_pending = now.current >= self.decided;
        if ticket >> TICKET_BITS != 0 || is_pending || self.extent_of(now.current).is_some() {
            return Err(ExtentError::Ticket { ticket });
        }
        if let Some(slot) = self.link_mut(link) {
            slot.current = ticket;
        }
        Ok(())
    }

    /// Takes the words of the [next trailer](Self::trailer_at) of a link, `None` while they are
    /// being written.
    ///
    /// # Errors
    /// [`ExtentError`]: the sender broke the protocol.
    #[inline]
    pub fn on_trailer(
        &mut self,
        link: u32,
        words: Option<[u64; 2]>,
    ) -> Result<LookOutcome, ExtentError> {
        let LinkSlot { extent, used, current, .. } = self.link(link);
        let Some([ticket, shape]) = words else { return Ok(LookOutcome::Nothing) };
        if extent == NONE || (ticket, shape) == (0, 0) {
            return Ok(LookOutcome::Nothing);
        }
        let (at, len) = ((shape >> 32) as u32, shape as u32);
        if at == used && len == END && used > 0 {
            return self.on_end(link, ticket);
        }
        if at != used || ticket != current {
            return Err(ExtentError::Stray { ticket });
        }
        if len > self.layout.max_message() || !self.layout.fits(used, len) {
            return Err(ExtentError::TooLong { len });
        }
        if let Some(slot) = self.link_mut(link) {
            slot.used += record_bytes(len) as u32;
            slot.received += 1;
        }
        Ok(LookOutcome::Message { offset: self.layout.payload_at(extent, used, len), len })
    }

    fn on_end(&mut self, link: u32, next: u64) -> Result<LookOutcome, ExtentError> {
        let LinkSlot { extent, used, current, .. } = self.link(link);
        let to = if next > current { self.extent_of(next) } else { None };
        self.take_over(link, next, to.ok_or(ExtentError::Ticket { ticket: next })?)?;
        Ok(LookOutcome::End(self.emptied(extent, used + TRAILER_BYTES as u32)))
    }

    /// An extent with at most `used` bytes in use.
    fn emptied(&mut self, extent: u32, used: u32) -> Emptied {
        self.extents.as_mut()[extent as usize].owner = EMPTIED;
        let len = padded(used);
        let offset = self.layout.extent_at(extent + 1) - len;
        Emptied { offset, len, extent }
    }

    /// Takes the words of the goodbye; returns true if it was said. All messages that it counts are
    /// there: look for them once more.
    ///
    /// # Errors
    /// [`ExtentError::Goodbye`]
    pub fn on_goodbye(&mut self, link: u32, words: Option<[u64; 2]>) -> Result<bool, ExtentError> {
        let Some([total, GOODBYE]) = words else { return Ok(false) };
        let Some(slot) = self.link_mut(link) else { return Ok(false) };
        if total < slot.received {
            return Err(ExtentError::Goodbye { total });
        }
        slot.total = Some(total);
        Ok(true)
    }

    /// Reports whether the sender has said goodbye.
    pub fn has_heard_goodbye(&self, link: u32) -> bool {
        self.link(link).total.is_some()
    }

    /// Reports whether the sender has said goodbye, and all its messages have been taken.
    #[inline]
    pub fn has_ended(&self, link: u32) -> bool {
        let link = self.link(link);
        link.total == Some(link.received)
    }
}
