//! The layout of a trace: the numbers of words, and what they say.
//!
//! Counters of requests wrap at 2^32. Of a send queue
//! `polled <= retired <= executed <= posted <= polled + capacity`, of a receive queue
//! `first <= posted <= first + capacity`.

use crate::enums::named_enum;

/// The first eight bytes of a trace.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RDMAtrac");
/// Version of the format: it changes with every change of this file.
pub const VERSION: u32 = 4;
/// Bytes that a trace may have. Only what is used takes up room on the disk; queues for which
/// none is left are not traced.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Events that the log keeps, a power of two.
pub const LOG_RECORDS: usize = 1 << 14;

/// Words of the file's header, and of an object's.
pub(crate) const HEADER: usize = 32;
/// Words of a record of the log.
pub(crate) const RECORD: usize = 6;
/// Words of a request.
pub(crate) const ENTRY: usize = 6;
/// Word at which the first object begins.
pub(crate) const OBJECTS: usize = HEADER + LOG_RECORDS * RECORD;

/// Words of the file's header.
pub(crate) mod head {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const PROCESS: usize = 2;
    /// The wall clock's time at which the trace begins.
    pub(crate) const BEGAN: usize = 3;
    /// The monotonic clock's, of the last event.
    pub(crate) const LAST: usize = 4;
    /// Words in use, from the beginning of the file on.
    pub(crate) const USED: usize = 5;
    /// Records that were begun.
    pub(crate) const LOGGED: usize = 6;
    /// Objects for which there was no room.
    pub(crate) const LEFT_OUT: usize = 7;
    /// The program's name, 16 bytes.
    pub(crate) const NAME: usize = 8;
    /// Start time of the process, as the kernel counts it: process numbers are used again.
    pub(crate) const STARTED: usize = 10;
}

/// Words of an object's header.
pub(crate) mod object {
    /// Number of the object's words, a word of its own for a reader that steps over it.
    pub(crate) const WORDS: usize = 0;
    /// Kind of the object; 0 once it was destroyed.
    pub(crate) const KIND: usize = 1;
    /// Its number, and the transport above.
    pub(crate) const NUMBER: usize = 2;
    /// Slots of the send queue, and of the receive queue above; of a CQ its capacity.
    pub(crate) const CAPACITY: usize = 3;
    /// The CQ of sends, and that of receives above.
    pub(crate) const CQS: usize = 4;
    /// The number of a shared receive queue.
    pub(crate) const SRQ: usize = 5;
    /// The state, and the queue pair at the other end above.
    pub(crate) const STATE: usize = 6;
    pub(crate) const STATE_SINCE: usize = 7;
    /// `timeout`, `retry_cnt`, `rnr_retry`: a byte each.
    pub(crate) const RETRIES: usize = 8;
    pub(crate) const POSTED: usize = 9;
    /// Requests that have ended, and above how many behind them are on their way.
    pub(crate) const EXECUTED: usize = 10;
    /// Requests that are covered by a completion.
    pub(crate) const RETIRED: usize = 11;
    pub(crate) const POLLED: usize = 12;
    /// Reason for which the oldest request waits, and the number of its tries above.
    pub(crate) const WAIT: usize = 13;
    pub(crate) const WAIT_SINCE: usize = 14;
    pub(crate) const RECV_POSTED: usize = 15;
    /// The oldest receive request that is there.
    pub(crate) const RECV_FIRST: usize = 16;
    /// Completions that a CQ has been given, and those that were polled.
    pub(crate) const PRODUCED: usize = 17;
    pub(crate) const CONSUMED: usize = 18;
    /// 1 if the CQ has overrun.
    pub(crate) const OVERRUN: usize = 19;
    /// The address of the other end's device as an IPv6 address, if it is on a network: its first
    /// eight bytes, and the others.
    pub(crate) const PEER_ADDRESS: [usize; 2] = [20, 21];
    /// The cause of a queue pair's error state ([`Cause`](crate::reason::Cause)).
    pub(crate) const CAUSE: usize = 22;
}

