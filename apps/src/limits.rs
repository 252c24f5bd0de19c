//! What a peer can have this end register, and keep.

/// What the buffers of one end may take in all: the connecting end chooses what the
/// listening end registers.
pub(crate) const MOST_BUFFER_BYTES: u64 = 4 << 30;

/// Sizes of one session: the listening end keeps a line of results for each.
pub(crate) const MOST_SIZES: u32 = 4096;

/// What an entry of a work queue takes: what is known of it here, and the device's own.
pub(crate) const ENTRY_BYTES: u32 = 256;
