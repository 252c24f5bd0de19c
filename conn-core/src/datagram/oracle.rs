//! Operations of both ends for the tests, and naive models to compare with: of each end alone with
//! a hostile peer, and of both together with a network that loses, repeats and reorders.

use std::{collections::BTreeMap, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// Bytes of a datagram, and of the payload in it.
const DATAGRAM_BYTES: usize = HEADER_LEN + PAYLOAD;
const PAYLOAD: usize = 4;
const MAX_MESSAGE: u32 = 14;

/// Lengths of messages, in turn: around multiples of the payload.
const LENGTHS: [usize; 7] = [0, 1, PAYLOAD, PAYLOAD + 1, 2 * PAYLOAD, 2 * PAYLOAD + 1, 14];

fn message(number: usize) -> Vec<u8> {
    (0..LENGTHS[number % LENGTHS.len()]).map(|at| (31 * number + at) as u8).collect()
}

/// Step of one of the ends, or of the network between them.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum DatagramOp {
    /// The next fragment is cut.
    Cut,
    /// A datagram is sent.
    Transmit,
    /// A datagram under way arrives: the one at this index, modulo their number.
    Arrive(u8),
    /// A datagram under way arrives, and stays under way.
    ArriveTwice(u8),
    /// A datagram under way is lost.
    Lose(u8),
    /// The receiver takes those that arrived early.
    Take,
    /// The receiver acknowledges.
    Ack,
    /// An acknowledgement under way arrives.
    ArriveAck(u8),
    /// An acknowledgement under way is lost.
    LoseAck(u8),
    /// This many milliseconds pass.
    Wait(u8),
}

/// Two honest ends and the network.
#[derive(Clone, Debug)]
pub struct CheckedDatagrams {
    sender: FragmentSender<Vec<u8>>,
    receiver: FragmentReceiver<Vec<u8>>,
    /// Number of the message that is being cut, and how many of its bytes are.
    cut: (usize, usize),
    network: Vec<Vec<u8>>,
    acks: Vec<[u8; ACK_LEN]>,
    now_ns: u64,
    received: usize,
    partial: Vec<u8>,
}

impl CheckedDatagrams {
    /// Both ends with this window, after `already` fragments.
    ///
    /// # Errors
    /// As [`FragmentSender::new`].
    pub fn new(window: u32, already: u64) -> Result<Self, ConfigError> {
        let storage = vec![0; window as usize * DATAGRAM_BYTES];
        let config = SenderConfig { window, ..SenderConfig::default() };
        Ok(Self {
            sender: FragmentSender::new(config, DATAGRAM_BYTES, storage.clone())?.after(already),
            receiver: FragmentReceiver::new(window, DATAGRAM_BYTES, MAX_MESSAGE, storage)?
                .after(already),
            cut: (0, 0),
            network: Vec::new(),
            acks: Vec::new(),
            now_ns: 0,
            received: 0,
            partial: Vec::new(),
        })
    }

    fn cut(&mut self) {
        let (number, offset) = self.cut;
        let message = message(number);
        let Some(next) = self.sender.cut(&message, offset) else { return };
        self.cut = if next == message.len() { (number + 1, 0) } else { (number, next) };
    }

    fn transmit(&mut self) -> bool {
        let mut datagram = vec![0; DATAGRAM_BYTES];
        let Some(len) = self.sender.transmit(self.now_ns, &mut datagram) else { return false };
        datagram.truncate(len);
        self.network.push(datagram);
        true
    }

    fn arrive(&mut self, datagram: &[u8]) {
        let first = self.receiver.arrive(datagram).expect("an honest sender");
        if let Some(fragment) = first {
            join(&mut self.partial, &mut self.received, &fragment);
        }
    }

    fn take(&mut self) {
        while let Some(fragment) = self.receiver.take().expect("an honest sender") {
            join(&mut self.partial, &mut self.received, &fragment);
        }
    }

    fn arrive_ack(&mut self, ack: &[u8]) {
        self.sender.on_ack(ack, self.now_ns).expect("an honest receiver");
    }

    /// Checks that all messages that were begun arrive and are acknowledged, once the network loses
    /// nothing more.
    pub fn finish(mut self) {
        for _ in 0..4 * MAX_WINDOW {
            if self.cut.1 > 0 {
                self.cut();
            } else if self.sender.is_idle() {
                assert_eq!((self.received, self.partial.len()), (self.cut.0, 0));
                return;
            }
            self.round();
        }
        panic!("the ends do not finish: {self:?}");
    }

    fn round(&mut self) {
        self.now_ns = self.now_ns.max(self.sender.wants_ns().unwrap_or(0));
        while self.transmit() {}
        for datagram in core::mem::take(&mut self.network) {
            self.arrive(&datagram);
            self.take();
        }
        let mut acks = core::mem::take(&mut self.acks);
        if self.receiver.ack_is_due() || self.receiver.unacked() > 0 {
            acks.push(self.receiver.ack());
        }
        acks.iter().for_each(|ack| self.arrive_ack(ack));
    }
}

