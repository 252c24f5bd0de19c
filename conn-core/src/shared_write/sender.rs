//! A sender's end.

use super::{
    AHEAD_AT, END, FIRST_AT, Layout, STOPPED, TICKET_BITS, extent_bytes_for, record_bytes, trailer,
};

/// Words of the receiver that no honest one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The tail went back, or exceeds the highest ticket.
    #[error("ticket {ticket} cannot be the next one")]
    Ticket {
        /// Ticket that the fetch-and-add has returned.
        ticket: u64,
    },
    /// An extent that does not exist.
    #[error("the peer has no extent {extent}")]
    Extent {
        /// Extent in the entry.
        extent: u64,
    },
    /// It has taken more messages than were sent.
    #[error("the peer cannot have taken {taken} messages")]
    Taken {
        /// Number of messages in the stop.
        taken: u64,
    },
}

/// An extent that the sender writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    ticket: u64,
    extent: u32,
    used: u32,
}

/// The extent behind the one in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// No ticket was taken.
    Vacant,
    /// The requests that take one are on their way.
    Claiming,
    /// It is not known yet which extent the ticket has.
    Claimed {
        ticket: u64,
    },
    Ready {
        ticket: u64,
        extent: u32,
    },
}

/// The claim of a ticket. Post these requests as one list, in this order: a WRITE of the
/// [`words`](Self::words) to [`ANNOUNCED_AT`](super::ANNOUNCED_AT), a fetch-and-add of 1 on the
/// tail, a fenced WRITE of its result to [`place`](Self::place), a WRITE of the words to
/// [`REPORTED_AT`](super::REPORTED_AT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Number of the claim, from 1, and the ticket of the extent in use, 0 if there is none.
    pub words: [u64; 2],
    /// Offset of the ticket in the words of the link.
    pub place: u64,
}

/// Destination of a message, and the words that are written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Offset of the payload, which takes whole words.
    pub payload_at: u64,
    /// Offset of the trailer: right behind the payload.
    pub trailer_at: u64,
    /// The words of the trailer.
    pub trailer: [u64; 2],
    /// The trailer that ends the previous extent, and its offset. Write it before.
    pub end: Option<(u64, [u64; 2])>,
    to: Extent,
    len: u32,
}

/// A sender's end. See the [module](super).
///
/// ```
/// use conn_core::shared_write::{ExtentSender, Layout, entry_word};
///
/// let mut sender = ExtentSender::new(Layout::new(4, 4096, 1000, 2)?);
/// let claim = sender.claim_due().expect("it has no extent");
/// assert_eq!(claim.words, [1, 0]);
/// sender.on_claimed(1)?; // what the fetch-and-add has returned
/// assert_eq!(sender.looks_for(), Some(1)); // the entry of ticket 1 is to be read
/// sender.on_entry(Some(5), Some(entry_word(1, 3)))?;
/// let spot = sender.spot(100).expect("an extent");
/// assert_eq!(spot.trailer, [1, 100]);
/// sender.mark_sent(&spot);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentSender {
    layout: Layout,
    current: Option<Extent>,
    ahead: Ahead,
    /// Tickets that were announced.
    claims: u64,
    /// The last ticket.
    last: u64,
    /// Ticket below which all are decided, as an earlier look has shown.
    decided: u64,
    sent: u64,
    is_closed: bool,
}

impl ExtentSender {
    /// The receiver has memory of this shape.
    pub const fn new(layout: Layout) -> Self {
        let (claims, last, decided, sent, is_closed) = (0, 0, 0, 0, false);
        Self { layout, current: None, ahead: Ahead::Vacant, claims, last, decided, sent, is_closed }
    }

    /// The shape of the receiver's memory.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Messages that were sent.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Nothing more is sent: the words of the link may be another sender's behind the goodbye, and
    /// no ticket is taken any more.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Reports whether to take a ticket now: there is no extent, or the one in use has no room for
    /// two more messages of any length, or is half full.
    #[inline]
    pub fn is_due(&self) -> bool {
        if self.is_closed || self.ahead != Ahead::Vacant {
            return false;
        }
        let Some(Extent { used, .. }) = self.current else { return true };
        let longest = self.layout.max_message();
        let two = u64::from(used) + record_bytes(longest) + extent_bytes_for(longest);
        let is_full = used >= self.layout.extent_bytes() / 2;
        is_full || two > self.layout.extent_bytes().into()
    }

