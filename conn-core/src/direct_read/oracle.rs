//! Operations on the machines, naive models of both ends, the two ends joined by a network, and the
//! properties of all byte strings.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a sender, with any peer.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum OffersOp {
    /// It offers a message.
    Offer,
    /// It takes the last one back.
    Withdraw,
    /// The awaited signal has this value.
    Signal(u8),
    /// The count word has this count, relative to what was acknowledged, and this number of
    /// refusals, relative to those that arrived.
    Count(i8, i8),
    /// A notice arrives that all messages up to this one (relative to what was acknowledged) are
    /// read.
    Done(i8),
    /// A notice of a refusal, likewise.
    Refused(i8),
    /// Any immediate.
    Immediate(u32),
}

/// A sender and a list of all that it has sent.
#[derive(Clone, Debug)]
pub struct CheckedOffers {
    machine: Offers,
    window: u32,
    /// Outcome of each message; the last ones have none yet.
    sent: Vec<Option<Outcome>>,
    told_refusals: u16,
    highest_count: u64,
    stopped: bool,
}

impl CheckedOffers {
    /// Nothing sent.
    #[must_use]
    pub fn new(window: u32) -> Self {
        let machine = Offers::new(window).expect("a window of 1 to 16384");
        let (told_refusals, highest_count) = (0, 0);
        Self { machine, window, sent: vec![], told_refusals, highest_count, stopped: false }
    }

    fn acked(&self) -> usize {
        self.sent.iter().take_while(|outcome| outcome.is_some()).count()
    }

    /// Acknowledges the oldest in the model, and compares.
    fn acknowledge(&mut self, acknowledged: Acknowledged) {
        let mut at = self.acked();
        for _ in 0..acknowledged.read {
            self.sent[at] = Some(Outcome::Read);
            at += 1;
        }
        if let Some(outcome) = acknowledged.then {
            self.sent[at] = Some(outcome);
        }
    }

    fn offer(&mut self) {
        let unacked = self.sent.len() - self.acked();
        let expected = match () {
            () if self.stopped => Err(OfferError::Stopped),
            () if unacked == self.window as usize => Err(OfferError::Full),
            () => Ok(self.sent.len() as u64 + 1),
        };
        assert_eq!(self.machine.offer(), expected);
        if expected.is_ok() {
            self.sent.push(None);
        }
    }

    fn withdraw(&mut self) {
        let unacked = self.sent.last() == Some(&None);
        assert_eq!(self.machine.withdraw().is_ok(), unacked);
        if unacked {
            self.sent.pop();
        }
    }

    fn signal(&mut self, byte: u8) {
        let unacked = self.acked() < self.sent.len();
        match self.machine.on_signal(byte) {
            Ok(acknowledged) if byte == 0 => assert_eq!(acknowledged, Acknowledged::default()),
            Ok(acknowledged) => {
                assert!(byte <= 3 && unacked && acknowledged.read == 0);
                assert_eq!(acknowledged.then.map(Outcome::code), Some(byte));
                self.acknowledge(acknowledged);
            }
            Err(AckError::Outcome(UnknownOutcome(found))) => assert!(found == byte && byte > 3),
            Err(e) => assert!(e == AckError::NeverSent && !unacked),
        }
    }

    fn count(&mut self, ahead: i8, unreported: i8) {
        let acked = self.acked() as u64;
        let Some(count) = acked.checked_add_signed(ahead.into()) else { return };
        let word = CountWord {
            count,
            refusals: self.told_refusals.wrapping_add_signed(unreported.into()),
        };
        let expected = match () {
            () if count > self.sent.len() as u64 => Err(AckError::NeverSent),
            () if count < self.highest_count => Err(AckError::Backwards),
            () if unreported > 0 => Ok(0),
            () => Ok(count.saturating_sub(acked)),
        };
        let found = self.machine.on_count(CountWord::decode(word.encode()));
        assert_eq!(found.map(|a| (a.read, a.then)), expected.map(|read| (read, None)));
        if let Ok(acknowledged) = found {
            self.highest_count = if unreported > 0 { self.highest_count } else { count };
            self.acknowledge(acknowledged);
        }
    }

