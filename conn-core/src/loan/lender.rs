//! The pool: the loans of each member, and the order of waiting members.

mod lists;
mod loans;

use super::{FIRST_LOAN, KEPT};

const NONE: u32 = u32::MAX;

/// Credits and notices to be sent to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Credits that it may use.
    pub credits: u32,
    /// Its WANT has arrived, and waits in the queue.
    pub heard: bool,
    /// Other members wait for credits that it does not use.
    pub recall: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    Vacant,
    Live,
    /// Gone; some of its messages are still held.
    Left,
}

/// State of one member, as a lender stores it.
// Invariant: used counts granted credits without a reposted buffer; waits implies Live; the member
// is in the queue of those that wait if and only if it waits; recalled implies excess > 0; 1 <=
// next_loan <= max_loan of a live one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LenderSlot {
    state: MemberState,
    used: u32,
    next_loan: u32,
    max_loan: u32,
    /// The last loan was a full one, and none of it came back.
    uses_up: bool,
    waits: bool,
    /// Its WANT has no answer.
    unanswered: bool,
    /// Its loan was there at a tick.
    old: bool,
    recalled: bool,
    due: Due,
    /// True if it is in the list of members that have something due.
    listed: bool,
    /// Neighbours in the queue of those that wait; of vacant ones, the next vacant one.
    before: u32,
    after: u32,
    after_due: u32,
}

impl LenderSlot {
    /// One that no member has.
    pub const fn new() -> Self {
        Self {
            state: MemberState::Vacant,
            used: 0,
            next_loan: 0,
            max_loan: 0,
            uses_up: false,
            waits: false,
            unanswered: false,
            old: false,
            recalled: false,
            due: Due { credits: 0, heard: false, recall: false },
            listed: false,
            before: NONE,
            after: NONE,
            after_due: NONE,
        }
    }

    /// Buffers beyond its share.
    fn excess(&self) -> u32 {
        self.used.saturating_sub(1)
    }

    /// Reports whether no other member waits for this one to use up its loan.
    fn is_silent(&self) -> bool {
        self.recalled || self.state == MemberState::Left
    }
}

impl Default for LenderSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// A pool that cannot be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LenderConfigError {
    /// Storage for no members, or for too many.
    #[error("a pool for no members, or for too many")]
    Members,
    /// The pool has fewer buffers than its members keep ([`KEPT`] each).
    #[error("the members of this pool keep {kept} buffers, and it has fewer")]
    TooFewBuffers {
        /// Buffers that all members keep.
        kept: u64,
    },
}

/// One more member is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There are as many members as there is storage for. (One that has left is counted
    /// until the last of its messages is freed.)
    #[error("the pool has no room for one more member")]
    Full,
    /// Loans of no credits.
    #[error("loans of no credits")]
    EmptyLoan,
}

/// An event that cannot have happened: the driver counts wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LenderError {
    /// There is no such member (any more).
    #[error("no such member of the pool")]
    NoMember,
    /// It waits already.
    #[error("the member waits for a loan already")]
    AlreadyWaits,
    /// More buffers than it uses.
    #[error("the member uses {possible} buffers, and fewer than that came back")]
    Miscount {
        /// As many as it uses.
        possible: u32,
    },
}

/// A first-in, first-out list through the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotList {
    first: u32,
    last: u32,
}

const EMPTY: SlotList = SlotList { first: NONE, last: NONE };

/// Lends the buffers of a pool to its members. See the [module](super).
///
/// The drive loop: report what happened ([`want`](Self::want), [`home`](Self::home),
/// [`give_back`](Self::give_back), [`leave`](Self::leave), and [`tick`](Self::tick) once in
/// an interval while [`waiting`](Self::waiting) is not 0); then, until
/// [`next_due`](Self::next_due) gives none, [`take`](Self::take) what is due to each.
///
/// ```
/// use conn_core::loan::*;
///
/// let mut lender = Lender::new([LenderSlot::new(); 2], 14)?; // 3 each are kept, 8 are lent
/// let (a, b) = (lender.join(64)?, lender.join(64)?);
/// lender.home(a, 1)?; // its share was used, and is posted again
/// lender.want(a)?;
/// assert_eq!(lender.next_due(), Some(a));
/// assert_eq!(lender.take(a)?.credits, 4);
///
/// lender.want(b)?; // which still uses its share
/// assert_eq!((lender.next_due(), lender.waiting()), (None, 1), "6 of 8 are lent at most");
/// lender.tick();
/// lender.tick();
/// assert!(lender.take(a)?.recall);
/// assert_eq!(lender.take(b)?.credits, 3, "a is silent, and has 3 of the 6");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: lendable = free + sum of excess; silent = sum of the excess of silent members;
// kept + lendable = buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lender<S> {
    slots: S,
    lendable: u32,
    free: u32,
    silent: u32,
    waiting: u32,
    queue: SlotList,
    due: SlotList,
    vacant: u32,
}

