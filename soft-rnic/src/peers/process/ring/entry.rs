//! Entries of the rings, and the words that they are there.

use crate::queues::address::GidBytes;
use crate::queues::outcome::PeerReply;
use crate::reason::WcReason;

/// Bytes that go with the request itself.
pub(crate) const BODY: usize = 32;

/// Bytes that go with it of each of two messages.
pub(crate) const HALF: usize = BODY / 2;

/// The reader breaks the rules, or the writer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum EntryOp {
    #[default]
    Send,
    /// With an immediate; without one it is only judged.
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    Datagram,
    /// A datagram to the members of a multicast group.
    Multicast,
    AtomicWrite,
}

/// The place of the data of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum PayloadLocation {
    /// With the request.
    #[default]
    Body,
    /// In the ring of data, at the offset that the body says.
    Data,
    /// In regions of the sender; a list of so many pieces is in the ring of data.
    Regions,
    /// Two messages, each with half of the body; only in the ring.
    Halves,
}

/// The part of an entry that a request is: all of it, or one of its two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EntryPart {
    #[default]
    Whole,
    First,
    Second,
}

pub(crate) const HAS_IMM: u8 = 1;
pub(crate) const SOLICITED: u8 = 2;
/// The sender waits for a reply.
pub(crate) const WANTS_REPLY: u8 = 4;
/// It is only to be judged whether it is permitted: the sender could not.
pub(crate) const JUDGE: u8 = 8;
/// It goes over XRC: the last word of the body has the number of a shared receive queue, in front
/// of the key. Data never lie in the body.
pub(crate) const XRC: u8 = 16;
/// The immediate of a SEND is a key that it invalidates.
pub(crate) const INVALIDATES: u8 = 32;
/// Beside the length of the second of two messages.
const SECOND_SOLICITED: u32 = 1 << 31;

