//! The node that sends: a [`Producer`], and a [`PushInhibitor`] for its tail.

use conn_core::push_inhibitor::{PushInhibitor, PushRule};
use conn_core::ring::{Geometry, Header, Producer, ReserveError};

use crate::wire::{ReceiverMemory, SenderMemory, Wire};
use crate::{Causes, Error, MAX_MESSAGE, RING};

/// The length of a message, which is also what its bytes are made of.
pub(crate) fn len_of(message: u64) -> u32 {
    (message * 37 % u64::from(MAX_MESSAGE + 1)) as u32
}

pub(crate) fn byte_of(message: u64, at: usize) -> u8 {
    (message as usize * 13 + at) as u8
}

pub(crate) struct Sender {
    pub(crate) memory: SenderMemory,
    /// Memory in which records are staged, at the offsets that they will have at the receiver.
    staging: [u8; RING],
    producer: Producer,
    sent: u64,
    /// Position up to which records were written.
    written: u64,
    inhibitor: PushInhibitor,
    causes: Causes,
}

impl Sender {
    pub(crate) fn new(geometry: Geometry, rule: PushRule) -> Self {
        Self {
            memory: SenderMemory::default(),
            staging: [0; RING],
            producer: Producer::new(geometry),
            sent: 0,
            written: 0,
            inhibitor: PushInhibitor::new(rule, Default::default()),
            causes: Causes::default(),
        }
    }

    /// Stages up to `count` messages, `total` in all, as far as there is room.
    pub(crate) fn send(&mut self, count: u64, total: u64) -> Result<(), Error> {
        for _ in 0..count.min(total - self.sent) {
            match self.producer.reserve(len_of(self.sent)) {
                Ok(grant) => {
                    let payload = &mut self.staging[grant.payload().range()];
                    let message = self.sent;
                    (0..).zip(payload).for_each(|(at, byte)| *byte = byte_of(message, at));
                    let committed = self.producer.commit(grant, len_of(message));
                    let committed = committed.map_err(|_| Error::Commit)?;
                    self.stage(committed.header);
                    committed.skip.into_iter().for_each(|skip| self.stage(skip));
                    self.sent += 1;
                    self.inhibitor.advance(0, self.sent);
                }
                Err(ReserveError::Full { .. }) => {
                    // The receiver cannot free what it does not see.
                    self.urge();
                    return Ok(());
                }
                Err(_) => return Err(Error::Reserve),
            }
        }
        if self.sent == total {
            self.urge(); // nothing follows: a flush
        }
        Ok(())
    }

    /// Lets nothing that is staged wait for company.
    fn urge(&mut self) {
        if self.inhibitor.is_pending() {
            self.inhibitor.urge();
        }
    }

    fn stage(&mut self, Header { offset, word }: Header) {
        self.staging[offset as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Writes the records that are staged, and then the tail that covers them, if that is due.
    pub(crate) fn push(&mut self, now_ns: u64, wire: &mut Wire, to: &mut ReceiverMemory) {
        if !self.causes.ask(&mut self.inhibitor, now_ns) {
            return;
        }
        let tail = self.producer.tail();
        while self.written < tail {
            let offset = self.producer.geometry().offset(self.written) as usize;
            let len = (RING - offset).min((tail - self.written) as usize);
            wire.write_records(&self.staging, to, offset..offset + len);
            self.written += len as u64;
        }
        wire.write_tail(tail, to);
        self.inhibitor.mark_pushed();
    }

    /// Takes in the head that the receiver has written.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        self.producer.on_head(self.memory.head).map(drop).map_err(|_| Error::Head)
    }

    pub(crate) fn has_sent(&self, messages: u64) -> bool {
        self.sent == messages
    }

    /// Reports whether the receiver's counters say that `messages` messages were received, and as
    /// many freed.
    pub(crate) fn is_acked(&self, messages: u64) -> bool {
        self.memory.counts == [messages; 2]
    }

    pub(crate) fn tail(&self) -> u64 {
        self.producer.tail()
    }

    pub(crate) fn causes(&self) -> Causes {
        self.causes
    }
}
