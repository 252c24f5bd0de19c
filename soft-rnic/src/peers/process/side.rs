//! The state of reading from one other process, and of fetching from its memory.

use std::sync::Arc;

use verbs_sys::ibv_sge;

use crate::limits::MAX_SGE;
use crate::memory::paging::Needed;
use crate::memory::span::SpanBuf;

use super::directory::AccessGuard;
use super::pair::ProcessPair;
use super::region::MappedWindow;
use super::ring::{EntryOp, HAS_IMM, PayloadLocation, Replies, ReplyEntry, RingRequest};

/// The state of reading from one other process.
pub(crate) struct ReadSide {
    pub(crate) pair: Arc<ProcessPair>,
    pub(crate) requests: u32,
    pub(crate) replies_read: u32,
    pub(crate) replies: Replies,
    /// Requests wait until the other process has taken replies, and it knows.
    pub(crate) waits_for_room: bool,
    /// A reply that the next one may stand for, too.
    pub(crate) held: Option<ReplyEntry>,
    /// The next reply is for a queue pair that cannot take it now: those after it wait.
    pub(crate) pauses: bool,
    /// A long message was among the requests taken last.
    pub(crate) took_long: bool,
    /// Replies were written, and the other process was not woken yet.
    pub(crate) said: bool,
    /// Regions of the sender that the last message was read in.
    pub(crate) sources: Vec<SourceRegion>,
    /// The fetch that the next request waits for.
    pub(crate) fetch: FetchState,
    /// Buffer of the last message that had to be fetched.
    pub(crate) buffer: Vec<u8>,
    /// The pages that were brought for the next request: its index in the ring, the pages that it
    /// needs, and whether all are there.
    pub(crate) brought: Option<Box<(u32, Needed, bool)>>,
    /// The process has ended: what it has sent is executed by a thread that waits for pages.
    pub(crate) is_heard_out: bool,
    /// Progress of the next request, if it arrives in parts.
    pub(crate) placed: Option<Placed>,
}

/// A message to be fetched, or pages to be brought for one.
pub(crate) struct DeferredFetch {
    pub(crate) pair: Arc<ProcessPair>,
    pub(crate) request: RingRequest,
    /// The request's index in the ring.
    pub(crate) index: u32,
    /// The pieces, in the sender's regions. Where these are is looked up when it is fetched: until
    /// then the sender may give them back, and use their memory for something else.
    pub(crate) list: Vec<ibv_sge>,
    /// Offset in the message of the bytes that are fetched, and their number.
    pub(crate) part: (usize, usize),
    /// Pages of this process that are brought; nothing is fetched then.
    pub(crate) pages: Option<Needed>,
    /// Buffer that it goes into: room is made when it is fetched.
    pub(crate) bytes: Vec<u8>,
}

/// Bytes of a long message that are fetched at a time (`incoming::parts`): as many as a processor's
/// own cache holds beside others.
pub(crate) const PART: usize = 512 << 10;

/// Progress of a message that is placed part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The request's index in the ring.
    pub(crate) index: u32,
    /// Length of the message: it is read anew each time, and its sender can change it.
    pub(crate) total: usize,
    pub(crate) done: usize,
    /// The receive request that it is put into.
    pub(crate) receive: Option<u32>,
}

/// Reports whether a message is placed part by part, if it cannot be mapped.
pub(crate) fn comes_in_parts(request: &RingRequest, total: usize) -> bool {
    request.what == EntryOp::Send && request.location == PayloadLocation::Regions && total > PART
}

/// The state of the fetch that a process's next request waits for.
#[derive(Default)]
pub(crate) enum FetchState {
    #[default]
    Nothing,
    Wanted(Box<DeferredFetch>),
    UnderWay,
    /// This part of the message of the request at this index, if it could be fetched: where it
    /// begins, and its length.
    Over(u32, (usize, usize), Option<Vec<u8>>),
}

impl FetchState {
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self, FetchState::Wanted(_))
    }

    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self, FetchState::Wanted(_) | FetchState::UnderWay)
    }
}

/// The entries of a list of pieces.
pub(crate) type SgeList = [ibv_sge; MAX_SGE as usize];

/// Room in which the pieces of a message are put together.
pub(crate) struct MessageScratch {
    pub(crate) local: SpanBuf,
    pub(crate) room: SpanBuf,
    /// A list of pieces, as it was read: its sender can change it at any time.
    pub(crate) list: SgeList,
}

impl MessageScratch {
    pub(crate) fn new() -> MessageScratch {
        // SAFETY: a `ProgressEngine` owns it, and hands it out under its lock.
        let [local, room] = [(); 2].map(|()| unsafe { SpanBuf::new() });
        let none = ibv_sge { addr: 0, length: 0, lkey: 0 };
        MessageScratch { local, room, list: [none; MAX_SGE as usize] }
    }
}

/// A region of a sender that a piece of its message lies in. The spans of a message borrow from
/// these: none of them is replaced, and so no memory unmapped, before it is executed.
pub(crate) struct SourceRegion {
    pub(crate) key: u32,
    pub(crate) window: Arc<MappedWindow>,
    /// Offset of the piece in the region.
    pub(crate) offset: u64,
}

/// Says that a message is read where it lies, until this is dropped. `None` if its sender
/// waits for it no more: it was flushed, and the memory is the program's again.
pub(crate) fn read_there<'p>(
    pair: &'p ProcessPair,
    request: &RingRequest,
) -> Option<AccessGuard<'p>> {
    let inside = AccessGuard::enter(&pair.outgoing.reads, pair.spares_barriers);
    pair.theirs.qp(request.from).waits_for_reply(request.incarnation).then_some(inside)
}

/// Reports whether a request is followed by data: it takes a receive request.
pub(crate) fn carries_data(request: &RingRequest) -> bool {
    match request.what {
        EntryOp::Send | EntryOp::Datagram | EntryOp::Multicast => true,
        EntryOp::Write => request.flags & HAS_IMM != 0,
        _ => false,
    }
}