/// Words of a request.
pub(crate) mod entry {
    /// Its position plus one, and above what became of it and a status, a byte each; written last.
    pub(crate) const STATE: usize = 0;
    pub(crate) const WR_ID: usize = 1;
    pub(crate) const TIME: usize = 2;
    /// Bytes, and above the operation and flags, a byte each.
    pub(crate) const WHAT: usize = 3;
    /// The queue pair, or the shared receive queue, that the request names.
    pub(crate) const TO: usize = 4;
    pub(crate) const CHECK: usize = 5;
}

/// Words of a record.
pub(crate) mod record {
    /// Its number plus one; written last.
    pub(crate) const NUMBER: usize = 0;
    pub(crate) const TIME: usize = 1;
    /// The event, an operation, a status and the reason of a failure, a byte each, and a length
    /// above. Of a change of state, the origin of its cause in place of an operation.
    pub(crate) const WHAT: usize = 2;
    /// The object's number, and another's above.
    pub(crate) const OBJECT: usize = 3;
    pub(crate) const WR_ID: usize = 4;
    pub(crate) const CHECK: usize = 5;
}

/// Kinds of objects.
pub(crate) mod kind {
    pub(crate) const GONE: u64 = 0;
    pub(crate) const QP: u64 = 1;
    pub(crate) const SRQ: u64 = 2;
    pub(crate) const CQ: u64 = 3;
}

/// Fates of a request.
pub(crate) mod fate {
    pub(crate) const POSTED: u64 = 1;
    /// It was unsignalled, and a later one has completed.
    pub(crate) const COVERED: u64 = 2;
    /// Its completion is in the completion queue, with a status above.
    pub(crate) const COMPLETED: u64 = 3;
}

/// Reasons for which the oldest request waits; 0 for none.
pub(crate) mod wait {
    pub(crate) const RNR: u32 = 1;
    pub(crate) const RESPONSE: u32 = 2;
    pub(crate) const DELAY: u32 = 3;
    pub(crate) const MEETING: u32 = 4;
    pub(crate) const ROOM: u32 = 5;
    pub(crate) const SETTLING: u32 = 6;
    pub(crate) const INJECTED_RNR: u32 = 7;
    pub(crate) const INJECTED_LOSS: u32 = 8;
}

/// Flags of a request.
pub(crate) mod flag {
    pub(crate) const SIGNALED: u64 = 1;
    pub(crate) const INLINE: u64 = 2;
    pub(crate) const FENCE: u64 = 4;
    pub(crate) const SOLICITED: u64 = 8;
    pub(crate) const HAS_IMM: u64 = 16;
}

/// Operations: those of the send queue in the order of `SqOp`, and receiving.
pub(crate) const OPERATIONS: [&str; 9] = [
    "SEND",
    "WRITE",
    "READ",
    "COMPARE_SWAP",
    "FETCH_ADD",
    "ATOMIC_WRITE",
    "BIND_MW",
    "LOCAL_INV",
    "RECV",
];
pub(crate) const RECV: u64 = 8;

/// Transports and states, in the order of the device's.
pub(crate) const TRANSPORTS: [&str; 5] = ["RC", "XRC_SEND", "XRC_RECV", "UC", "UD"];
pub(crate) const STATES: [&str; 8] =
    ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "DESTROYED"];

named_enum! {
    /// Events of the log, with their names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[repr(u8)]
    pub(crate) enum EventKind {
        Open = "open",
        CreateQp = "create QP",
        DestroyQp = "destroy QP",
        CreateCq = "create CQ",
        DestroyCq = "destroy CQ",
        CreateSrq = "create SRQ",
        DestroySrq = "destroy SRQ",
        RegisterMr = "register MR",
        DeregisterMr = "deregister MR",
        State = "state",
        PostSend = "post",
        PostRecv = "post",
        Wait = "wait",
        Completion = "complete",
        Poll = "poll",
    }
}

/// A checksum of words that belong together. It finds what is torn, and no forgery.
pub(crate) fn checksum(words: &[u64]) -> u64 {
    // FNV's constants, over words.
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

const _: () = assert!(LOG_RECORDS.is_power_of_two() && OBJECTS as u64 * 8 < MAX_FILE_BYTES);
