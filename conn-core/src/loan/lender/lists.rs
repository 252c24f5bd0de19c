//! Lists through the slots: the queue of members that wait, and those that have something due.

use super::{Lender, LenderSlot, NONE};

impl<S: AsRef<[LenderSlot]> + AsMut<[LenderSlot]>> Lender<S> {
    pub(super) fn enqueue(&mut self, member: u32) {
        let (all, last) = (self.slots.as_mut(), self.queue.last);
        (all[member as usize].before, all[member as usize].after) = (last, NONE);
        match all.get_mut(last as usize) {
            Some(before) => before.after = member,
            None => self.queue.first = member,
        }
        self.queue.last = member;
        self.waiting += 1;
    }

    pub(super) fn unqueue(&mut self, member: u32) {
        let all = self.slots.as_mut();
        let slot = &mut all[member as usize];
        (slot.waits, slot.unanswered) = (false, false);
        let (before, after) = (slot.before, slot.after);
        match all.get_mut(before as usize) {
            Some(slot) => slot.after = after,
            None => self.queue.first = after,
        }
        match all.get_mut(after as usize) {
            Some(slot) => slot.before = before,
            None => self.queue.last = before,
        }
        self.waiting -= 1;
    }

    pub(super) fn list_due(&mut self, member: u32) {
        let (all, last) = (self.slots.as_mut(), self.due.last);
        if core::mem::replace(&mut all[member as usize].listed, true) {
            return;
        }
        all[member as usize].after_due = NONE;
        match all.get_mut(last as usize) {
            Some(before) => before.after_due = member,
            None => self.due.first = member,
        }
        self.due.last = member;
    }
}