    fn notice(&mut self, imm: u32) {
        let Ok(notice) = Notice::decode(imm) else { return };
        let acked = self.acked() as u64;
        match (self.machine.on_notice(notice), notice) {
            (Ok(NoticeEffect::Acknowledged(acknowledged)), Notice::Done(low)) => {
                assert!(acknowledged.then.is_none());
                self.acknowledge(acknowledged);
                assert_eq!(Notice::low(self.acked() as u64), low);
                assert!(acknowledged.read > 0);
            }
            (Ok(NoticeEffect::Acknowledged(acknowledged)), Notice::Refused(low, why)) => {
                assert_eq!(acknowledged.then, Some(Outcome::Refused(why)));
                self.acknowledge(acknowledged);
                assert_eq!(Notice::low(self.acked() as u64), low);
                self.told_refusals = self.told_refusals.wrapping_add(1);
            }
            (Ok(NoticeEffect::Wakeup), Notice::Wakeup(_)) => {}
            (Ok(NoticeEffect::Stopped(acknowledged)), Notice::Stop(low)) => {
                assert!(acknowledged.then.is_none());
                self.acknowledge(acknowledged);
                let is_behind = Notice::number(acked, low).is_none();
                assert!(Notice::low(self.acked() as u64) == low || is_behind);
                assert!(acknowledged.read == 0 || !is_behind);
                self.stopped = true;
            }
            (Err(AckError::NeverSent), Notice::Stop(low)) => {
                let known = acked..=self.sent.len() as u64;
                assert!(known.into_iter().all(|n| Notice::low(n) != low), "{notice:?}");
            }
            (Err(AckError::Direction), Notice::Fin) => {}
            (Err(AckError::NeverSent | AckError::Backwards), Notice::Done(low))
            | (Err(AckError::NeverSent | AckError::Backwards), Notice::Refused(low, _)) => {
                let known = acked + 1..=self.sent.len() as u64;
                assert!(known.into_iter().all(|n| Notice::low(n) != low), "{notice:?}");
            }
            (found, _) => panic!("{notice:?}: {found:?}"),
        }
    }

    fn relative(&self, ahead: i8) -> u32 {
        Notice::low((self.acked() as u64).wrapping_add_signed(ahead.into()))
    }
}

impl CheckedMachine for CheckedOffers {
    type Op = OffersOp;

    fn apply(&mut self, op: OffersOp) {
        match op {
            OffersOp::Offer => self.offer(),
            OffersOp::Withdraw => self.withdraw(),
            OffersOp::Signal(byte) => self.signal(byte),
            OffersOp::Count(ahead, unreported) => self.count(ahead, unreported),
            OffersOp::Done(ahead) => self.notice(Notice::Done(self.relative(ahead)).encode()),
            OffersOp::Refused(ahead) => {
                let low = self.relative(ahead);
                self.notice(Notice::Refused(low, Refusal::NotWanted).encode());
            }
            OffersOp::Immediate(imm) => self.notice(imm),
        }
        let (sent, acked) = (self.sent.len() as u64, self.acked() as u64);
        assert_eq!((self.machine.sent(), self.machine.acked()), (sent, acked));
        assert_eq!(self.machine.awaited(), (acked < sent).then_some(acked + 1));
        let room = self.window - (sent - acked) as u32;
        assert_eq!(self.machine.room(), if self.stopped { 0 } else { room });
    }
}

/// An operation on a receiver, with any peer.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum ReadsOp {
    /// A request arrives: its number is the one that is due plus this offset.
    Request(i8),
    /// An arbitrary immediate arrives.
    Immediate(u32),
    /// A wakeup is asked for, of a message relative to the last one received.
    Wakeup(i8),
    /// The oldest undecided message, of the given length, is read.
    Read(u8),
    /// It is refused.
    Refuse,
    /// A READ is posted, if one may be.
    Post,
    /// The oldest READ completes.
    Done,
    /// An acknowledgement is posted, if one is due.
    Ack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadProgress {
    Asked,
    /// Bytes to read, bytes of posted READs, READs in flight.
    Reading(u64, u64, u32),
    Refused(Refusal),
}

