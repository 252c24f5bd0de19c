//! Loans: which member can have one, and what it changes.

use super::super::FIRST_LOAN;
use super::{Due, Lender, LenderError, LenderSlot, MemberState};

impl<S: AsRef<[LenderSlot]> + AsMut<[LenderSlot]>> Lender<S> {
    /// Makes loans as long as the first of those that wait can have one.
    pub(super) fn serve(&mut self) {
        while let Some(credits) = self.offer(self.queue.first) {
            self.grant(self.queue.first, credits);
        }
    }

    /// The loan that a member can have now.
    fn offer(&self, member: u32) -> Option<u32> {
        let slot = self.slots.as_ref().get(member as usize)?;
        let available = self.free + u32::from(slot.used == 0);
        let (lent, most) = (self.lendable - self.free, self.most());
        let left = most.saturating_sub(self.silent);
        let credits = slot.next_loan.min((left / 2).max(FIRST_LOAN)).min(left).max(1);
        let fits = credits <= available && (credits == 1 || lent + credits <= most);
        // Otherwise it waits for loans that are being used up, if there are any.
        let is_all = lent == self.silent && available > 0;
        (fits || is_all).then_some(credits.min(available))
    }

    /// Grants a waiting member that uses nothing its share, if no buffer is left to lend: buffers
    /// may never come back.
    pub(super) fn serve_share(&mut self, member: u32) {
        let slot = &self.slots.as_ref()[member as usize];
        if self.free == 0 && slot.waits && slot.used == 0 {
            self.grant(member, 1);
        }
    }

    fn grant(&mut self, member: u32, credits: u32) {
        self.unqueue(member);
        let slot = &mut self.slots.as_mut()[member as usize];
        if core::mem::take(&mut slot.recalled) {
            self.silent -= slot.excess();
        }
        slot.uses_up = credits == slot.next_loan;
        slot.old = false;
        slot.due = Due { credits: slot.due.credits + credits, heard: false, recall: false };
        let used = slot.used + credits;
        self.set_used(member, used);
        self.list_due(member);
    }

    pub(super) fn may_have_share(&self, member: u32) -> bool {
        let slot = &self.slots.as_ref()[member as usize];
        slot.state == MemberState::Live && !slot.waits && slot.used == 0
    }

    pub(super) fn set_used(&mut self, member: u32, used: u32) {
        let slot = &mut self.slots.as_mut()[member as usize];
        let before = slot.excess();
        slot.used = used;
        let after = slot.excess();
        self.free = self.free + before - after;
        if slot.is_silent() {
            self.silent = self.silent + after - before;
        }
        if after == 0 {
            (slot.old, slot.recalled, slot.due.recall) = (false, false, false);
        }
    }

    pub(super) fn vacate_if_home(&mut self, member: u32) {
        let slot = &mut self.slots.as_mut()[member as usize];
        if slot.state == MemberState::Left && slot.used == 0 {
            (slot.state, slot.after) = (MemberState::Vacant, self.vacant);
            self.vacant = member;
        }
    }

    pub(super) fn live(&mut self, member: u32) -> Result<&mut LenderSlot, LenderError> {
        let slot = self.slots.as_mut().get_mut(member as usize);
        slot.filter(|slot| slot.state == MemberState::Live).ok_or(LenderError::NoMember)
    }
}
