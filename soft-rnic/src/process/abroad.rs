//! Datagrams to queue pairs of other processes. Nothing comes back.

use std::sync::Arc;

use crate::address::Address;
use crate::after::Todo;
use crate::limits;
use crate::memory::Span;
use crate::qp::Qp;
use crate::requester::{Line, Outcome, SqParts};
use crate::sq::{self, Wait, Wqe};

use super::out::Out;
use super::pair::Pair;
use super::ring::{HAS_IMM, Place, Request, SOLICITED, What};
use super::slot_of;

impl Qp {
    /// Whether an address leads to another process.
    pub(crate) fn is_foreign(&self, to: &Address) -> bool {
        let neighbours = self.pd.context.device.neighbours.as_ref();
        to.gid == limits::GID && neighbours.is_some_and(|n| n.is_foreign(to.qpn))
    }

    /// Sends a request that was checked, its pieces in the scratch. The process that it is
    /// for is met first.
    pub(crate) fn send_abroad(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        line: &mut Line<'_>,
        request: &sq::Request<'_>,
        to: &Address,
        qkey: u32,
    ) -> Outcome {
        let nobody_there = core::mem::take(&mut parts.requester.nobody_there);
        let outcome = match self.pair_of(to) {
            Some(pair)
                if self.put_abroad(
                    &pair,
                    request.wqe,
                    parts.scratch.local.as_slice(),
                    to,
                    qkey,
                ) =>
            {
                Outcome::Done
            }
            Some(pair) => self.await_room(parts.requester, &pair),
            None if nobody_there => Outcome::Dropped,
            None => {
                line.after.push(Todo::Meet(Arc::clone(self), slot_of(to.qpn)));
                Outcome::Blocked(Wait::Meeting, None)
            }
        };
        if matches!(outcome, Outcome::Done | Outcome::Dropped) {
            parts.requester.advance_psn(1);
        }
        outcome
    }

    fn pair_of(&self, to: &Address) -> Option<Arc<Pair>> {
        let pair = self.pd.context.device.neighbours.as_ref()?.pair(slot_of(to.qpn))?;
        (!pair.is_dead()).then_some(pair)
    }

    /// Puts a late datagram into the ring of the process that it is for. False if it is
    /// dropped: nobody is there, or there is no room, as in a switch.
    pub(crate) fn post_abroad(&self, wqe: &Wqe, local: &[Span], to: &Address, qkey: u32) -> bool {
        self.pair_of(to).is_some_and(|pair| self.put_abroad(&pair, wqe, local, to, qkey))
    }

    /// Puts a datagram into the ring of a process. False if there is no room.
    fn put_abroad(&self, pair: &Pair, wqe: &Wqe, local: &[Span], to: &Address, qkey: u32) -> bool {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let classes = u32::from_le_bytes([to.traffic_class, to.hop_limit, 0, 0]);
        let mut request = Request {
            what: What::Datagram,
            flags: flag(wqe.imm.is_some(), HAS_IMM) | flag(wqe.solicited, SOLICITED),
            place: Place::Data,
            incarnation: 0,
            to: to.qpn,
            from: self.num,
            generation: 0,
            number: 0,
            imm: wqe.imm.unwrap_or(0),
            len: local.iter().map(|span| span.len as u32).sum(),
            body: [0, u64::from(qkey) | u64::from(classes) << 32, 0, 0],
            ..Request::default()
        };
        Out::new(pair).put_data(&mut request, local)
    }
}
