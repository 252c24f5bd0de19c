//! The faults.

/// A fault at one place of the code. Each is off unless a [world](crate::world) plants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Send/Receive: a credit more than buffers were posted.
    ExtraCredit,
    /// Send/Receive: a buffer that another thread has freed is freed twice.
    DoubleFree,
    /// A completion queue that was armed raises no event.
    LostWakeup,
    /// Buffered Read: the tail is published before the record.
    EarlyTail,
    /// Direct Read: a message is acknowledged before it was read.
    EarlyAck,
    /// Send/Receive: the receiver probes no peer.
    SkippedProbe,
    /// Direct Write and Shared Write: the goodbye is left out.
    LostGoodbye,
    /// A wait forgets its deadline.
    IgnoredDeadline,
    /// Two locks of a device are taken in the wrong order.
    LockOrder,
    /// A queue pair is not destroyed.
    LeakedQueuePair,
    /// Buffered Read: a READ goes beyond the ring.
    ReadBeyondRing,
    /// RoCE: an acknowledgement is taken as that of the packet behind its own.
    PsnWindow,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 12] = [
        Plant::ExtraCredit,
        Plant::DoubleFree,
        Plant::LostWakeup,
        Plant::EarlyTail,
        Plant::EarlyAck,
        Plant::SkippedProbe,
        Plant::LostGoodbye,
        Plant::IgnoredDeadline,
        Plant::LockOrder,
        Plant::LeakedQueuePair,
        Plant::ReadBeyondRing,
        Plant::PsnWindow,
    ];
}