    /// The ticket that [is due](Self::is_due). It counts as taken by that.
    pub fn claim_due(&mut self) -> Option<Claim> {
        if !self.is_due() {
            return None;
        }
        self.claims += 1;
        self.ahead = Ahead::Claiming;
        let current = self.current.map_or(0, |current| current.ticket);
        let place = if self.current.is_none() { FIRST_AT } else { AHEAD_AT };
        Some(Claim { words: [self.claims, current], place })
    }

    /// Takes the result of the fetch-and-add, after all requests of the claim have completed.
    ///
    /// # Errors
    /// [`ClaimError::Ticket`]
    pub fn on_claimed(&mut self, ticket: u64) -> Result<(), ClaimError> {
        if self.ahead != Ahead::Claiming {
            return Ok(());
        }
        if ticket <= self.last || ticket >> TICKET_BITS != 0 {
            return Err(ClaimError::Ticket { ticket });
        }
        self.last = ticket;
        self.ahead = Ahead::Claimed { ticket };
        Ok(())
    }

    /// The ticket to read the [entry](Layout::entry_at) of, together with the word at
    /// [`DECIDED_AT`](super::DECIDED_AT).
    #[inline]
    pub const fn looks_for(&self) -> Option<u64> {
        match self.ahead {
            Ahead::Claimed { ticket } if !self.is_closed => Some(ticket),
            _ => None,
        }
    }

    /// Takes the words that were read, `None` for words that were being written. Returns true if
    /// the ticket is decided. If it was passed over, another one is due; this takes a second look,
    /// because the two words may have been read in either order.
    ///
    /// # Errors
    /// [`ClaimError::Extent`]
    pub fn on_entry(
        &mut self,
        decided: Option<u64>,
        entry: Option<u64>,
    ) -> Result<bool, ClaimError> {
        let (Ahead::Claimed { ticket }, Some(entry)) = (self.ahead, entry) else {
            return Ok(false);
        };
        let extent = entry & (u64::MAX >> TICKET_BITS);
        let before = self.decided;
        self.decided = decided.unwrap_or(before);
        self.ahead = if entry >> (64 - TICKET_BITS) == ticket {
            if extent >= self.layout.extents().into() {
                return Err(ClaimError::Extent { extent });
            }
            Ahead::Ready { ticket, extent: extent as u32 }
        } else if before > ticket {
            Ahead::Vacant
        } else {
            return Ok(false);
        };
        Ok(true)
    }

    /// Returns the destination of a message of `len` bytes, at most the longest; `None` without
    /// room.
    #[inline]
    pub fn spot(&self, len: u32) -> Option<Spot> {
        let (to, end) = match (self.current, self.ahead) {
            (Some(current), _) if self.layout.fits(current.used, len) => (current, None),
            (current, Ahead::Ready { ticket, extent }) => {
                let end = current.map(|Extent { extent, used, .. }| {
                    (self.layout.trailer_at(extent, used), trailer(ticket, used, END))
                });
                (Extent { ticket, extent, used: 0 }, end)
            }
            _ => return None,
        };
        Some(Spot {
            payload_at: self.layout.payload_at(to.extent, to.used, len),
            trailer_at: self.layout.trailer_at(to.extent, to.used),
            trailer: trailer(to.ticket, to.used, len),
            end,
            to,
            len,
        })
    }

    /// The message was sent to this spot, which was the next one.
    #[inline]
    pub fn mark_sent(&mut self, spot: &Spot) {
        if self.current.is_none_or(|current| current.ticket != spot.to.ticket) {
            self.ahead = Ahead::Vacant;
        }
        let used = spot.to.used + record_bytes(spot.len) as u32;
        self.current = Some(Extent { used, ..spot.to });
        self.sent += 1;
    }

    /// Reports whether messages go, or will go, to this extent.
    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn holds(&self, extent: u32) -> bool {
        let ahead = match self.ahead {
            Ahead::Ready { extent, .. } => Some(extent),
            _ => None,
        };
        [self.current.map(|current| current.extent), ahead].contains(&Some(extent))
    }

    /// Takes the words of the stop; returns how many messages the receiver has taken, if it has
    /// stopped.
    ///
    /// # Errors
    /// [`ClaimError::Taken`]
    pub const fn on_stop(&self, [taken, flag]: [u64; 2]) -> Result<Option<u64>, ClaimError> {
        match flag {
            STOPPED if taken > self.sent => Err(ClaimError::Taken { taken }),
            STOPPED => Ok(Some(taken)),
            _ => Ok(None),
        }
    }
}
