//! The node that receives: a [`Consumer`], a [`FreeList`], and a [`PushInhibitor`] for its
//! counters.

use conn_core::push_inhibitor::{PushCounter, PushInhibitor, PushRule};
use conn_core::ring::free::{FreeFront, FreeList, Lent, RecordSlot};
use conn_core::ring::{Consumer, ConsumerConfig, Geometry, Record, Span, Taken};

use crate::sender::{byte_of, len_of};
use crate::wire::{ReceiverMemory, SenderMemory, Wire};
use crate::{Causes, Error, RING};

/// Messages that the application may hold.
const HELD: usize = 8;
/// The counters: messages received, and freed.
const RECEIVED: usize = 0;
const FREED: usize = 1;

/// A message that the application holds: it lies in the ring until it is freed.
struct LentMessage {
    number: u64,
    payload: Span,
    lent: Lent,
}

pub(crate) struct Receiver {
    pub(crate) memory: ReceiverMemory,
    consumer: Consumer,
    list: FreeList<[RecordSlot; HELD]>,
    front: FreeFront,
    /// Messages that the application holds, in no order.
    held: [Option<LentMessage>; HELD],
    received: u64,
    freed: u64,
    freed_out_of_order: u64,
    inhibitor: PushInhibitor<[PushCounter; 2]>,
    causes: Causes,
}

impl Receiver {
    pub(crate) fn new(geometry: Geometry, rule: PushRule) -> Result<Self, Error> {
        let config = ConsumerConfig { head_threshold: RING as u64 / 4 };
        let slots = [const { RecordSlot::new() }; HELD];
        Ok(Self {
            memory: ReceiverMemory { ring: [0; RING], tail: 0 },
            consumer: Consumer::new(geometry, config),
            list: FreeList::new(slots).map_err(|_| Error::FreeList)?,
            front: FreeFront::new(),
            held: [const { None }; HELD],
            received: 0,
            freed: 0,
            freed_out_of_order: 0,
            inhibitor: PushInhibitor::new(rule, Default::default()),
            causes: Causes::default(),
        })
    }

    /// Takes received records out of the ring, as many as the application may hold.
    pub(crate) fn receive(&mut self) -> Result<(), Error> {
        self.consumer.on_tail_landed(self.memory.tail).map_err(|_| Error::Tail)?;
        while self.front.lent() < self.list.slots() {
            let Some(at) = self.consumer.next_header() else { break };
            let Some(word) = self.memory.ring[at as usize..].first_chunk() else { break };
            match self.consumer.take(u64::from_le_bytes(*word)) {
                Ok(Taken::Record(record)) => self.lend(record)?,
                Ok(Taken::Skipped) => {}
                Ok(Taken::Partial) | Err(_) => return Err(Error::Record),
            }
        }
        Ok(())
    }

    fn lend(&mut self, Record { payload, end }: Record) -> Result<(), Error> {
        let lent = self.front.lend(&self.list, end).map_err(|_| Error::Lend)?;
        let place = self.held.iter_mut().find(|place| place.is_none()).ok_or(Error::Lend)?;
        *place = Some(LentMessage { number: self.received, payload, lent });
        self.received += 1;
        self.inhibitor.advance(RECEIVED, self.received);
        Ok(())
    }

    /// The application looks at what it holds, and frees it: by place, and not by age. What is
    /// in the first place it keeps for up to four rounds, and the head cannot pass it.
    pub(crate) fn application(&mut self, round: u64) -> Result<(), Error> {
        for turn in 0..HELD {
            let place = (5 * turn + 3) % HELD;
            if place == 0 && !round.is_multiple_of(4) {
                continue;
            }
            let Some(message) = self.held[place].take() else { continue };
            let payload = &self.memory.ring[message.payload.range()];
            let is_whole = payload.len() as u32 == len_of(message.number)
                && (0..).zip(payload).all(|(at, &byte)| byte == byte_of(message.number, at));
            if !is_whole {
                return Err(Error::Payload { message: message.number });
            }
            let is_older = |other: &LentMessage| other.number < message.number;
            let is_early = self.held.iter().flatten().any(is_older);
            self.freed_out_of_order += u64::from(is_early);
            self.front.free(&self.list, message.lent).map_err(|_| Error::Free)?;
            self.freed += 1;
        }
        self.consumer.on_freed(self.front.head(&self.list));
        self.inhibitor.advance(FREED, self.freed);
        Ok(())
    }

    /// Writes the head if the sender may need it, and the counters if that is due.
    pub(crate) fn push(&mut self, now_ns: u64, wire: &mut Wire, to: &mut SenderMemory) {
        if let Some(head) = self.consumer.head_due() {
            wire.write_head(head, to);
            self.consumer.mark_told(head);
        }
        if self.causes.ask(&mut self.inhibitor, now_ns) {
            wire.write_counts(self.inhibitor.counts(), to);
            self.inhibitor.mark_pushed();
        }
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    pub(crate) fn freed_out_of_order(&self) -> u64 {
        self.freed_out_of_order
    }

    pub(crate) fn causes(&self) -> Causes {
        self.causes
    }
}