/// A request on its way to another process. It is not moved about: see `WqeRef`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RingRequest {
    pub(crate) what: EntryOp,
    pub(crate) flags: u8,
    pub(crate) location: PayloadLocation,
    /// Number of times that the sending queue pair was connected.
    pub(crate) incarnation: u8,
    pub(crate) to: u32,
    pub(crate) from: u32,
    /// Generation of the queue pair that it is for, as the sender has seen it.
    pub(crate) generation: u32,
    /// Counts the messages of a connection.
    pub(crate) number: u32,
    pub(crate) imm: u32,
    pub(crate) len: u32,
    pub(crate) body: [u64; 4],
    /// The part of the entry that this is, in a request that was read.
    pub(crate) part: EntryPart,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl RingRequest {
    #[inline(always)]
    pub(super) fn words(&self) -> [u64; 8] {
        let kinds = u32::from_le_bytes([
            self.what as u8,
            self.flags,
            self.location as u8,
            self.incarnation,
        ]);
        let [a, b, c, d] = self.body;
        [
            pair(0, kinds),
            pair(self.to, self.from),
            pair(self.generation, self.number),
            pair(self.imm, self.len),
            a,
            b,
            c,
            d,
        ]
    }

    /// Takes the words over, field by field; `Broken` for what no process of this version
    /// writes.
    #[inline(always)]
    pub(super) fn take_over(&mut self, words: [u64; 8]) -> Result<(), Broken> {
        let [what, flags, location, incarnation] = halves(words[0]).1.to_le_bytes();
        let what = match what {
            0 => EntryOp::Send,
            1 => EntryOp::Write,
            2 => EntryOp::Read,
            3 => EntryOp::CompareSwap,
            4 => EntryOp::FetchAdd,
            5 => EntryOp::Datagram,
            6 => EntryOp::Multicast,
            7 => EntryOp::AtomicWrite,
            _ => return Err(Broken),
        };
        let location = match location {
            0 => PayloadLocation::Body,
            1 => PayloadLocation::Data,
            2 => PayloadLocation::Regions,
            3 => PayloadLocation::Halves,
            _ => return Err(Broken),
        };
        (self.what, self.flags, self.location, self.incarnation) =
            (what, flags, location, incarnation);
        (self.to, self.from) = halves(words[1]);
        (self.generation, self.number) = halves(words[2]);
        (self.imm, self.len) = halves(words[3]);
        self.body = [words[4], words[5], words[6], words[7]];
        self.part = EntryPart::Whole;
        if self.location == PayloadLocation::Halves { self.split() } else { Ok(()) }
    }

    /// Says that it goes over XRC, to this shared receive queue.
    pub(crate) fn name_srq(&mut self, srqn: u32) {
        self.flags |= XRC;
        self.body[3] = pair(halves(self.body[3]).0, srqn);
    }

    /// The shared receive queue that it names, if it goes over XRC.
    #[inline]
    pub(crate) fn srqn(&self) -> Option<u32> {
        (self.flags & XRC != 0).then(|| halves(self.body[3]).1)
    }

    /// Says that it goes to the members of this multicast group, and to no queue pair. Data never
    /// lie in the body.
    pub(crate) fn name_group(&mut self, gid: &GidBytes) {
        let gid = u128::from_ne_bytes(*gid);
        self.to = 0;
        (self.body[2], self.body[3]) = (gid as u64, (gid >> 64) as u64);
    }

    /// Reports whether it is for queue pairs that hear datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.what, EntryOp::Datagram | EntryOp::Multicast)
    }

    /// The multicast group that it names.
    pub(crate) fn group(&self) -> GidBytes {
        (u128::from(self.body[2]) | u128::from(self.body[3]) << 64).to_ne_bytes()
    }

    /// Takes another message into the entry of this one, which is as short: its length, and
    /// whether it is solicited. It lies in the second half of the body.
    #[inline(always)]
    pub(crate) fn join(&mut self, len: u32, solicited: bool) {
        self.location = PayloadLocation::Halves;
        self.imm = len | if solicited { SECOND_SOLICITED } else { 0 };
    }

    /// The first message of two.
    #[inline(always)]
    fn split(&mut self) -> Result<(), Broken> {
        let plain = self.what == EntryOp::Send && self.flags & !SOLICITED == WANTS_REPLY;
        let is_half = |len: u32| len.wrapping_sub(1) < HALF as u32;
        if !plain || !is_half(self.len) || !is_half(self.imm & !SECOND_SOLICITED) {
            return Err(Broken);
        }
        (self.part, self.location) = (EntryPart::First, PayloadLocation::Body);
        Ok(())
    }

    /// Becomes the second message of its entry, if it is the first of two.
    #[inline(always)]
    pub(crate) fn go_on(&mut self) -> bool {
        if self.part != EntryPart::First {
            return false;
        }
        self.part = EntryPart::Second;
        self.number = self.number.wrapping_add(1);
        self.len = self.imm & !SECOND_SOLICITED;
        let solicited = if self.imm == self.len { 0 } else { SOLICITED };
        self.flags = WANTS_REPLY | solicited;
        (self.body[0], self.body[1]) = (self.body[2], self.body[3]);
        true
    }

    /// The first message of its entry was executed, and this is the other one.
    pub(crate) fn is_second(&self) -> bool {
        self.part == EntryPart::Second
    }
}

/// A reply on its way to another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyEntry {
    pub(crate) to: u32,
    pub(crate) number: u32,
    pub(crate) incarnation: u8,
    pub(crate) verdict: PeerReply,
    /// The value that an atomic has found.
    pub(crate) value: u64,
}

impl ReplyEntry {
    #[inline(always)]
    pub(super) fn words(&self) -> [u64; 4] {
        let (kind, code) = match self.verdict {
            PeerReply::Done => (0, 0),
            PeerReply::Silence => (1, 0),
            PeerReply::Again => (2, 0),
            PeerReply::Rnr(code) => (3, code),
            PeerReply::Refused(reason) => (4, reason as u8),
        };
        let kinds = u32::from_le_bytes([kind, code, self.incarnation, 0]);
        [pair(0, kinds), pair(self.to, self.number), self.value, 0]
    }

    /// `None` for what no process of this version writes. A refusal for a reason that is none is
    /// such a reply.
    pub(super) fn from_words(words: [u64; 4]) -> Option<ReplyEntry> {
        let [kind, code, incarnation, _] = halves(words[0]).1.to_le_bytes();
        let verdict = match kind {
            0 => PeerReply::Done,
            1 => PeerReply::Silence,
            2 => PeerReply::Again,
            3 => PeerReply::Rnr(code),
            4 => PeerReply::Refused(
                WcReason::from_number(code).filter(|reason| reason.is_refusal())?,
            ),
            _ => return None,
        };
        let (to, number) = halves(words[1]);
        Some(ReplyEntry { to, number, incarnation, verdict, value: words[2] })
    }
}
