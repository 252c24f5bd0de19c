//! The last READs, atomics and ATOMIC WRITEs, and what is still to be sent of them.

use crate::opcode::Opcode;

/// A READ, an atomic or an ATOMIC WRITE that the responder remembers: storage of a
/// [`Responder`](super::Responder).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseSlot(pub(super) Option<Remembered>);

impl ResponseSlot {
    /// An entry that is not used yet.
    pub const fn new() -> Self {
        Self(None)
    }
}

/// A request with responses of its own.
// Invariant: first <= start <= next <= end <= last + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    /// The position of its first response.
    pub(super) first: u64,
    /// The position behind its last response.
    pub(super) last_end: u64,
    pub(super) answer: RememberedAnswer,
    /// The responses that are asked for: those from `start` to `end`; `next` is the one to be sent.
    pub(super) start: u64,
    pub(super) next: u64,
    pub(super) end: u64,
    /// It is answered again.
    pub(super) is_repeated: bool,
    /// Messages that were complete with it.
    pub(super) msn: u32,
}

/// Contents of its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RememberedAnswer {
    /// The memory of a READ. Of its `length` bytes, those before `until` are asked for.
    Read { rkey: u32, va: u64, length: u32, until: u32 },
    /// Value that an atomic found.
    Atomic { original: u64 },
    /// An ATOMIC WRITE was executed.
    AtomicWrite,
}

impl RememberedAnswer {
    /// Reports whether it answers requests with this opcode.
    pub(super) fn answers(&self, opcode: Opcode) -> bool {
        match self {
            Self::Read { .. } => opcode.is_read_request(),
            Self::Atomic { .. } => opcode.is_atomic(),
            Self::AtomicWrite => opcode.is_atomic_write(),
        }
    }
}

impl Remembered {
    /// A request that is answered for the first time.
    pub(super) const fn new(first: u64, packets: u32, answer: RememberedAnswer, msn: u32) -> Self {
        let end = first + packets as u64;
        let (start, next, is_repeated) = (first, first, false);
        Self { first, last_end: end, answer, start, next, end, is_repeated, msn }
    }

    pub(super) const fn is_pending(&self) -> bool {
        self.next < self.end
    }
}

/// A ring of the newest ones.
// Invariants: `taken` counts all that were ever stored; the newest is at (taken - 1) % entries.
// `pending` is how many are pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResponseSlots<S> {
    entries: S,
    taken: u64,
    pending: u32,
}

impl<S> ResponseSlots<S> {
    pub(super) const fn new(entries: S) -> Self {
        Self { entries, taken: 0, pending: 0 }
    }

    #[inline]
    pub(super) const fn has_pending(&self) -> bool {
        self.pending > 0
    }
}

impl<S: AsRef<[ResponseSlot]> + AsMut<[ResponseSlot]>> ResponseSlots<S> {
    /// The place of the oldest one, which the next one takes.
    fn oldest(&self) -> Option<usize> {
        let len = self.entries.as_ref().len() as u64;
        self.taken.checked_rem(len).map(|at| at as usize)
    }

    /// Continues with other entries, and the newest that they have room for.
    pub(super) fn replace(&mut self, mut entries: S) {
        entries.as_mut().fill(ResponseSlot(None));
        let len = self.entries.as_ref().len() as u64;
        let kept = self.taken.min(len).min(entries.as_ref().len() as u64);
        for (nth, entry) in (self.taken - kept..self.taken).zip(entries.as_mut()) {
            *entry = self.entries.as_ref()[(nth % len) as usize];
        }
        let is_pending = |entry: &&ResponseSlot| entry.0.is_some_and(|old| old.is_pending());
        self.pending = entries.as_ref().iter().filter(is_pending).count() as u32;
        (self.entries, self.taken) = (entries, kept);
    }

    /// Reports whether another request fits. A requester that obeys `max_dest_rd_atomic` has all
    /// responses to the oldest one when it sends another; a repetition of that may still be
    /// pending, because a copy of the request arrived late.
    pub(super) fn has_room(&self) -> bool {
        let Some(oldest) = self.oldest() else { return false };
        self.entries.as_ref()[oldest].0.is_none_or(|old| !old.is_pending() || old.is_repeated)
    }

    /// Remembers a request, in place of the oldest one.
    pub(super) fn push(&mut self, new: Remembered) {
        let Some(oldest) = self.oldest() else { return };
        let entry = &mut self.entries.as_mut()[oldest];
        let was_pending = entry.0.is_some_and(|old| old.is_pending());
        entry.0 = Some(new);
        self.taken += 1;
        self.pending = self.pending + u32::from(new.is_pending()) - u32::from(was_pending);
    }

    /// All that is remembered, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Remembered> {
        self.entries.as_ref().iter().filter_map(|entry| entry.0.as_ref())
    }

    /// The one that has a response at `position`.
    pub(super) fn find(&self, position: u64) -> Option<&Remembered> {
        self.all().find(|old| old.first <= position && position < old.last_end)
    }

    /// Changes the one that has a response at `position`, with what was remembered of it.
    pub(super) fn repeat(
        &mut self,
        position: u64,
        change: impl FnOnce(&mut Remembered) -> bool,
    ) -> bool {
        let has = |old: &&mut Remembered| old.first <= position && position < old.last_end;
        let mut entries = self.entries.as_mut().iter_mut().filter_map(|entry| entry.0.as_mut());
        let Some(old) = entries.find(has) else { return false };
        let was_pending = old.is_pending();
        let is_changed = change(old);
        self.pending = self.pending + u32::from(old.is_pending()) - u32::from(was_pending);
        is_changed
    }

    /// The next response: the oldest request that has one, in its state before the response is
    /// sent.
    pub(super) fn next_response(&mut self) -> Option<Remembered> {
        if self.pending == 0 {
            return None;
        }
        let oldest = self.oldest()?;
        let (newer, older) = self.entries.as_mut().split_at_mut(oldest);
        let in_order = older.iter_mut().chain(newer).filter_map(|entry| entry.0.as_mut());
        let pending = in_order.into_iter().find(|old| old.is_pending())?;
        let before = *pending;
        pending.next += 1;
        self.pending -= u32::from(!pending.is_pending());
        Some(before)
    }

    /// The responses from `position` on to the request that it belongs to are not sent.
    pub(super) fn abandon(&mut self, position: u64) {
        self.repeat(position, |old| {
            old.end = old.next;
            true
        });
    }

    /// No response that is pending is sent, unless it is asked for again.
    pub(super) fn abandon_all(&mut self) {
        for old in self.entries.as_mut().iter_mut().filter_map(|entry| entry.0.as_mut()) {
            old.end = old.next;
        }
        self.pending = 0;
    }

    /// Nothing more is sent.
    pub(super) fn clear(&mut self) {
        self.entries.as_mut().iter_mut().for_each(|entry| entry.0 = None);
        self.pending = 0;
    }
}
