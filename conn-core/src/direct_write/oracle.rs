//! The operations of a Direct Write connection, and a naive model of them: a queue of messages,
//! queues of writes in flight, and memory at both ends.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::checksum::{checksum_of, verified};
use crate::exhaustive::CheckedMachine;

/// An operation on a connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum DirectWriteOp {
    /// A message of the given length is sent, if there is a credit.
    Send(u8),
    /// The oldest write to the receiver arrives.
    Arrive,
    /// The oldest write to the receiver begins to arrive: some of its bytes.
    Begin(u8),
    /// The receiver looks for the next message, and takes it.
    Look,
    /// One of the messages that were taken is freed.
    Free(u8),
    /// Slots are written, if at least this number of them are due.
    Tell(u8),
    /// The oldest write to the sender arrives.
    Hear,
    /// The oldest write to the sender begins to arrive: some of its bytes.
    BeginHear(u8),
    /// The sender says goodbye.
    Close,
    /// The receiver stops.
    Stop,
    /// The sender writes a trailer with a number that differs from the next one by this, and this
    /// length.
    LieTrailer(i8, u32),
    /// An arbitrary immediate arrives.
    LieImmediate(u32),
    /// The sender says goodbye; its total differs from the messages taken by this number.
    LieGoodbye(i8),
    /// The receiver writes a slot with a number that differs from the next one by this, and this
    /// buffer.
    LieSlot(i8, u8),
    /// The receiver's stop counts a number of messages that differs from those sent by this.
    LieStop(i8),
}

/// Parameters of the oracle's connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct DirectWriteParams {
    /// Buffers: 1 to 8.
    pub buffers: u8,
    /// Slots beyond one for each buffer: 0 to 3.
    pub spare_slots: u8,
    /// The longest message, in bytes: 0 to 31.
    pub max_message: u8,
    /// 0 to 2: how messages are found.
    pub detection: u8,
}

impl DirectWriteParams {
    fn detection(self) -> Detection {
        [Detection::Trailer, Detection::ApartTrailer, Detection::Immediate]
            [usize::from(self.detection % 3)]
    }
}

/// A write on its way.
#[derive(Clone, Debug)]
struct BufferWrite {
    offset: usize,
    bytes: Vec<u8>,
    imm: Option<u32>,
}

impl BufferWrite {
    /// Some of its bytes arrive: in order, or any.
    fn begin(&self, memory: &mut [u8], choice: u8, is_in_order: bool) {
        let upto = self.bytes.len() * usize::from(choice) / 256;
        for (at, byte) in self.bytes.iter().enumerate() {
            let scattered = (at as u32 + 1).wrapping_mul(0x9e37_79b9 ^ u32::from(choice) << 8);
            if if is_in_order { at < upto } else { scattered >> 13 & 1 == 1 } {
                memory[self.offset + at] = *byte;
            }
        }
    }
}

/// Both ends, their memory, and the writes in flight.
#[derive(Clone, Debug)]
pub struct CheckedDirectWrite {
    sender: BufferSender,
    receiver: BufferReceiver<Vec<u32>>,
    slots: u32,
    detection: Detection,
    buffers: Vec<u8>,
    slot_memory: Vec<u8>,
    there: VecDeque<BufferWrite>,
    back: VecDeque<BufferWrite>,
    /// Sent and not taken.
    model: VecDeque<Vec<u8>>,
    /// Buffers with messages that were taken.
    held: Vec<u32>,
    is_closed: bool,
    is_stopped: bool,
    has_ended: bool,
}