impl ReadProgress {
    fn is_issued(self) -> bool {
        match self {
            ReadProgress::Asked => false,
            ReadProgress::Reading(len, begun, _) => begun == len,
            ReadProgress::Refused(_) => true,
        }
    }

    fn is_finished(self) -> bool {
        self.is_issued() && !matches!(self, ReadProgress::Reading(_, _, 1..))
    }
}

/// A receiver and a list of all that it was offered.
#[derive(Clone, Debug)]
pub struct CheckedReads {
    machine: Reads<Vec<ReadSlot>>,
    config: ReadsConfig,
    messages: Vec<ReadProgress>,
    acked: usize,
    /// Messages of the READs in flight, oldest first.
    in_flight: VecDeque<usize>,
    refusals: u16,
    wakeup: Option<u64>,
    fin: bool,
}

impl CheckedReads {
    /// Nothing received.
    #[must_use]
    pub fn new(config: ReadsConfig) -> Self {
        let slots = vec![ReadSlot::default(); config.window as usize];
        let machine = Reads::new(config, slots).expect("a configuration that works");
        let (acked, refusals, wakeup, fin) = (0, 0, None, false);
        let in_flight = VecDeque::new();
        Self { machine, config, messages: vec![], acked, in_flight, refusals, wakeup, fin }
    }

    fn prefix(&self, holds: impl Fn(ReadProgress) -> bool) -> usize {
        self.messages.iter().take_while(|state| holds(**state)).count()
    }

    fn decided(&self) -> usize {
        self.prefix(|state| state != ReadProgress::Asked)
    }

    fn request(&mut self, beside: i8) {
        let due = self.messages.len() as u32 + 1;
        let found = due.wrapping_add_signed(beside.into());
        let oldest = self.acked.min(self.prefix(ReadProgress::is_finished));
        let expected = match () {
            () if self.fin => Err(RequestError::AfterFin),
            () if self.messages.len() - oldest >= self.config.window as usize => {
                Err(RequestError::Overrun)
            }
            () if beside != 0 => Err(RequestError::OutOfOrder { expected: due, found }),
            () => Ok(due.into()),
        };
        assert_eq!(self.machine.on_request(found), expected);
        if expected.is_ok() {
            self.messages.push(ReadProgress::Asked);
        }
    }

    fn notice(&mut self, imm: u32) {
        let Ok(notice) = Notice::decode(imm) else { return };
        let found = self.machine.on_notice(notice);
        match notice {
            Notice::Fin => {
                assert_eq!(found.is_ok(), !self.fin);
                self.fin = true;
            }
            Notice::Wakeup(low) => {
                let received = self.messages.len() as u64;
                let oldest = received.saturating_sub(self.config.window.into());
                let known = (oldest..=received).find(|n| Notice::low(*n) == low);
                assert_eq!(found, known.map(drop).ok_or(RequestError::Wakeup));
                self.wakeup = known.or(self.wakeup);
            }
            _ => assert_eq!(found, Err(RequestError::Direction)),
        }
    }

    fn decide(&mut self, state: ReadProgress) {
        let at = self.decided();
        let found = match state {
            ReadProgress::Refused(why) => self.machine.refuse(why),
            ReadProgress::Reading(len, ..) => self.machine.read(len),
            ReadProgress::Asked => return,
        };
        if at == self.messages.len() {
            assert_eq!(found, Err(DecideError));
        } else {
            assert_eq!(found, Ok(at as u64 + 1));
            self.messages[at] = state;
        }
    }

    fn post(&mut self) {
        let at = self.prefix(ReadProgress::is_issued);
        let room = self.in_flight.len() < self.config.reads as usize;
        let found = self.machine.next_read();
        match self.messages.get_mut(at) {
            Some(ReadProgress::Reading(len, begun, in_flight)) if room => {
                let part = (*len - *begun).min(self.config.max_read.into());
                let (number, offset, is_last) = (at as u64 + 1, *begun, *begun + part == *len);
                let signalled = is_last || self.in_flight.len() + 1 == self.config.reads as usize;
                let len = part as u32;
                assert_eq!(found, Some(ReadPart { number, offset, len, is_last, signalled }));
                *begun += part;
                *in_flight += 1;
                self.in_flight.push_back(at);
            }
            _ => assert_eq!(found, None),
        }
    }

