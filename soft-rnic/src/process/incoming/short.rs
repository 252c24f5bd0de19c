//! The short way of executing what others send: runs of plain messages of a few bytes.

use crate::burst::Held;
use crate::copy;
use crate::cq::CqWriter;
use crate::mr::LOCAL_WRITE;
use crate::qp::Transport;
use crate::responder::Session;

use super::super::ring::{
    BODY, Broken, Place, ReplyEntry, Request, SOLICITED, Verdict, WANTS_REPLY, What,
};
use super::super::slot_of;
use super::Side;

impl Side {
    /// The short way of [`execute`](Self::execute), for short plain messages of one queue
    /// pair, at most `left`: what they share is looked up once, and none of the checks is left
    /// out. The first one that is anything else, or would not succeed, is left to the long
    /// way. Whether there is another request, which has been read then.
    pub(super) fn take_short<'a>(
        &mut self,
        request: &mut Request,
        session: &mut Session<'a>,
        writer: &mut CqWriter<'a>,
        left: &mut u32,
    ) -> Result<bool, Broken> {
        let (peer, from) = (session.peer, request.from);
        let expects = session.expects(from, session.responder.psn);
        let responder = &mut *session.responder;
        let known = slot_of(from) == self.pair.slot && request.generation == responder.generation;
        if !expects || !known || peer.transport != Transport::Rc {
            return Ok(true);
        }
        let mut filling = writer.fill(&peer.recv_cq, peer.num, from);
        let mut room = filling.room(&peer.recv_cq).min(*left);
        let mut taker;
        let (ring, consumer) = match &peer.srq {
            None => (&peer.rq, &mut responder.consumer),
            Some(srq) => {
                taker = srq.taker.lock();
                room = room.min(srq.before_limit(&mut taker));
                (&srq.ring, &mut taker.consumer)
            }
        };
        room = room.min(ring.known(consumer));
        let mut region = Held::default();
        let (to, generation, incarnation) = (request.to, request.generation, request.incarnation);
        while room > 0 && request.number == responder.number {
            // SAFETY: one is known to be there.
            let Some((wr_id, buffer)) = (unsafe { ring.plain_front(consumer) }) else { break };
            let mrs = &peer.pd.context.device.mrs;
            let fits = request.len <= buffer.length;
            let at = region.at(mrs, peer.pd.id, &buffer, request.len, LOCAL_WRITE);
            let Some(at) = at.filter(|_| fits) else { break };
            // SAFETY: the buffer was checked, and is the device's while it is posted.
            unsafe { lay(at, &request.body, request.len as usize) };
            // The slot is free before the completion is visible.
            ring.pop(consumer);
            filling.put(wr_id, request.len, request.flags & SOLICITED != 0);
            (room, *left) = (room - 1, *left - 1);
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
    fn done(&mut self, request: &Request) {
        let Request { from: to, number, incarnation, .. } = *request;
        match &mut self.held {
            Some(held)
                if (held.to, held.incarnation) == (to, incarnation)
                    && held.verdict == Verdict::Done =>
            {
                held.number = number;
            }
            _ => {
                let verdict = Verdict::Done;
                self.reply(ReplyEntry { to, number, incarnation, verdict, value: 0 }, What::Send);
            }
        }
    }
}

/// Whether a request is a plain SEND of a few bytes, which waits for its reply.
#[inline]
pub(super) fn is_short(request: &Request) -> bool {
    let plain = request.what == What::Send && request.place == Place::Body;
    let flags = request.flags & !SOLICITED == WANTS_REPLY;
    plain && flags && request.len.wrapping_sub(1) < BODY as u32
}

/// Lays the first `len` bytes of a request's body down. Whole words are moved as such: they
/// have just been stored so, and a load of anything wider would wait for these stores.
///
/// # Safety
/// `len` bytes, of at most a body, can be written at `to`.
#[inline(always)]
unsafe fn lay(to: *mut u8, body: &[u64; 4], len: usize) {
    if len.is_multiple_of(8) {
        for (i, word) in body.iter().enumerate().take(len / 8) {
            // SAFETY: the caller's promise.
            unsafe { to.cast::<u64>().add(i).write_unaligned(*word) };
        }
    } else {
        // SAFETY: as above.
        unsafe { copy::owned(to, body.as_ptr().cast(), len) };
    }
}