/// Appends a fragment to its message, which has to be the next one.
fn join(partial: &mut Vec<u8>, received: &mut usize, fragment: &Fragment<'_>) {
    assert_eq!(partial.len(), fragment.offset as usize);
    partial.extend(fragment.bytes);
    if fragment.is_last() {
        assert_eq!(*partial, message(*received));
        *received += 1;
        partial.clear();
    }
}

fn taken<T>(from: &mut Vec<T>, which: u8) -> Option<T> {
    let len = from.len();
    (len > 0).then(|| from.remove(usize::from(which) % len))
}

impl CheckedMachine for CheckedDatagrams {
    type Op = DatagramOp;

    fn apply(&mut self, op: DatagramOp) {
        match op {
            DatagramOp::Cut => self.cut(),
            DatagramOp::Transmit => drop(self.transmit()),
            DatagramOp::Arrive(which) => {
                if let Some(datagram) = taken(&mut self.network, which) {
                    self.arrive(&datagram);
                }
            }
            DatagramOp::ArriveTwice(which) => {
                if let Some(datagram) = taken(&mut self.network, which) {
                    self.arrive(&datagram);
                    self.network.push(datagram);
                }
            }
            DatagramOp::Lose(which) => drop(taken(&mut self.network, which)),
            DatagramOp::Take => self.take(),
            DatagramOp::Ack => self.acks.push(self.receiver.ack()),
            DatagramOp::ArriveAck(which) => {
                if let Some(ack) = taken(&mut self.acks, which) {
                    self.arrive_ack(&ack);
                }
            }
            DatagramOp::LoseAck(which) => drop(taken(&mut self.acks, which)),
            DatagramOp::Wait(ms) => self.now_ns += u64::from(ms) * 1_000_000,
        }
        let (sent, taken) = (self.sender.next, self.receiver.next);
        assert!(self.sender.acked <= taken && taken <= sent, "{self:?}");
    }
}

/// A datagram of a hostile sender.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct ForgedFragment {
    /// Its number, relative to the next one.
    pub ahead: i8,
    /// Bytes of the message.
    pub message_bytes: u8,
    /// Offset of the payload in the message.
    pub offset: u8,
    /// Bytes of the payload.
    pub len: u8,
}

/// A receiver alone, and its model: the datagrams that arrived early.
#[derive(Clone, Debug)]
pub struct CheckedFragmentReceiver {
    machine: FragmentReceiver<Vec<u8>>,
    early: BTreeMap<u64, ForgedFragment>,
    next: u64,
    /// Length of the message that has begun, and how many of its bytes were returned.
    begun: Option<(u8, u8)>,
}

impl CheckedFragmentReceiver {
    /// A receiver with this window, after `already` fragments.
    ///
    /// # Errors
    /// As [`FragmentReceiver::new`].
    pub fn new(window: u32, already: u64) -> Result<Self, ConfigError> {
        let storage = vec![0; window as usize * DATAGRAM_BYTES];
        let machine = FragmentReceiver::new(window, DATAGRAM_BYTES, MAX_MESSAGE, storage)?;
        let (early, begun) = (BTreeMap::new(), None);
        Ok(Self { machine: machine.after(already), early, next: already, begun })
    }

    /// Applies the claim if it continues the message, and reports whether it does.
    fn follow(&mut self, claim: ForgedFragment) -> bool {
        let (bytes, filled) = self.begun.unwrap_or((claim.message_bytes, 0));
        if (claim.message_bytes, claim.offset) != (bytes, filled) {
            return false;
        }
        let filled = filled + claim.len;
        self.begun = (filled < bytes).then_some((bytes, filled));
        self.next += 1;
        true
    }
}

impl CheckedMachine for CheckedFragmentReceiver {
    type Op = ForgedFragment;

    fn apply(&mut self, claim: ForgedFragment) {
        let ForgedFragment { ahead, message_bytes, offset, len } = claim;
        let number = self.next.wrapping_add_signed(ahead.into());
        let header = FragmentHeader {
            number: number as u32,
            message_bytes: message_bytes.into(),
            offset: offset.into(),
        };
        let mut datagram = header.encode().to_vec();
        datagram.resize(HEADER_LEN + usize::from(len), number as u8);
        let before = self.machine.clone();
        let outcome = self.machine.arrive(&datagram);
        let end = u16::from(offset) + u16::from(len);
        let is_possible = usize::from(len) <= PAYLOAD
            && end <= message_bytes.into()
            && (len > 0 || message_bytes == 0);
        if usize::from(len) > PAYLOAD || u32::from(message_bytes) > MAX_MESSAGE || !is_possible {
            assert!(outcome.is_err());
        } else if i64::from(ahead) >= self.machine.window.into() {
            assert_eq!(outcome, Err(DatagramError::BeyondWindow));
        } else if ahead < 0 || self.early.contains_key(&number) {
            assert_eq!((outcome, self.machine.repeated()), (Ok(None), before.repeated() + 1));
            return;
        } else if ahead > 0 {
            assert_eq!(outcome, Ok(None));
            self.early.insert(number, claim);
        } else if self.follow(claim) {
            let fragment = outcome.expect("it continues its message").expect("it is the next");
            assert_eq!(fragment.bytes, &datagram[HEADER_LEN..]);
            return self.take();
        } else {
            assert!(matches!(outcome, Err(DatagramError::OutOfPlace { .. })));
        }
        if outcome.is_err() {
            assert_eq!(self.machine, before, "a refused datagram changed something");
        }
    }
}