    fn done(&mut self) {
        let found = self.machine.on_read_done();
        let Some(at) = self.in_flight.pop_front() else {
            return assert_eq!(found, Err(ReadDoneError));
        };
        let ReadProgress::Reading(_, _, in_flight) = &mut self.messages[at] else { unreachable!() };
        *in_flight -= 1;
        assert_eq!(found, Ok(self.prefix(ReadProgress::is_finished) as u64));
    }

    fn ready(&self) -> usize {
        match self.config.ack {
            AckMode::FencedWrite => self.prefix(ReadProgress::is_issued),
            _ => self.prefix(ReadProgress::is_finished),
        }
    }

    /// Returns the acknowledgement that is due, by the rules of the module's docs.
    fn due(&self) -> Option<Ack> {
        if let Some(number) = self.wakeup.filter(|number| *number <= self.acked as u64) {
            return Some(Ack::Notice(Notice::Wakeup(number as u32)));
        }
        let (ready, signals) = (self.ready(), self.config.ack.signals());
        let new = &self.messages[self.acked..ready];
        let refused = new.iter().position(|state| matches!(state, ReadProgress::Refused(_)));
        let first = if signals { 0 } else { refused.unwrap_or(0) };
        let number = (self.acked + first + 1) as u64;
        match (new.get(first)?, self.config.ack) {
            (ReadProgress::Refused(why), _) if signals => {
                Some(Ack::Signal { number, outcome: Outcome::Refused(*why) })
            }
            (ReadProgress::Refused(why), _) => {
                Some(Ack::Notice(Notice::Refused(number as u32, *why)))
            }
            (_, _) if signals => Some(Ack::Signal { number, outcome: Outcome::Read }),
            (_, ack) => {
                let all = ready == self.decided() || ack == AckMode::Pull;
                let wanted = self.wakeup.is_some_and(|number| number <= ready as u64);
                let due = all || wanted || new.len() >= self.config.gather as usize;
                let word = CountWord { count: ready as u64, refusals: self.refusals };
                let done = Ack::Notice(Notice::Done(ready as u32));
                due.then_some(if ack == AckMode::Send { done } else { Ack::Count(word) })
            }
        }
    }

    fn ack(&mut self) {
        let Some(ack) = self.machine.next_ack() else { return };
        self.machine.mark_acked(ack);
        match ack {
            Ack::Signal { number, .. } => self.acked = number as usize,
            Ack::Notice(Notice::Refused(low, _)) => {
                (self.acked, self.refusals) = (low as usize, self.refusals.wrapping_add(1));
            }
            Ack::Notice(Notice::Done(low)) => self.acked = low as usize,
            Ack::Notice(_) => self.wakeup = None,
            Ack::Count(word) => self.acked = word.count as usize,
        }
    }
}

impl CheckedMachine for CheckedReads {
    type Op = ReadsOp;

    fn apply(&mut self, op: ReadsOp) {
        match op {
            ReadsOp::Request(beside) => self.request(beside),
            ReadsOp::Immediate(imm) => self.notice(imm),
            ReadsOp::Wakeup(beside) => {
                let low = (self.messages.len() as u64).wrapping_add_signed(beside.into());
                self.notice(Notice::Wakeup(Notice::low(low)).encode());
            }
            ReadsOp::Read(len) => self.decide(ReadProgress::Reading(len.into(), 0, 0)),
            ReadsOp::Refuse => self.decide(ReadProgress::Refused(Refusal::NotWanted)),
            ReadsOp::Post => self.post(),
            ReadsOp::Done => self.done(),
            ReadsOp::Ack => self.ack(),
        }
        assert_eq!(self.machine.next_ack(), self.due());
        let [received, decided, finished, acked] = [
            self.messages.len(),
            self.decided(),
            self.prefix(ReadProgress::is_finished),
            self.acked,
        ]
        .map(|n| n as u64);
        let machine = &self.machine;
        assert_eq!((machine.received(), machine.decided()), (received, decided));
        assert_eq!((machine.finished(), machine.acked()), (finished, acked));
        assert_eq!(machine.in_flight() as usize, self.in_flight.len());
        let over = self.fin && acked == received && finished == received;
        assert_eq!(machine.is_over(), over);
    }
}

