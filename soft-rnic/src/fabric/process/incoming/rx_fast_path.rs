//! The fast path of executing what others send: runs of plain messages of a few bytes.
//!
//! A message of 16 bytes takes 833 instructions in lists of 8, and 2,111 alone, counted as for
//! [the other end's](super::super::remote::tx_fast_path); 1,240 and 2,375 without this module.

use crate::copy;
use crate::engine::responder::ResponderSession;
use crate::engine::responder::run::MessageRun;
use crate::memory::mr_table::HeldRegion;
use crate::memory::span::{Hold, MemSpan};
use crate::objects::cq::CqWriter;
use crate::queues::outcome::PeerReply;
use crate::queues::qp_state::QpTransport;

use crate::peers::process::directory::slot_of;
use crate::peers::process::ring::{
    BODY, Broken, EntryOp, PayloadLocation, ReplyEntry, RingRequest, SOLICITED, WANTS_REPLY,
};
use crate::peers::process::side::ReadSide;

impl ReadSide {
    /// The fast path of [`execute`](Self::execute), for short plain messages of one queue
    /// pair, at most `left`: what they share is looked up once, and none of the checks is left
    /// out. The first one that is anything else, or would not succeed, is left to the long
    /// way. Returns true if there is another request, which has been read then.
    pub(super) fn take_fast<'a>(
        &mut self,
        request: &mut RingRequest,
        session: &mut ResponderSession<'a>,
        hold: Hold<'_>,
        writer: &mut CqWriter<'a>,
        left: &mut u32,
    ) -> Result<bool, Broken> {
        let (peer, from) = (session.peer, request.from);
        let expects = session.expects(from, session.responder.psn);
        let responder = &mut *session.responder;
        let known = slot_of(from) == self.pair.slot && request.generation == responder.generation;
        if !expects || !known || peer.transport != QpTransport::Rc {
            return Ok(true);
        }
        let (mut taker, mut buffers) = (None, HeldRegion::new(hold));
        let consumer = &mut responder.consumer;
        let mut run =
            MessageRun::open(peer, consumer, from, *left, writer, &mut taker, &mut buffers);
        let (to, generation, incarnation) = (request.to, request.generation, request.incarnation);
        while run.left() > 0 && request.number == responder.number {
            // SAFETY: some are left.
            let Some((wr_id, at)) = (unsafe { run.begin(request.len) }) else { break };
            // SAFETY: the buffer was checked, and is the device's while it is posted; `is_short` has
            // seen that the request has at most a body.
            unsafe { lay(at, &request.body, request.len as usize) };
            run.finish(wr_id, request.len, request.flags & SOLICITED != 0);
            *left -= 1;
            responder.psn = responder.psn.wrapping_add(1) & 0x00ff_ffff;
            responder.number = responder.number.wrapping_add(1);
            self.done(request);
            if !self.next(request)? {
                return Ok(false);
            }
            let same = request.to == to && request.from == from;
            let again = request.generation == generation && request.incarnation == incarnation;
            if !same || !again || !is_short(request) || self.has_reply() {
                break;
            }
        }
        Ok(true)
    }

    /// Replies that a SEND is done.
    #[inline(always)]
    fn done(&mut self, request: &RingRequest) {
        let RingRequest { from: to, number, incarnation, .. } = *request;
        match &mut self.held {
            Some(held)
                if (held.to, held.incarnation) == (to, incarnation)
                    && held.verdict == PeerReply::Done =>
            {
                held.number = number;
            }
            _ => {
                let verdict = PeerReply::Done;
                self.reply(
                    ReplyEntry { to, number, incarnation, verdict, value: 0 },
                    EntryOp::Send,
                );
            }
        }
    }
}

/// Reports whether a request is a plain SEND of a few bytes, which waits for its reply.
#[inline]
pub(super) fn is_short(request: &RingRequest) -> bool {
    let plain = request.what == EntryOp::Send && request.location == PayloadLocation::Body;
    let flags = request.flags & !SOLICITED == WANTS_REPLY;
    plain && flags && request.len.wrapping_sub(1) < BODY as u32
}

/// Lays the first `len` bytes of a request's body down. Whole words are moved as such: they
/// have just been stored so, and a load of anything wider would wait for these stores.
///
/// # Safety
/// `len` bytes, of at most a body, can be written at `to`.
#[inline(always)]
unsafe fn lay(to: MemSpan<'_>, body: &[u64; 4], len: usize) {
    let (is_shared, to) = (to.is_shared(), to.ptr());
    if is_shared {
        // SAFETY: `len` bytes can be written at `to`, and are no more than `body` has: this
        // function's contract (see # Safety).
        unsafe { copy::in_order(to, body.as_ptr().cast(), len) };
    } else if len.is_multiple_of(8) {
        for (i, word) in body.iter().enumerate().take(len / 8) {
            // SAFETY: word `i` ends within the `len` bytes that can be written at `to`: this
            // function's contract (see # Safety).
            unsafe { copy::put_word(to.add(8 * i), *word) };
        }
    } else {
        // SAFETY: `len` bytes can be written at `to`, and are no more than `body` has: this
        // function's contract (see # Safety).
        unsafe { copy::owned(to, body.as_ptr().cast(), len) };
    }
}
