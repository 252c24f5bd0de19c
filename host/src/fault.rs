//! The faults that tests plant.

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
    /// Multicast: each message is pushed, however many are to share a push.
    IgnoredK,
    /// Multicast: 5 messages share a push where 25 are to, and 25 where 5 are.
    ExchangedK,
    /// Send/Receive: a doorbell for each message.
    BatchOfOne,
    /// Send/Receive: half as many messages are under way.
    HalfWindow,
}

impl Plant {
    /// Faults that break a rule of a protocol or of the device; the worlds find them.
    pub const OF_WORLDS: [Plant; 12] = [
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

    /// Faults that the figures' expectations find. Only `EarlyAck` also breaks a rule; the others cost performance alone.
    pub const OF_FIGURES: [Plant; 5] =
        [Plant::IgnoredK, Plant::ExchangedK, Plant::BatchOfOne, Plant::HalfWindow, Plant::EarlyAck];
}
