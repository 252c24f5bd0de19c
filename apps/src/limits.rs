//! Limits on what a peer can have this end register and keep.

/// Most bytes of all buffers of one end: the connecting end chooses what the listening end
/// registers.
pub(crate) const MOST_BUFFER_BYTES: u64 = 4 << 30;

/// Sizes of one session: the listening end keeps a line of results for each.
pub(crate) const MOST_SIZES: u32 = 4096;

/// Bytes of an entry of a work queue: this end's record of it, and the device's own.
pub(crate) const ENTRY_BYTES: u32 = 256;