impl CheckedFragmentReceiver {
    /// Takes the early fragments, as far as they continue the message, and compares them with the
    /// model.
    fn take(&mut self) {
        while let Some(claim) = self.early.get(&self.next).copied() {
            let number = self.next;
            if !self.follow(claim) {
                assert!(self.machine.take().is_err());
                return;
            }
            self.early.remove(&number);
            let fragment = self.machine.take().expect("it continues").expect("it was early");
            assert_eq!(fragment.bytes, vec![number as u8; claim.len.into()]);
        }
        assert_eq!(self.machine.take(), Ok(None));
    }
}

/// An acknowledgement of a hostile receiver.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct ForgedAck {
    /// The missing fragment, relative to the oldest one that is not acknowledged.
    pub ahead: i8,
    /// A bit for each fragment behind it that has arrived.
    pub there: u64,
    /// Fragments, modulo 8, that are cut and sent before it arrives.
    pub sent: u8,
}

/// A sender alone, and its model: the acknowledged fragments.
#[derive(Clone, Debug)]
pub struct CheckedFragmentSender {
    machine: FragmentSender<Vec<u8>>,
    acked: BTreeMap<u64, bool>,
    /// The first fragment that the receiver said was missing.
    base: u64,
}

impl CheckedFragmentSender {
    /// A sender with this window, after `already` fragments.
    ///
    /// # Errors
    /// As [`FragmentSender::new`].
    pub fn new(window: u32, already: u64) -> Result<Self, ConfigError> {
        let storage = vec![0; window as usize * DATAGRAM_BYTES];
        let config = SenderConfig { window, ..SenderConfig::default() };
        let machine = FragmentSender::new(config, DATAGRAM_BYTES, storage)?.after(already);
        Ok(Self { machine, acked: BTreeMap::new(), base: already })
    }
}

impl CheckedFragmentSender {
    /// Checks the outcome of an acknowledgement of all fragments before `missing`, and of those
    /// behind it that have a bit in `there`.
    fn check_named(
        &mut self,
        before: &FragmentSender<Vec<u8>>,
        missing: u64,
        there: u64,
        outcome: Result<u32, DatagramError>,
    ) {
        let bits = (0..64).filter(|bit| there >> bit & 1 == 1).map(|bit| missing + 1 + bit);
        let named: Vec<u64> = (before.acked..missing).chain(bits).collect();
        if missing > before.next || named.iter().any(|n| *n >= before.next) {
            assert_eq!((outcome, &self.machine), (Err(DatagramError::BeyondWindow), before));
        } else {
            let newly = named.iter().filter(|n| self.acked.insert(**n, true) == Some(false));
            assert_eq!(outcome, Ok(newly.count() as u32));
        }
    }
}

impl CheckedMachine for CheckedFragmentSender {
    type Op = ForgedAck;

    fn apply(&mut self, ForgedAck { ahead, there, sent }: ForgedAck) {
        for _ in 0..sent % 8 {
            let number = self.machine.cut;
            if self.machine.cut(&[1], 0).is_some() {
                self.acked.insert(number, false);
                self.machine.transmit(0, &mut [0; DATAGRAM_BYTES]).expect("it was cut");
            }
        }
        let before = self.machine.clone();
        let missing = self.machine.acked.wrapping_add_signed(ahead.into());
        let outcome = self.machine.on_ack(&encode(ACK, missing as u32, there), 1);
        if ahead < 0 {
            assert_eq!((outcome, &self.machine), (Ok(0), &before));
        } else {
            self.check_named(&before, missing, there, outcome);
        }
        if outcome.is_ok() && ahead >= 0 {
            self.base = missing;
        }
        assert_eq!(self.machine.acked, self.base);
        assert_eq!(self.machine.is_idle(), self.base == self.machine.cut);
    }
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> FragmentSender<S> {
    fn after(mut self, fragments: u64) -> Self {
        (self.acked, self.next, self.cut) = (fragments, fragments, fragments);
        self
    }
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> FragmentReceiver<S> {
    fn after(mut self, fragments: u64) -> Self {
        self.next = fragments;
        self
    }
}