/// Making, inspecting.
impl<S: AsRef<[LenderSlot]> + AsMut<[LenderSlot]>> Lender<S> {
    /// A pool of `buffers`, all posted, for as many members as `slots` has places.
    ///
    /// # Errors
    /// [`LenderConfigError`] when they are none, or keep more than there is.
    pub fn new(mut slots: S, buffers: u32) -> Result<Self, LenderConfigError> {
        let all = slots.as_mut();
        let members = u32::try_from(all.len()).unwrap_or(NONE);
        if members == 0 || members == NONE {
            return Err(LenderConfigError::Members);
        }
        let kept = u64::from(members) * u64::from(KEPT);
        if kept > u64::from(buffers) {
            return Err(LenderConfigError::TooFewBuffers { kept });
        }
        for (slot, next) in all.iter_mut().zip(1..) {
            let after = if next < members { next } else { NONE };
            *slot = LenderSlot { after, ..LenderSlot::new() };
        }
        let lendable = buffers - kept as u32;
        let (queue, due, vacant) = (EMPTY, EMPTY, 0);
        Ok(Self { slots, lendable, free: lendable, silent: 0, waiting: 0, queue, due, vacant })
    }

    /// Buffers beyond what members keep that are not lent.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Buffers beyond what members keep.
    pub fn lendable(&self) -> u32 {
        self.lendable
    }

    /// Buffers that loans take together at most: the others are for loans of one.
    fn most(&self) -> u32 {
        self.lendable - self.lendable.div_ceil(4)
    }

    /// Buffers lent to members that do not answer a recall, or have left.
    pub fn silent(&self) -> u32 {
        self.silent
    }

    /// Members that wait for a loan.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Buffers that a member uses: it has credits for them, or messages in them.
    pub fn used(&self, member: u32) -> Option<u32> {
        let slot = self.slots.as_ref().get(member as usize)?;
        (slot.state != MemberState::Vacant).then_some(slot.used)
    }
}

