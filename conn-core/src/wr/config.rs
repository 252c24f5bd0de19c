//! The geometry of a send queue, and the storage that it takes.

/// The geometry of a send queue, and how often it signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTrackerConfig {
    /// Requests that the send queue holds.
    pub depth: u32,
    /// Slots that only [`WrClass::Control`](super::WrClass::Control) may use, so that control
    /// never waits behind data; `control_slots < depth`.
    pub control_slots: u32,
    /// Every `signal_every`-th request is signalled; at least 1. More than
    /// `depth - control_slots` would let the queue fill up with nothing signalled in
    /// it, and is taken as `depth - control_slots`.
    pub signal_every: u32,
}

impl Default for SendTrackerConfig {
    /// 128 requests, 4 of them for control only; every 32nd is signalled.
    fn default() -> Self {
        Self { depth: 128, control_slots: 4, signal_every: 32 }
    }
}

/// A [`SendTrackerConfig`] that makes no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendTrackerConfigError {
    /// `control_slots >= depth`: nothing is left for data.
    #[error("the control slots leave no slot for data")]
    NoDataSlots,
    /// `signal_every` is 0.
    #[error("the signalling interval is 0")]
    NeverSignalled,
    /// The storage has too few words for the depth: [`words_for`] returns the required number.
    #[error("a send queue of this depth needs {needed_words} words of storage")]
    StorageTooSmall {
        /// Words of storage that the depth needs.
        needed_words: usize,
    },
}

/// Words of storage that a queue of `depth` requests needs: a power of two, of 64
/// requests each.
///
/// ```
/// assert_eq!(conn_core::wr::words_for(256), 4);
/// assert_eq!(conn_core::wr::words_for(300), 8);
/// ```
pub const fn words_for(depth: u32) -> usize {
    depth.div_ceil(64).next_power_of_two() as usize
}

pub(super) const fn check(
    config: SendTrackerConfig,
    words: usize,
) -> Result<(), SendTrackerConfigError> {
    if config.control_slots >= config.depth {
        return Err(SendTrackerConfigError::NoDataSlots);
    }
    if config.signal_every == 0 {
        return Err(SendTrackerConfigError::NeverSignalled);
    }
    let needed_words = words_for(config.depth);
    if words < needed_words {
        return Err(SendTrackerConfigError::StorageTooSmall { needed_words });
    }
    Ok(())
}
