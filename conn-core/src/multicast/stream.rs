//! State of one sender's stream at one member.

/// See the module's diagram.
// Invariant: delivered <= accepted <= copied <= published, copied <= delivered + capacity;
// turn <= received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct SenderStream {
    /// Bytes that its sender has counted as written.
    pub(super) published: u64,
    /// Bytes that are in private memory.
    pub(super) copied: u64,
    /// Bytes of whole records in private memory, that were parsed.
    pub(super) accepted: u64,
    /// Bytes of records that were delivered, or skipped: private memory up to here is free.
    pub(super) delivered: u64,
    /// Turns in the bytes that were accepted.
    pub(super) received: u64,
    /// Turns that were delivered.
    pub(super) turn: u64,
    /// Turns that all needed members had received, when that was looked at last.
    pub(super) stable: u64,
    /// Turns that were passed of the nulls at the front.
    pub(super) nulls: u32,
    /// Number of these nulls in all, while some were passed.
    pub(super) nulls_of: u32,
    /// Its end was accepted.
    pub(super) ended: bool,
    /// Bytes up to which its sender wants acknowledgements at once, and up to which they were made.
    pub(super) urgent: u64,
    pub(super) urgent_done: u64,
}