/// One thing of two ends that play by the rules, and of the network between them.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum DirectReadOp {
    /// The sender offers a message of the given length.
    Offer(u8),
    /// The oldest thing on its way to the receiver arrives.
    ToReceiver,
    /// The oldest thing on its way to the sender arrives.
    ToSender,
    /// The oldest READ is executed.
    Execute,
    /// The receiver reads the oldest message, or refuses it.
    Decide(bool),
    /// The receiver does all that it can.
    Work,
    /// The sender loads the words written to it, or (`Pull`) reads the count.
    Look,
    /// The sender asks for a wakeup.
    Sleep,
}

/// A write or a notice on its way to the sender.
#[derive(Clone, Copy, Debug)]
enum Back {
    Signal(u64, u8),
    Word(u64),
    Notice(Notice),
}

/// Both ends, joined by a network that keeps order. No message is acknowledged before it
/// was read; all that was offered and decided is acknowledged once all has been delivered.
#[derive(Clone, Debug)]
pub struct CheckedDirectRead {
    offers: Offers,
    reads: Reads<Vec<ReadSlot>>,
    ack: AckMode,
    to_receiver: VecDeque<Result<u32, Notice>>,
    /// Behind a fence, acknowledgements wait for this many READs to have been executed.
    to_sender: VecDeque<(u64, Back)>,
    posted: u64,
    executed: u64,
    /// For each message: its READs that are not executed (none of them posted yet: all).
    unread: Vec<(u64, u32)>,
    parts: VecDeque<ReadPart>,
    /// READs that were executed, and have not completed visibly.
    silent: u32,
    lens: VecDeque<u64>,
    undecided: VecDeque<u64>,
    signals: Vec<u8>,
    word: u64,
    refused: Vec<bool>,
    outcomes: u64,
}

impl CheckedDirectRead {
    /// Two ends that have said nothing.
    #[must_use]
    pub fn new(config: ReadsConfig) -> Self {
        let slots = vec![ReadSlot::default(); config.window as usize];
        Self {
            offers: Offers::new(config.window).expect("a window of 1 to 16384"),
            reads: Reads::new(config, slots).expect("a configuration that works"),
            ack: config.ack,
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            posted: 0,
            executed: 0,
            unread: vec![],
            parts: VecDeque::new(),
            silent: 0,
            lens: VecDeque::new(),
            undecided: VecDeque::new(),
            signals: vec![0; config.window as usize],
            word: 0,
            refused: vec![],
            outcomes: 0,
        }
    }

    fn offer(&mut self, len: u8) {
        if let Ok(number) = self.offers.offer() {
            self.signals[self.offers.place(number) as usize] = 0;
            self.lens.push_back(len.into());
            self.unread.push((number, 0));
            self.refused.push(false);
            self.to_receiver.push_back(Ok(number as u32));
        }
    }

    fn arrive_there(&mut self) {
        match self.to_receiver.pop_front() {
            Some(Ok(low)) => {
                self.reads.on_request(low).expect("within the window, and in order");
                self.undecided.extend(self.lens.pop_front());
            }
            Some(Err(notice)) => self.reads.on_notice(notice).expect("of a known message"),
            None => {}
        }
    }

    fn decide(&mut self, wanted: bool) {
        let Some(len) = self.undecided.pop_front() else { return };
        let number = self.reads.decided() as usize;
        if wanted {
            self.reads.read(len).expect("there is one");
            self.unread[number].1 = u32::from(len > 0);
        } else {
            self.reads.refuse(Refusal::NotWanted).expect("there is one");
            self.refused[number] = true;
        }
    }

    fn work(&mut self) {
        while let Some(part) = self.reads.next_read() {
            self.posted += 1;
            self.parts.push_back(part);
            self.acks();
        }
        self.acks();
    }