fn bytes_of(words: [u64; 2]) -> Vec<u8> {
    [words[0], words[1], checksum_of(&words)].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_at(memory: &[u8], at: u64) -> Option<[u64; 2]> {
    let word = |nth: usize| {
        let at = at as usize + 8 * nth;
        u64::from_le_bytes(memory[at..at + 8].try_into().expect("eight bytes"))
    };
    verified([word(0), word(1)], word(2))
}

impl CheckedDirectWrite {
    /// One over which nothing was sent.
    pub fn new(params: DirectWriteParams) -> Self {
        let buffers = 1 + u32::from(params.buffers % 8);
        let layout = Layout::new(buffers, (params.max_message % 32).into()).expect("a layout");
        let slots = buffers + u32::from(params.spare_slots % 4);
        let detection = params.detection();
        let storage = vec![0; buffers as usize];
        Self {
            sender: BufferSender::new(layout, slots).expect("slots for all"),
            receiver: BufferReceiver::new(layout, slots, detection, storage).expect("it fits"),
            slots,
            detection,
            buffers: vec![0; layout.bytes() as usize],
            slot_memory: vec![0; slots_bytes(slots) as usize],
            there: VecDeque::new(),
            back: VecDeque::new(),
            model: VecDeque::new(),
            held: Vec::new(),
            is_closed: false,
            is_stopped: false,
            has_ended: false,
        }
    }

    fn send(&mut self, len: u8) {
        if self.is_closed {
            return;
        }
        let layout = *self.sender.layout();
        let found = self.sender.buffer(|at| words_at(&self.slot_memory, at));
        let Some(buffer) = found.expect("an honest receiver") else { return };
        let len = u32::from(len) % (layout.max_message() + 1);
        let number = self.sender.mark_sent();
        let payload: Vec<u8> = (0..len).map(|at| (number * 31) as u8 ^ at as u8).collect();
        let mut padded_payload = payload.clone();
        padded_payload.resize(padded(len) as usize, 0);
        let trailer = bytes_of([number, len.into()]);
        let imm = (self.detection == Detection::Immediate).then_some(IMM_MESSAGE);
        let offset = layout.payload_at(buffer, len) as usize;
        if self.detection == Detection::ApartTrailer {
            self.there.push_back(BufferWrite { offset, bytes: padded_payload, imm: None });
            let offset = layout.trailer_at(buffer) as usize;
            self.there.push_back(BufferWrite { offset, bytes: trailer, imm: None });
        } else {
            padded_payload.extend(trailer);
            self.there.push_back(BufferWrite { offset, bytes: padded_payload, imm });
        }
        self.model.push_back(payload);
        assert!(
            self.model.len() + self.held.len() <= layout.buffers() as usize,
            "too many credits"
        );
    }

    fn arrive(&mut self) {
        let Some(landing) = self.there.pop_front() else { return };
        self.buffers[landing.offset..][..landing.bytes.len()].copy_from_slice(&landing.bytes);
        if let Some(imm) = landing.imm {
            self.receiver.on_immediate(imm).expect("an honest sender");
        }
    }

    fn look(&mut self) {
        let words = self
            .receiver
            .expected()
            .and_then(|buffer| words_at(&self.buffers, self.receiver.layout().trailer_at(buffer)));
        match self.receiver.on_trailer(words).expect("an honest sender") {
            Some(Arrival { buffer, offset, len }) => {
                let found = &self.buffers[offset as usize..][..len as usize];
                let sent = self.model.pop_front().expect("it was sent");
                assert_eq!(found, &sent[..], "message {}", self.receiver.received());
                assert!(!self.held.contains(&buffer), "it is not free");
                self.held.push(buffer);
            }
            None if self.receiver.awaits_goodbye() => {
                let words = words_at(&self.buffers, self.receiver.layout().goodbye_at());
                let said = self.receiver.on_goodbye(words).expect("an honest sender");
                assert!(!said || self.is_closed);
            }
            None => {}
        }
        if self.receiver.has_ended() {
            assert!(self.is_closed && self.model.is_empty(), "all was taken");
            self.has_ended = true;
        }
    }

    fn tell(&mut self, threshold: u8) {
        let Some(run) = self.receiver.slots_due(threshold.into()) else { return };
        assert!(
            run.count > 0 && run.offset + u64::from(run.count) * SLOT_BYTES <= stop_at(self.slots)
        );
        let numbers = run.number..run.number + u64::from(run.count);
        let bytes = numbers.flat_map(|number| bytes_of(self.receiver.slot_words(number))).collect();
        self.receiver.mark_told(run);
        self.back.push_back(BufferWrite { offset: run.offset as usize, bytes, imm: None });
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let imm = (self.detection == Detection::Immediate).then_some(IMM_GOODBYE);
        let offset = self.sender.layout().goodbye_at() as usize;
        let bytes = bytes_of([self.sender.sent(), GOODBYE]);
        self.there.push_back(BufferWrite { offset, bytes, imm });
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopped, true) {
            let bytes = bytes_of([self.receiver.received(), STOPPED]);
            let offset = stop_at(self.slots) as usize;
            self.back.push_back(BufferWrite { offset, bytes, imm: None });
        }
    }

    fn hear(&mut self) {
        if let Some(landing) = self.back.pop_front() {
            self.slot_memory[landing.offset..][..landing.bytes.len()]
                .copy_from_slice(&landing.bytes);
        }
        let stop = words_at(&self.slot_memory, stop_at(self.slots));
        let taken = self.sender.on_stop(stop.unwrap_or_default()).expect("an honest receiver");
        assert!(taken.is_none_or(|taken| self.is_stopped && taken <= self.receiver.received()));
    }

    /// Passes forged words to a copy of an end, and checks its answer. The connection does not
    /// change.
    fn lie(&self, op: DirectWriteOp) {
        let (mut receiver, sender) = (self.receiver.clone(), &self.sender);
        let layout = *receiver.layout();
        match op {
            DirectWriteOp::LieTrailer(by, len) => {
                let next = receiver.received() + 1;
                let number = next.wrapping_add_signed(by.into());
                let expected = receiver.expected();
                match receiver.on_trailer(Some([number, len.into()])) {
                    Ok(Some(arrival)) => {
                        assert_eq!((Some(arrival.buffer), arrival.len), (expected, len));
                        assert!(number == next && len <= layout.max_message());
                        let end = arrival.offset + padded(len) + TRAILER_BYTES;
                        assert!(end <= layout.goodbye_at(), "inside of a buffer");
                    }
                    Ok(None) => assert!(expected.is_none() || number < next),
                    Err(_) => assert_eq!(receiver, self.receiver),
                }
            }
            DirectWriteOp::LieImmediate(imm) => {
                let taken = receiver.on_immediate(imm);
                assert!(taken.is_ok() || receiver == self.receiver);
            }
            DirectWriteOp::LieGoodbye(by) => {
                let total = receiver.received().wrapping_add_signed(by.into());
                let said = receiver.on_goodbye(Some([total, GOODBYE]));
                assert_eq!(said.is_ok(), total >= self.receiver.received());
            }
            DirectWriteOp::LieSlot(by, buffer) => {
                let number = sender.sent().wrapping_add_signed(by.into());
                let is_first = sender.sent() < layout.buffers().into();
                match sender.buffer(|_| Some([number, buffer.into()])) {
                    Ok(Some(found)) => assert!(is_first || found == u32::from(buffer)),
                    Ok(None) => assert!(number < sender.sent()),
                    Err(_) => {
                        assert!(number > sender.sent() || u32::from(buffer) >= layout.buffers())
                    }
                }
            }
            DirectWriteOp::LieStop(by) => {
                let taken = sender.sent().wrapping_add_signed(by.into());
                assert_eq!(sender.on_stop([taken, STOPPED]).is_ok(), taken <= sender.sent());
            }
            _ => {}
        }
    }

    /// Lets all arrive, takes and frees all, and checks that nothing is missing.
    pub fn settle(&mut self) {
        loop {
            let before = (self.receiver.received(), self.there.len(), self.back.len());
            while !self.there.is_empty() {
                self.arrive();
            }
            self.look();
            (0..self.held.len()).for_each(|_| self.apply(DirectWriteOp::Free(0)));
            self.tell(1);
            while !self.back.is_empty() {
                self.hear();
            }
            if before == (self.receiver.received(), 0, 0) {
                break;
            }
        }
        self.look();
        assert!(self.model.is_empty(), "all that was sent was taken");
        assert_eq!(self.has_ended, self.is_closed, "the end is seen");
        let credit = self.sender.buffer(|at| words_at(&self.slot_memory, at));
        assert!(self.is_closed || credit == Ok(credit.unwrap_or_default()) && credit != Ok(None));
    }
}

