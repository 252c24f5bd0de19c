//! The producers' side of a completion queue, and what its next event waits for.

/// State that producers share.
#[derive(Debug, Default)]
pub(crate) struct CqProducer {
    pub(crate) tail: u32,
    /// `published <= tail`; equal whenever the lock is free.
    pub(crate) published: u32,
    pub(crate) head_seen: u32,
    pub(crate) armed: ArmState,
    pub(crate) overrun: bool,
    /// A solicited completion, or a failed one, is among the unpublished.
    pub(crate) notable: bool,
    /// Events may be held back ([`Cq::moderation`](crate::objects::state::Cq::moderation)).
    pub(crate) is_moderated: bool,
}

/// Completions that the next event waits for.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) enum ArmState {
    #[default]
    No,
    /// For nothing, but completions get a time, or are traced, when they become visible.
    Watched,
    Solicited,
    Any,
}

impl ArmState {
    /// The state of a queue on which nothing is waited for.
    pub(crate) fn none(is_watched: bool) -> ArmState {
        if is_watched { ArmState::Watched } else { ArmState::No }
    }
}

/// Moderation of the events of a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    /// Completions for which an event comes; 0 if none does for their number.
    pub(crate) count: u16,
    /// The longest time that it is held back; 0 if that has no end.
    pub(crate) period_us: u16,
    /// The event that is held back: the index of the first completion that it is for, and the name
    /// of its deadline, if it has one.
    pub(crate) held: Option<(u32, Option<u64>)>,
}