    fn acks(&mut self) {
        while let Some(ack) = self.reads.next_ack() {
            let fence = if self.ack == AckMode::FencedWrite { self.posted } else { 0 };
            let back = match ack {
                Ack::Signal { number, outcome } => Back::Signal(number, outcome.code()),
                Ack::Notice(notice) => Back::Notice(notice),
                Ack::Count(word) if self.ack == AckMode::Pull => {
                    // Stored at once: it may overtake all messages in flight.
                    self.word = word.encode();
                    self.reads.mark_acked(ack);
                    continue;
                }
                Ack::Count(word) => Back::Word(word.encode()),
            };
            self.to_sender.push_back((fence, back));
            self.reads.mark_acked(ack);
        }
    }

    fn execute(&mut self) {
        let Some(part) = self.parts.pop_front() else { return };
        self.executed += 1;
        self.silent += 1;
        if part.is_last {
            self.unread[part.number as usize - 1].1 = 0;
        }
        if part.signalled {
            for _ in 0..core::mem::take(&mut self.silent) {
                self.reads.on_read_done().expect("it was posted");
            }
        }
    }

    fn arrive_here(&mut self) {
        let Some((fence, back)) = self.to_sender.front().copied() else { return };
        if fence > self.executed {
            return;
        }
        self.to_sender.pop_front();
        match back {
            Back::Signal(number, byte) => self.signals[self.offers.place(number) as usize] = byte,
            Back::Word(word) => self.word = word,
            Back::Notice(notice) => {
                let told = self.offers.on_notice(notice).expect("an honest notice");
                if let NoticeEffect::Acknowledged(acknowledged) = told {
                    self.acknowledged(acknowledged);
                }
            }
        }
    }

    fn look(&mut self) {
        if !self.ack.signals() {
            let word = CountWord::decode(self.word);
            let acknowledged = self.offers.on_count(word).expect("an honest count");
            return self.acknowledged(acknowledged);
        }
        while let Some(number) = self.offers.awaited() {
            let byte = self.signals[self.offers.place(number) as usize];
            let acknowledged = self.offers.on_signal(byte).expect("an honest signal");
            if byte == 0 {
                break;
            }
            self.acknowledged(acknowledged);
        }
    }

    fn sleep(&mut self) {
        if let Some(number) = self.offers.awaited() {
            self.to_receiver.push_back(Err(Notice::Wakeup(Notice::low(number))));
        }
    }

    /// The messages that were acknowledged have been read.
    fn acknowledged(&mut self, acknowledged: Acknowledged) {
        for outcome in (0..acknowledged.read).map(|_| Outcome::Read).chain(acknowledged.then) {
            let at = self.outcomes as usize;
            assert_eq!(self.unread[at].1, 0, "acknowledged before it was read");
            let refused = outcome != Outcome::Read;
            assert_eq!(self.refused[at], refused, "message {} ended as another", at + 1);
            self.outcomes += 1;
        }
        assert_eq!(self.outcomes, self.offers.acked());
    }

    /// Delivers and does everything: then all is acknowledged.
    pub fn settle(&mut self) {
        // Enough rounds for all parts of all messages.
        for _ in 0..300 * (self.offers.sent() + 8) {
            if self.outcomes == self.offers.sent() {
                return;
            }
            self.arrive_there();
            self.decide(true);
            self.work();
            self.execute();
            self.work();
            self.arrive_here();
            self.look();
        }
        assert_eq!(self.outcomes, self.offers.sent(), "a message that is never acknowledged");
    }
}

impl CheckedMachine for CheckedDirectRead {
    type Op = DirectReadOp;

    fn apply(&mut self, op: DirectReadOp) {
        match op {
            DirectReadOp::Offer(len) => self.offer(len),
            DirectReadOp::ToReceiver => self.arrive_there(),
            DirectReadOp::ToSender => self.arrive_here(),
            DirectReadOp::Execute => self.execute(),
            DirectReadOp::Decide(wanted) => self.decide(wanted),
            DirectReadOp::Work => self.work(),
            DirectReadOp::Look => self.look(),
            DirectReadOp::Sleep => self.sleep(),
        }
        let mut rest = self.clone();
        rest.settle();
    }
}