impl CheckedMachine for CheckedDirectWrite {
    type Op = DirectWriteOp;

    fn apply(&mut self, op: DirectWriteOp) {
        match op {
            DirectWriteOp::Send(len) => self.send(len),
            DirectWriteOp::Arrive => self.arrive(),
            DirectWriteOp::Begin(choice) => {
                let is_in_order = self.detection == Detection::Trailer;
                if let Some(landing) = self.there.front() {
                    landing.begin(&mut self.buffers, choice, is_in_order);
                }
            }
            DirectWriteOp::Look => self.look(),
            DirectWriteOp::Free(nth) => {
                if !self.held.is_empty() {
                    let buffer = self.held.remove(usize::from(nth) % self.held.len());
                    self.receiver.free(buffer);
                }
            }
            DirectWriteOp::Tell(threshold) => self.tell(threshold),
            DirectWriteOp::Hear => self.hear(),
            DirectWriteOp::BeginHear(choice) => {
                if let Some(landing) = self.back.front() {
                    landing.begin(&mut self.slot_memory, choice, false);
                }
            }
            DirectWriteOp::Close => self.close(),
            DirectWriteOp::Stop => self.stop(),
            lie => self.lie(lie),
        }
    }
}

/// Applies the operations to a new connection, and drives it until it is idle.
pub fn run(params: DirectWriteParams, ops: &[DirectWriteOp]) {
    let mut connection = CheckedDirectWrite::new(params);
    ops.iter().for_each(|op| connection.apply(*op));
    connection.settle();
}
