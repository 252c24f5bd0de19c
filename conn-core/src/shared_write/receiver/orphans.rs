//! Tickets of senders that have gone: an audit finds them, and gives their extents back.

use super::super::LinkWords;
use super::{Emptied, ExtentError, ExtentReceiver, ExtentSlot, LinkSlot, NONE, ORPHAN, UNKNOWN};

impl<E: AsRef<[ExtentSlot]> + AsMut<[ExtentSlot]>, L: AsRef<[LinkSlot]> + AsMut<[LinkSlot]>>
    ExtentReceiver<E, L>
{
    /// Closes the link of a sender from which nothing arrives any more. Clear the returned extent;
    /// an [audit](Self::begin_audit) finds others of the sender.
    pub fn close(&mut self, link: u32) -> Option<Emptied> {
        let slot = self.link_mut(link).filter(|slot| slot.is_open)?;
        let LinkSlot { extent, is_audited, .. } = core::mem::take(slot);
        self.unaudited -= u32::from(self.audit.is_some() && !is_audited);
        (extent != NONE).then(|| self.emptied(extent, self.layout.extent_bytes()))
    }

    /// Begins an audit, with the tail as it is after the last sender has gone.
    ///
    /// # Errors
    /// [`ExtentError::Tail`]
    pub fn begin_audit(&mut self, tail: u64) -> Result<(), ExtentError> {
        self.check_tail(tail)?;
        let open = self.links.as_mut().iter_mut().filter(|link| link.is_open);
        self.unaudited = open.map(|link| link.is_audited = false).count() as u32;
        self.audit = Some(tail);
        self.end_audit();
        Ok(())
    }

    /// Checks the tail: each sender that ever was can have taken one ticket that is not decided.
    ///
    /// # Errors
    /// [`ExtentError::Tail`]
    pub const fn check_tail(&self, tail: u64) -> Result<(), ExtentError> {
        if tail == 0 || tail > self.decided + self.opened {
            return Err(ExtentError::Tail { tail });
        }
        Ok(())
    }

    /// Reports whether an audit waits to see this link.
    #[inline]
    pub fn awaits(&self, link: u32) -> bool {
        let link = self.link(link);
        self.audit.is_some() && link.is_open && !link.is_audited
    }

    /// Takes the words of a link for the audit.
    pub fn audit(&mut self, link: u32, words: LinkWords) {
        let Some(tail) = self.audit else { return };
        let LinkSlot { current, is_open, is_audited, .. } = self.link(link);
        if !is_open || is_audited {
            return;
        }
        let kept = match (words.reported, words.announced) {
            // Its earlier tickets were all followed.
            _ if current >= tail => 0,
            // The sender has no open claim, and its earlier extents were followed.
            (Some([number, used]), Some([announced, _])) if number == announced => {
                let last = if used == 0 { words.first } else { words.ahead };
                match number {
                    0 => 0,
                    _ if used == 0 || current == used || current == last => last,
                    _ => return,
                }
            }
            _ => return,
        };
        if let Some(slot) = self.link_mut(link) {
            (slot.is_audited, slot.kept) = (true, kept);
        }
        self.unaudited -= 1;
        self.end_audit();
    }

    fn end_audit(&mut self) {
        let Some(tail) = self.audit.filter(|_| self.unaudited == 0) else { return };
        (self.audit, self.audited, self.swept) = (None, tail, 0);
        for slot in self.extents.as_mut() {
            if (1..tail).contains(&slot.ticket) && slot.owner == UNKNOWN {
                slot.owner = ORPHAN;
            }
        }
        for link in 0..self.layout.links() {
            let LinkSlot { is_open, kept, current, .. } = self.link(link);
            for ticket in [kept, current].into_iter().filter(|_| is_open) {
                let extent = *self.entry(ticket);
                let slot = self.extents.as_mut().get_mut(extent as usize);
                if let Some(slot) = slot.filter(|slot| slot.ticket == ticket)
                    && slot.owner == ORPHAN
                {
                    slot.owner = UNKNOWN;
                }
            }
        }
    }

    /// An extent that was granted to a ticket which no sender has any more.
    pub fn orphan(&mut self) -> Option<Emptied> {
        while self.swept < self.layout.extents() {
            let extent = self.swept;
            self.swept += 1;
            if self.extents.as_ref()[extent as usize].owner == ORPHAN {
                return Some(self.emptied(extent, self.layout.extent_bytes()));
            }
        }
        None
    }
}