/// A configuration, as a test makes it up.
pub fn config(ack: u8, window: u8, reads: u8, max_read: u8, gather: u8) -> ReadsConfig {
    let window = u32::from(window) % 8 + 1;
    ReadsConfig {
        window,
        ack: AckMode::ALL[usize::from(ack) % 5],
        reads: u32::from(reads) % 4 + 1,
        max_read: u32::from(max_read) % 128 + 1,
        gather: u32::from(gather) % window + 1,
    }
}

/// A request, right or wrong, as a test makes it up.
#[derive(Arbitrary, Clone, Debug)]
pub struct ReadRequestSample {
    /// The low half of its number.
    pub number: u32,
    /// Length, address, key.
    pub memory: (u64, u64, u32),
    /// Address, key.
    pub signal: Option<(u64, u32)>,
    /// Application data.
    pub app: Vec<u8>,
}

impl ReadRequestSample {
    /// The request.
    pub fn request(&self) -> ReadRequest<'_> {
        let (len, addr, rkey) = self.memory;
        let signal = self.signal.map(|(addr, rkey)| Place { addr, rkey });
        ReadRequest {
            number: self.number,
            len,
            memory: Place { addr, rkey },
            signal,
            app: &self.app,
        }
    }

    /// The bytes, as the table of the module's docs has them; `None` when it cannot be.
    fn naive(&self) -> Option<Vec<u8>> {
        let (len, addr, rkey) = self.memory;
        let (signal_addr, signal_rkey) = self.signal.unwrap_or_default();
        let possible = |addr: u64, len: u64| u128::from(addr) + u128::from(len) < 1 << 64;
        let nothing = len == 0 && (addr != 0 || rkey != 0);
        let signal_possible = self.signal.is_none() || possible(signal_addr, 1);
        if nothing || !possible(addr, len) || !signal_possible || self.app.len() > 65_535 {
            return None;
        }
        let mut bytes = vec![1, u8::from(self.signal.is_some())];
        bytes.extend((self.app.len() as u16).to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(addr.to_le_bytes());
        bytes.extend(rkey.to_le_bytes());
        bytes.extend(signal_rkey.to_le_bytes());
        bytes.extend(signal_addr.to_le_bytes());
        bytes.extend(&self.app);
        Some(bytes)
    }
}

/// Encodes a request with the codec and naively, and decodes it again. Panics when
/// anything differs.
pub fn check_sample(sample: &ReadRequestSample) {
    let mut out = vec![0xa5; HEADER_LEN + sample.app.len()];
    let (result, expected) = (sample.request().encode(&mut out), sample.naive());
    let Some(expected) = expected else {
        assert!(result.is_err() && out.iter().all(|&b| b == 0xa5), "{result:?}");
        return;
    };
    assert_eq!(result, Ok(expected.len()));
    assert_eq!(out, expected);
    assert_eq!(ReadRequest::decode(&expected), Ok(sample.request()));
    let (small, need) = (expected.len() - 1, expected.len());
    out.fill(0xa5);
    let refused = sample.request().encode(&mut out[..small]);
    assert_eq!(refused, Err(EncodeError::BufferTooSmall { need }));
    assert!(out.iter().all(|&b| b == 0xa5), "a refused encode wrote something");
}

/// Decodes arbitrary bytes as a request and as terms. Panics when the result does not encode to the
/// same bytes.
pub fn check_bytes(bytes: &[u8]) {
    if let Ok(request) = ReadRequest::decode(bytes) {
        let mut again = vec![0; bytes.len()];
        assert_eq!(request.encode(&mut again), Ok(bytes.len()));
        assert_eq!(bytes, again, "two encodings of one request");
        assert!(request.memory.addr.checked_add(request.len).is_some());
    }
    if let Ok((terms, rest)) = Terms::decode(bytes) {
        assert_eq!(terms.encode(), bytes[..TERMS_LEN], "two encodings of one offer");
        assert_eq!(rest, &bytes[TERMS_LEN..]);
    }
    if let Some(imm) = bytes.first_chunk().map(|imm| u32::from_le_bytes(*imm))
        && let Ok(notice) = Notice::decode(imm)
    {
        assert_eq!(notice.encode(), imm, "two encodings of one notice");
    }
}