/// Events of members.
impl<S: AsRef<[LenderSlot]> + AsMut<[LenderSlot]>> Lender<S> {
    /// One more member, which has its share, and may have loans of up to `max_loan`
    /// credits; its number.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(&mut self, max_loan: u32) -> Result<u32, JoinError> {
        if max_loan == 0 {
            return Err(JoinError::EmptyLoan);
        }
        if self.vacant == NONE {
            return Err(JoinError::Full);
        }
        let member = self.vacant;
        let slot = &mut self.slots.as_mut()[member as usize];
        self.vacant = slot.after;
        *slot = LenderSlot {
            state: MemberState::Live,
            used: 1,
            next_loan: FIRST_LOAN.min(max_loan),
            max_loan,
            // The slot may still be in the list for its last member.
            listed: slot.listed,
            after_due: slot.after_due,
            ..LenderSlot::new()
        };
        Ok(member)
    }

    /// Removes a member: its connection takes no more messages. `unused` is the number of its
    /// credits ([`take`](Self::take)) that have brought no message. The member's number is free
    /// again when its last message is home.
    ///
    /// # Errors
    /// [`LenderError`] when the member was removed, or has fewer credits.
    pub fn leave(&mut self, member: u32, unused: u32) -> Result<(), LenderError> {
        let slot = *self.live(member)?;
        // Credits that were not sent to it yet are unused as well.
        let possible = slot.used - slot.due.credits;
        if unused > possible {
            return Err(LenderError::Miscount { possible });
        }
        if slot.waits {
            self.unqueue(member);
        }
        self.set_used(member, possible - unused);
        let slot = &mut self.slots.as_mut()[member as usize];
        if !slot.recalled {
            self.silent += slot.excess();
        }
        (slot.state, slot.due) = (MemberState::Left, Due::default());
        self.vacate_if_home(member);
        self.serve();
        Ok(())
    }

    /// A member was refused for credit, and asks for a loan.
    ///
    /// # Errors
    /// [`LenderError`] when it has gone, or waits already.
    pub fn want(&mut self, member: u32) -> Result<(), LenderError> {
        let slot = self.live(member)?;
        if slot.waits {
            return Err(LenderError::AlreadyWaits);
        }
        if core::mem::take(&mut slot.uses_up) {
            slot.next_loan = slot.next_loan.saturating_mul(2).min(slot.max_loan);
        }
        (slot.waits, slot.unanswered) = (true, true);
        let held = slot.excess();
        if held > 0 && !core::mem::replace(&mut slot.recalled, true) {
            // It has no credits: all that it uses is held.
            self.silent += held;
        }
        self.enqueue(member);
        self.serve();
        self.serve_share(member);
        Ok(())
    }

    /// Books `n` reposted buffers of a member's messages.
    ///
    /// # Errors
    /// [`LenderError`] when there is no such member, or it has used fewer.
    pub fn home(&mut self, member: u32, n: u32) -> Result<(), LenderError> {
        let used = self.used(member).ok_or(LenderError::NoMember)?;
        // It cannot have used credits that were not sent to it yet.
        let possible = used - self.slots.as_ref()[member as usize].due.credits;
        if n > possible {
            return Err(LenderError::Miscount { possible });
        }
        self.set_used(member, used - n);
        self.vacate_if_home(member);
        self.serve();
        self.serve_share(member);
        if self.may_have_share(member) {
            self.list_due(member);
        }
        Ok(())
    }

    /// A member gives `n` credits back.
    ///
    /// # Errors
    /// As [`home`](Self::home).
    pub fn give_back(&mut self, member: u32, n: u32) -> Result<(), LenderError> {
        self.live(member)?;
        self.home(member, n)?;
        if let Ok(slot) = self.live(member) {
            slot.uses_up = false;
            slot.next_loan = (slot.next_loan / 2).max(1);
        }
        Ok(())
    }

    /// An interval has passed in which members waited: loans that were there at the last
    /// tick and are not used up are recalled, and unanswered WANTs get the answer that they wait.
    pub fn tick(&mut self) {
        for member in 0..self.slots.as_ref().len() as u32 {
            let slot = &mut self.slots.as_mut()[member as usize];
            let mut has_due = false;
            if slot.state == MemberState::Live && slot.excess() > 0 && !slot.recalled {
                if slot.old {
                    (slot.recalled, slot.due.recall, has_due) = (true, true, true);
                    self.silent += slot.excess();
                }
                slot.old = true;
            }
            if core::mem::take(&mut slot.unanswered) {
                (slot.due.heard, has_due) = (true, true);
            }
            if has_due {
                self.list_due(member);
            }
        }
        self.serve();
        for member in 0..self.slots.as_ref().len() as u32 {
            self.serve_share(member);
        }
    }
}

/// Delivery of credits and recalls to the members.
impl<S: AsRef<[LenderSlot]> + AsMut<[LenderSlot]>> Lender<S> {
    /// The next member that may have something due: [`take`](Self::take), or its
    /// share, if it can have it ([`take_share`](Self::take_share)).
    pub fn next_due(&mut self) -> Option<u32> {
        let member = self.due.first;
        let slot = self.slots.as_mut().get_mut(member as usize)?;
        (slot.listed, self.due.first) = (false, slot.after_due);
        if self.due.first == NONE {
            self.due.last = NONE;
        }
        Some(member)
    }

    /// Takes the `Due` of a member, once.
    ///
    /// # Errors
    /// [`LenderError::NoMember`] when it has gone.
    pub fn take(&mut self, member: u32) -> Result<Due, LenderError> {
        Ok(core::mem::take(&mut self.live(member)?.due))
    }

    /// Grants a member that uses nothing, and does not wait, its share again. (One that
    /// waits gets it with its loan.)
    ///
    /// # Errors
    /// [`LenderError::NoMember`] when it has gone.
    pub fn take_share(&mut self, member: u32) -> Result<bool, LenderError> {
        self.live(member)?;
        let may = self.may_have_share(member);
        if may {
            self.set_used(member, 1);
        }
        Ok(may)
    }
}
